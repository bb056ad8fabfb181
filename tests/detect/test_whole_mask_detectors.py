"""Small detectors whose masks cover the image against MMDetection's results, and their steps computed by hand."""

import json
import pathlib

import numpy as np
import pytest
import torch
from torch.nn import functional

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.detect.export.graph_masks import paste_masks
from mmort.detect.families.masks.yolact import cropped, fast_nms
from mmort.detect.parts.image_masks import enlarged_from_corners
from mmort.predict import MaskFormat, Prepared
from tests.detect import mask_cases

DATA = pathlib.Path(__file__).parents[1] / "data" / "detect"
RECORDED = json.loads((DATA / "mask_detectors.json").read_text())


@pytest.mark.parametrize("name", mask_cases.MODELS)
def test_mmdetections_results(name):
    """Boxes, scores, labels, and the masks' pixels and their mean position, of two images in a batch.

    In float64, as processors round a score in float32 by more than the limit.
    """
    detector = build(mask_cases.config(name))
    mask_cases.fill(detector)
    mask_cases.assert_recorded(detector, *mask_cases.batch(name), RECORDED[name])


def test_suppressed_boxes_of_yolact_suppress_others():
    """Box 1 overlaps box 0, and box 2 box 1 only; the other class has another order; only two of a class take part."""
    boxes = torch.tensor([[[0.0, 0, 10, 10], [4, 0, 14, 10], [8, 0, 18, 10], [50, 0, 60, 10]]])
    scores = torch.tensor([[[0.9, 0.1], [0.8, 0.2], [0.7, 0.4], [0.6, 0.3]]])
    kept, indices = fast_nms(boxes, scores, 4, 0.4)
    assert indices.tolist() == [[[0, 1, 2, 3], [2, 3, 1, 0]]]
    np.testing.assert_allclose(kept[0], [[0.9, 0, 0, 0.6], [0.4, 0.3, 0, 0]])
    kept, indices = fast_nms(boxes, scores, 2, 0.4)
    assert indices.tolist() == [[[0, 1], [2, 3]]]


def test_masks_of_yolact_end_a_cell_beyond_their_boxes():
    """An image of 20x40 in cells of 5: the box covers columns 2 to 4.2, so cells 1 to 5, and rows 1 to 2."""
    masks = torch.ones(1, 2, 4, 8)
    boxes, limits = torch.tensor([[[10.0, 5, 21, 10], [0, 0, 0, 0]]]), torch.tensor([[[40.0, 20, 40, 20]]])
    actual = cropped(masks, boxes, limits)[0]
    expected = torch.zeros(4, 8)
    expected[0:3, 1:6] = 1
    assert torch.equal(actual[0], expected)
    assert actual[1].sum() == 1


def mask_of_condinst(head, weights, features, point, stride):
    """Return a mask's probabilities from a loop over the layers of its network, and torch's own interpolation."""
    height, width = features.shape[1:]
    y, x = np.mgrid[:height, :width] * 8 + 4
    unit = stride * 8
    values = np.stack([(point[0] - x) / unit, (point[1] - y) / unit, *features])
    kernels, biases = np.split(weights[:152], [80, 144]), np.split(weights[152:], [8, 16])
    for layer, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
        values = np.einsum("oi,ihw->ohw", kernel.reshape(len(bias), -1), values) + bias[:, None, None]
        values = np.maximum(values, 0) if layer < 2 else values
    return enlarged_with_aligned_corners(torch.from_numpy(values)[None], 2)[0, 0].sigmoid().numpy()


def enlarged_with_aligned_corners(x, factor):
    """Return what CondInst's own interpolation makes of a map."""
    height, width = (factor * side + 1 for side in x.shape[2:])
    x = functional.pad(x, (0, 1, 0, 1), mode="replicate")
    x = functional.interpolate(x, (height, width), mode="bilinear", align_corners=True)
    return functional.pad(x, (factor // 2, 0, factor // 2, 0), mode="replicate")[:, :, : height - 1, : width - 1]


def test_masks_of_condinst():
    head = build(mask_cases.config("condinst")).mask_head
    generator = torch.Generator().manual_seed(0)
    weights, features = (torch.randn(*size, generator=generator) for size in ((1, 2, 169), (1, 8, 3, 5)))
    points, strides = torch.tensor([[[12.0, 4.0], [24.0, 8.0]]]), torch.tensor([[8.0, 16.0]])
    result = head.masks(weights, features, points, strides)[0].numpy()
    for index in range(2):
        arguments = weights[0, index].numpy(), features[0].numpy(), points[0, index].numpy(), float(strides[0, index])
        np.testing.assert_allclose(result[index], mask_of_condinst(head, *arguments), atol=1e-5)


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_enlarged_from_corners(factor):
    """In torch, in numpy and in graphs."""
    masks = torch.rand(1, 2, 3, 5, generator=torch.Generator().manual_seed(0))
    expected = enlarged_with_aligned_corners(masks, factor)
    torch.testing.assert_close(enlarged_from_corners(masks, factor), expected)
    size = tuple(expected.shape[2:])
    mask_format = MaskFormat("image", 0.4, factor, alignment="corners")
    image = Prepared(np.zeros((3, *size), np.float32), size, size, size, np.ones(4, np.float32), (0, 0))
    stored = mask_format.store(masks[0].numpy(), np.zeros((2, 4), np.float32), image).masks
    top, left, mask = stored.region(0, *size)
    inside = expected[0, 0].numpy() > 0.4
    assert (mask == inside[top : top + len(mask), left : left + mask.shape[1]]).all()
    assert mask.sum() == inside.sum()
    assert torch.equal(paste_masks(mask_format, masks, torch.zeros(1, 2, 4), *size)[0, 0] > 0, torch.from_numpy(inside))


def test_masks_that_are_stretched():
    """A mask whose cells are no whole number of pixels, as YOLACT's 138x138 of 550x550."""
    mask = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    mask_format = MaskFormat("image", 0.5, rescaling="stretch")
    image = Prepared(np.zeros((3, 9, 9), np.float32), (20, 30), (9, 9), (9, 9), np.ones(4, np.float32), (0, 0))
    stored = mask_format.store(mask[0].numpy(), np.zeros((1, 4), np.float32), image).masks
    for size, actual in (
        ((20, 30), stored.region(0, 20, 30).mask),
        ((9, 9), paste_masks(mask_format, mask, torch.zeros(1, 1, 4), 9, 9)[0, 0].numpy() > 0),
    ):
        expected = functional.interpolate(mask, size, mode="bilinear")[0, 0].numpy() > 0.5
        assert abs(int(actual.sum()) - int(expected.sum())) <= 1


def test_words_of_mask_formats():
    words = "'crop' or 'edges' or 'fit' or 'scale' or 'stretch'"
    with pytest.raises(ValueError, match=f"rescaling must be {words}, got 'shrink'"):
        MaskFormat("image", rescaling="shrink")


@pytest.mark.parametrize("name", ["mask_head.segm_branch.segm_conv.weight", "segm_head.segm_conv.weight"])
def test_yolact_does_not_need_its_segmentation(name):
    detector = build(mask_cases.config("yolact"))
    load_weights(detector, {**detector.state_dict(), name: torch.zeros(1)})


@pytest.mark.parametrize(
    ("name", "part", "entries", "message"),
    [
        ("condinst", "mask_head", {"feat_channels": 16}, "feat_channels must be mask_feature_head.out_channels, 8"),
        ("condinst", "mask_head", {"mask_out_stride": 3}, "mask_out_stride must divide mask_stride, 8, got 3"),
        (
            "yolact",
            "bbox_head",
            {"loss_cls": {"use_sigmoid": True}},
            r"use_sigmoid of bbox_head 'YOLACTHead'\.loss_cls must be False",
        ),
        ("yolact", "mask_head", {"proto_kernel_sizes": (3, 3, 1)}, "proto_channels must be None exactly where"),
        ("maskformer", "panoptic_head", {"pixel_decoder": {"type": "FPN"}}, "pixel_decoder 'FPN' is not supported"),
    ],
)
def test_refused(name, part, entries, message):
    config = mask_cases.config(name)
    config["model"][part] |= entries
    with pytest.raises(ValueError, match=message):
        build(config)

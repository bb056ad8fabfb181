"""Masks of the original image, made from a detector's output."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional

from mmort.detect.export.graph_masks import paste_masks as graph_paste
from mmort.predict import MaskFormat, Prepared, paste_masks

INPUT, RESIZED, ORIGINAL = (32, 48), (24, 46), (39, 67)


@pytest.fixture
def image():
    scale = np.array([RESIZED[1] / ORIGINAL[1], RESIZED[0] / ORIGINAL[0]] * 2, np.float32)
    return Prepared(np.zeros((3, *INPUT), np.float32), ORIGINAL, RESIZED, INPUT, scale, (0, 0))


def stacked(masks):
    result = np.zeros((len(masks), *ORIGINAL), bool)
    for index, canvas in enumerate(result):
        top, left, mask = masks.region(index, *ORIGINAL)
        canvas[top : top + mask.shape[0], left : left + mask.shape[1]] = mask
    return result


def bilinear(values, size):
    return functional.interpolate(torch.from_numpy(values)[None], size, mode="bilinear")[0].numpy()


def test_masks_of_the_input_are_cropped_or_scaled(image, rng):
    """The reference is written in torch; the scales are exchanged as in MMDetection."""
    logits = rng.standard_normal((3, 8, 12)).astype(np.float32)
    whole = bilinear(logits, INPUT)
    cropped = bilinear(np.ascontiguousarray(whole[:, : RESIZED[0], : RESIZED[1]]), ORIGINAL) > 0.25
    x_scale, y_scale = RESIZED[1] / ORIGINAL[1], RESIZED[0] / ORIGINAL[0]
    size = int(np.ceil(INPUT[0] * (1 / x_scale))), int(np.ceil(INPUT[1] * (1 / y_scale)))
    assert size == (47, 78)
    scaled = np.zeros((3, *ORIGINAL), bool)
    scaled[:, : size[0]] = (bilinear(whole, size) > 0.25)[:, : ORIGINAL[0], : ORIGINAL[1]]
    for rescaling, expected in (("crop", cropped), ("scale", scaled)):
        actual = stacked(
            MaskFormat("image", 0.25, 4, rescaling).store(logits, np.zeros((3, 4), np.float32), image).masks
        )
        assert (actual != expected).sum() <= 2  # sums in another order
    assert (cropped != scaled).any()


def test_scales_are_not_rounded_to_float32():
    """640 rows / 1.28 are 500; / float32(1.28) they would be 501."""
    image = Prepared(
        np.zeros((3, 640, 640), np.float32), (500, 500), (640, 640), (640, 640), np.full(4, 1.28, np.float32), (0, 0)
    )
    ramp = (np.arange(640, dtype=np.float32) - 629.5)[:, None].repeat(640, 1)
    stored, _ = MaskFormat("image", 0, 1, "scale").store(ramp[None], np.zeros((1, 4), np.float32), image)
    expected = bilinear(ramp[None], (500, 500))[0] > 0
    top, left, mask = stored.region(0, 500, 500)
    assert (top, left) == (int(expected[:, 0].argmax()), 0)
    assert mask.all()


def test_scores_have_the_mean_of_the_original_pixels(image, rng):
    """Only the scores of masks that say so, and not that of an empty mask."""
    logits = rng.standard_normal((3, 8, 12)).astype(np.float32)
    logits[1] = -1
    boxes, means = np.zeros((3, 4), np.float32), []
    whole = bilinear(logits, INPUT)[:, : RESIZED[0], : RESIZED[1]]
    for masks in (whole, bilinear(np.ascontiguousarray(whole), ORIGINAL)):
        inside = [mask[mask > 0] if mask.max() > 0 else np.zeros(1) for mask in masks]
        means.append([(1 / (1 + np.exp(-values))).mean() for values in inside])
    expected = np.divide(means[1], means[0])
    factors = MaskFormat("image", 0, 4, scores="masks").store(logits, boxes, image).score_factors
    np.testing.assert_allclose(factors, expected, rtol=1e-5)
    assert (factors != 1).tolist() == [True, False, True]
    assert (MaskFormat("image", 0, 4).store(logits, boxes, image).score_factors == 1).all()


def test_masks_of_boxes_are_pasted(image, rng):
    values, boxes = rng.uniform(0, 1, (2, 7, 7)).astype(np.float32), np.array([[2, 3, 40, 30], [5, 5, 9, 60]])
    result = stacked(MaskFormat(threshold=0.4).store(values, boxes, image).masks)
    assert np.array_equal(result, paste_masks(values, boxes, *ORIGINAL, 0.4))


def test_graph_masks_of_the_input(rng):
    logits = torch.from_numpy(rng.standard_normal((1, 3, 8, 12)).astype(np.float32))
    pasted = graph_paste(MaskFormat("image", 0.25, 4), logits, torch.zeros(1, 3, 5), 31, 45)
    expected = bilinear(logits[0].numpy(), INPUT)[:, :31, :45] > 0.25
    assert pasted.shape == (1, 3, 31, 45)
    assert np.array_equal(pasted[0].numpy(), expected)


def test_formats_round_trip_through_json():
    mask_format = MaskFormat("image", 0.0, 8, "scale")
    assert MaskFormat.from_dict(json.loads(json.dumps(mask_format.to_dict()))) == mask_format
    assert MaskFormat.from_dict({"area": "box", "threshold": 0.3}) == MaskFormat(threshold=0.3)
    with pytest.raises(ValueError, match="masks has no entry later; its entries: area, threshold"):
        MaskFormat.from_dict({"later": 1})
    with pytest.raises(ValueError, match=r"masks\.panoptic has no entry later"):
        MaskFormat.from_dict({"panoptic": {"later": 1}})
    with pytest.raises(ValueError, match="area must be 'box' or 'image'"):
        MaskFormat("pixels")


@pytest.mark.parametrize(
    ("offset", "resized", "cell"), [((4, 0), (24, 48), 4), ((2, 0), (28, 48), 2), ((3, 0), (26, 48), 1)]
)
def test_masks_between_edges_are_enlarged_only_as_far_as_edges_need(offset, resized, cell, rng):
    """The reference is written in torch, with whole boxes but for one."""
    scale = np.array([resized[1] / ORIGINAL[1], resized[0] / ORIGINAL[0]] * 2, np.float32)
    image = Prepared(np.zeros((3, *INPUT), np.float32), ORIGINAL, resized, INPUT, scale, offset)
    logits = rng.standard_normal((4, 8, 12)).astype(np.float32)
    logits[2] = -1
    boxes = np.array([[0, 0, 67, 39], [3, 4.5, 30.2, 20], [0, 0, 67, 39], [5, 5, 5, 20]], np.float32)
    enlarged = bilinear(logits, (INPUT[0] // cell, INPUT[1] // cell)) if cell < 4 else logits
    part = enlarged[:, offset[0] // cell : (offset[0] + resized[0]) // cell]
    expected = bilinear(np.ascontiguousarray(part), ORIGINAL) > 0
    expected[1, :5], expected[1, 20:], expected[1, :, :3], expected[1, :, 31:] = False, False, False, False
    expected[3] = False
    masks, factors = MaskFormat("image", 0, 4, "edges", inside_boxes=True).store(logits, boxes, image)
    assert (stacked(masks) != expected).sum() <= 2  # sums in another order
    assert expected[:2].any((1, 2)).all()
    assert factors.tolist() == [1, 1, 0, 0]
    whole, factors = MaskFormat("image", 0, 4, "edges").store(logits, boxes, image)
    assert (stacked(whole)[1] != expected[1]).any()
    assert factors.tolist() == [1, 1, 1, 1]


def test_masks_end_at_the_boxes_in_the_input(image, rng):
    """Before they get the original size; the reference is written in torch."""
    values = rng.random((2, 8, 12)).astype(np.float32)
    boxes = np.array([[-3, 4.5, 20, 31], [10, -9, 70, 12]], np.float32)
    whole = bilinear(values, INPUT)
    rows, columns = np.arange(INPUT[0])[:, None], np.arange(INPUT[1])
    for canvas, (x1, y1, x2, y2) in zip(whole, boxes, strict=True):
        canvas[(rows < y1) | (rows >= y2) | (columns < x1) | (columns >= x2)] = 0
    expected = bilinear(np.ascontiguousarray(whole[:, : RESIZED[0], : RESIZED[1]]), ORIGINAL) > 0.25
    ends = MaskFormat("image", 0.25, 4, inside_input_boxes=True)
    unused = np.zeros((2, 4), np.float32)
    actual = stacked(ends.store(values, unused, image, input_boxes=boxes).masks)
    assert (actual != expected).sum() <= 2  # sums in another order
    with pytest.raises(ValueError, match="need these boxes"):
        ends.store(values, unused, image).masks.region(0, *ORIGINAL)
    with pytest.raises(ValueError, match="inside_input_boxes is for rescaling 'crop' only, got 'scale'"):
        MaskFormat("image", rescaling="scale", inside_input_boxes=True)

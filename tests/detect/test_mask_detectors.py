"""Detectors whose masks come before their boxes: matrix NMS, masks of cells, boxes of masks."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.detect.families.masks.solo import matrix_nms
from mmort.detect.parts.image_masks import mask_boxes
from mmort.predict import MaskFormat, Prepared
from mmort.predict.postprocessing import Postprocessing
from tests.detect import mask_cases

GRIDS = [6, 5, 4, 3, 2]
TEST_CFG = {"nms_pre": 40, "score_thr": 0.1, "mask_thr": 0.5, "filter_thr": 0.05, "max_per_img": 12}
FEATURES = {"feat_channels": 8, "start_level": 0, "end_level": 3, "out_channels": 8, "in_channels": 8}
KINDS = {
    "SOLOHead": {},
    "DecoupledSOLOHead": {},
    "DecoupledSOLOLightHead": {},
    "SOLOV2Head": {"mask_feature_head": FEATURES},
}


class Pyramid(nn.Module):
    """Stands for backbone and neck: maps of 1/4 ... 1/64 of the input's size."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 4, stride=4)

    def forward(self, x):
        x = self.conv(x)
        return tuple(functional.avg_pool2d(x, 2**level) for level in range(5))


def solo(kind):
    """Return a detector with one class whose weights are random, and which finds something."""
    torch.manual_seed(1)
    head = {"type": kind, "num_classes": 2, "in_channels": 8, "feat_channels": 8, "stacked_convs": 1}
    head |= {"strides": [8, 8, 16, 32, 32], "num_grids": GRIDS, "norm_cfg": {"type": "GN", "num_groups": 2}}
    config = {
        "type": "SOLO",
        "backbone": {"type": "ResNet", "depth": 18},
        "neck": {"type": "FPN", "in_channels": [64, 128, 256, 512], "out_channels": 8, "num_outs": 5},
        "mask_head": {**head, **copy.deepcopy(KINDS[kind])},
        "test_cfg": TEST_CFG,
    }
    detector = build({"model": config})
    detector.backbone, detector.neck = Pyramid(), nn.Identity()
    for parameter in detector.mask_head.parameters():
        parameter.normal_(0, 0.7)
    return detector.eval().requires_grad_(False)


def test_matrix_nms():
    """The second and third mask lie in the first; the third has another label."""
    masks = torch.tensor([[[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 0, 0, 0]]], dtype=torch.float32)
    scores, labels = torch.tensor([[0.9, 0.8, 0.7, 0.6]]), torch.tensor([[1, 1, 0, 1]])
    kept = matrix_nms(masks, scores, labels, "gaussian", 2.0)[0]
    second = np.exp(-2 * 0.5**2)  # IoU with the first
    fourth = min(np.exp(-2 * 0.25**2), second / np.exp(-2 * 0.5**2))  # the second, IoU 1/2, is itself suppressed
    np.testing.assert_allclose(kept, [0.9, 0.8 * second, 0.7, 0.6 * fourth], rtol=1e-6)
    kept = matrix_nms(masks, scores, labels, "linear", 2.0)[0]
    np.testing.assert_allclose(kept, [0.9, 0.8 * 0.5, 0.7, 0.6 * 0.75], rtol=1e-6)


def test_the_linear_kernel_drops_the_third_of_equal_masks(monkeypatch):
    """Its score is 0 / 0, in MMDetection too; the other detections stay."""
    detector = solo("SOLOHead")
    detector.test_cfg = replace(detector.test_cfg, kernel="linear", score_thr=0.05, filter_thr=0.01, nms_pre=4)
    scores = [torch.zeros(1, grid**2, 2) for grid in GRIDS]
    scores[0][0, :4, 0] = torch.tensor([0.9, 0.8, 0.7, 0.6])
    equal, alone = torch.zeros(16, 16), torch.zeros(16, 16)
    equal[:8], alone[12:] = 1, 1
    masks = torch.stack([equal] * 3 + [alone] * (1 + len(GRIDS)))[None]
    monkeypatch.setattr(detector.mask_head, "scores", lambda maps: scores)
    monkeypatch.setattr(detector.mask_head, "masks", lambda maps, cells: masks[:, : len(torch.cat(cells))])
    dets, labels = detector(torch.rand(1, 3, 64, 64))[:2]
    torch.testing.assert_close(dets[0, labels[0] >= 0, 4], torch.tensor([0.9, 0.6]))


def test_boxes_of_masks():
    """Column 2 is 0.75 beside 0, so the threshold 0.5 is passed at a third of the way from its centre."""
    masks = torch.zeros(1, 2, 4, 6)
    masks[0, 0, 1:3, 2] = masks[0, 0, 1, 5] = 0.75
    boxes = mask_boxes(masks, 0.5, 4, torch.tensor([[[23.0, 16.0, 23.0, 16.0]]]))
    np.testing.assert_allclose(boxes[0], [[10 - 4 / 3, 6 - 4 / 3, 23, 10 + 4 / 3], [0, 0, 0, 0]], rtol=1e-6)


def test_boxes_in_the_picture_are_those_of_its_masks():
    mask = np.zeros((1, 4, 4), np.float32)
    mask[0, 1:3, 1:] = 1
    image = Prepared(np.zeros((3, 4, 4), np.float32), (8, 6), (4, 3), (4, 4), np.full(4, 2, np.float32), (0, 0))
    rows = np.array([[1, 1, 4, 3, 0.9]], np.float32), np.array([0]), mask
    postprocess = Postprocessing((), 0.0)
    (box,) = postprocess(image, (4, 4), rows, MaskFormat("image", boxes="masks")).boxes
    assert box.tolist() == [2, 2, 6, 6]
    (box,) = postprocess(image, (4, 4), rows, MaskFormat("image")).boxes
    assert box.tolist() == [0.5, 0.5, 2, 1.5]


@pytest.mark.parametrize("kind", KINDS)
def test_masks_of_cells(kind):
    """Every mask is that of its cell, and its score the class score by the mean inside, if nothing overlaps it."""
    detector = solo(kind)
    input = torch.rand(2, 3, 128, 192, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        maps = detector.raw(input)
        dets, labels, masks = detector(input)
        assert len(detector.raw_names) == len(maps)
        every = [torch.arange(grid**2) for grid in GRIDS]
        wanted = detector.mask_head.masks(maps, every)  # [N, cells, h, w]
        some = detector.mask_head.masks(maps, [cells[-2:] for cells in every])
    last = torch.tensor([grid**2 for grid in GRIDS]).cumsum(0) - 1
    torch.testing.assert_close(some, wanted[:, torch.stack([last - 1, last], 1).flatten()])
    assert masks.shape[2:] == (32, 48)
    assert (labels >= 0).any(1).all()
    scores = torch.cat(detector.mask_head.scores(maps), 1)
    for image in range(2):
        for det, label, mask in zip(dets[image], labels[image], masks[image], strict=True):
            if label < 0:
                assert not det.any()
                assert not mask.any()
                continue
            (cells,) = torch.nonzero((wanted[image] - mask).abs().amax((1, 2)) < 1e-5, as_tuple=True)
            best = float((scores[image, cells, label] * mask[mask > 0.5].mean()).max())
            assert 0.05 <= float(det[4]) <= best * 1.0001


def mask2former(**test_cfg):
    """Return a tiny detector with three queries and two classes of things."""
    torch.manual_seed(1)
    attention = {"embed_dims": 8, "num_heads": 2}
    layer = {
        "self_attn_cfg": attention,
        "cross_attn_cfg": attention,
        "ffn_cfg": {"embed_dims": 8, "feedforward_channels": 8},
    }
    deformable = {"self_attn_cfg": {**attention, "num_levels": 3, "num_points": 1}, "ffn_cfg": layer["ffn_cfg"]}
    positions = {"num_feats": 4, "normalize": True}
    head = {
        "type": "Mask2FormerHead",
        "in_channels": [8] * 4,
        "feat_channels": 8,
        "out_channels": 8,
        "num_things_classes": 2,
        "num_stuff_classes": 1,
        "num_queries": 3,
        "pixel_decoder": {
            "type": "MSDeformAttnPixelDecoder",
            "encoder": {"num_layers": 1, "layer_cfg": deformable},
            "norm_cfg": {"type": "GN", "num_groups": 2},
            "positional_encoding": positions,
        },
        "transformer_decoder": {"num_layers": 4, "layer_cfg": layer},
        "positional_encoding": positions,
    }
    config = {"type": "Mask2Former", "backbone": {"type": "ResNet", "depth": 18}, "panoptic_head": head}
    detector = build({"model": {**config, "test_cfg": test_cfg}})
    pyramid = Pyramid()
    pyramid.register_forward_hook(lambda module, inputs, maps: maps[:4])
    detector.backbone = pyramid
    return detector.eval().requires_grad_(False)


def test_instances_of_mask2former(monkeypatch):
    """Two queries find things, one of them beyond the image's edge; the third finds stuff."""
    detector = mask2former(panoptic_on=False, instance_on=True, max_per_image=3)
    logits = torch.tensor([[[4.0, 0, 0, 0], [0, 5.0, 0, 0], [0, 0, 6.0, 0]]])
    masks = torch.full((1, 3, 8, 8), -2.0)
    masks[0, 0, :4, :4], masks[0, 1, 4:, 4:] = 1.0, 3.0
    monkeypatch.setattr(detector, "_raw", lambda input, limits: (logits, masks))
    dets, labels, result = detector(torch.zeros(1, 3, 32, 32), torch.tensor([[32, 24]]))
    assert labels.tolist() == [[1, 0, -1]]
    enlarged = functional.interpolate(masks, (32, 32), mode="bilinear")[0, :, :, :24]
    for query, row in ((0, 1), (1, 0)):
        inside = enlarged[query][enlarged[query] > 0].sigmoid().mean()
        score = logits[0, query].softmax(0).max() * inside
        np.testing.assert_allclose(dets[0, row, 4], score, rtol=1e-5)
        assert torch.equal(result[0, row], masks[0, query])
    assert dets[0, 0, 2] == 24
    assert not dets[0, 2].any()


def test_queries_attend_to_their_masks():
    """A query's result depends on a pixel only if one of its masks has it, or has no pixels at all."""
    head = mask2former(instance_on=True).panoptic_head
    layer = head.transformer_decoder.layers[0]
    x, memory = torch.rand(1, 2, 8), torch.rand(1, 5, 8)
    unused = torch.tensor([[[True, True, False, True, True], [False] * 5]])
    changed = memory.clone()
    changed[0, 0] += 1
    first, second = (layer.cross_attn.attn(x, values, values, unused) for values in (memory, changed))
    assert torch.equal(first[0, 0], second[0, 0])
    assert not torch.equal(first[0, 1], second[0, 1])


def test_old_names():
    detector = mask2former()
    old = {}
    for name, value in detector.state_dict().items():
        first, second = ("self_attn", "") if "pixel_decoder" in name else ("cross_attn", "self_attn")
        renamed = name.replace(f".{first}.", ".attentions.0.").replace(".ffn.", ".ffns.0.")
        old[renamed.replace(f".{second}.", ".attentions.1.") if second else renamed] = value + 1
    load_weights(detector, old)
    new = dict(detector.state_dict())
    assert all(torch.equal(new[name], value) for name, value in zip(new, old.values(), strict=True))


def test_yolact_has_one_suppression():
    """As MMDetection's, it reads neither `nms` nor `class_agnostic`."""
    model = copy.deepcopy(mask_cases.MODELS["yolact"])
    model["test_cfg"] |= {"class_agnostic": True, "nms": {"type": "soft_nms", "class_agnostic": True}}
    assert build({"model": model}).test_cfg == build({"model": mask_cases.MODELS["yolact"]}).test_cfg

"""The dense heads that differ in priors, decoding and scores: each with a case computed by hand."""

import copy

import numpy as np
import pytest
import torch

from mmort.detect import build
from mmort.detect.families.dense.paa import iou, vote
from mmort.detect.families.dense.tood import sample
from mmort.detect.loading import PARTS
from tests.detect.dense_cases import ANCHORS, HEADS, SQUARES, config

HEIGHT, WIDTH = 60, 64


def detector(kind, **entries):
    torch.manual_seed(0)
    return build(config(kind, **entries))


def detect(detector, maps, monkeypatch):
    """Return the used rows of dets and labels, from maps of an image in an input of 64x64."""
    monkeypatch.setattr(detector, "raw", lambda input: tuple(maps))
    with torch.inference_mode():
        dets, labels = (
            output[0].numpy() for output in detector(torch.zeros(1, 3, 64, 64), torch.tensor([[HEIGHT, WIDTH]]))
        )
    return dets[labels >= 0], labels[labels >= 0]


def empty(channels, value=0.0, strides=(8, 16)):
    return [torch.full((1, channels, 64 // stride, 64 // stride), value) for stride in strides]


def logit(probability):
    return float(np.log(probability / (1 - probability)))


@pytest.mark.parametrize("kind", HEADS)
def test_maps_of_networks(kind):
    """Every network runs, and detects in both images of a batch."""
    network = detector(kind)
    with torch.inference_mode():
        maps = network.raw(torch.rand(2, 3, 64, 96) * 2)
        dets, labels = network(torch.rand(2, 3, 64, 96) * 2)
    assert len(network.raw_names) == len(maps)
    levels = [(2, 3)] if kind == "YOLOFHead" else [(8, 12), (4, 6)]
    assert [tuple(map.shape[2:]) for map in maps[: len(levels)]] == levels
    assert dets.shape == (2, 4, 5)
    assert labels.shape == (2, 4)


@pytest.mark.parametrize(
    ("kind", "factor", "score"),
    [("ATSSHead", empty(1), 0.04), ("DDODHead", empty(1), 0.04), ("FreeAnchorRetinaHead", [], 0.08)],
)
def test_boxes_and_factor_of_atss(kind, factor, score, monkeypatch):
    """The anchor of location (2, 1) of stride 16 has its centre in (32, 16) and sides of 128; a factor is 0.5."""
    logits, deltas = empty(3, -9.0), empty(4)
    logits[1][0, 2, 1, 2] = logit(0.08)  # above the threshold before the factor
    deltas[1][0, :, 1, 2] = torch.tensor([0.5, -0.25, 5 * np.log(0.25), 5 * np.log(0.125)])
    dets, labels = detect(detector(kind), (*logits, *deltas, *factor), monkeypatch)
    assert labels.tolist() == [2]
    # centre 32 + .05 * 128, 16 - .025 * 128; sides 32 and 16
    np.testing.assert_allclose(dets, [[22.4, 4.8, 54.4, 20.8, score]], rtol=1e-5)


@pytest.mark.parametrize("kind", ["GFLHead", "LDHead"])
def test_distributions_of_gfl(kind, monkeypatch):
    """The sides are means over 0 to 4 strides, from the corner (32, 16) of the location; the image clips the last."""
    logits, sides = empty(3, -9.0), empty(20, -40.0)
    logits[1][0, 1, 1, 2] = logit(0.6)
    for side, bins in enumerate(((1,), (0,), (1, 2), (4,))):
        sides[1][0, [5 * side + index for index in bins], 1, 2] = 0.0
    dets, labels = detect(detector(kind, reg_max=4), (*logits, *sides), monkeypatch)
    assert labels.tolist() == [1]
    np.testing.assert_allclose(dets, [[16, 16, 56, 60, 0.6]], rtol=1e-5)


def test_star_of_vfnet():
    """Taps go to the corners, the middles of the sides and the centre of the box, y before x."""
    head = detector("VFNetHead").bbox_head
    left, top, right, bottom = 3.0, 2.0, 5.0, 7.0
    offsets = head.star(torch.tensor([left, top, right, bottom]).reshape(1, 4, 1, 1)).reshape(9, 2)
    taps = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)]
    expected = [(y, x) for y in (-top, 0, bottom) for x in (-left, 0, right)]
    np.testing.assert_allclose(offsets + torch.tensor(taps), expected)
    assert head.lengths == [64, 128]
    assert torch.equal(head.priors.level(0, torch.zeros(1, 1, 2, 2)), torch.tensor([[0.0, 0], [8, 0], [0, 8], [8, 8]]))


def test_boxes_of_vfnet(monkeypatch):
    """Distances are in pixels, from the corner (32, 16) of the location."""
    logits, distances = empty(3, -9.0), empty(4)
    logits[1][0, 1, 1, 2] = logit(0.6)
    distances[1][0, :, 1, 2] = torch.tensor([8.0, 20.0, 30.0, 10.0])
    dets, labels = detect(detector("VFNetHead"), (*logits, *distances), monkeypatch)
    assert labels.tolist() == [1]
    np.testing.assert_allclose(dets, [[24, 0, 62, 26, 0.6]], rtol=1e-5)


def test_boxes_of_tood_are_sampled_and_not_clipped(monkeypatch):
    boxes = torch.arange(4 * 9.0).reshape(1, 4, 3, 3)
    offsets = torch.zeros(1, 8, 3, 3)
    offsets[0, 2:4, 1, 1] = torch.tensor([0.5, -1.0])  # of y1: half a row down, a column to the left
    sampled = sample(boxes, offsets)
    assert sampled[0, :, 1, 1].tolist() == [4, 9 + 4.5, 18 + 4, 27 + 4]
    scores, boxes = empty(3), empty(4)
    scores[1][0, 0, 3, 3] = 0.7  # a probability
    boxes[1][0, :, 3, 3] = torch.tensor([-1.0, 0.5, 6.0, 9.0])
    dets, labels = detect(detector("TOODHead"), (*scores, *boxes), monkeypatch)
    assert labels.tolist() == [0]
    np.testing.assert_allclose(dets, [[-16, 8, 96, 144, 0.7]], rtol=1e-6)


def test_votes_of_paa(monkeypatch):
    """Two boxes of a class overlap by 0.75: the better one is kept, and moves towards the other; others do not vote."""
    boxes = torch.tensor([[[0, 0, 40, 40], [0, 0, 30, 40], [50, 50, 60, 60], [0, 0, 40, 41]]]).float()
    scores = torch.tensor([[[0.8, 0], [0.4, 0], [0.9, 0], [0, 0.9]]])
    dets = torch.tensor([[[0, 0, 40, 40, 0.8], [0, 0, 0, 0, 0]]]).float()
    voted = vote(dets, torch.tensor([[0, -1]]), boxes, scores)
    weight = np.exp(-(0.25**2) / 0.025) * 0.4
    expected = [0, 0, (40 * 0.8 + 30 * weight) / (0.8 + weight), 40, 0.8]
    np.testing.assert_allclose(voted[0, 0], expected, rtol=1e-6)
    assert not voted[0, 1].any()
    assert iou(boxes[:, :1], boxes)[0, 0].tolist() == pytest.approx([1, 0.75, 0, 40 / 41])
    logits, deltas, overlap = empty(3, -9.0), empty(4), empty(1, logit(0.9))
    logits[1][0, 1, 1, 2] = logit(0.4)
    for kind in ("PAAHead", "LADHead"):
        dets, labels = detect(detector(kind), (*logits, *deltas, *overlap), monkeypatch)
        assert labels.tolist() == [1]
        np.testing.assert_allclose(dets, [[0, 0, 64, 60, np.sqrt(0.4 * 0.9)]], rtol=1e-5)


def test_boxes_of_foveabox_end_at_the_last_pixel(monkeypatch):
    logits, regressed = empty(3, -9.0), empty(4)
    logits[1][0, 0, 2, 1] = logit(0.3)  # the point (24, 40)
    regressed[1][0, :, 2, 1] = torch.tensor([np.log(0.5), np.log(0.25), np.log(2.0), np.log(2.0)])
    dets, _ = detect(detector("FoveaHead"), (*logits, *regressed), monkeypatch)
    np.testing.assert_allclose(dets, [[8, 32, 63, 59, 0.3]], rtol=1e-5)


def test_distances_of_autoassign_are_not_negative():
    head = detector("AutoAssignHead").bbox_head
    head.conv_reg.weight.zero_()
    head.conv_reg.bias.copy_(torch.tensor([2.0, -1.0, 0.5, 3.0]))
    head.scales[1].scale.fill_(2.0)
    maps = head([torch.rand(1, 32, 8, 8), torch.rand(1, 32, 4, 4)])
    assert maps[2][0, :, 0, 0].tolist() == [16, 0, 4, 24]
    assert maps[3][0, :, 0, 0].tolist() == [64, 0, 16, 96]
    assert head.priors.level(1, maps[1])[:2].tolist() == [[0, 0], [16, 0]]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("minmax", [-3, -4, 5, 4]),
        ("partial_minmax", [-3, -1, 5, 2]),
        # the means 1 and -0.5 and the deviations of nine points, times e**log(2) and e**0
        ("moment", [1 - 2 * 2.5, -0.5 - 2.25, 1 + 2 * 2.5, -0.5 + 2.25]),
    ],
)
def test_extent_of_reppoints(method, expected):
    head = detector("RepPointsHead", transform_method=method).bbox_head
    x = np.array([-3.0, 5, 1, 0, 2, 1, 1, 1, 1])
    y = np.array([2.0, -1, 0, 0, -4, 4, 0, 0, 0])
    if method == "moment":
        head.moment_transfer.copy_(torch.tensor([np.log(2.0), 0.0]))
        x, y = 1 + 2.5 * standard(x), -0.5 + 2.25 * standard(y)
    points = torch.from_numpy(np.stack([y, x], 1).reshape(1, 18, 1, 1)).float()
    np.testing.assert_allclose(head.extent(points).flatten(), expected, rtol=1e-5)


def standard(values):
    return (values - values.mean()) / values.std(ddof=1)


def test_boxes_of_reppoints_are_in_strides(monkeypatch):
    logits, boxes = empty(3, -9.0), empty(4)
    logits[1][0, 0, 1, 2] = logit(0.3)
    boxes[1][0, :, 1, 2] = torch.tensor([-1.0, -0.5, 1.5, 9.0])
    dets, _ = detect(detector("RepPointsHead"), (*logits, *boxes), monkeypatch)
    np.testing.assert_allclose(dets, [[16, 8, 56, 60, 0.3]], rtol=1e-5)


def test_points_of_a_grid():
    """The regressed numbers move and scale the first box, from -2 to 2; three rows of three points cover it."""
    head = detector("RepPointsHead", use_grid_points=True, transform_method="minmax").bbox_head
    numbers = torch.tensor([0.25, -0.5, 0.0, np.log(0.5)]).reshape(1, 4, 1, 1).float()
    points, box = head.first_points(numbers)
    assert box.flatten().tolist() == [-1, -3, 3, -1]
    rows = [(y, x) for y in (-3, -2, -1) for x in (-1, 1, 3)]
    assert points.reshape(9, 2).tolist() == [list(point) for point in rows]


def test_buckets_of_sabl(monkeypatch):
    """Three anchors' sides of 64 around (32, 16) make buckets of 192 / 14; those of the sides are 6, 5, 6, 6."""
    logits, numbers = empty(3, -9.0), empty(56, -30.0)
    logits[1][0, 1, 1, 2] = logit(0.5)
    at = numbers[1][0, :, 1, 2].reshape(2, 4, 7)
    at[1] = 0
    for side, (bucket, second, shift) in enumerate(((6, 5, 0.25), (5, 2, 0.0), (6, 5, -0.5), (6, 5, 0.0))):
        at[0, side, bucket], at[0, side, second], at[1, side, bucket] = logit(0.75), 0.0, shift
    dets, labels = detect(detector("SABLRetinaHead"), (*logits, *numbers), monkeypatch)
    size = 192 / 14
    x1, x2 = 32 - 96 + (6.5 - 0.25) * size, 32 + 96 - 5.5 * size
    y1, y2 = 16 - 96 + (6.5 + 0.5) * size, 16 + 96 - 6.5 * size
    confidence = (3 * 1.0 + 0.75) / 4  # a second bucket counts if it is beside the best
    assert labels.tolist() == [1]
    np.testing.assert_allclose(dets, [[x1, y1, x2, y2, 0.5 * confidence]], rtol=1e-4)


def test_classes_and_objectness_of_yolof(monkeypatch):
    """The map holds the logit of the product of both probabilities; centres move by 32 pixels at most."""
    network = detector("YOLOFHead")
    head = network.bbox_head
    for layer, bias in ((head.cls_score, logit(0.8)), (head.object_pred, logit(0.25))):
        layer.weight.zero_()
        layer.bias.fill_(bias)
    logits, _ = head([torch.rand(1, 32, 2, 2)])
    np.testing.assert_allclose(logits.sigmoid(), 0.8 * 0.25, rtol=1e-5)
    logits, deltas = empty(6, -9.0, [32]), empty(8, 0.0, [32])
    logits[0][0, 3, 1, 1] = logit(0.3)  # the second anchor, of 128 pixels around (32, 32)
    deltas[0][0, 4:, 1, 1] = torch.tensor([-0.75, 0.125, np.log(0.25), np.log(0.25)])
    dets, labels = detect(network, (*logits, *deltas), monkeypatch)
    assert labels.tolist() == [0]
    np.testing.assert_allclose(dets, [[0, 32, 16, 60, 0.3]], rtol=1e-5)


def test_norms_of_levels_over_shared_convolutions():
    head = detector("RetinaSepBNHead").bbox_head
    assert head.cls_convs[0][0].conv is head.cls_convs[1][0].conv
    assert head.cls_convs[0][0].bn is not head.cls_convs[1][0].bn


@pytest.mark.parametrize("kind", ["LDHead", "LADHead"])
def test_teachers_are_left_out(kind):
    settings = config(kind)
    teacher = {"LDHead": {"teacher_config": "gfl.py"}, "LADHead": {"teacher_backbone": {"type": "ResNet"}}}[kind]
    settings["model"] |= {**teacher, "teacher_ckpt": "teacher.pth"}
    assert not [key for key in build(settings).state_dict() if "teacher" in key]


def test_guided_anchors(monkeypatch):
    """Location (2, 1) of stride 16 has a square of 64 around (32, 16); a better location without an anchor is left out.

    The anchor is half as wide and a quarter as high; its centre moves by a quarter of its width, its height doubles.
    """
    logits, deltas, shapes, locations = empty(3, -9.0), empty(4), empty(2), empty(1, logit(0.009))
    logits[1][0, 1, 1, 2], logits[1][0, 2, 3, 3] = logit(0.6), logit(0.9)
    locations[1][0, 0, 1, 2] = logit(0.011)
    shapes[1][0, :, 1, 2] = torch.tensor([0.5, 0.25]).log()
    deltas[1][0, :, 1, 2] = torch.tensor([0.25, 0, 0, np.log(2)])
    dets, labels = detect(detector("GARetinaHead"), (*logits, *deltas, *shapes, *locations), monkeypatch)
    assert labels.tolist() == [1]
    np.testing.assert_allclose(dets, [[24, 0, 56, 32, 0.6]], rtol=1e-5, atol=1e-5)


def test_outputs_without_guided_anchor_are_zero():
    head, features = detector("GARetinaHead").bbox_head, [torch.rand(2, 32, 8, 8), torch.rand(2, 32, 4, 4)]
    head.threshold = float(head(features)[6].sigmoid().median())
    logits, _, deltas, *_, locations, _ = head(features)
    kept = locations.sigmoid() >= head.threshold
    assert 0 < kept.sum() < kept.numel()
    for map in (logits, deltas):
        assert torch.equal((map != 0).all(1, keepdim=True), kept)
        assert torch.equal((map != 0).any(1, keepdim=True), kept)


def test_distances_of_the_later_centernet():
    """They are at least 0, and in strides; the point of location (2, 1) of stride 16 is (40, 24)."""
    head = detector("CenterNetUpdateHead").bbox_head
    head.conv_reg.weight.zero_()
    head.conv_reg.bias.copy_(torch.tensor([2.0, -1.0, 0.5, 3.0]))
    head.scales[1].scale.fill_(0.5)
    maps = head([torch.rand(1, 32, 8, 8), torch.rand(1, 32, 4, 4)])
    assert maps[2][0, :, 0, 0].tolist() == [16, 0, 4, 24]
    assert maps[3][0, :, 1, 2].tolist() == [16, 0, 4, 24]
    assert head.priors.level(1, maps[3])[6].tolist() == [40, 24]


def test_towers_of_nas_fcos():
    layers = [layer.conv for layer in detector("NASFCOSHead").bbox_head.cls_convs]
    assert [layer.kernel_size for layer in layers] == [(3, 3), (3, 3), (3, 3), (1, 1)]
    assert [layer.bias is not None for layer in layers] == [True, False, True, False]
    assert [getattr(layer, "deform_groups", 0) for layer in layers] == [2, 0, 2, 0]


CENTERNET = {
    "model": {
        "backbone": {"type": "ResNet", "depth": 18, "base_channels": 4, "stem_channels": 4},
        "neck": {
            "type": "CTResNetNeck",
            "in_channel": 32,
            "num_deconv_filters": (8, 8, 4),
            "num_deconv_kernels": (4, 4, 4),
        },
        "bbox_head": {"type": "CenterNetHead", "num_classes": 2, "in_channel": 4, "feat_channel": 4},
        "test_cfg": {"topk": 3, "local_maximum_kernel": 3, "max_per_img": 100},
    }
}


def test_peaks_of_centernet(monkeypatch):
    """A lower neighbour of a maximum is not one; sizes are in cells of 4 pixels, and may be negative."""
    network = build(copy.deepcopy(CENTERNET))
    heat, sizes, offsets = torch.zeros(1, 2, 8, 16), torch.zeros(1, 2, 8, 16), torch.zeros(1, 2, 8, 16)
    heat[0, 1, 2, 5], heat[0, 1, 2, 6], heat[0, 0, 7, 0] = 0.9, 0.8, 0.5
    sizes[0, :, 2, 5], offsets[0, :, 2, 5] = torch.tensor([4.0, -2.0]), torch.tensor([0.5, 0.25])
    monkeypatch.setattr(network, "raw", lambda input: (heat, sizes, offsets))
    with torch.inference_mode():
        dets, labels = network(torch.zeros(1, 3, 32, 64))
    assert labels.tolist() == [[1, 0, -1]]
    expected = [[14, 13, 30, 5, 0.9], [0, 28, 0, 28, 0.5], [0] * 5]
    np.testing.assert_allclose(dets[0], expected, rtol=1e-6)
    network = build(copy.deepcopy(CENTERNET))
    with torch.inference_mode():
        maps = network.raw(torch.rand(1, 3, 32, 64))
    assert len(network.raw_names) == len(maps)
    assert [tuple(map.shape) for map in maps] == [(1, 2, 8, 16)] * 3


@pytest.mark.parametrize(
    ("kind", "entries", "message"),
    [
        ("TOODHead", {"anchor_type": "free"}, "anchor_type must be 'anchor_free' or 'anchor_based', got 'free'"),
        ("GFLHead", {"anchor_generator": {**ANCHORS, "ratios": [1, 2]}}, "one anchor in a location"),
        ("RepPointsHead", {"num_points": 4}, "square of an odd number, got 4"),
        ("RepPointsHead", {"transform_method": "mean"}, "transform_method must be one of moment"),
        ("GARetinaHead", {"loss_cls": {}}, r"bbox_head 'GARetinaHead'\.loss_cls must have use_sigmoid"),
        ("GARetinaHead", {"square_anchor_generator": {**SQUARES, "scales": [1, 2]}}, "one anchor in a location"),
        ("YOLOFHead", {"loss_cls": {}}, r"bbox_head 'YOLOFHead'\.loss_cls must have use_sigmoid"),
        (
            "GFLHead",
            {"loss_cls": {"use_sigmoid": False}},
            r"use_sigmoid of bbox_head 'GFLHead'\.loss_cls must be True, got False",
        ),
        (
            "RetinaSepBNHead",
            {"num_ins": 1},
            "num_ins of bbox_head 'RetinaSepBNHead' must be at least the number of strides, 2, got",
        ),
        (
            "FoveaHead",
            {"base_edge_list": [16]},
            "base_edge_list of bbox_head 'FoveaHead' must have as many elements as strides, 2, got 1",
        ),
        (
            "FoveaHead",
            {"base_edge_list": None, "strides": [8]},
            "base_edge_list of bbox_head 'FoveaHead' must be a list",
        ),
    ],
)
def test_refused(kind, entries, message):
    with pytest.raises(ValueError, match=message):
        build(config(kind, **entries))


def test_normalized_classifier_of_fcos():
    """A class is as likely as its weights have the direction of the features: 50 times the cosine, plus the bias."""
    predictor = {"type": "NormedLinear", "tempearture": 50, "bias": True}
    settings = config("NASFCOSHead", cls_predictor_cfg=predictor)
    layer = build(settings).bbox_head.conv_cls
    layer.weight.zero_()
    layer.weight[1, :2, 0, 0] = torch.tensor([3.0, 4.0])
    layer.bias[1] = 0.5
    features = torch.zeros(1, 32, 1, 2)
    features[0, 0] = torch.tensor([1.0, 10.0])
    torch.testing.assert_close(layer(features)[0, 1, 0], torch.full((2,), 50 * 0.6 + 0.5), rtol=1e-4, atol=0)


@pytest.mark.parametrize(("use_sigmoid", "scores"), [(True, [0.5, 0.75]), (False, [0.2, 0.6])])
def test_scores_of_v3det(use_sigmoid, scores):
    loss = {"type": "CrossEntropyCustomLoss", "use_sigmoid": use_sigmoid, "num_classes": 2}
    head = PARTS.build("bbox_head", {"type": "Shared2FCBBoxHead", "num_classes": 2, "loss_cls": loss})
    logits = torch.tensor([0.0, float(np.log(3)), 0.0])[: 2 if use_sigmoid else 3]
    assert head.fc_cls.out_features == len(logits)
    torch.testing.assert_close(head.loss_cls(logits[None]), torch.tensor([scores]))

"""Detectors of rotated boxes: coders and selection by hand, and each family in batches."""

import itertools
import json
import math
import pathlib

import pytest
import torch

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.detect.families.rotated.r3det import FeatureRefineModule
from mmort.detect.families.rotated.s2anet import AlignConv, AlignConvs, ORConv, SharedAlignConv
from mmort.detect.loading import PARTS
from mmort.detect.parts.equivariant import EquivariantConv, FieldBatchNorm
from mmort.detect.parts.rotated.angle_coder import CSLCoder
from mmort.detect.parts.rotated.geometry import (
    bounding_boxes,
    boxes_of_points,
    normalized,
    smallest_rectangles,
    with_longer_width,
)
from mmort.detect.parts.rotated.selection import rotated_detections
from mmort.detect.parts.rotated.test_cfg import RotatedNMS, RotatedSelectionEntries
from mmort.torch import active_rotated_filter
from tests.detect import query_cases, rotated_1_cases
from tests.detect.batches import outputs_as_alone
from tests.detect.rotated_cases import CASES, config_of

QUARTER = math.pi / 2


def coder(kind, **entries):
    return PARTS.build("rotated box coder", {"type": kind, **entries})


def close(actual, expected):
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=torch.float32), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("version", "angle", "expected"),
    [
        ("le90", 2.0, 2.0 - math.pi),
        ("le90", -2.0, math.pi - 2.0),
        ("le90", 1.5, 1.5),
        ("le135", 2.0, 2.0),
        ("le135", -1.0, math.pi - 1.0),
        ("le135", 8.0, 8.0 - 2 * math.pi),
        ("oc", 8.0, 8.0),
    ],
)
def test_angles_are_moved_into_the_range_of_their_version(version, angle, expected):
    close(normalized(torch.tensor(angle), version), expected)


@pytest.mark.parametrize(
    ("version", "expected"),
    [("le90", [5, 6, 8, 2, 0.3]), ("le135", [5, 6, 8, 2, 0.3]), ("oc", [5, 6, 8, 2, 0.3])],
)
@pytest.mark.parametrize("first", range(4))
def test_corners_make_the_same_box_wherever_they_begin(version, expected, first):
    across, along = torch.tensor([math.cos(0.3), math.sin(0.3)]), torch.tensor([-math.sin(0.3), math.cos(0.3)])
    signs = [(-4, -1), (4, -1), (4, 1), (-4, 1)]
    points = torch.stack([torch.tensor([5.0, 6.0]) + x * across + y * along for x, y in signs]).roll(-first, 0)
    close(boxes_of_points(points, version), expected)


@pytest.mark.parametrize("sides", [(8, 8), (8, 8 * (1 + 5e-7)), (8 * (1 + 5e-7), 8)])
def test_rounding_does_not_turn_a_square(sides):
    """As a limit cuts it in a proof; a side that is longer by more does turn it."""
    width, height = sides
    points = torch.tensor([[0, 0], [width, 0], [width, height], [0, height]])
    close(boxes_of_points(points, "le90"), [4, 4, 8, 8, -QUARTER])
    close(with_longer_width(torch.tensor([4.0, 4, width, height, 0.1]), "le90"), [4, 4, 8, 8, 0.1 - QUARTER])
    points = torch.tensor([[0, 0], [8 * (1 + 5e-5), 0], [8 * (1 + 5e-5), 8], [0, 8]])
    assert boxes_of_points(points, "le90")[4] == 0


def test_a_tall_box_keeps_its_height_as_the_longer_side_in_opencvs_version_only():
    points = torch.tensor([[4.0, 2], [6, 2], [6, 10], [4, 10]])
    close(boxes_of_points(points, "le90"), [5, 6, 8, 2, -QUARTER])
    close(boxes_of_points(points, "le135"), [5, 6, 8, 2, QUARTER])
    width, height = boxes_of_points(points, "oc")[2:4].tolist()
    assert (width, height) == (2, 8)


def test_upright_bounding_boxes():
    boxes = torch.tensor([[5.0, 6, 8, 2, QUARTER], [5, 6, math.sqrt(8), math.sqrt(8), math.pi / 4]])
    close(bounding_boxes(boxes), [[4, 2, 6, 10], [3, 4, 7, 8]])


def test_deltas_of_a_rotated_prior():
    """A prior of 10 x 4, turned by a quarter: its own x axis points down the image."""
    prior, deltas = torch.tensor([20.0, 30, 10, 4, QUARTER]), torch.tensor([0.5, 0.25, math.log(2), 0, 0.1])
    close(coder("DeltaXYWHAOBBoxCoder", angle_range="le90").decode(prior, deltas, None), [25, 31, 20, 4, 0.1 - QUARTER])
    own_axes = coder("DeltaXYWHAOBBoxCoder", angle_range="le135", proj_xy=True, norm_factor=2, target_stds=[2.0] * 5)
    expected = [20 - 0.5 * 4, 30 + 10, 40, 4, 0.9 * math.pi - math.pi]
    close(own_axes.decode(prior, deltas, None), expected)


def test_centres_are_clipped_to_the_last_pixel():
    limits = torch.tensor([64.0, 48, 64, 48])
    priors, deltas = torch.tensor([[60.0, 40, 10, 10, 0], [3, 3, 10, 10, 0]]), torch.zeros(2, 5)
    deltas[0, :2], deltas[1, :2] = 1, -1
    boxes = coder("DeltaXYWHAOBBoxCoder").decode(priors, deltas, limits)
    close(boxes[:, :2], [[63, 47], [0, 0]])


def test_sides_are_exchanged_unless_the_width_is_longer():
    swapping = coder("DeltaXYWHAOBBoxCoder", angle_range="le90", edge_swap=True)
    priors = torch.tensor([[0.0, 0, 4, 8, 0.2], [0, 0, 8, 4, 0.2], [0, 0, 4, 4, 0.2]])
    boxes = swapping.decode(priors, torch.zeros(3, 5), None)
    close(boxes[:, 2:], [[8, 4, 0.2 - QUARTER], [8, 4, 0.2], [4, 4, 0.2 - QUARTER]])


def test_growth_is_limited():
    limit = 1000 / 16
    boxes = coder("DeltaXYWHAOBBoxCoder").decode(
        torch.tensor([0.0, 0, 1, 1, 0]), torch.tensor([0.0, 0, 9, -9, 0]), None
    )
    close(boxes[2:4], [limit, 1 / limit])


def test_deltas_of_an_upright_prior_ignore_the_limits():
    upright = coder("DeltaXYWHAHBBoxCoder", angle_range="le90", norm_factor=2, target_stds=[0.1, 0.1, 0.2, 0.2, 1])
    boxes = upright.decode(torch.tensor([0.0, 0, 10, 4]), torch.tensor([-20.0, 5, 0, 0, 0.3]), torch.tensor([10.0] * 4))
    close(boxes, [-15, 4, 10, 4, 0.6 * math.pi - math.pi])


def test_midpoint_offsets_of_a_square():
    """The middles of a square's sides: a square turned by an eighth."""
    boxes = coder("MidpointOffsetCoder", angle_range="le90").decode(torch.tensor([0.0, 0, 8, 8]), torch.zeros(6), None)
    close(boxes[:4], [4, 4, math.sqrt(32), math.sqrt(32)])
    assert abs(abs(boxes[4]) - math.pi / 4) < 1e-5


def test_midpoint_offsets_slide_no_further_than_to_the_corners():
    offsets = torch.tensor([0, 0, 0, 0, 1.0, 1.0])  # twice what half of the sides allows
    boxes = coder("MidpointOffsetCoder", angle_range="le90").decode(torch.tensor([0.0, 0, 8, 6]), offsets, None)
    close(boxes, [4, 3, 8, 6, 0])


def test_distances_lie_along_the_turned_sides():
    points = coder("DistanceAnglePointCoder", angle_version="le90")
    boxes = points.decode(torch.tensor([50.0, 50]), torch.tensor([2.0, 1, 6, 3, QUARTER]), None)
    close(boxes, [50 - 1, 50 + 2, 8, 4, -QUARTER])


def test_unknown_angle_versions_are_refused():
    with pytest.raises(ValueError, match="must be 'oc', 'le90' or 'le135', got 'le180'"):
        coder("DeltaXYWHAOBBoxCoder", angle_range="le180")


def test_suppression_of_quadrilaterals_is_refused():
    with pytest.raises(ValueError, match="'nms_quadri', of general quadrilaterals, is not supported"):
        RotatedNMS(type="nms_quadri", iou_threshold=0.1)


def select(boxes, scores, threshold=0.1, count=4):
    test_cfg = RotatedSelectionEntries(score_thr=0.05, nms=RotatedNMS(iou_thr=threshold), max_per_img=count)
    dets, labels = rotated_detections(torch.as_tensor(boxes), torch.as_tensor(scores), test_cfg)
    return dets, labels.tolist()


def test_an_overlap_equal_to_the_threshold_suppresses():
    boxes = [[[10.0, 10, 8, 4, 0], [14, 10, 8, 4, 0], [50, 50, 4, 4, 0]]]  # an overlap of 1 / 3 exactly
    scores = [[[0.9], [0.8], [0.7]]]
    assert select(boxes, scores, 1 / 3)[1] == [[0, 0, -1, -1]]
    assert select(boxes, scores, 0.334)[1] == [[0, 0, 0, -1]]


def test_classes_and_images_do_not_suppress_each_other():
    boxes = [[[10.0, 10, 8, 4, 0.5]] * 2, [[10.0, 10, 8, 4, 0.5]] * 2]
    scores = [[[0.9, 0.8], [0.7, 0.95]], [[0.0, 0.6], [0.0, 0.0]]]
    dets, labels = select(boxes, scores)
    assert labels == [[1, 0, -1, -1], [1, -1, -1, -1]]
    close(dets[:, 0], [[10, 10, 8, 4, 0.5, 0.95], [10, 10, 8, 4, 0.5, 0.6]])
    assert not dets[0, 2:].any()


def test_boxes_of_each_class_and_a_limit():
    boxes = torch.arange(6.0).reshape(1, 3, 2, 1) * 100 + torch.tensor([0.0, 0, 8, 4, 0])
    dets, labels = select(boxes, [[[0.1, 0.6], [0.5, 0.2], [0.4, 0.3]]], count=3)
    assert labels == [[1, 0, 0]]
    close(dets[0, :, 0], [100, 200, 400])


def test_nothing_is_found():
    dets, labels = select(torch.zeros(2, 3, 5), torch.zeros(2, 3, 2))
    assert labels == [[-1] * 4] * 2
    assert dets.shape == (2, 4, 6)
    assert not dets.any()


def test_smallest_rectangle_of_nine_points():
    """A rectangle of 8 x 2, turned by 0.3, with points inside; two points coincide."""
    cos, sin = math.cos(0.3), math.sin(0.3)
    points_in_box = torch.tensor([(-4, -1), (4, -1), (4, 1), (-4, 1), (0, 0), (0, 0), (3, 0.5), (-2, 0.9), (1, -0.7)])
    points = points_in_box @ torch.tensor([[cos, sin], [-sin, cos]]) + torch.tensor([30.0, 40])
    close(boxes_of_points(smallest_rectangles(points), "oc"), [30, 40, 8, 2, 0.3])


def test_smallest_rectangle_without_area():
    single = smallest_rectangles(torch.full((9, 2), 7.0))
    close(single, torch.full((4, 2), 7.0))
    line = torch.arange(9.0)[:, None] * torch.tensor([3.0, 4.0])
    width, height = boxes_of_points(smallest_rectangles(line), "le90")[2:4].tolist()
    assert (round(width, 3), round(height, 3)) == (40, 0)


def test_smallest_rectangle_of_points_on_an_edge_lies_along_it():
    """Whichever corner comes first: a box that is clipped at the left has all of them there."""
    for corners in set(itertools.permutations([(0.0, 0.0), (0.0, 0.0), (0.0, 128.0), (0.0, 128.0)])):
        close(boxes_of_points(smallest_rectangles(torch.tensor(corners)), "oc"), [0, 64, 0, 128, 0])


def test_filters_are_turned_into_each_orientation():
    """The third orientation is a quarter of a turn, as the image shows it clockwise."""
    weights = torch.arange(18.0).reshape(2, 1, 1, 3, 3)
    turned = active_rotated_filter(weights, ORConv(1, 2).indices)
    assert turned.shape == (16, 1, 3, 3)
    assert turned[0].flatten().tolist() == list(range(9))
    assert turned[1].flatten().tolist() == [3, 0, 1, 6, 4, 2, 7, 8, 5]
    assert turned[2].flatten().tolist() == [6, 3, 0, 7, 4, 1, 8, 5, 2]
    assert turned[8].flatten().tolist() == list(range(9, 18))


def test_equivariant_layers_take_the_weights_of_e2cnn():
    """In training or not: e2cnn then has filters and expanded biases too."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(EquivariantConv(16, 8, 1), FieldBatchNorm(8))
    weights, basis = torch.randn(16), torch.randn(8, 8, 8, 1)
    checkpoint = {
        "0.weights": weights,
        "0._basisexpansion.block_expansion_('regular', 'regular').sampled_basis": basis,
        "0.bias": torch.ones(1),
        "0.bias_expansion": torch.full((8, 1), 0.5),
        "0.filter": torch.zeros(8, 16, 1, 1),
        "0.expanded_bias": torch.zeros(8),
        "1.indices_8": torch.tensor([0, 8]),
        **{f"1.batch_norm_[8].{name}": torch.tensor([2.0]) for name in ("weight", "bias")},
        **{f"1.batch_norm_[8].running_{name}": torch.tensor([0.0]) for name in ("mean", "var")},
    }
    load_weights(layers, checkpoint)
    filters = torch.einsum("fb,boi->ofi", weights.reshape(2, 8), basis[..., 0]).flatten(1)
    close(layers[0].filters()[:, :, 0, 0], filters)
    x = torch.randn(1, 16, 2, 3)
    plain = torch.einsum("oi,nihw->nohw", filters, x) + 0.5
    torch.testing.assert_close(layers.eval()(x), plain / math.sqrt(1e-5) * 2 + 2, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(("sizes", "match"), [((16, 12, 3), "multiple of 8"), ((16, 8, 5), "kernel size 5")])
def test_equivariant_layers_of_other_sizes_are_refused(sizes, match):
    with pytest.raises(ValueError, match=match):
        EquivariantConv(*sizes)


def test_taps_of_an_upright_box_of_three_strides_are_those_of_a_plain_convolution():
    layer = AlignConv(2)
    y, x = torch.meshgrid(torch.arange(2) * 8.0, torch.arange(3) * 8.0, indexing="ij")
    boxes = torch.stack([x, y, torch.full_like(x, 24), torch.full_like(x, 24), torch.zeros_like(x)], -1)
    features = torch.zeros(1, 2, 2, 3)
    close(layer.offsets(features, boxes.reshape(1, 6, 5), 8), torch.zeros(1, 18, 2, 3))
    boxes[..., 4] = QUARTER  # the first tap, up and left, then lies up and right
    offsets = layer.offsets(features, boxes.reshape(1, 6, 5), 8)
    close(offsets[0, :2, 0, 0], [0, 2])


def test_levels_have_convolutions_of_their_own_or_share_one():
    entries = {"feat_channels": 2, "strides": [8, 16]}
    features, boxes = [torch.ones(1, 2, 1, 1)] * 2, [torch.tensor([[[0.0, 0, side, side, 0]]]) for side in (24, 48)]
    for kind, count in ((AlignConvs, 2), (SharedAlignConv, 1)):
        module = PARTS.construct("frm_cfg", kind, entries)
        assert len(module.ac) == count
        for level, layer in enumerate(module.ac):
            torch.nn.init.constant_(layer.deform_conv.weight, level + 1)
        first, second = (x.max().item() for x in module(features, boxes))
        assert second == count * first > 0


def test_angles_of_classes():
    """Classes of 4 degrees, from -90 on: the middle of the third is -80."""
    logits = torch.zeros(2, 45, 1)
    logits[0, 2], logits[1, 44] = 1, 1
    angles = PARTS.build(
        "angle coder", {"type": "CSLCoder", "angle_version": "le90", "omega": 4}, {"CSLCoder": CSLCoder}
    ).decode(logits, 1)
    close(angles.flatten(), [math.radians(-80), math.radians(88)])


def test_vertices_slide_along_the_sides_unless_the_box_is_full():
    head = build(config_of("Gliding Vertex")).roi_head.bbox_head
    boxes = torch.tensor([[0.0, 0, 8, 8], [0, 0, 8, 6], [0, 0, 6, 8]])
    shares = torch.tensor([[0.5, 0.5, 0.5, 0.5]] * 3)
    result = head.rotated(boxes, shares, torch.tensor([[0.4], [0.6], [0.6]]))
    close(result[0, :4], [4, 4, math.sqrt(32), math.sqrt(32)])
    close(result[1:], [[4, 3, 8, 6, 0], [3, 4, 8, 6, -QUARTER]])


def test_features_at_the_centre_of_a_box_are_added_twice_with_x_as_the_row():
    config = {"feat_channels": 1, "strides": [4]}
    module = PARTS.construct("frm_cfgs", FeatureRefineModule, config)
    for layer in (module.conv_5_1, module.conv_1_5, module.conv_1_1):
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    torch.nn.init.ones_(module.conv_1_1.weight)
    x = torch.arange(12.0).reshape(1, 1, 3, 4)
    boxes = torch.tensor([8.0, 4, 9, 9, 0]).expand(1, 12, 5)  # row 2, column 1: 9
    close(module([x], [boxes])[0], 2 * x + 9)


def lively(name):
    """Return a small detector whose classes and angles vary."""
    torch.manual_seed(1)
    detector = build(config_of(name))
    for key, value in detector.state_dict().items():
        if key.endswith(("retina_reg.weight", "fc_reg.weight", "conv_angle.weight", "fc_cls.weight")):
            value *= 5
    return detector


@pytest.mark.parametrize("name", CASES)
def test_images_of_a_batch_do_not_influence_each_other(name):
    detector = lively(name)
    assert detector.family == name
    dets, labels = outputs_as_alone(detector)
    assert detector.angle_version in ("oc", "le90")
    assert dets.shape == (2, 20, 6)
    assert (labels >= 0).sum() > 5
    assert (dets[..., 5].diff(dim=1) <= 0).all()
    assert dets[..., 4].abs().max() > 0.05


def recorded_detections():
    """Return what MMRotate 1, or its fork, detected with the same weights."""
    folder = pathlib.Path(__file__).parents[1] / "data" / "detect"
    files = [folder / f"{name}.json" for name in ("rotated_1", "h2rbox_v2")]
    return {name: results for file in files for name, results in json.loads(file.read_text()).items()}


@pytest.mark.parametrize("name", [*rotated_1_cases.CASES, *rotated_1_cases.FORKS])
def test_detections_of_version_1_are_mmrotates(name):
    """Of the descriptions of a box, that with the longer side as width is compared."""
    detector = build(rotated_1_cases.config_of(name))
    assert detector.family == name.removesuffix(" oc")
    rotated_1_cases.fill(detector)
    recorded = recorded_detections()[name]
    dets, labels = detector(*query_cases.batch())
    for actual, classes, expected, expected_classes in zip(
        dets, labels.tolist(), recorded["dets"], recorded["labels"], strict=True
    ):
        used = len(expected_classes)
        assert classes == expected_classes + [-1] * (20 - used)
        theirs = torch.tensor(expected)
        wide = with_longer_width(actual[:used, :5], "le90")
        torch.testing.assert_close(wide[:, :4], theirs[:, :4], rtol=1e-4, atol=2e-3)
        off = (wide[:, 4] - theirs[:, 4]).abs()
        assert torch.minimum(off, math.pi - off).max() < 1e-3
        torch.testing.assert_close(actual[:used, 5], theirs[:, 5], rtol=0, atol=1e-5)

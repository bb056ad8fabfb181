"""The families that vary the second stage: batches, empty results, and what each adds, by hand."""

import math

import pytest
import torch

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.detect.loading import PARTS, load_trained
from mmort.detect.parts.deform_roi_pool import deform_roi_pool
from mmort.detect.parts.heads.cascade_rpn_head import taps_on
from mmort.detect.parts.roi_extractor import scaled
from tests.detect.batches import SHAPES, images, outputs_as_alone
from tests.detect.two_stage_cases import CASES, SQUARES, config_of

FAMILIES = {
    "GRoIE": "Mask R-CNN",
    "SABL Faster R-CNN": "Faster R-CNN",
    "SABL Cascade R-CNN": "Cascade R-CNN",
    "PISA": "Mask R-CNN",
    "CARAFE in the mask head": "Mask R-CNN",
    "Libra Mask R-CNN": "Mask R-CNN",
    "Deformable RoI pooling": "Mask R-CNN",
    "Guided anchors": "Mask R-CNN",
    "Cascade RPN": "Mask R-CNN",
    "Cascade RPN alone": "RPN",
    "FCOS as RPN": "Mask R-CNN",
}
"""The names of detectors that are another family's with other parts."""


@pytest.fixture(scope="module", params=CASES)
def detector(request):
    torch.manual_seed(1)
    config = config_of(request.param)
    config["model"]["test_cfg"].get("rpn") and config["model"]["test_cfg"]["rpn"].update(max_per_img=40, nms_pre=40)
    if "rcnn" in config["model"]["test_cfg"]:
        config["model"]["test_cfg"]["rcnn"] |= {"max_per_img": 15}
    detector = build(config)
    for name, value in detector.state_dict().items():
        if "fc_cls.weight" in name:
            value *= 20
    return request.param, detector


def test_images_of_a_batch_do_not_influence_each_other(detector):
    name, detector = detector
    assert detector.family == FAMILIES.get(name, name)
    together = outputs_as_alone(detector)
    assert len(together) == len(detector.output_names)
    assert (together[1] >= 0).sum() > 5
    assert (together[0][..., 4].diff(dim=1) <= 0).all()


def test_regions_grow_around_their_centres():
    rois = torch.tensor([[1.0, 10, 20, 30, 60]])
    torch.testing.assert_close(scaled(rois, 1.5), torch.tensor([[1.0, 5, 10, 35, 70]]))


def test_regions_turned_inside_out_have_no_features():
    """MMDetection finds no level for them, as the root of their area is NaN, and leaves zeros."""
    extractor = build(config_of("SABL Faster R-CNN")).roi_head.bbox_roi_extractor
    features = [torch.ones(1, 2, size, size) for size in (32, 16, 8, 4)]
    rois = torch.tensor([[0.0, 10, 10, 20, 30], [0, 20, 10, 10, 30], [0, 1, 1, 127, 127], [0, math.nan, 0, 9, 9]])
    pooled = extractor(features, rois)
    torch.testing.assert_close(pooled, torch.tensor([1.0, 0, 1, 0])[:, None, None, None].expand_as(pooled))


@pytest.mark.parametrize(("aggregation", "expected"), [("sum", [15.0]), ("concat", [1.0, 2, 4, 8])])
def test_groie_reads_all_levels(aggregation, expected):
    config = config_of("GRoIE")["model"]["roi_head"]["bbox_roi_extractor"]
    config |= {"aggregation": aggregation, "pre_cfg": None, "post_cfg": None}
    extractor = PARTS.build("RoI extractor", config)
    features = [torch.full((1, 1, 128 >> level, 128 >> level), 2.0**level) for level in range(4)]
    pooled = extractor(features, torch.tensor([[0.0, 100, 100, 300, 200]]))
    torch.testing.assert_close(pooled, torch.tensor(expected)[None, :, None, None].expand(1, -1, 7, 7))


def test_scnet_adds_the_context_of_each_region_s_image():
    head = build(config_of("SCNet")).roi_head
    around, context = torch.full((2, 32, 8, 8), 0.5), torch.tensor([1.0, 2])[:, None, None, None].expand(2, 32, 1, 1)
    rois = torch.tensor([[1.0, 8, 8, 40, 40], [0, 8, 8, 40, 40], [1, 16, 16, 30, 30]])
    fused = head._fused(torch.full((3, 32, 7, 7), 10.0), [around, context], rois)
    torch.testing.assert_close(fused, torch.tensor([12.5, 11.5, 12.5])[:, None, None, None].expand(3, 32, 7, 7))


def test_mask_scores_multiply_and_reorder():
    """Detections are sorted by the product of their score and the overlap expected of their class."""
    head = build(config_of("Mask Scoring R-CNN")).roi_head
    head.mask_iou_head.forward = lambda features, masks: torch.tensor([[0.0, 0.2, 0.9]]).expand(len(masks), -1)
    head.mask_roi_extractor.forward = lambda features, rois: torch.zeros(len(rois), 32, 14, 14)
    dets = torch.tensor([[[0.0, 0, 8, 8, 0.8], [1, 1, 9, 9, 0.5], [0, 0, 0, 0, 0]]])
    dets, labels, masks = head.with_masks([], dets, torch.tensor([[1, 2, -1]]))
    torch.testing.assert_close(dets[0, :, 4], torch.tensor([0.45, 0.16, 0]))
    assert dets[0, 0, :4].tolist() == [1, 1, 9, 9]
    assert labels.tolist() == [[2, 1, -1]]
    assert masks[0, :2].any((1, 2)).all()
    assert not masks[0, 2].any()


def test_htc_takes_the_mean_of_masks_in_version_2():
    config = config_of("HTC")
    assert not build(config).roi_head.averages_masks
    assert build({**config, "optimizer": {}}).roi_head.averages_masks
    for beside in (config, config["model"]):
        beside["data_preprocessor"] = {"type": "DetDataPreprocessor"}
        assert not build({**config, "optimizer": {}}).roi_head.averages_masks
        del beside["data_preprocessor"]


def test_proposals_are_shares_of_the_image():
    head = build(config_of("QueryInst")).rpn_head
    head.init_proposal_bboxes.weight[0] = torch.tensor([0.5, 0.25, 0.5, 0.1])
    boxes, features = head(torch.tensor([[[96.0, 64, 96, 64]], [[72, 56, 72, 56]]]))
    torch.testing.assert_close(boxes[:, 0], torch.tensor([[24, 12.8, 72, 19.2], [18, 11.2, 54, 16.8]]))
    assert features.shape == (2, 12, 32)


def test_rpn_scores_its_proposals():
    detector = build(config_of("RPN"))
    features = detector.neck(detector.backbone(images()))
    limits = torch.tensor([[[96.0, 64, 96, 64]], [[72, 56, 72, 56]]])
    boxes, used = detector.rpn_head(features, limits)
    dets, labels = detector(images(), SHAPES)
    assert torch.equal(dets[..., :4], boxes)
    assert torch.equal(labels == 0, used)
    logits = detector.rpn_head.proposals(features, limits)[0][..., 4]
    torch.testing.assert_close(dets[..., 4][used], 1 / (1 + torch.exp(-logits[used])))


def test_proposals_have_no_class_names(tmp_path):
    """A checkpoint of RPN has the data set's names, of which the first would be given to everything."""
    detector = build(config_of("RPN"))
    torch.save({"state_dict": detector.state_dict(), "meta": {"CLASSES": ("person", "car")}}, tmp_path / "rpn.pth")
    load_trained(detector, tmp_path / "rpn.pth", {})
    assert detector.classes == ()


def test_names_are_as_many_as_the_classes(tmp_path):
    config = config_of("Double-Head R-CNN")
    detector, path = build(config), tmp_path / "faster_rcnn.pth"
    count = detector.roi_head.bbox_head.classes
    for names in (["cat", "dog"], list(map(str, range(count + 1)))):
        torch.save({"state_dict": detector.state_dict(), "meta": {"CLASSES": names}}, path)
        with pytest.raises(ValueError, match=rf"must name as many .* num_classes={count}, got {len(names)} names: "):
            load_trained(detector, path, config)
    torch.save({"state_dict": detector.state_dict(), "meta": {"CLASSES": names[:count]}}, path)
    load_trained(detector, path, config)
    assert detector.classes == tuple(names[:count])


def test_rpn_of_version_3_is_loaded():
    """MMDetection 3 calls the head bbox_head, with the keys that follow from it."""
    first, second = (build(config_of("RPN")) for _ in range(2))
    weights = {key.replace("rpn_head.", "bbox_head."): value for key, value in first.state_dict().items()}
    load_weights(second, weights)
    assert torch.equal(second.rpn_head.rpn_cls.weight, first.rpn_head.rpn_cls.weight)


def test_best_pairs_of_query_and_class():
    head = build(config_of("Sparse R-CNN")).roi_head
    logits = torch.full((1, 12, 10), -9.0)
    logits[0, 3, 7], logits[0, 3, 2], logits[0, 11, 0] = 2.0, 1.0, 1.5
    boxes = torch.arange(48.0).reshape(1, 12, 4)
    dets, labels, indices = head.detect(logits, boxes)
    assert labels[0, :3].tolist() == [7, 0, 2]
    assert indices[0, :3].tolist() == [3, 11, 3]
    assert dets[0, :3, 0].tolist() == [12, 44, 12]
    torch.testing.assert_close(dets[0, :3, 4], torch.tensor([0.880797, 0.817574, 0.731059]))


def test_sides_of_sabl_go_inwards():
    """Of 14 columns the left side has the first seven, the right side the last seven from the right."""
    head = build(config_of("SABL Faster R-CNN")).roi_head.bbox_head
    lines = torch.stack([torch.arange(14), torch.arange(14) + 100])[None]
    left, right, top, bottom = head._by_side(lines).reshape(4, 7).tolist()
    assert (left, right) == ([0, 1, 2, 3, 4, 5, 6], [13, 12, 11, 10, 9, 8, 7])
    assert (top, bottom) == ([*range(100, 107)], [*range(113, 106, -1)])


def test_sabl_scores_by_confidence_after_the_threshold():
    """One bucket has a half of the probability, the next a quarter: 0.75, except for a second best that is apart."""
    head = build(config_of("SABL Faster R-CNN")).roi_head
    shares = torch.tensor([0.5, 0.25, 0.05, 0.05, 0.05, 0.05, 0.05])
    apart = shares[[0, 2, 1, 3, 4, 5, 6]]
    buckets = torch.stack([shares, shares, shares, apart]).log()
    shifts = torch.zeros(4, 7)
    shifts[0, 0] = 0.5  # the left side goes half a bucket outwards, back to the scaled box's
    numbers = torch.cat([buckets.flatten(), shifts.flatten()])[None, None]
    logits = torch.full((1, 1, 11), -20.0)
    logits[0, 0, 4], logits[0, 0, 10] = 0.0, 2.0
    box = torch.tensor([[[20.0, 20, 48, 48]]])  # 28 px, scaled 47.6, so that a bucket has 3.4
    dets, labels = head.bbox_head.detect(
        box, torch.tensor([[True]]), logits, numbers, torch.tensor([[[64.0, 64, 64, 64]]]), head.test_cfg
    )
    assert labels[0, 0] == 4
    torch.testing.assert_close(dets[0, 0, :4], torch.tensor([10.2, 11.9, 56.1, 56.1]))
    torch.testing.assert_close(dets[0, 0, 4], torch.tensor(0.119203 * (3 * 0.75 + 0.5) / 4))


def test_sides_of_a_grid_are_weighted_means():
    config = config_of("Grid R-CNN")
    config["model"]["roi_head"]["grid_head"] |= {"grid_points": 4, "norm_cfg": None}
    head = build(config).roi_head.grid_head
    logits = torch.full((1, 4, 28, 28), -9.0)
    logits[0, 0, 13, 13] = 0.0  # the upper left point, in the first half of the whole map
    logits[0, 1, 15, 9] = math.log(3)  # the lower left one
    logits[0, 2, 12, 14] = 0.0
    logits[0, 3, 15, 14] = 0.0
    # One cell is 0.5 px wide and 1 px high; the whole map begins at (3, 6).
    boxes = head.boxes(torch.tensor([[10.0, 20, 24, 48]]), logits)
    left = (0.5 * 9.75 + 0.75 * 7.75) / 1.25
    torch.testing.assert_close(boxes, torch.tensor([[left, 19.0, 24.25, 49.5]]))


def test_taps_of_cascade_rpn_lie_on_anchors():
    """An anchor of 32 x 16 pixels around (20, 12), at location (2, 1) of stride 8, whose tap is at cell (2, 1)."""
    anchors = torch.zeros(1, 12, 4)
    anchors[0, 6] = torch.tensor([4.0, 4, 36, 20])
    offsets = taps_on(anchors, torch.zeros(1, 1, 3, 4), 8)[0, :, 1, 2].reshape(9, 2)
    taps = torch.tensor([(y, x) for y in (-1.0, 0, 1) for x in (-1.0, 0, 1)])
    points = (taps + torch.tensor([1.0, 2]) + offsets).tolist()  # in cells
    assert points == [[y, x] for y in (0.5, 1.5, 2.5) for x in (0.5, 2.5, 4.5)]


def test_proposals_of_guided_anchors():
    """Only the location with an anchor proposes, whatever the objectness of others; the anchor is 8 times as wide."""
    head = build(config_of("Guided anchors")).rpn_head
    for layer in (head.conv_loc, head.conv_shape, head.conv_cls, head.conv_reg):
        layer.weight.zero_()
        layer.bias.zero_()
    head.conv_shape.bias[0] = math.log(8) / 0.14
    head.conv_loc.weight[:] = 1 / head.conv_loc.in_channels
    head.rpn_conv = torch.nn.Identity()
    features = [torch.zeros(1, 32, 128 // stride, 512 // stride) for stride in SQUARES["strides"]]
    for map in features:
        map -= 9  # the ReLU makes it 0, of which the sigmoid is 0.5
    head.threshold = 0.7
    features[1][0, :, 5, 20] = 1  # location (20, 5) of stride 8 has the square of 64 around (160, 40)
    dets, used = head.proposals(features, torch.tensor([[[512.0, 128, 512, 128]]]))
    assert used.sum() == 1
    torch.testing.assert_close(dets[0, 0], torch.tensor([0.0, 8, 416, 72, 0]), rtol=1e-5, atol=1e-3)


def test_fcos_proposes_across_levels():
    """Of the same box on two levels, that with the better product of class score and centerness is left."""
    head = build(config_of("FCOS as RPN")).rpn_head
    sides = [16, 8, 4, 2, 1]
    logits = [torch.full((1, 1, side, side), -9.0) for side in sides]
    centerness = [torch.zeros(1, 1, side, side) for side in sides]
    distances = [torch.zeros(1, 4, side, side) for side in sides]  # boxes without area are no proposals
    logits[0][0, 0, 3, 5], centerness[0][0, 0, 3, 5], distances[0][0, :, 3, 5] = 0, 2, 20
    logits[1][0, 0, 1, 2], centerness[1][0, 0, 1, 2] = 1, -1
    distances[1][0, :, 1, 2] = torch.tensor([16.0, 16, 24, 24])
    head.head.forward = lambda features: (*logits, *distances, *centerness)
    dets, used = head.proposals(logits, torch.tensor([[[128.0, 128, 128, 128]]]))
    assert used.sum() == 1
    torch.testing.assert_close(dets[0, 0], torch.tensor([24.0, 8, 64, 48, 0.5 * 0.880797]))


def test_limits_of_guided_proposals():
    config = config_of("Guided anchors")
    config["model"]["test_cfg"]["rpn"]["nms_post"] = 1
    with pytest.raises(ValueError, match="nms_post at least max_per_img"):
        build(config)


@pytest.mark.parametrize("sampling_ratio", [2, 0])
def test_deformable_pooling_by_samples(sampling_ratio):
    """A loop over bins and samples, from the definition, of a region in the second image.

    Its bins have 2 cells, and so 2 samples by default: not 3, as rounded coordinates would have for some offsets.
    """
    torch.manual_seed(3)
    features, all_offsets = torch.rand(2, 3, 12, 16), torch.randn(20, 2, 2, 3)
    region = (5.0, 9.0, 29.0, 25.0)
    rois = torch.tensor([[1.0, *region]]).expand(20, -1)
    all_pooled = deform_roi_pool(features, rois, all_offsets, 0.25, sampling_ratio=sampling_ratio, gamma=0.1)
    for pooled, offsets in zip(all_pooled, all_offsets, strict=True):
        check_deformed(pooled, features[1:], region, offsets)


def check_deformed(pooled, features, region, offsets):
    """Compare what is pooled [C, 2, 3] of a map [1, C, 12, 16] at offsets [2, 2, 3], with 2 x 2 samples a bin."""
    x1, y1, x2, y2 = region
    width, height = (x2 - x1) / 4, (y2 - y1) / 4  # in cells, whose centres are at .5
    for row, column in ((0, 0), (0, 2), (1, 1)):
        left = x1 / 4 - 0.5 + width * (column / 3 + 0.1 * float(offsets[0, row, column]))
        top = y1 / 4 - 0.5 + height * (row / 2 + 0.1 * float(offsets[1, row, column]))
        samples = [(left + width / 3 * u, top + height / 2 * v) for v in (0.25, 0.75) for u in (0.25, 0.75)]
        points = torch.tensor([[[(x + 0.5) / 8 - 1, (y + 0.5) / 6 - 1] for x, y in samples]])[None]
        wanted = torch.nn.functional.grid_sample(features, points, align_corners=False)[0].mean((1, 2))
        torch.testing.assert_close(pooled[:, row, column], wanted, rtol=1e-3, atol=1e-3)

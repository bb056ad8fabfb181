"""Entries of heads, layers and test_cfg change the result as in MMDetection, or are refused by name."""

import pytest
import torch

import mmort.torch
from mmort.configs.data_preprocessor import read_data_preprocessor
from mmort.detect import build
from mmort.detect.entries import PARTS, read_entries
from mmort.detect.parts.backbones.ssd_vgg import SSDVGG
from mmort.detect.parts.csp import CSPNeXtBlock
from mmort.detect.parts.heads.class_scores import DenseLoss
from mmort.detect.parts.layers import BatchNorm, ConvWS, activation, convolution, normalization
from mmort.detect.parts.necks.bfp import max_pool_to
from mmort.detect.parts.necks.fpg import UpEntries
from mmort.detect.parts.plugins import plugins_of_stage
from mmort.detect.parts.test_cfg import NMS, SelectionEntries
from tests.detect import dense_cases, two_stage_cases
from tests.detect.batches import SHAPES, images
from tests.detect.test_dense_detectors import model


def proposals_of(**nms):
    """Return the proposals of a small RPN with another suppression, and what it predicts."""
    torch.manual_seed(0)
    config = two_stage_cases.config_of("RPN")
    config["model"]["test_cfg"]["rpn"] |= {"max_per_img": 30, "nms": nms or None}
    detector = build(config)
    features = detector.neck(detector.backbone(images()))
    limits = torch.tensor([[[96.0, 64, 96, 64]], [[72, 56, 72, 56]]])
    return detector, detector.rpn_head.proposals(features, limits)[0], detector.rpn_head.candidates(features, limits)


def test_soft_suppression_of_proposals_lowers_probabilities_not_logits():
    detector, dets, (boxes, scores) = proposals_of(type="soft_nms", iou_threshold=0.3, min_score=0.2)
    assert ((scores == -torch.inf) | (scores > 0)).all()
    kept = []
    for level in range(scores.shape[2]):
        passing = scores[0, :, level] > 0
        kept.append(mmort.torch.soft_nms(boxes[0][passing], scores[0, passing, level], 0.3, min_score=0.2)[0])
    expected = torch.cat(kept)
    expected = expected[expected[:, 4].argsort(descending=True, stable=True)][:30]
    torch.testing.assert_close(dets[0, : len(expected), 4], expected[:, 4])
    actual, used = detector(images(), SHAPES)[0], dets[..., 4] > 0
    torch.testing.assert_close(actual[..., 4][used], dets[..., 4][used])  # not a sigmoid of them


def test_without_suppression_the_best_boxes_stay():
    _, dets, (_, scores) = proposals_of()
    best = scores.amax(2).sort(descending=True).values[:, :30]
    torch.testing.assert_close(dets[..., 4], best)
    assert SelectionEntries(score_thr=0, nms=None, max_per_img=1).nms.arguments["iou_threshold"] > 1


def with_test_cfg(kind="ATSSHead", **entries):
    config = dense_cases.config(kind)
    config["model"]["test_cfg"] |= entries
    return config


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"nms_pre": 0}, "nms_pre of a dense detector must be at least 1"),
        ({"nms_pre": -1}, "nms_pre of a dense detector must be at least 1"),
        ({"min_bbox_size": 3}, "test_cfg.min_bbox_size must be 0"),
        ({"nms": {"type": "nms", "offset": 1}}, "nms.offset must be 0"),
        ({"nms": {"type": "soft_nms", "method": "cubic"}}, "nms.method must be one of"),
        ({"score_thr": None}, "score_thr of test_cfg must be a number, got None"),
        ({"max_per_img": 0}, "max_per_img of test_cfg must be an integer of at least 1"),
    ],
)
def test_selections_that_are_refused(entries, message):
    with pytest.raises(ValueError, match=message):
        build(with_test_cfg(**entries))


@pytest.mark.parametrize("nms_pre", [0, -1])
def test_yolov3_of_version_3_needs_a_preselection(nms_pre):
    config = model("yolov3")
    config["model"]["test_cfg"]["nms_pre"] = nms_pre
    assert build({**config, "optimizer": {}}).nms_pre == -1  # version 2 does not read it
    config["model"]["data_preprocessor"] = {}
    with pytest.raises(ValueError, match="nms_pre of a dense detector must be at least 1"):
        build(config)


@pytest.mark.parametrize("name", ["Mask Scoring R-CNN", "HTC"])
def test_masks_need_a_threshold(name):
    config = two_stage_cases.config_of(name)
    config["model"]["test_cfg"]["rcnn"]["mask_thr_binary"] = -1
    with pytest.raises(ValueError, match=r"mask_thr_binary of test_cfg\.rcnn must be a number of at least 0, got -1"):
        build(config)


def test_activations_follow_from_losses_that_are_known():
    focal = {"type": "mmdet.QualityFocalLoss", "use_sigmoid": True, "beta": 2.0}
    assert read_entries("loss_cls", DenseLoss, focal).activation == "sigmoid"
    entropy = {"type": "CrossEntropyLoss", "class_weight": [1, 2]}
    assert read_entries("loss_cls", DenseLoss, entropy).activation == "softmax"
    for kind in ("SeesawLoss", "CrossEntropyCustomLoss", "MyLoss"):  # which activate otherwise
        with pytest.raises(ValueError, match=f"loss_cls '{kind}' is not supported"):
            read_entries("loss_cls", DenseLoss, {"type": kind, "use_sigmoid": True})
    with pytest.raises(ValueError, match="loss_cls with sigmoid"):
        read_entries("loss_cls", DenseLoss, {"type": "FocalLoss", "sigmoid": True})


def test_points_of_vfnet_are_those_of_its_anchor_generator():
    config = dense_cases.config("VFNetHead")
    head = config["model"]["bbox_head"]
    head["strides"] = [4, 8]
    head["anchor_generator"] = {**head["anchor_generator"], "center_offset": 0.5}
    detector = build(config).bbox_head
    assert detector.priors.strides == [(8, 8), (16, 16)]
    assert detector.strides == (4, 8)
    assert detector.priors.level(0, torch.zeros(1, 1, 1, 2)).tolist() == [[4, 4], [12, 4]]
    head["use_atss"] = False
    head["anchor_generator"]["center_offset"] = 0.25
    assert build(config).bbox_head.priors.level(1, torch.zeros(1, 1, 1, 1)).tolist() == [[8, 8]]
    head["strides"] = [8, 16, 32]
    with pytest.raises(ValueError, match=r"must have one entry a level, got \[3, 2, 2\]"):
        build(config)


def test_conv_cfg_is_not_that_of_the_first_convolution_in_a_block_of_cspnext():
    block = CSPNeXtBlock(4, add_identity=True, use_depthwise=False, conv_cfg={"type": "ConvWS"}, norm_cfg=None)
    assert not isinstance(block.conv1.conv, ConvWS)
    assert isinstance(block.conv2.pointwise_conv.conv, ConvWS)


def test_layers_obey_their_entries():
    deformable = convolution({"type": "DCN", "groups": 2, "fallback_on_stride": False}, 4, 4, 3, padding=1, groups=1)
    assert deformable.groups == 2
    assert deformable.weight.shape[1] == 2
    name, norm = normalization({"type": "SyncBN", "eps": 0.25, "requires_grad": True}, 4)
    assert (name, norm.eps, type(norm)) == ("bn", 0.25, BatchNorm)
    assert normalization({"type": "GN", "num_groups": 2}, 4)[1].num_groups == 2
    assert activation({"type": "LeakyReLU", "negative_slope": 0.5, "inplace": True}).negative_slope == 0.5


UP = {"type": "interpolation_conv"}
PLUGIN = {"cfg": {"type": "NonLocal2d"}, "position": "after_conv2"}


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (lambda: convolution({"type": "ConvWS", "colour": 1}, 4, 4, 3), "conv_cfg 'ConvWS' with colour is not"),
        (lambda: convolution({"groups": 1}, 4, 4, 3), "conv_cfg 'None' is not supported"),
        (lambda: convolution({"type": "DCN", "groups": 2}, 4, 4, 3, groups=4), "conv_cfg.groups must be that of"),
        (lambda: normalization({"type": "BN", "track_running_stats": False}, 4), "norm_cfg 'BN' with track_running"),
        (lambda: normalization({"type": "IN"}, 4), "norm_cfg 'IN' is not supported"),
        (lambda: normalization({"type": "GN"}, 4), "norm_cfg 'GN' must have num_groups"),
        (lambda: normalization("BN", 4), "norm_cfg must be a dict, got str"),
        (lambda: activation({"type": "ReLU", "negative_slope": 0.1}), "act_cfg 'ReLU' with negative_slope is not"),
        (lambda: activation({"type": "Mish"}), "act_cfg 'Mish' is not supported"),
        (lambda: NMS(iou_threshold=0.5, method="cubic"), "nms.method must be one of"),
        (lambda: plugins_of_stage([{"cfg": {}, "position": "after"}], 0), "position of a plugin 'after' is not"),
        (lambda: plugins_of_stage([{**PLUGIN, "stage": 1}], 0), "backbone.plugins with stage .* is not supported"),
        (lambda: read_entries("trans", UpEntries, {**UP, "scale": 2}), "trans with scale"),
        (lambda: read_entries("trans", UpEntries, {"type": "conv"}), "trans 'conv' is not supported"),
        (lambda: read_entries("trans", UpEntries, {}), "trans must have type"),
        (lambda: read_entries("trans", UpEntries, {**UP, "mode": "area"}), "mode of trans 'area' is not supported"),
    ],
)
def test_layers_that_are_refused(layer, message):
    with pytest.raises(ValueError, match=message):
        layer()


def test_outputs_of_vgg_are_what_the_next_relu_makes_of_them():
    """MMDetection's ReLUs change their input, which may be an output already."""
    layers = SSDVGG(SSDVGG.Entries(depth=11, out_feature_indices=(0, 1)))
    before, after = layers(torch.randn(1, 3, 32, 32))
    assert torch.equal(before, after)
    assert (before >= 0).all()


def test_anchors_of_a_location_may_be_several_in_paa():
    config = dense_cases.config("PAAHead")
    config["model"]["bbox_head"]["anchor_generator"]["scales_per_octave"] = 2
    dets, labels = build(config)(images(), SHAPES)
    assert dets.shape == (2, 4, 5)
    assert (labels >= 0).any()


def test_a_head_with_fewer_strides_than_levels():
    config = dense_cases.config("GFLHead")
    config["model"]["bbox_head"]["anchor_generator"]["strides"] = [8]
    with pytest.raises(ValueError, match=r"as many strides as there are levels, .*num_outs.*, 2, got 1"):
        build(config)(images(), SHAPES)


@pytest.mark.parametrize(
    ("generator", "entry", "value", "lengths"),
    [
        ({"type": "AnchorGenerator", "ratios": [1], "scales": [1]}, "base_sizes", [8], (2, 1)),
        ({"type": "AnchorGenerator", "ratios": [1], "scales": [1]}, "centers", [(0, 0)] * 3, (2, 3)),
        ({"type": "YOLOAnchorGenerator"}, "base_sizes", [[(8, 8)]], (2, 1)),
        ({"type": "SSDAnchorGenerator"}, "ratios", [[2]], (2, 1)),
        ({"type": "SSDAnchorGenerator", "ratios": [[2], [2]]}, "min_sizes", [8, 16, 32], (2, 3)),
    ],
)
def test_lists_of_a_prior_generator_are_as_long_as_its_strides(generator, entry, value, lengths):
    expected, length = lengths
    message = f"{entry} of prior generator .*must have as many elements as strides, {expected}, got {length}"
    with pytest.raises(ValueError, match=message):
        PARTS.build("prior generator", {**generator, "strides": [8, 16], entry: value})


@pytest.mark.parametrize("sizes", [((13, 7), (4, 7)), ((5, 6), (5, 9)), ((64, 64), (16, 8)), ((3, 1), (1, 1))])
def test_maps_of_balanced_pyramids_are_pooled_as_torch_does(sizes):
    before, after = sizes
    map = torch.rand(2, 3, *before, generator=torch.Generator().manual_seed(1))
    assert torch.equal(max_pool_to(map, after), torch.nn.functional.adaptive_max_pool2d(map, after))


def test_what_boxinst_prepares_for_training_is_ignored():
    config = {"type": "BoxInstDataPreprocessor", "pad_size_divisor": 32, "mask_stride": 4, "pairwise_size": 3}
    assert read_data_preprocessor(config).pad_size_divisor == 32

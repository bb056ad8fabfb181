"""Small two-stage detectors, as their configs."""

import copy
import json
import re
from pathlib import Path

import torch

CONFIG = json.loads((Path(__file__).parents[1] / "data" / "detect" / "mask_rcnn.json").read_text())
"""A small Mask R-CNN."""

CODER = {"type": "DeltaXYWHBBoxCoder", "target_means": [0.0] * 4}
STDS = ([0.1, 0.1, 0.2, 0.2], [0.05, 0.05, 0.1, 0.1], [0.033, 0.033, 0.067, 0.067])
CONV = {"type": "ConvModule", "in_channels": 32, "out_channels": 32, "kernel_size": 5, "padding": 2}
ATTENTION = {"type": "GeneralizedAttention", "in_channels": 32, "num_heads": 4, "attention_type": "0100"}


def _align(size, strides=(4, 8, 16, 32), **entries):
    layer = {"type": "RoIAlign", "output_size": size, "sampling_ratio": 0}
    sizes = {"out_channels": 32, "featmap_strides": list(strides)}
    return {"type": "SingleRoIExtractor", "roi_layer": layer, **sizes, **entries}


def _htc(model):
    head = model["roi_head"]
    sizes = {"in_channels": 32, "conv_out_channels": 32, "num_convs": 2, "num_classes": 10}
    stages = [
        {**head["bbox_head"], "reg_class_agnostic": True, "bbox_coder": {**CODER, "target_stds": s}} for s in STDS
    ]
    masks = [{"type": "HTCMaskHead", "with_conv_res": stage > 0, **sizes} for stage in range(3)]
    model["type"] = "HybridTaskCascade"
    head |= {"type": "HybridTaskCascadeRoIHead", "num_stages": 3, "stage_loss_weights": [1, 0.5, 0.25]}
    head |= {"bbox_head": stages, "mask_head": masks, "semantic_roi_extractor": _align(14, [8])}
    head["semantic_head"] = {"type": "FusedSemanticHead", "num_ins": 5, "fusion_level": 1, **sizes}


def _double(model):
    head = model["roi_head"]
    del head["mask_head"], head["mask_roi_extractor"]
    sizes = {"in_channels": 32, "conv_out_channels": 48, "fc_out_channels": 40, "num_classes": 10}
    coder = {**CODER, "target_stds": STDS[0]}
    box_head = {"type": "DoubleConvFCBBoxHead", "num_convs": 2, "num_fcs": 2, **sizes, "bbox_coder": coder}
    head |= {"type": "DoubleHeadRoIHead", "reg_roi_scale_factor": 1.3, "bbox_head": box_head}


def _mask_scoring(model):
    sizes = {"in_channels": 32, "conv_out_channels": 16, "fc_out_channels": 24, "num_classes": 10}
    model["type"] = "MaskScoringRCNN"
    model["roi_head"]["type"] = "MaskScoringRoIHead"
    model["roi_head"]["mask_iou_head"] = {"type": "MaskIoUHead", "num_convs": 2, "num_fcs": 1, **sizes}


def _groie(model):
    steps = {"type": "GenericRoIExtractor", "pre_cfg": CONV, "post_cfg": ATTENTION}
    model["roi_head"]["bbox_roi_extractor"] = _align(7, **steps)
    model["roi_head"]["mask_roi_extractor"] = _align(14, **steps)


def _dynamic(model):
    model["roi_head"]["type"] = "DynamicRoIHead"
    model["roi_head"]["bbox_head"]["loss_bbox"] = {"type": "SmoothL1Loss"}


def _rpn(model):
    model["type"] = "RPN"
    del model["roi_head"]
    model["test_cfg"].pop("rcnn")


def _query_inst(model):
    conv = {"type": "DynamicConv", "in_channels": 32, "feat_channels": 8, "out_channels": 32}
    stage = {"type": "DIIHead", "in_channels": 32, "num_heads": 4, "feedforward_channels": 48, "num_classes": 10}
    stage |= {
        "dynamic_conv_cfg": {**conv, "input_feat_shape": 7},
        "loss_cls": {"type": "FocalLoss", "use_sigmoid": True},
    }
    stage["bbox_coder"] = {**CODER, "clip_border": False, "target_stds": [0.5, 0.5, 1.0, 1.0]}
    mask = {"type": "DynamicMaskHead", "in_channels": 32, "conv_out_channels": 32, "num_convs": 1, "num_classes": 10}
    mask["dynamic_conv_cfg"] = {**conv, "input_feat_shape": 14, "with_proj": False}
    model["type"] = "QueryInst"
    model["neck"]["num_outs"] = 4
    model["rpn_head"] = {"type": "EmbeddingRPNHead", "num_proposals": 12, "proposal_feature_channel": 32}
    model["roi_head"] = {"type": "SparseRoIHead", "num_stages": 2, "stage_loss_weights": [1, 1]}
    model["roi_head"] |= {"bbox_roi_extractor": _align(7), "mask_roi_extractor": _align(14)}
    model["roi_head"] |= {"bbox_head": [stage] * 2, "mask_head": [mask] * 2, "proposal_feature_channel": 32}
    model["test_cfg"] = {"rpn": None, "rcnn": {"max_per_img": 12, "mask_thr_binary": 0.5}}


def _sparse(model):
    _query_inst(model)
    model["type"] = "SparseRCNN"
    del model["roi_head"]["mask_head"], model["roi_head"]["mask_roi_extractor"]


def _scnet(model):
    _htc(model)
    head = model["roi_head"]
    model["type"], head["type"] = "SCNet", "SCNetRoIHead"
    head["bbox_head"] = [{**stage, "type": "SCNetBBoxHead", "num_shared_fcs": 2} for stage in head["bbox_head"]]
    mask = {name: value for name, value in head["mask_head"][0].items() if name != "with_conv_res"}
    head["mask_head"] = {**mask, "type": "SCNetMaskHead"}
    head["semantic_head"] |= {"type": "SCNetSemanticHead"}
    sizes = {"in_channels": 32, "conv_out_channels": 32, "num_classes": 10}
    head["glbctx_head"] = {"type": "GlobalContextHead", "num_convs": 2, **sizes, "conv_to_res": True}
    head["feat_relay_head"] = {"type": "FeatureRelayHead", "in_channels": 64, "out_conv_channels": 32}


def _grid(model):
    head = model["roi_head"]
    del head["mask_head"], head["mask_roi_extractor"]
    model["type"], head["type"] = "GridRCNN", "GridRoIHead"
    head["bbox_head"] |= {"with_reg": False}
    head["grid_roi_extractor"] = _align(14)
    sizes = {"in_channels": 32, "point_feat_channels": 4, "num_convs": 2, "norm_cfg": {"type": "GN", "num_groups": 9}}
    head["grid_head"] = {"type": "GridHead", **sizes}


def _sabl_head():
    coder = {"type": "BucketingBBoxCoder", "num_buckets": 14, "scale_factor": 1.7}
    sizes = {"cls_in_channels": 32, "reg_in_channels": 32, "cls_out_channels": 24, "num_classes": 10}
    widths = {"reg_cls_out_channels": 32, "reg_offset_out_channels": 32}
    return {"type": "SABLHead", **sizes, **widths, "bbox_coder": coder}


def _sabl(model):
    head = model["roi_head"]
    del head["mask_head"], head["mask_roi_extractor"]
    head["bbox_head"] = _sabl_head()


def _sabl_cascade(model):
    head = model["roi_head"]
    del head["mask_head"], head["mask_roi_extractor"]
    model["type"], head["type"] = "CascadeRCNN", "CascadeRoIHead"
    head |= {"num_stages": 3, "stage_loss_weights": [1, 0.5, 0.25], "bbox_head": [_sabl_head()] * 3}


def _pisa(model):
    model["roi_head"]["type"] = "PISARoIHead"


def _carafe(model):
    upsampling = {"type": "carafe", "scale_factor": 2, "up_kernel": 5, "up_group": 1}
    model["roi_head"]["mask_head"]["upsample_cfg"] = {**upsampling, "encoder_kernel": 3, "compressed_channels": 16}


def _libra(model):
    bfp = {"type": "BFP", "in_channels": 32, "num_levels": 5, "refine_level": 2, "refine_type": "non_local"}
    model["neck"] = [model["neck"], bfp]
    model["roi_head"]["bbox_head"]["loss_bbox"] = {"type": "BalancedL1Loss"}


STRIDES = [4, 8, 16, 32, 64]
SQUARES = {"type": "AnchorGenerator", "ratios": [1.0], "scales": [8], "strides": STRIDES}


def _guided(model):
    approximate = {"type": "AnchorGenerator", "octave_base_scale": 8, "scales_per_octave": 3, "strides": STRIDES}
    model["rpn_head"] = {
        "type": "GARPNHead",
        "in_channels": 32,
        "feat_channels": 32,
        "approx_anchor_generator": {**approximate, "ratios": [0.5, 1.0, 2.0]},
        "square_anchor_generator": SQUARES,
        "anchor_coder": {**CODER, "target_stds": [0.07, 0.07, 0.14, 0.14]},
        "bbox_coder": {**CODER, "target_stds": [0.07, 0.07, 0.11, 0.11]},
        "loc_filter_thr": 0.4,
        "loss_loc": {"type": "FocalLoss", "use_sigmoid": True},
        "loss_cls": {"type": "CrossEntropyLoss", "use_sigmoid": True},
    }
    model["test_cfg"]["rpn"]["nms_post"] = 1000


def _cascade_rpn(model):
    stage = {"type": "StageCascadeRPNHead", "in_channels": 32, "feat_channels": 32, "reg_decoded_bbox": True}
    stage["loss_bbox"] = {"type": "IoULoss"}
    first = {"anchor_generator": SQUARES, "bridged_feature": True, "with_cls": False}
    first |= {"adapt_cfg": {"type": "dilation", "dilation": 3}}
    first |= {"bbox_coder": {**CODER, "target_stds": [0.1, 0.1, 0.5, 0.5]}}
    last = {"adapt_cfg": {"type": "offset"}, "bbox_coder": {**CODER, "target_stds": [0.05, 0.05, 0.1, 0.1]}}
    last["loss_cls"] = {"type": "CrossEntropyLoss", "use_sigmoid": True}
    stages = [{**stage, **first}, {**stage, **last}]
    model["rpn_head"] = {"type": "CascadeRPNHead", "num_stages": 2, "stages": stages}


def _cascade_rpn_alone(model):
    _cascade_rpn(model)
    model["rpn_head"]["num_classes"] = 1  # MMDetection 3 needs it, version 2 refuses it
    _rpn(model)


def _deformable_pooling(model):
    layer = {"output_size": 3, "output_channels": 32, "deform_fc_channels": 16}
    for name, kind in (("bbox", "DeformRoIPoolPack"), ("mask", "ModulatedDeformRoIPoolPack")):
        model["roi_head"][f"{name}_roi_extractor"]["roi_layer"] = {"type": kind, **layer}
    model["roi_head"]["bbox_head"]["roi_feat_size"] = 3


def _fcos_rpn(model):
    model["neck"] |= {"start_level": 1, "add_extra_convs": "on_output", "relu_before_extra_convs": True}
    head = {"type": "FCOSHead", "num_classes": 1, "in_channels": 32, "feat_channels": 32, "stacked_convs": 1}
    head |= {
        "norm_cfg": {"type": "GN", "num_groups": 8},
        "strides": [8, 16, 32, 64, 128],
        "loss_cls": {"type": "FocalLoss", "use_sigmoid": True},
    }
    model["rpn_head"] = head
    for name in ("bbox", "mask"):
        model["roi_head"][f"{name}_roi_extractor"]["featmap_strides"] = head["strides"]


def _crowd(model):
    head = model["roi_head"]
    del head["mask_head"], head["mask_roi_extractor"]
    model["type"], head["type"], head["num_instance"] = "CrowdDet", "MultiInstanceRoIHead", 2
    entries = {"num_classes": 1, "with_refine": True, "num_shared_fcs": 2}
    head["bbox_head"] |= {"type": "MultiInstanceBBoxHead", **entries}
    model["test_cfg"]["rpn"]["min_bbox_size"] = 2


CASES = {
    "HTC": _htc,
    "Double-Head R-CNN": _double,
    "Mask Scoring R-CNN": _mask_scoring,
    "GRoIE": _groie,
    "Dynamic R-CNN": _dynamic,
    "RPN": _rpn,
    "QueryInst": _query_inst,
    "Sparse R-CNN": _sparse,
    "SCNet": _scnet,
    "Grid R-CNN": _grid,
    "SABL Faster R-CNN": _sabl,
    "SABL Cascade R-CNN": _sabl_cascade,
    "PISA": _pisa,
    "CARAFE in the mask head": _carafe,
    "Libra Mask R-CNN": _libra,
    "Deformable RoI pooling": _deformable_pooling,
    "Guided anchors": _guided,
    "Cascade RPN": _cascade_rpn,
    "Cascade RPN alone": _cascade_rpn_alone,
    "FCOS as RPN": _fcos_rpn,
    "CrowdDet": _crowd,
}


def config_of(case):
    """Return the small Mask R-CNN's config, made into another detector's."""
    config = copy.deepcopy(CONFIG)
    CASES[case](config["model"])
    return config


def fill(module):
    """Give all weights values of which scores and boxes vary."""
    torch.manual_seed(1)
    for name, value in module.state_dict().items():
        if name.endswith("running_var"):
            value.uniform_(0.5, 1.5)
        elif value.ndim > 1 and "embed" not in name:
            torch.nn.init.kaiming_normal_(value)
        elif value.is_floating_point():
            value.add_(torch.randn_like(value) * 0.1)
    for name, value in module.state_dict().items():
        if "fc_reg" in name or "rpn_reg" in name or "init_proposal_bboxes" in name:
            value.mul_(0.1)
        if re.search(r"fc_cls\S*\.weight|_att_|fc_reg_offset", name):
            value.mul_(0.1)
        if "rpn_cls.weight" in name:
            value.mul_(0.02)  # MMDetection leaves the order of equal scores open, such as 1
        if name.startswith("rpn_head.conv_"):  # of guided anchors, whose sizes grow exponentially
            value.mul_(0.05)
        if "init_proposal_bboxes" in name:
            value.add_(0.5)
        if "fc_mask_iou.weight" in name:
            value.mul_(0.02)

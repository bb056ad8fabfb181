"""Small two-stage detectors, as their configs."""

import copy
import json
from pathlib import Path

CONFIG = json.loads((Path(__file__).parents[1] / "data" / "detect" / "mask_rcnn.json").read_text())
"""A small Mask R-CNN."""

CODER = {"type": "DeltaXYWHBBoxCoder", "target_means": [0.0] * 4}
STDS = ([0.1, 0.1, 0.2, 0.2], [0.05, 0.05, 0.1, 0.1], [0.033, 0.033, 0.067, 0.067])
CONV = {"type": "ConvModule", "in_channels": 32, "out_channels": 32, "kernel_size": 5, "padding": 2}
ATTENTION = {"type": "GeneralizedAttention", "in_channels": 32, "num_heads": 4, "attention_type": "0100"}


def _align(size, strides=(4, 8, 16, 32), **entries):
    layer = {"type": "RoIAlign", "output_size": size, "sampling_ratio": 2}
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
    model["test_cfg"] = {"rpn": None, "rcnn": {"max_per_img": 20, "mask_thr_binary": 0.5}}


CASES = {
    "HTC": _htc,
    "Double-Head R-CNN": _double,
    "Mask Scoring R-CNN": _mask_scoring,
    "GRoIE": _groie,
    "Dynamic R-CNN": _dynamic,
    "RPN": _rpn,
    "QueryInst": _query_inst,
}


def config_of(case):
    """Return the small Mask R-CNN's config, made into another detector's."""
    config = copy.deepcopy(CONFIG)
    CASES[case](config["model"])
    return config

"""Small detectors of MMYOLO's families, as configs that MMYOLO builds too."""

from __future__ import annotations

import copy
from typing import Any

NORM = {"type": "BN", "momentum": 0.03, "eps": 0.001}
LAYER = {"norm_cfg": NORM, "act_cfg": {"type": "SiLU", "inplace": True}}
SMALL = {"deepen_factor": 0.33, "widen_factor": 0.125}
STRIDES, LEVELS = [8, 16, 32], [256, 512, 1024]
TEST_CFG = {
    "multi_label": True,
    "nms_pre": 30000,
    "score_thr": 0.001,
    "nms": {"type": "nms", "iou_threshold": 0.65},
    "max_per_img": 100,
}
PREPROCESSOR = {"type": "YOLOv5DetDataPreprocessor", "mean": [0.0] * 3, "std": [255.0] * 3, "bgr_to_rgb": True}
V5_BACKBONE = {"type": "YOLOv5CSPDarknet", **SMALL, **LAYER}
V5_NECK = {"type": "YOLOv5PAFPN", **SMALL, **LAYER, "in_channels": LEVELS, "out_channels": LEVELS, "num_csp_blocks": 3}
V5_HEAD = {
    "type": "YOLOv5Head",
    "head_module": {"type": "YOLOv5HeadModule", "num_classes": 3, "in_channels": LEVELS, "widen_factor": 0.125},
    "prior_generator": {
        "type": "mmdet.YOLOAnchorGenerator",
        "base_sizes": [[(10, 13), (16, 30), (33, 23)], [(30, 61), (62, 45), (59, 119)], [(46, 90), (90, 98), (73, 96)]],
        "strides": STRIDES,
    },
    "obj_level_weights": [4.0, 1.0, 0.4],
}
V5_INS_HEAD = {
    **V5_HEAD,
    "type": "YOLOv5InsHead",
    "head_module": {
        **V5_HEAD["head_module"],
        "type": "YOLOv5InsHeadModule",
        "mask_channels": 8,
        "proto_channels": 128,
    },
    "mask_overlap": True,
    "loss_mask_weight": 0.05,
}
V8_HEAD = {
    "type": "YOLOv8Head",
    "head_module": {
        "type": "YOLOv8HeadModule",
        "num_classes": 3,
        "in_channels": LEVELS,
        "widen_factor": 0.125,
        "reg_max": 4,
        "featmap_strides": STRIDES,
        **LAYER,
    },
    "prior_generator": {"type": "mmdet.MlvlPointGenerator", "offset": 0.5, "strides": STRIDES},
    "bbox_coder": {"type": "DistancePointBBoxCoder"},
}


def _model(backbone: dict[str, Any], neck: dict[str, Any], head: dict[str, Any], **test_cfg: Any) -> dict[str, Any]:
    return copy.deepcopy(
        {
            "type": "YOLODetector",
            "data_preprocessor": PREPROCESSOR,
            "backbone": backbone,
            "neck": neck,
            "bbox_head": head,
            "test_cfg": {**TEST_CFG, **test_cfg},
        }
    )


PLAIN_LAYER = {"norm_cfg": {"type": "BN"}, "act_cfg": {"type": "SiLU", "inplace": True}}
POINTS = {"type": "mmdet.MlvlPointGenerator", "offset": 0, "strides": STRIDES}
RTMDET_MODULE = {
    "type": "RTMDetSepBNHeadModule",
    "num_classes": 3,
    "in_channels": 256,
    "feat_channels": 128,
    "stacked_convs": 2,
    "widen_factor": 0.125,
    "featmap_strides": STRIDES,
    **PLAIN_LAYER,
}
RTMDET_BACKBONE = {"type": "CSPNeXt", **SMALL, **PLAIN_LAYER, "expand_ratio": 0.5}
RTMDET_NECK = {"type": "CSPNeXtPAFPN", **SMALL, **PLAIN_LAYER, "in_channels": LEVELS, "out_channels": 256}
RTMDET_HEAD = {
    "type": "RTMDetHead",
    "head_module": RTMDET_MODULE,
    "prior_generator": POINTS,
    "bbox_coder": {"type": "DistancePointBBoxCoder"},
    "loss_cls": {"type": "mmdet.QualityFocalLoss", "use_sigmoid": True},
}
RTMDET_OTHER = {
    **RTMDET_HEAD,
    "head_module": {**RTMDET_MODULE, "share_conv": False, "pred_kernel_size": 3, "stacked_convs": 1},
}
YOLOX_MODULE = {
    "type": "YOLOXHeadModule",
    "num_classes": 3,
    "in_channels": 256,
    "feat_channels": 128,
    "widen_factor": 0.125,
    **LAYER,
}
YOLOX_BACKBONE = {"type": "YOLOXCSPDarknet", **SMALL, **LAYER, "spp_kernal_sizes": (3, 5, 9)}
YOLOX_NECK = {"type": "YOLOXPAFPN", **SMALL, **LAYER, "in_channels": LEVELS, "out_channels": 256}
RELU = {"type": "ReLU", "inplace": True}
V6_LEVELS = [128, 256, 512]
V6_LAYER = {"norm_cfg": NORM, "act_cfg": RELU}
V6_BACKBONE = {"type": "YOLOv6EfficientRep", **SMALL, **V6_LAYER}
V6_NECK = {"type": "YOLOv6RepPAFPN", **SMALL, **V6_LAYER, "in_channels": LEVELS, "out_channels": V6_LEVELS}
V6_HEAD = {
    "type": "YOLOv6Head",
    "head_module": {
        "type": "YOLOv6HeadModule",
        "num_classes": 3,
        "in_channels": V6_LEVELS,
        "widen_factor": 0.125,
        **LAYER,
    },
}
V6_LARGE = {"hidden_ratio": 0.5, "block_cfg": {"type": "ConvWrapper", "norm_cfg": NORM}}
V6_THREE = {"out_indices": [1, 2, 3, 4], "use_cspsppf": True}
V6_FOUR_LEVELS = {"in_channels": [128, *LEVELS]}
V6_DISTRIBUTIONS = {**V6_HEAD, "head_module": {**V6_HEAD["head_module"], "reg_max": 4}}
SCALED = {"widen_factor": 0.125}
V7_LEVELS = [128, 256, 512]
V7_BACKBONE = {"type": "YOLOv7Backbone", "arch": "L", **SCALED, **LAYER}
V7_NECK = {
    "type": "YOLOv7PAFPN",
    **SCALED,
    **LAYER,
    "in_channels": [512, 1024, 1024],
    "out_channels": V7_LEVELS,
    "upsample_feats_cat_first": False,
    # MMYOLO changes its default, which the detectors built after it then have
    "block_cfg": {
        "type": "ELANBlock",
        "middle_ratio": 0.5,
        "block_ratio": 0.25,
        "num_blocks": 4,
        "num_convs_in_block": 1,
    },
}
V7_HEAD = {
    **V5_HEAD,
    "type": "YOLOv7Head",
    "head_module": {"type": "YOLOv7HeadModule", "num_classes": 3, "in_channels": LEVELS, **SCALED},
    "simota_candidate_topk": 10,
}
V7_TINY_LAYER = {"norm_cfg": NORM, "act_cfg": {"type": "LeakyReLU", "negative_slope": 0.1}}
V7_TINY_NECK = {
    **V7_NECK,
    **V7_TINY_LAYER,
    "in_channels": [128, 256, 512],
    "out_channels": [64, 128, 256],
    "is_tiny_version": True,
    "use_repconv_outs": False,
    "block_cfg": {"type": "TinyDownSampleBlock", "middle_ratio": 0.25},
}
V7_X_NECK = {
    **V7_NECK,
    "in_channels": [640, 1280, 1280],
    "out_channels": [160, 320, 640],
    "use_repconv_outs": False,
    "block_cfg": {
        "type": "ELANBlock",
        "middle_ratio": 0.4,
        "block_ratio": 0.4,
        "num_blocks": 3,
        "num_convs_in_block": 2,
    },
}
V7_TINY_HEAD = {**V7_HEAD, "head_module": {**V7_HEAD["head_module"], "in_channels": [128, 256, 512]}}
V7_X_HEAD = {**V7_HEAD, "head_module": {**V7_HEAD["head_module"], "in_channels": [320, 640, 1280]}}
V7_P6 = {"arch": "W", "out_indices": (2, 3, 4, 5)}
V7_SUMMED = {"type": "EELANBlock", "middle_ratio": 0.4, "block_ratio": 0.2, "num_blocks": 6, "num_elan_block": 2}
PP_LAYER = {"norm_cfg": {"type": "BN", "momentum": 0.1, "eps": 1e-5}, "act_cfg": LAYER["act_cfg"]}
PP_BLOCK = {"type": "PPYOLOEBasicBlock", "shortcut": True, "use_alpha": True}
PP_BACKBONE = {"type": "PPYOLOECSPResNet", **SMALL, **PP_LAYER, "block_cfg": PP_BLOCK, "use_large_stem": True}
PP_LEVELS = [192, 384, 768]
PP_NECK = {
    "type": "PPYOLOECSPPAFPN",
    **SMALL,
    **PP_LAYER,
    "in_channels": LEVELS,
    "out_channels": PP_LEVELS,
    "block_cfg": {**PP_BLOCK, "shortcut": False, "use_alpha": False},
    "use_spp": True,
}
PP_HEAD = {
    "type": "PPYOLOEHead",
    "head_module": {
        "type": "PPYOLOEHeadModule",
        "num_classes": 3,
        "in_channels": PP_LEVELS,
        "widen_factor": 0.125,
        "reg_max": 4,
        **PP_LAYER,
    },
    "prior_generator": {**POINTS, "offset": 0.5},
}
STYLE = {"yolox_style": True, "score_thr": 0.3}
DEPTHWISE = {"use_depthwise": True}

P6 = [256, 512, 768, 1024]
_P6_HEAD = copy.deepcopy(V5_HEAD)
_P6_HEAD["head_module"] |= {"in_channels": P6, "featmap_strides": [8, 16, 32, 64]}
_P6_HEAD["obj_level_weights"] = [4.0, 1.0, 0.25, 0.06]
_P6_HEAD["prior_generator"]["strides"] = [8, 16, 32, 64]
_P6_HEAD["prior_generator"]["base_sizes"].append([(90, 60), (70, 90), (95, 96)])
_V7_P6_HEAD = copy.deepcopy(_P6_HEAD)
_V7_P6_HEAD["type"] = "YOLOv7Head"
_V7_P6_HEAD["head_module"] = {
    "type": "YOLOv7p6HeadModule",
    "num_classes": 3,
    "in_channels": [128, 256, 384, 512],
    "main_out_channels": [24, 32, 40, 48],  # not scaled
    "aux_out_channels": [24, 32, 40, 48],
    "featmap_strides": [8, 16, 32, 64],
    **SCALED,
    **LAYER,
}
_V7_E2E_HEAD = copy.deepcopy(_V7_P6_HEAD)
_V7_E2E_HEAD["head_module"] |= {"in_channels": [160, 320, 480, 640], "widen_factor": 0.1}
_ONE_CLASS = copy.deepcopy(V5_HEAD)
_ONE_CLASS["head_module"]["num_classes"] = 1
MODELS = {
    "yolov5": _model(V5_BACKBONE, V5_NECK, V5_HEAD),
    "yolov5_single": _model(V5_BACKBONE, V5_NECK, V5_HEAD, multi_label=False, score_thr=0.3, nms_pre=40),
    "yolov5_style": _model(V5_BACKBONE, V5_NECK, V5_HEAD, yolox_style=True, multi_label=False, score_thr=0.3),
    "yolov5_one_class": _model(V5_BACKBONE, V5_NECK, _ONE_CLASS),
    "yolov5_p6": _model(
        {**V5_BACKBONE, "arch": "P6", "out_indices": (2, 3, 4, 5)},
        {**V5_NECK, "in_channels": P6, "out_channels": P6},
        _P6_HEAD,
        multi_label=False,
    ),
    "yolov5u": _model(V5_BACKBONE, V5_NECK, V8_HEAD, score_thr=0.3),
    "yolov8": _model(
        {**V5_BACKBONE, "type": "YOLOv8CSPDarknet", "deepen_factor": 0.4, "last_stage_out_channels": 512},
        {**V5_NECK, "type": "YOLOv8PAFPN", "in_channels": [256, 512, 512], "out_channels": [256, 512, 512]},
        {**V8_HEAD, "head_module": {**V8_HEAD["head_module"], "in_channels": [256, 512, 512]}},
        score_thr=0.3,
    ),
    "rtmdet_yolo": _model(RTMDET_BACKBONE, RTMDET_NECK, RTMDET_HEAD, score_thr=0.3),
    "rtmdet_yolo_other": _model(
        {**RTMDET_BACKBONE, "expand_ratio": 0.25, "channel_attention": False},
        {**RTMDET_NECK, "expand_ratio": 0.75, "num_csp_blocks": 6},
        RTMDET_OTHER,
        score_thr=0.3,
    ),
    "yolox_yolo": _model(YOLOX_BACKBONE, YOLOX_NECK, {"type": "YOLOXHead", "head_module": YOLOX_MODULE}, **STYLE),
    "yolox_yolo_depthwise": _model(
        {**YOLOX_BACKBONE, **DEPTHWISE},
        {**YOLOX_NECK, **DEPTHWISE},
        {"type": "YOLOXHead", "head_module": {**YOLOX_MODULE, **DEPTHWISE, "stacked_convs": 1}},
        **STYLE,
    ),
    "yolov6": _model(V6_BACKBONE, V6_NECK, V6_HEAD, score_thr=0.3),
    "yolov6_large": _model(
        {**V6_BACKBONE, **V6_LARGE, "type": "YOLOv6CSPBep", "act_cfg": LAYER["act_cfg"]},
        {**V6_NECK, **V6_LARGE, "type": "YOLOv6CSPRepPAFPN"},
        V6_HEAD,
        score_thr=0.3,
    ),
    "yolov6_3": _model(
        {**V6_BACKBONE, **V6_THREE},
        {**V6_NECK, **V6_FOUR_LEVELS, "type": "YOLOv6RepBiPAFPN"},
        V6_HEAD,
        score_thr=0.3,
    ),
    "yolov6_3_large": _model(
        {**V6_BACKBONE, **V6_THREE, "type": "YOLOv6CSPBep", "hidden_ratio": 0.75, "block_cfg": {"type": "RepVGGBlock"}},
        {**V6_NECK, **V6_FOUR_LEVELS, "type": "YOLOv6CSPRepBiPAFPN", "hidden_ratio": 0.75, "block_act_cfg": RELU},
        V6_DISTRIBUTIONS,
        score_thr=0.3,
    ),
    "ppyoloe_plus": _model(PP_BACKBONE, PP_NECK, PP_HEAD, score_thr=0.3),
    "ppyoloe": _model(
        {**PP_BACKBONE, "use_large_stem": False, "deepen_factor": 0.67, "block_cfg": {**PP_BLOCK, "use_alpha": False}},
        {**PP_NECK, "deepen_factor": 1.0, "num_csplayer": 2, "block_cfg": {**PP_BLOCK, "use_alpha": False}},
        PP_HEAD,
        score_thr=0.3,
    ),
    "rtmdet_rotated": _model(
        RTMDET_BACKBONE,
        RTMDET_NECK,
        {
            "type": "RTMDetRotatedHead",
            "head_module": {**RTMDET_MODULE, "type": "RTMDetRotatedSepBNHeadModule"},
            "prior_generator": POINTS,
            "bbox_coder": {"type": "DistanceAnglePointCoder", "angle_version": "le90"},
            "loss_bbox": {"type": "mmrotate.RotatedIoULoss", "mode": "linear"},
            "angle_version": "le90",
            "angle_coder": {"type": "mmrotate.PseudoAngleCoder"},
        },
        score_thr=0.3,
        decode_with_angle=True,
        min_bbox_size=0,  # the kernel that MMYOLO has in tests takes negative sides for their absolute values
        nms={"type": "nms_rotated", "iou_threshold": 0.1},
    ),
    "yolov7": _model(V7_BACKBONE, V7_NECK, V7_HEAD),
    "yolov7_tiny": _model({**V7_BACKBONE, **V7_TINY_LAYER, "arch": "Tiny"}, V7_TINY_NECK, V7_TINY_HEAD),
    "yolov7_x": _model({**V7_BACKBONE, "arch": "X"}, V7_X_NECK, V7_X_HEAD),
    "yolov7_w": _model(
        {**V7_BACKBONE, **V7_P6},
        {**V7_NECK, "in_channels": P6, "out_channels": [128, 256, 384, 512], "use_maxpool_in_downsample": False},
        _V7_P6_HEAD,
    ),
    "yolov7_e2e": _model(
        {**V7_BACKBONE, **V7_P6, "arch": "E2E", "widen_factor": 0.1},
        {
            **V7_NECK,
            "widen_factor": 0.1,
            "in_channels": [320, 640, 960, 1280],
            "out_channels": [160, 320, 480, 640],
            "use_in_channels_in_downsample": True,
            "block_cfg": V7_SUMMED,
        },
        _V7_E2E_HEAD,
    ),
    "yolov5_ins": _model(
        V5_BACKBONE,
        V5_NECK,
        V5_INS_HEAD,
        score_thr=0.3,
        max_per_img=20,
        min_bbox_size=0,
        mask_thr_binary=0.4,
        fast_test=True,
    ),
}

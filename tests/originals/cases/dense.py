"""Detectors of one stage: heads over a small ResNet and FPN, and those with a network to themselves."""

from __future__ import annotations

import copy
from typing import Any

from tests.detect import dense_cases
from tests.originals.cases.case import PACK, PREPROCESSOR, Case, Config, model

BACKBONE = {"type": "ResNet", "depth": 18, "base_channels": 4, "stem_channels": 4, "out_indices": (1, 2, 3)}
NECK = {"type": "FPN", "in_channels": [8, 16, 32], "out_channels": 32, "num_outs": 3}
STRIDES = [8, 16, 32]
ANCHORS = {"type": "AnchorGenerator", "ratios": [0.5, 1.0], "scales": [3, 5], "strides": STRIDES}
NMS = {"type": "nms", "iou_threshold": 0.6}
TEST_CFG = {"nms_pre": 100, "min_bbox_size": 0, "score_thr": 0.05, "nms": NMS, "max_per_img": 30}
FOCAL = {"type": "FocalLoss", "use_sigmoid": True}
CROSS_ENTROPY = {"type": "CrossEntropyLoss", "use_sigmoid": False}
SMALL = {"num_classes": 3, "in_channels": 32, "feat_channels": 32, "stacked_convs": 1}
CODER = {"type": "DeltaXYWHBBoxCoder", "target_means": [0.0] * 4, "target_stds": [0.5, 0.5, 0.5, 0.5]}
GN = {"type": "GN", "num_groups": 8, "requires_grad": True}
RANGES = ((-1, 32), (32, 64), (64, 1e8))


def over_pyramid(kind: str, head: Config, neck: Config | None = None, **entries: Any) -> Config:
    """Return a detector with a head over the small pyramid."""
    parts = {"backbone": BACKBONE, "neck": neck or NECK, "bbox_head": head, "test_cfg": TEST_CFG, **entries}
    return model(kind, **parts)


def _anchor_head(kind: str, **entries: Any) -> Config:
    return {"type": kind, **SMALL, "anchor_generator": ANCHORS, "bbox_coder": CODER, "loss_cls": FOCAL, **entries}


SQUARE = {
    "type": "AnchorGenerator",
    "ratios": [1.0],
    "octave_base_scale": 5,
    "scales_per_octave": 1,
    "strides": STRIDES,
}


def _square_head(kind: str, **entries: Any) -> Config:
    """Return a head with one anchor for each location."""
    return _anchor_head(kind, anchor_generator=SQUARE, **entries)


FCOS = {
    "type": "FCOSHead",
    **SMALL,
    "strides": STRIDES,
    "regress_ranges": RANGES,
    "norm_cfg": GN,
    "loss_cls": FOCAL,
    "loss_bbox": {"type": "IoULoss"},
    "loss_centerness": {"type": "CrossEntropyLoss", "use_sigmoid": True},
}
LOG_DISTANCES = {r"(conv_reg|reg_convs_pred|fcos_reg|bbox_pred|conv_bbox)$": (2.3, 0.4)}
"""Of boxes whose sides are the exponentials of the outputs."""

_SSD_ANCHORS = {
    "type": "SSDAnchorGenerator",
    "scale_major": False,
    "min_sizes": [12, 24, 48],
    "max_sizes": [24, 48, 90],
    "strides": [8, 16, 32],
    "ratios": [[2], [2, 3], [2]],
}


def _ssd(kind: str) -> Config:
    """Return an SSD over a MobileNet, whose layers are small."""
    neck = {
        "type": "SSDNeck",
        "in_channels": (8, 8),
        "out_channels": (8, 8, 16),
        "level_strides": (2,),
        "level_paddings": (1,),
        "l2_norm_scale": 20,
    }
    head = {
        "type": kind,
        "num_classes": 3,
        "in_channels": (8, 8, 16),
        "anchor_generator": _SSD_ANCHORS,
        "bbox_coder": {"type": "DeltaXYWHBBoxCoder", "target_stds": [0.1, 0.1, 0.2, 0.2]},
    }
    backbone = {"type": "MobileNetV2", "widen_factor": 0.1, "out_indices": (2, 3)}
    return model("SingleStageDetector", backbone=backbone, neck=neck, bbox_head=head, test_cfg=TEST_CFG)


RESIZED = [{"type": "LoadImageFromFile"}, {"type": "Resize", "scale": (96, 96), "keep_ratio": False}, PACK]

YOLOV3 = model(
    "YOLOV3",
    backbone={"type": "Darknet", "depth": 53, "out_indices": (1, 2, 3)},
    neck={"type": "YOLOV3Neck", "num_scales": 3, "in_channels": [256, 128, 64], "out_channels": [32, 16, 8]},
    bbox_head={
        "type": "YOLOV3Head",
        "num_classes": 3,
        "in_channels": [32, 16, 8],
        "out_channels": [32, 16, 8],
        "anchor_generator": {
            "type": "YOLOAnchorGenerator",
            "base_sizes": [
                [(58, 45), (77, 99), (60, 80)],
                [(30, 61), (62, 45), (59, 19)],
                [(10, 13), (16, 30), (33, 23)],
            ],
            "strides": [16, 8, 4],
        },
        "bbox_coder": {"type": "YOLOBBoxCoder"},
        "featmap_strides": [16, 8, 4],
    },
    test_cfg={
        "nms_pre": 100,
        "min_bbox_size": 0,
        "score_thr": 0.05,
        "conf_thr": 0.005,
        "nms": {"type": "nms", "iou_threshold": 0.45},
        "max_per_img": 30,
    },
)

SILU = {"type": "Swish"}
BN = {"type": "BN", "momentum": 0.03, "eps": 0.001}
YOLOX = model(
    "YOLOX",
    backbone={
        "type": "CSPDarknet",
        "deepen_factor": 0.33,
        "widen_factor": 0.0625,
        "out_indices": (2, 3, 4),
        "use_depthwise": False,
        "spp_kernal_sizes": (5, 9, 13),
        "norm_cfg": BN,
        "act_cfg": SILU,
    },
    neck={
        "type": "YOLOXPAFPN",
        "in_channels": [16, 32, 64],
        "out_channels": 16,
        "num_csp_blocks": 1,
        "use_depthwise": False,
        "upsample_cfg": {"scale_factor": 2, "mode": "nearest"},
        "norm_cfg": BN,
        "act_cfg": SILU,
    },
    bbox_head={
        "type": "YOLOXHead",
        "num_classes": 3,
        "in_channels": 16,
        "feat_channels": 16,
        "stacked_convs": 2,
        "strides": (8, 16, 32),
        "use_depthwise": False,
        "norm_cfg": BN,
        "act_cfg": SILU,
    },
    test_cfg={"score_thr": 0.01, "nms": {"type": "nms", "iou_threshold": 0.65}},
)
YOLOX["data_preprocessor"] = {"type": "DetDataPreprocessor", "pad_size_divisor": 32}
YOLOX_PIPELINE = [
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": (128, 128), "keep_ratio": True},
    {"type": "Pad", "pad_to_square": True, "pad_val": {"img": (114.0, 114.0, 114.0)}},
    PACK,
]


def _rtmdet(kind: str, head: Config, **test_cfg: Any) -> Config:
    """Return an RTMDet."""
    norm, activation = {"type": "BN"}, {"type": "SiLU", "inplace": True}
    rtmdet = model(
        "RTMDet",
        backbone={
            "type": "CSPNeXt",
            "arch": "P5",
            "expand_ratio": 0.5,
            "deepen_factor": 0.167,
            "widen_factor": 0.0625,
            "channel_attention": True,
            "norm_cfg": norm,
            "act_cfg": activation,
        },
        neck={
            "type": "CSPNeXtPAFPN",
            "in_channels": [16, 32, 64],
            "out_channels": 16,
            "num_csp_blocks": 1,
            "expand_ratio": 0.5,
            "norm_cfg": norm,
            "act_cfg": activation,
        },
        bbox_head={
            "type": kind,
            "num_classes": 3,
            "in_channels": 16,
            "stacked_convs": 2,
            "feat_channels": 16,
            "anchor_generator": {"type": "MlvlPointGenerator", "offset": 0, "strides": STRIDES},
            "bbox_coder": {"type": "DistancePointBBoxCoder"},
            "loss_cls": {"type": "QualityFocalLoss", "use_sigmoid": True, "beta": 2.0},
            "loss_bbox": {"type": "GIoULoss", "loss_weight": 2.0},
            "norm_cfg": norm,
            "act_cfg": activation,
            "with_objectness": False,
            **head,
        },
        test_cfg={**TEST_CFG, **test_cfg},
    )
    rtmdet["data_preprocessor"] |= {
        "bgr_to_rgb": False,
        "mean": [103.53, 116.28, 123.675],
        "std": [57.375, 57.12, 58.395],
    }
    return rtmdet


RTMDET_PIPELINE = [
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": (128, 128), "keep_ratio": True},
    {"type": "Pad", "size": (128, 128), "pad_val": {"img": (114, 114, 114)}},
    PACK,
]

CENTERNET = model(
    "CenterNet",
    backbone={"type": "ResNet", "depth": 18, "base_channels": 4, "stem_channels": 4, "norm_eval": False},
    neck={
        "type": "CTResNetNeck",
        "in_channels": 32,
        "num_deconv_filters": (16, 16, 16),
        "num_deconv_kernels": (4, 4, 4),
        "use_dcn": True,
    },
    bbox_head={"type": "CenterNetHead", "num_classes": 3, "in_channels": 16, "feat_channels": 16},
    test_cfg={"topk": 40, "local_maximum_kernel": 3, "max_per_img": 40},
)
CENTERNET["data_preprocessor"].pop("pad_size_divisor")
_CENTER_META = (*PACK["meta_keys"], "border")


def _centred(multiple: int, add: int = 0) -> list[Config]:
    """Return the test pipeline of detectors whose images lie in the middle of the input."""
    return [
        {"type": "LoadImageFromFile", "to_float32": True},
        {
            "type": "RandomCenterCropPad",
            "ratios": None,
            "border": None,
            "mean": [0, 0, 0],
            "std": [1, 1, 1],
            "to_rgb": True,
            "test_mode": True,
            "test_pad_mode": ["logical_or", multiple],
            "test_pad_add_pix": add,
        },
        {"type": "PackDetInputs", "meta_keys": _CENTER_META},
    ]


def _corners(kind: str, **entries: Any) -> Config:
    """Return a detector of corners."""
    cornernet = model(
        "CornerNet",
        backbone={
            "type": "HourglassNet",
            "downsample_times": 3,
            "num_stacks": 2,
            "stage_channels": [8, 8, 12, 16],
            "stage_blocks": [1, 1, 1, 1],
            "feat_channel": 8,
            "norm_cfg": {"type": "BN", "requires_grad": True},
        },
        neck=None,
        bbox_head={
            "type": kind,
            "num_classes": 3,
            "in_channels": 8,
            "num_feat_levels": 2,
            "corner_emb_channels": 1,
            **entries,
        },
        test_cfg={
            "corner_topk": 100 if kind == "CentripetalHead" else 40,
            "local_maximum_kernel": 1 if kind == "CentripetalHead" else 3,
            "distance_threshold": 0.5,
            "score_thr": 0.05,
            "max_per_img": 30,
            "nms": {"type": "soft_nms", "iou_threshold": 0.5, "method": "gaussian"},
        },
    )
    cornernet["data_preprocessor"].pop("pad_size_divisor")
    return cornernet


def _of_dense_cases(kind: str, detector: str, **entries: Any) -> Config:
    """Return a detector with a head of tests/detect/dense_cases.py over the pyramid, whose strides it gets."""
    head = {**copy.deepcopy(dense_cases.HEADS[kind]), **entries, "type": kind}
    for name in ("strides", "point_strides"):
        if name in head:
            head[name] = STRIDES
    for name in ("anchor_generator", "square_anchor_generator"):
        if name in head:
            head[name]["strides"] = STRIDES
    if "regress_ranges" in head:
        head["regress_ranges"] = RANGES
    return over_pyramid(detector, head)


def _vfnet(**entries: Any) -> Config:
    """Return a VFNet, over five levels as its default anchors are."""
    neck = {**NECK, "num_outs": 5, "add_extra_convs": "on_output", "relu_before_extra_convs": True}
    return over_pyramid(
        "VFNet", {"type": "VFNetHead", **SMALL, "norm_cfg": GN, "strides": [8, 16, 32, 64, 128], **entries}, neck
    )


_YOLOF = model(
    "YOLOF",
    backbone={**BACKBONE, "out_indices": (3,)},
    neck={
        "type": "DilatedEncoder",
        "in_channels": 32,
        "out_channels": 32,
        "block_mid_channels": 8,
        "num_residual_blocks": 2,
        "block_dilations": [2, 4],
    },
    bbox_head={
        "type": "YOLOFHead",
        "num_classes": 3,
        "in_channels": 32,
        "reg_decoded_bbox": True,
        "anchor_generator": {"type": "AnchorGenerator", "ratios": [1.0], "scales": [1, 2], "strides": [32]},
        "bbox_coder": {**CODER, "add_ctr_clamp": True, "ctr_clamp": 32},
        "loss_cls": FOCAL,
    },
    test_cfg=TEST_CFG,
)

_GUIDED = {
    "type": "GARetinaHead",
    **SMALL,
    "approx_anchor_generator": {
        "type": "AnchorGenerator",
        "octave_base_scale": 4,
        "scales_per_octave": 3,
        "ratios": [0.5, 1.0, 2.0],
        "strides": STRIDES,
    },
    "square_anchor_generator": {"type": "AnchorGenerator", "ratios": [1.0], "scales": [4], "strides": STRIDES},
    "anchor_coder": {**CODER, "target_stds": [1.0] * 4},
    "bbox_coder": CODER,
    "loc_filter_thr": 0.1,
    "loss_cls": FOCAL,
}
_SOFTMAX_SPREAD = {r"(cls_convs\.\d+|conv_cls)$": (0.0, 1.5)}

CASES = {
    "retinanet": Case(over_pyramid("RetinaNet", _anchor_head("RetinaHead", norm_cfg=GN))),
    "retinanet_softmax": Case(
        over_pyramid(
            "RetinaNet",
            _anchor_head("RetinaHead", loss_cls=CROSS_ENTROPY),
            backbone={**BACKBONE, "norm_cfg": {"type": "FrozenBN", "requires_grad": False, "eps": 0.01}},
        )
    ),
    "pisa_retina": Case(over_pyramid("RetinaNet", _anchor_head("PISARetinaHead"))),
    "free_anchor": Case(over_pyramid("RetinaNet", _anchor_head("FreeAnchorRetinaHead"))),
    "retina_sepbn": Case(
        over_pyramid(
            "RetinaNet", _anchor_head("RetinaSepBNHead", num_ins=3, norm_cfg={"type": "BN", "requires_grad": True})
        )
    ),
    "fsaf": Case(
        over_pyramid(
            "FSAF",
            {
                "type": "FSAFHead",
                **SMALL,
                "reg_decoded_bbox": True,
                "anchor_generator": {**SQUARE, "octave_base_scale": 1},
                "bbox_coder": {"type": "TBLRBBoxCoder", "normalizer": 4.0},
                "loss_cls": {**FOCAL, "reduction": "none"},
                "loss_bbox": {"type": "IoULoss", "reduction": "none"},
            },
        ),
        {r"retina_reg$": (0.3, 0.3)},
    ),
    "fcos": Case(over_pyramid("FCOS", FCOS), LOG_DISTANCES),
    "fcos_normalized": Case(
        over_pyramid(
            "FCOS",
            {
                **FCOS,
                "norm_on_bbox": True,
                "centerness_on_reg": True,
                "dcn_on_last_conv": True,
                "center_sampling": True,
            },
        )
    ),
    "nas_fcos": Case(_of_dense_cases("NASFCOSHead", "NASFCOS", norm_cfg=GN), LOG_DISTANCES),
    "atss": Case(over_pyramid("ATSS", _square_head("ATSSHead"))),
    "ddod": Case(over_pyramid("DDOD", _square_head("DDODHead"))),
    "gfl": Case(over_pyramid("GFL", {"type": "GFLHead", **SMALL, "anchor_generator": SQUARE, "reg_max": 4})),
    "ld": Case(_of_dense_cases("LDHead", "GFL", reg_max=4)),
    "vfnet": Case(_vfnet(), {r"vfnet_reg(_refine)?$": (0.3, 0.3)}),
    "vfnet_points": Case(_vfnet(use_atss=False, dcn_on_last_conv=True), {r"vfnet_reg(_refine)?$": (0.3, 0.3)}),
    "tood": Case(_of_dense_cases("TOODHead", "TOOD"), {r"tood_reg$": (0.3, 0.3)}),
    "tood_dcn": Case(_of_dense_cases("TOODHead", "TOOD", num_dcn=1), {r"tood_reg$": (0.3, 0.3)}),
    "tood_anchors": Case(_of_dense_cases("TOODHead", "TOOD", anchor_type="anchor_based", bbox_coder=CODER)),
    "paa": Case(over_pyramid("PAA", _square_head("PAAHead")), batches=False),
    "lad": Case(over_pyramid("PAA", _square_head("LADHead")), batches=False),
    "foveabox": Case(
        over_pyramid(
            "FOVEA",
            {"type": "FoveaHead", **SMALL, "strides": STRIDES, "base_edge_list": [16, 32, 64], "with_deform": False},
        )
    ),
    "foveabox_deform": Case(
        over_pyramid(
            "FOVEA",
            {
                "type": "FoveaHead",
                **SMALL,
                "strides": STRIDES,
                "base_edge_list": [16, 32, 64],
                "with_deform": True,
                "deform_groups": 4,
                "norm_cfg": GN,
            },
        )
    ),
    "autoassign": Case(_of_dense_cases("AutoAssignHead", "AutoAssign"), {r"conv_reg$": (1.0, 0.5)}),
    "reppoints": Case(_of_dense_cases("RepPointsHead", "RepPointsDetector")),
    "reppoints_minmax": Case(_of_dense_cases("RepPointsHead", "RepPointsDetector", transform_method="minmax")),
    "reppoints_grid": Case(
        _of_dense_cases("RepPointsHead", "RepPointsDetector", transform_method="partial_minmax", use_grid_points=True)
    ),
    "sabl_retinanet": Case(
        over_pyramid(
            "RetinaNet",
            {
                "type": "SABLRetinaHead",
                **SMALL,
                "approx_anchor_generator": {
                    "type": "AnchorGenerator",
                    "octave_base_scale": 4,
                    "scales_per_octave": 3,
                    "ratios": [0.5, 1.0, 2.0],
                    "strides": STRIDES,
                },
                "square_anchor_generator": {
                    "type": "AnchorGenerator",
                    "ratios": [1.0],
                    "scales": [4],
                    "strides": STRIDES,
                },
                "bbox_coder": {"type": "BucketingBBoxCoder", "num_buckets": 14, "scale_factor": 3.0},
                "loss_cls": FOCAL,
            },
        )
    ),
    "ga_retinanet": Case(
        over_pyramid("RetinaNet", _GUIDED), {r"conv_loc$": (0.0, 1.5), r"conv_shape$": (0.0, 0.4)}, batches=False
    ),
    "ssd": Case(_ssd("SSDHead"), _SOFTMAX_SPREAD | {r"reg_convs\.\d+$": (0.0, 0.7)}, RESIZED),
    "pisa_ssd": Case(_ssd("PISASSDHead"), _SOFTMAX_SPREAD | {r"reg_convs\.\d+$": (0.0, 0.7)}, RESIZED),
    "yolov3": Case(YOLOV3, {r"convs_pred\.\d+$": (0.0, 1.0)}),
    "yolof": Case(_YOLOF),
    "yolox": Case(
        YOLOX,
        {r"multi_level_conv_(cls|obj)\.\d+$": (0.0, 1.5), r"multi_level_conv_reg\.\d+$": (0.6, 0.5)},
        YOLOX_PIPELINE,
    ),
    "rtmdet": Case(
        _rtmdet("RTMDetSepBNHead", {"share_conv": True, "pred_kernel_size": 1, "exp_on_reg": False}),
        {r"rtm_reg\.\d+$": (1.0, 0.8), r"rtm_cls\.\d+$": (-1.0, 1.5)},
        RTMDET_PIPELINE,
    ),
    "rtmdet_exp": Case(
        _rtmdet("RTMDetSepBNHead", {"share_conv": False, "pred_kernel_size": 3, "exp_on_reg": True}),
        {r"rtm_reg\.\d+$": (0.7, 0.5), r"rtm_cls\.\d+$": (-1.0, 1.5)},
        RTMDET_PIPELINE,
    ),
    "rtmdet_ins": Case(
        _rtmdet(
            "RTMDetInsSepBNHead",
            {"share_conv": True, "pred_kernel_size": 1, "num_prototypes": 4, "dyconv_channels": 4},
            mask_thr_binary=0.5,
        ),
        {r"rtm_reg\.\d+$": (1.0, 0.8), r"rtm_cls\.\d+$": (-1.0, 1.5), r"rtm_kernel\.\d+$": (0.0, 1.0)},
        RTMDET_PIPELINE,
    ),
    "centernet": Case(CENTERNET, {r"heatmap_head\.2$": (-1.0, 1.5), r"wh_head\.2$": (5.0, 2.0)}, _centred(31)),
    "centernet_update": Case(
        over_pyramid(
            "CenterNet",
            {
                "type": "CenterNetUpdateHead",
                **SMALL,
                "strides": STRIDES,
                "hm_min_radius": 4,
                "hm_min_overlap": 0.8,
                "more_pos_thresh": 0.2,
                "soft_weight_on_reg": False,
                "loss_cls": {"type": "GaussianFocalLoss", "pos_weight": 0.25, "neg_weight": 0.75},
            },
        ),
        {r"conv_reg$": (1.0, 0.5)},
    ),
    "cornernet": Case(
        _corners("CornerHead"),
        {r"_heat\.\d+\.1(\.conv)?$": (-0.5, 2.0), r"_emb\.\d+\.1(\.conv)?$": (0.0, 0.3)},
        _centred(127),
    ),
    "centripetalnet": Case(
        _corners("CentripetalHead", corner_emb_channels=0),
        {r"_heat\.\d+\.1(\.conv)?$": (0.5, 2.0), r"_centripetal_shift\.\d+\.1(\.conv)?$": (1.0, 0.4)},
        _centred(127),
    ),
}
for _name in ("yolov3",):
    CASES[_name].model["data_preprocessor"] = {**PREPROCESSOR, "mean": [0, 0, 0], "std": [255.0, 255.0, 255.0]}

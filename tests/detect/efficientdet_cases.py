"""Small EfficientDets, as MMDetection's ``projects/EfficientDet`` describes them, with their weights.

``tests/data/detect/efficientdet.json`` has the keys of the weights, and what the project detected
(``tests/tools/check_projects.py`` writes it).
"""

import copy
import re

from tests.detect import query_cases

_BN = {"type": "SyncBN", "requires_grad": True, "eps": 1e-3, "momentum": 0.01}
_GN = {"type": "GN", "num_groups": 4}
_SAME = {"type": "Conv2dSamePadding"}
_BACKBONE = {
    "type": "EfficientNet",
    "arch": "b0",
    "drop_path_rate": 0.2,
    "out_indices": (1, 2, 3),
    "frozen_stages": 0,
    "conv_cfg": _SAME,
    "norm_cfg": _BN,
    "norm_eval": False,
}
_NECK = {"type": "BiFPN", "num_stages": 2, "in_channels": [16, 24, 40], "out_channels": 16, "start_level": 0}
_ANCHORS = {
    "octave_base_scale": 4,
    "scales_per_octave": 2,
    "ratios": [1.0, 0.5],
    "strides": [2, 4, 8, 16, 32],
    "center_offset": 0.5,
}
_DELTAS = {"target_means": [0.0, 0.0, 0.0, 0.0], "target_stds": [1.0, 1.0, 1.0, 1.0]}
_HEAD = {
    "type": "EfficientDetSepBNHead",
    "num_classes": 3,
    "num_ins": 5,
    "in_channels": 16,
    "feat_channels": 16,
    "stacked_convs": 2,
    "norm_cfg": _BN,
    "anchor_generator": {"type": "AnchorGenerator", **_ANCHORS},
    "bbox_coder": {"type": "DeltaXYWHBBoxCoder", **_DELTAS},
    "loss_cls": {"type": "FocalLoss", "use_sigmoid": True, "gamma": 1.5, "alpha": 0.25, "loss_weight": 1.0},
    "loss_bbox": {"type": "HuberLoss", "beta": 0.1, "loss_weight": 50},
}
_SOFT_NMS = {"type": "soft_nms", "iou_threshold": 0.3, "sigma": 0.5, "min_score": 1e-3, "method": "gaussian"}
_TEST_CFG = {"nms_pre": 100, "min_bbox_size": 0, "score_thr": 0.05, "nms": _SOFT_NMS, "max_per_img": 20}
_NMS = {**_TEST_CFG, "nms": {"type": "nms", "iou_threshold": 0.6}}


def _model(backbone=(), neck=(), head=(), test_cfg=_TEST_CFG):
    return copy.deepcopy(
        {
            "type": "EfficientDet",
            "backbone": {**_BACKBONE, **dict(backbone)},
            "neck": {**_NECK, "norm_cfg": _BN, **dict(neck)},
            "bbox_head": {**_HEAD, **dict(head)},
            "test_cfg": test_cfg,
        }
    )


_YXYX = _model(
    {"out_indices": (0, 1, 2, 3)},
    {
        "in_channels": [32, 16, 24, 40],
        "start_level": 1,
        "num_stages": 1,
        "epsilon": 0.1,
        "apply_bn_for_resampling": False,
        "conv_bn_act_pattern": True,
    },
    {
        "norm_cfg": _GN,
        "anchor_generator": {"type": "YXYXAnchorGenerator", **_ANCHORS},
        "bbox_coder": {
            "type": "YXYXDeltaXYWHBBoxCoder",
            "target_means": [0.1, 0.0, 0.0, 0.2],
            "target_stds": [0.5, 0.7, 0.6, 0.4],
        },
        "loss_cls": {"type": "CrossEntropyLoss", "use_sigmoid": False},
    },
    _NMS,
)
_STRIDES = {**_ANCHORS, "strides": [8, 16, 32, 64, 128], "octave_base_scale": 2}
_ODD = _model(
    {"out_indices": (3, 4, 5)},
    {"in_channels": [40, 112, 320], "num_stages": 1, "conv_bn_act_pattern": True, "norm_cfg": _GN},
    {"stacked_convs": 0, "anchor_generator": {"type": "AnchorGenerator", **_STRIDES}},
    _NMS,
)
_RESNET = {
    "type": "RetinaNet",
    "backbone": {"type": "ResNet", "depth": 18, "base_channels": 8, "out_indices": (1, 2, 3), "conv_cfg": _SAME},
    "neck": {"type": "FPN", "in_channels": [16, 32, 64], "out_channels": 16, "num_outs": 3, "conv_cfg": _SAME},
    "bbox_head": {
        "type": "RetinaHead",
        **{key: _HEAD[key] for key in ("num_classes", "in_channels", "feat_channels", "loss_cls")},
        "stacked_convs": 1,
        "conv_cfg": _SAME,
        "anchor_generator": {"type": "AnchorGenerator", **_ANCHORS, "strides": [8, 16, 32]},
        "bbox_coder": _HEAD["bbox_coder"],
    },
    "test_cfg": _NMS,
}
MODELS = {
    "efficientdet": _model(),
    "efficientdet_yxyx": _YXYX,
    "efficientdet_odd": _ODD,
    "same_padding": copy.deepcopy(_RESNET),
}
SHAPES = {
    "efficientdet": ((95, 127), (70, 100)),
    "efficientdet_yxyx": ((95, 127), (70, 100)),
    "efficientdet_odd": ((121, 127), (93, 125)),
    "same_padding": ((83, 110), (70, 93)),
}
"""Of the images of each batch: those with odd maps from which the necks can sum up maps."""


_FACTORS = {r"header\.pointwise_conv\.weight": 0.1, r"retina_(cls|reg)\.weight": 0.002}
"""By key, what keeps scores away from 1."""


def weight(key, shape):
    """Return numbers for the weight of a key; most of those that weight maps are positive."""
    values = query_cases.weight(key, shape)
    if re.search(r"\.p\d_w[12]$", key):
        return 3.5 * values + 1
    return values * next((factor for pattern, factor in _FACTORS.items() if re.search(pattern, key)), 1)


def weights(shapes):
    """Return weights by their keys in a checkpoint, of given shapes."""
    return {key: weight(key, shape) for key, shape in shapes.items()}


def fill(detector):
    """Give all weights values that nothing cancels."""
    for name, tensor in detector.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(weight(name, tensor.shape))

"""Small Mask R-CNNs on a plain transformer, as MMDetection's ``projects/ViTDet`` describes them.

``tests/data/detect/vitdet.json`` has the keys of their weights, and what the project detected
(``tests/tools/check_projects.py`` writes it).
"""

import copy

from tests.detect import query_cases, two_stage_cases

LN2D = {"type": "LN2d", "requires_grad": True}
VIT = {
    "type": "ViT",
    "img_size": 160,
    "pretrain_img_size": 64,
    "embed_dim": 48,
    "depth": 3,
    "num_heads": 3,
    "drop_path_rate": 0.1,
    "window_size": 3,
    "mlp_ratio": 4,
    "qkv_bias": True,
    "norm_cfg": {"type": "LN", "requires_grad": True},
    "window_block_indexes": [0, 2],
    "use_rel_pos": True,
}


def _model(backbone=(), **neck):
    model = copy.deepcopy(two_stage_cases.CONFIG["model"])
    model["backbone"] = {**VIT, **dict(backbone)}
    sizes = {"backbone_channel": 48, "in_channels": [12, 24, 48, 48], "out_channels": 32, "num_outs": 5}
    model["neck"] = {"type": "SimpleFPN", **sizes, "norm_cfg": LN2D, **neck}
    model["rpn_head"]["num_convs"] = 2
    head = model["roi_head"]
    head["bbox_head"] |= {"type": "Shared4Conv1FCBBoxHead", "conv_out_channels": 16, "norm_cfg": LN2D}
    head["mask_head"]["norm_cfg"] = LN2D
    model["test_cfg"]["rpn"] |= {"nms_pre": 60, "max_per_img": 40}
    model["test_cfg"]["rcnn"]["max_per_img"] = 20
    return model


MODELS = {
    "vitdet": _model(),
    "vitdet_without_relative_positions": _model(
        {"use_rel_pos": False, "norm_cfg": {"type": "LN", "eps": 0.01}, "pretrain_use_cls_token": False},
        norm_cfg={"type": "LN2d", "eps": 0.01},
        act_cfg={"type": "ReLU"},
    ),
    "vitdet_whole_maps": _model({"window_size": 0, "use_abs_pos": False, "qkv_bias": False, "patch_size": 8}),
}


def weights(shapes):
    """Return weights by their keys in a checkpoint, of given shapes."""
    return {key: query_cases.weight(key, shape) for key, shape in shapes.items()}

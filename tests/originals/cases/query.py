"""Detectors with queries: relatives of DETR."""

from __future__ import annotations

from typing import Any

from tests.originals.cases.case import Case, Config, model

FOCAL = {"type": "FocalLoss", "use_sigmoid": True}
ATTENTION = {"embed_dims": 16, "num_heads": 4, "dropout": 0.1}
SAMPLING = {"embed_dims": 16, "num_levels": 3, "num_points": 2, "num_heads": 4}
FFN = {
    "embed_dims": 16,
    "feedforward_channels": 24,
    "num_fcs": 2,
    "ffn_drop": 0.1,
    "act_cfg": {"type": "ReLU", "inplace": True},
}
SPREAD = {
    r"(fc_cls|cls_branches\.\d+)$": (0.0, 2.0),
    r"(fc_reg|reg_branches\.\d+\.4|reg_ffn.*)$": (0.0, 1.0),
    r"(sampling_offsets)$": (0.0, 1.5),
    r"(reference_points|ref_point_head\..*|reference_points_fc)$": (0.0, 1.0),
}
QUERIES = 14


def _neck(levels: int) -> Config:
    channels = [32] if levels == 1 else [16, 32]
    return {
        "type": "ChannelMapper",
        "in_channels": channels,
        "kernel_size": 1,
        "out_channels": 16,
        "act_cfg": None,
        "norm_cfg": None if levels == 1 else {"type": "GN", "num_groups": 4},
        "num_outs": levels,
    }


def _backbone(*stages: int) -> Config:
    return {
        "type": "ResNet",
        "depth": 18,
        "base_channels": 4,
        "stem_channels": 4,
        "out_indices": stages,
        "strides": (1, 2, 2, 1),
    }


def _single_map(kind: str, decoder_attention: tuple[Config, ...], **entries: Any) -> Config:
    """Return a detector that attends to one map."""
    layer = {"self_attn_cfg": decoder_attention[0], "cross_attn_cfg": decoder_attention[1], "ffn_cfg": FFN}
    parts: Config = {
        "num_queries": QUERIES,
        "backbone": _backbone(3),
        "neck": _neck(1),
        "encoder": {"num_layers": 2, "layer_cfg": {"self_attn_cfg": ATTENTION, "ffn_cfg": FFN}},
        "decoder": {"num_layers": 2, "layer_cfg": layer, "return_intermediate": True},
        "positional_encoding": {"num_feats": 8, "normalize": True},
        "bbox_head": {"type": f"{kind}Head", "num_classes": 5, "embed_dims": 16, "loss_cls": FOCAL},
        "test_cfg": {"max_per_img": QUERIES},
    }
    return model(kind, **parts | entries)


_DETR = _single_map("DETR", (ATTENTION, ATTENTION))
_DETR["bbox_head"] |= {
    "loss_cls": {"type": "CrossEntropyLoss", "bg_cls_weight": 0.1, "use_sigmoid": False, "class_weight": 1.0},
}
_CONDITIONAL = tuple(
    {"embed_dims": 16, "num_heads": 2, "attn_drop": 0.0, "proj_drop": 0.0, "cross_attn": cross}
    for cross in (False, True)
)
_DAB = _single_map(
    "DABDETR",
    _CONDITIONAL,
    num_patterns=0,
    positional_encoding={"num_feats": 8, "temperature": 20, "normalize": True},
)
_DAB["encoder"]["layer_cfg"]["ffn_cfg"] = {**FFN, "act_cfg": {"type": "PReLU"}}
_DAB["decoder"] |= {
    "query_dim": 4,
    "query_scale_type": "cond_elewise",
    "with_modulated_hw_attn": True,
}
_DAB["decoder"]["layer_cfg"]["ffn_cfg"] = {**FFN, "act_cfg": {"type": "PReLU"}}


def _pyramid(kind: str, **entries: Any) -> Config:
    """Return a detector that samples several maps."""
    layer = {"self_attn_cfg": ATTENTION, "cross_attn_cfg": SAMPLING, "ffn_cfg": FFN}
    return model(
        kind,
        **{
            "num_queries": QUERIES,
            "num_feature_levels": 3,
            "backbone": _backbone(2, 3),
            "neck": _neck(3),
            "encoder": {"num_layers": 2, "layer_cfg": {"self_attn_cfg": SAMPLING, "ffn_cfg": FFN}},
            "decoder": {"num_layers": 2, "layer_cfg": layer, "return_intermediate": True, "post_norm_cfg": None},
            "positional_encoding": {"num_feats": 8, "normalize": True, "offset": -0.5},
            "bbox_head": {
                "type": f"{kind}Head",
                "num_classes": 5,
                "embed_dims": 16,
                "sync_cls_avg_factor": True,
                "loss_cls": FOCAL,
            },
            "test_cfg": {"max_per_img": QUERIES},
            **entries,
        },
    )


_TWO_STAGES: Config = {"with_box_refine": True, "as_two_stage": True}
_DENOISING: Config = {
    "label_noise_scale": 0.5,
    "box_noise_scale": 1.0,
    "group_cfg": {"dynamic": True, "num_groups": None, "num_dn_queries": 10},
}
_DDQ = {"dn_cfg": _DENOISING, "dqs_cfg": {"type": "nms", "iou_threshold": 0.8}, "dense_topk_ratio": 1.5}


def _widened(config: Any) -> Any:
    """Return a config with 256 channels instead of 16."""
    if isinstance(config, dict):
        return {
            key: {16: 256, 8: 128}[value]
            if key in ("embed_dims", "out_channels", "num_feats") and value in (8, 16)
            else _widened(value)
            for key, value in config.items()
        }
    return config


_MODELS = {
    "detr": _DETR,
    "conditional_detr": _single_map("ConditionalDETR", _CONDITIONAL),
    "dab_detr": _DAB,
    "deformable_detr": _pyramid("DeformableDETR"),
    "deformable_detr_refine": _pyramid("DeformableDETR", with_box_refine=True),
    "deformable_detr_two_stage": _pyramid("DeformableDETR", **_TWO_STAGES),
    "dino": _pyramid("DINO", **_TWO_STAGES, dn_cfg=_DENOISING),
    "ddq": _pyramid("DDQDETR", **_TWO_STAGES, **_DDQ),
}
WIDE = ("conditional_detr", "deformable_detr_two_stage", "dino", "ddq")
"""Those whose positions have 256 channels in MMDetection's code."""

CASES = {}
for _name, _model in _MODELS.items():
    if _model["neck"]["num_outs"] == 1:
        # As in the published configs: mmort keeps padding out of their backbones, which MMDetection does not.
        _model["data_preprocessor"]["pad_size_divisor"] = 1
    CASES[_name] = Case(
        _widened(_model) if _name in WIDE else _model,
        SPREAD,
        batches=_model["neck"]["num_outs"] > 1,
        classes=1 if _name == "dab_detr" else 2,
    )

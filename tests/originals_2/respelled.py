"""Configs of detectors whose entries MMDetection 2 has in other places, or under other names, than MMDetection 3."""

from __future__ import annotations

import copy
from typing import Any

from tests.originals import cases
from tests.originals.cases import query
from tests.originals.cases.case import Config

DICE: Config = {"type": "DiceLoss", "use_sigmoid": True, "loss_weight": 3.0}
"""A loss that MMDetection 2 asks for where MMDetection 3 has a default."""


def _model(name: str) -> Config:
    model = copy.deepcopy(cases.CASES[name].model)
    del model["data_preprocessor"]
    return model


def _solo(name: str) -> Config:
    model = _model(name)
    model["mask_head"] |= {"loss_mask": DICE, "loss_cls": query.FOCAL}
    return model


def _yolact() -> Config:
    model = _model("yolact")
    model["mask_head"] |= {"max_masks_to_train": 10}
    model["segm_head"] = {"type": "YOLACTSegmHead", "num_classes": 3, "in_channels": 8}
    return model


def _centernet() -> Config:
    model = _model("centernet")
    for part, entries in (("neck", ("in_channels",)), ("bbox_head", ("in_channels", "feat_channels"))):
        for entry in entries:
            model[part][entry.removesuffix("s")] = model[part].pop(entry)
    return model


def _without(name: str, part: str, *entries: str) -> Config:
    """Return a model without entries that only MMDetection 3 has."""
    model = _model(name)
    for entry in entries:
        del model[part][entry]
    return model


def _panoptic_fpn() -> Config:
    """Return a Panoptic FPN, which MMDetection 2 selects by entries of ``panoptic``, not of ``rcnn``."""
    model = _model("panoptic_fpn")
    model["test_cfg"]["panoptic"] |= model["test_cfg"]["rcnn"]
    return model


_ATTENTIONS = {"num_points": "MultiScaleDeformableAttention", "num_heads": "MultiheadAttention"}
"""By an entry, the types of attentions."""
SELF_FIRST = "self_attn", "norm", "cross_attn", "norm", "ffn", "norm"
CROSS_FIRST = "cross_attn", "norm", "self_attn", "norm", "ffn", "norm"


def _encoder(config: Config) -> Config:
    """Return the encoder of a transformer."""
    layer = _layer("BaseTransformerLayer", config["layer_cfg"], ("self_attn", "norm", "ffn", "norm"))
    return {"type": "DetrTransformerEncoder", "num_layers": config["num_layers"], "transformerlayers": layer}


def _decoder(config: Config, order: tuple[str, ...] = SELF_FIRST, kind: str = "DetrTransformerDecoder") -> Config:
    """Return the decoder of a transformer, whose layers begin with one of the two attentions."""
    layer = _layer("DetrTransformerDecoderLayer", config["layer_cfg"], order)
    layer |= {"feedforward_channels": layer["ffn_cfgs"]["feedforward_channels"], "ffn_dropout": 0.1}
    layers = {"num_layers": config["num_layers"], "transformerlayers": layer}
    return {"type": kind, "return_intermediate": True, **layers}


def _layer(kind: str, config: Config, order: tuple[str, ...]) -> Config:
    """Return a layer of a transformer."""
    attentions = []
    for entry in [f"{step}_cfg" for step in order if step.endswith("attn")]:
        attention = {key: value for key, value in config[entry].items() if key != "batch_first"}
        attentions.append({"type": next(_ATTENTIONS[key] for key in _ATTENTIONS if key in attention), **attention})
    return {
        "type": kind,
        "attn_cfgs": attentions[0] if attentions[0] == attentions[-1] else attentions,
        "ffn_cfgs": {"type": "FFN", **config["ffn_cfg"]},
        "operation_order": order,
    }


def _positions(config: Config) -> Config:
    return {"type": "SinePositionalEncoding", **config}


def _detr(name: str) -> Config:
    """Return a relative of DETR: what is in the model in MMDetection 3 is in its head's transformer."""
    model = _model(name)
    head = model["bbox_head"]
    width = head.pop("embed_dims")
    deformable = head["type"] == "DeformableDETRHead"
    kind = "DeformableDetrTransformerDecoder" if deformable else "DetrTransformerDecoder"
    transformer: Config = {
        "type": "DeformableDetrTransformer" if deformable else "Transformer",
        "encoder": _encoder(model.pop("encoder")),
        "decoder": _decoder(model.pop("decoder"), kind=kind),
    }
    head |= {
        "num_query": model.pop("num_queries"),
        "in_channels": width if deformable else 32,
        "transformer": transformer,
        "positional_encoding": _positions(model.pop("positional_encoding")),
    }
    if deformable:
        transformer["num_feature_levels"] = model.pop("num_feature_levels")
        transformer["two_stage_num_proposals"] = head["num_query"]
        head |= {entry: model.pop(entry) for entry in ("with_box_refine", "as_two_stage") if entry in model}
    else:
        del model["neck"]  # the head has it
    return model


def _maskformer(name: str) -> Config:
    """Return a MaskFormer or Mask2Former."""
    model = _model(name)
    head = model["panoptic_head"]
    pixels = head["pixel_decoder"]
    order = CROSS_FIRST if head["type"] == "Mask2FormerHead" else SELF_FIRST
    head["transformer_decoder"] = _decoder(head["transformer_decoder"], order)
    head["positional_encoding"] = _positions(head["positional_encoding"])
    head |= {"loss_mask": {"type": "CrossEntropyLoss", "use_sigmoid": True}, "loss_dice": DICE}
    if "encoder" in pixels:
        pixels["encoder"] = _encoder(pixels["encoder"])
        pixels["positional_encoding"] = _positions(pixels["positional_encoding"])
    if name.endswith("_panoptic"):  # so that segments are several
        model["test_cfg"] |= {"object_mask_thr": 0.02, "iou_thr": 0.02}
    return model


def _augmentation(settings: Config, *steps: Config) -> Config:
    """Return what test pipelines of MMDetection 2 have their steps in."""
    flip, format = {"type": "RandomFlip"}, {"type": "DefaultFormatBundle"}
    return {
        "type": "MultiScaleFlipAug",
        "flip": False,
        **settings,
        "transforms": [flip, *steps[:-1], format, steps[-1]],
    }


def _pipeline_of_yolox() -> list[Config]:
    """Return the test pipeline of YOLOX, which takes pixels as they are."""
    pad = {"type": "Pad", "pad_to_square": True, "pad_val": {"img": (114.0, 114.0, 114.0)}}
    steps = {"type": "Resize", "keep_ratio": True}, pad, {"type": "Collect", "keys": ["img"]}
    return [{"type": "LoadImageFromFile"}, _augmentation({"img_scale": (128, 128)}, *steps)]


def _pipeline_of_corners(name: str) -> list[Config]:
    """Return the test pipeline of CornerNet and its relatives, which pads images on all sides."""
    load, pad, _ = copy.deepcopy(cases.CASES[name].pipeline)
    preprocessor = cases.CASES[name].model["data_preprocessor"]
    normalize = {"type": "Normalize", "mean": preprocessor["mean"], "std": preprocessor["std"], "to_rgb": True}
    keys = "filename", "ori_shape", "img_shape", "pad_shape", "scale_factor", "flip", "img_norm_cfg", "border"
    collect = {"type": "Collect", "keys": ["img"], "meta_keys": keys}
    resize = {"type": "Resize", "keep_ratio": True}
    return [load, _augmentation({"scale_factor": 1.0}, resize, pad, normalize, collect)]


MODELS: dict[str, Any] = {
    **{name: _solo(name) for name in ("solo", "decoupled_solo", "decoupled_solo_light", "solov2")},
    "yolact": _yolact(),
    "neck_channel_mapper": _without("neck_channel_mapper", "neck", "bias"),
    "cascade_rpn_alone": _without("cascade_rpn_alone", "rpn_head", "num_classes"),
    "retinanet_softmax": _without("retinanet_softmax", "backbone", "norm_cfg"),  # FrozenBN
    "centernet": _centernet(),
    **{name: _model(name) for name in ("rpn", "yolox", "cornernet", "centripetalnet")},
    "panoptic_fpn": _panoptic_fpn(),
    **{
        name: _maskformer(name)
        for name in ("maskformer", "maskformer_plain", "maskformer_panoptic", "mask2former", "mask2former_panoptic")
    },
    **{
        name: _detr(name) for name in ("detr", "deformable_detr", "deformable_detr_refine", "deformable_detr_two_stage")
    },
}
"""The models by the names of their cases."""

CHANGES: dict[str, dict[str, Any]] = {
    "detr": {"classes": 1},
    "panoptic_fpn": {"batches": False},  # MMDetection 2 takes one size for all maps
    **{
        name: {"spread": {**cases.CASES[name].spread, r"cls_embed$": (0.0, 1.5), r"mask_embed\.4$": (0.0, 4.0)}}
        for name in ("maskformer_panoptic", "mask2former_panoptic")
    },
    "yolox": {"pipeline": _pipeline_of_yolox()},
    **{name: {"pipeline": _pipeline_of_corners(name)} for name in ("centernet", "cornernet", "centripetalnet")},
}
"""What else differs, by the names of their cases."""

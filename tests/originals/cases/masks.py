"""Detectors whose masks or segments cover the image."""

from __future__ import annotations

import copy
from typing import Any

from tests.detect import mask_cases, panoptic_cases
from tests.originals.cases.case import PREPROCESSOR, Case, Config, model
from tests.originals.cases.dense import RESIZED
from tests.originals.cases.two_stage import SPREAD as TWO_STAGE_SPREAD

BACKBONE = {"type": "ResNet", "depth": 18, "base_channels": 4, "stem_channels": 4}
CHANNELS = [4, 8, 16, 32]
NECK = {"type": "FPN", "in_channels": CHANNELS, "out_channels": 16, "num_outs": 5}
GN = {"type": "GN", "num_groups": 4, "requires_grad": True}
_MASKED = {**PREPROCESSOR, "pad_mask": True}


def _solo(kind: str, head: Config, **entries: Any) -> Config:
    """Return a SOLO."""
    matrix = {"nms_pre": 500, "score_thr": 0.1, "mask_thr": 0.5, "filter_thr": 0.05, "kernel": "gaussian", "sigma": 2.0}
    boxes = {
        "num_classes": 3,
        "in_channels": 16,
        "stacked_convs": 2,
        "feat_channels": 16,
        "strides": [8, 8, 16, 32, 32],
        "scale_ranges": ((1, 96), (48, 192), (96, 384), (192, 768), (384, 2048)),
        "pos_scale": 0.2,
        "num_grids": [12, 10, 8, 6, 4],
        "cls_down_index": 0,
        "norm_cfg": GN,
    }
    solo = model(
        kind, backbone=BACKBONE, neck=NECK, mask_head={**boxes, **head}, test_cfg={**matrix, "max_per_img": 20}
    )
    solo["data_preprocessor"] = _MASKED
    return solo | entries


_SOLOV2 = {
    "type": "SOLOV2Head",
    "dynamic_conv_size": 1,
    "mask_feature_head": {
        "in_channels": 16,
        "feat_channels": 8,
        "start_level": 0,
        "end_level": 3,
        "out_channels": 16,
        "mask_stride": 4,
        "norm_cfg": GN,
    },
}
_SOLO_SPREAD = {r"conv_cls$": (-1.0, 1.5), r"conv_mask_list(_[xy])?\.\d+$": (0.5, 2.0), r"conv_kernel$": (0.0, 1.0)}


def _shrunk(name: str) -> Config:
    """Return a detector of tests/detect/mask_cases.py with the backbone of the others here."""
    small = copy.deepcopy(mask_cases.MODELS[name])
    small |= {"data_preprocessor": _MASKED}
    return small


_FUSION = {"type": "MaskFormerFusionHead", "num_things_classes": 4, "num_stuff_classes": 3}


def _panoptic(name: str) -> Config:
    """Return a detector of tests/detect/panoptic_cases.py."""
    panoptic = copy.deepcopy(panoptic_cases.MODELS[name])
    if name == "panoptic_fpn":
        panoptic["backbone"] |= {"base_channels": 4, "stem_channels": 4}
        panoptic["neck"]["in_channels"] = CHANNELS
        panoptic["test_cfg"]["rpn"] |= {"nms_pre": 60, "max_per_img": 40}
    return panoptic | {"data_preprocessor": {**_MASKED, "pad_seg": True, "seg_pad_value": 255}}


_QUERY_SPREAD = {
    r"cls_embed$": (0.0, 3.0),
    r"mask_embed\.4$": (0.0, 1.5),
    r"sampling_offsets$": (0.0, 1.5),
}
_BOX_SPREAD = {r"conv_reg$": (1.0, 0.4), r"conv_cls$": (-1.0, 1.5)}
_YOLACT_SPREAD = {r"conv_reg$": (0.0, 0.5), r"conv_cls$": (0.0, 2.0)}

CASES = {
    "solo": Case(_solo("SOLO", {"type": "SOLOHead"}), _SOLO_SPREAD),
    "decoupled_solo": Case(_solo("SOLO", {"type": "DecoupledSOLOHead"}), _SOLO_SPREAD),
    "decoupled_solo_light": Case(_solo("SOLO", {"type": "DecoupledSOLOLightHead"}), _SOLO_SPREAD),
    "solov2": Case(_solo("SOLOv2", _SOLOV2), _SOLO_SPREAD),
    "condinst": Case(_shrunk("condinst"), _BOX_SPREAD),
    "boxinst": Case(_shrunk("boxinst"), _BOX_SPREAD),
    "yolact": Case(_shrunk("yolact"), _YOLACT_SPREAD, RESIZED),
    "maskformer": Case(_shrunk("maskformer"), _QUERY_SPREAD),
    "maskformer_plain": Case(_shrunk("maskformer_plain"), _QUERY_SPREAD),
    "mask2former": Case(_shrunk("mask2former"), _QUERY_SPREAD),
    "maskformer_panoptic": Case(_panoptic("maskformer"), _QUERY_SPREAD),
    "mask2former_panoptic": Case(_panoptic("mask2former"), _QUERY_SPREAD),
    "panoptic_fpn": Case(_panoptic("panoptic_fpn"), TWO_STAGE_SPREAD),
}

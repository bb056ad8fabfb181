"""Every backbone and neck: those of tests/detect/part_cases.py, under an FCOS, and other parts that no family needs."""

from __future__ import annotations

import copy
from typing import Any

from tests.detect import part_cases
from tests.originals.cases import dense, two_stage
from tests.originals.cases.case import Case, Config, model

BACKBONES: dict[str, tuple[list[int], list[int]]] = {
    "convnext": ([8, 12, 16, 24], [4, 8, 16, 32]),
    "convnext_unscaled": ([12], [8]),
    "convnext_v2": ([8, 12], [4, 8]),
    "detectors_without_offsets": ([32, 64, 128, 256], [4, 8, 16, 32]),
    "efficientnet_b0": ([32, 16, 24, 40], [2, 2, 4, 8]),
    "pvt": ([8, 16, 40, 64], [4, 8, 16, 32]),
    "pvt_v2": ([8, 16, 40, 64], [4, 8, 16, 32]),
    "trident": ([128], [16]),
    "hrnet": ([8, 16, 32, 64], [4, 8, 16, 32]),
    "hrnet_one_output": ([8], [4]),
    "regnet": ([8, 16, 32, 64], [4, 8, 16, 32]),
    "res2net": ([32, 64, 128, 256], [4, 8, 16, 32]),
    "resnest": ([32, 64, 128, 256], [4, 8, 16, 32]),
    "resnest_groups": ([32, 64, 128, 256], [4, 8, 16, 32]),
    "resnet": ([32, 64, 128, 256], [4, 8, 16, 32]),
    "resnet_attention_0010": ([32, 64, 128, 256], [4, 8, 16, 32]),
    "resnet_attention_1101": ([32, 64, 128, 256], [4, 8, 16, 32]),
    "resnet_attention_1111": ([32, 64, 128, 256], [4, 8, 16, 32]),
    "resnet_basic": ([8, 16, 32, 64], [4, 8, 16, 32]),
    "resnet_caffe": ([256], [16]),
    "resnet_plugins": ([32, 64, 128, 256], [4, 8, 16, 32]),
    "resnet_v1d": ([32, 64, 128, 256], [4, 8, 16, 32]),
    "resnext_plugins": ([32, 64, 128, 256], [4, 8, 16, 32]),
    "swin": ([12, 24, 48], [4, 8, 16]),
    "swin_window_12": ([12, 24, 48, 96], [4, 8, 16, 32]),
}
"""Channels and strides of what the backbones of tests/detect/part_cases.py return."""

TIMM: dict[str, tuple[list[int], list[int]]] = {
    "test_efficientnet": ([24, 32, 48, 64], [4, 8, 16, 32]),
    "test_resnet": ([32, 48, 192, 96], [4, 8, 16, 32]),
}
"""Channels and strides of what small models of timm return after their first map."""

SPREAD = dense.LOG_DISTANCES


def _fcos(backbone: Config, neck: Any, strides: list[int], width: int) -> Config:
    """Return an FCOS over any backbone and neck."""
    head = {**dense.FCOS, "in_channels": width, "feat_channels": 16, "strides": strides}
    head["regress_ranges"] = tuple((4 * stride, 8 * stride) for stride in strides)
    return model("FCOS", backbone=backbone, neck=neck, bbox_head=head, test_cfg=dense.TEST_CFG)


def _backbone(config: Config, channels: list[int], strides: list[int]) -> Case:
    neck = {
        "type": "ChannelMapper",
        "in_channels": channels,
        "kernel_size": 1,
        "out_channels": 16,
        "num_outs": len(channels),
        "norm_cfg": {"type": "GN", "num_groups": 4},
    }
    return Case(_fcos(config, neck, strides, 16), SPREAD)


def _timm(name: str) -> Config:
    """Return the backbone of a model of timm."""
    return {"type": "mmpretrain.TIMMBackbone", "model_name": name, "features_only": True, "out_indices": (1, 2, 3, 4)}


def _neck(name: str) -> Case:
    neck = copy.deepcopy(part_cases.NECKS[name])
    backbone = part_cases.res("ResNet", depth=18)
    levels = {"channel_mapper": 6, "fpn_dropblock": 6}.get(name, 5)
    first = {"bfp_conv": 8, "nas_fpn": 8, "pafpn_on_input": 8, "hrfpn_stride": 8}.get(name, 4)
    if name == "rfp":
        backbone = {**part_cases.res("DetectoRS_ResNet", **part_cases.SAC_WITHOUT_OFFSETS), "output_img": True}
        neck["rfp_backbone"] = part_cases.res("DetectoRS_ResNet", **part_cases.SAC_WITHOUT_OFFSETS, rfp_inplanes=16)
    detector = _fcos(backbone, neck, [first * 2**level for level in range(levels)], 16)
    if name in ("fpg", "nas_fpn"):  # MMDetection takes maps of even sides only
        detector["data_preprocessor"]["pad_size_divisor"] = 128
    return Case(detector, SPREAD)


def _coder(coder: Config, **generator: Any) -> Case:
    """Return a RetinaNet with a coder of boxes, and entries of its anchors."""
    head = {**dense.over_pyramid("RetinaNet", {})["bbox_head"], "type": "RetinaHead", **dense.SMALL}
    head |= {"anchor_generator": {**dense.ANCHORS, **generator}, "bbox_coder": coder, "loss_cls": dense.FOCAL}
    return Case(dense.over_pyramid("RetinaNet", head))


def _with_head(**head: Any) -> Case:
    """Return a Faster R-CNN with another box head."""
    detector = copy.deepcopy(two_stage.CASES["faster_rcnn"].model)
    detector["roi_head"]["bbox_head"] |= head
    return Case(detector, two_stage.SPREAD)


def _ssd_vgg() -> Case:
    """Return an SSD over VGG, whose channels are as they are."""
    detector = copy.deepcopy(dense.CASES["ssd"].model)
    detector["backbone"] = {
        "type": "SSDVGG",
        "depth": 16,
        "with_last_pool": False,
        "ceil_mode": True,
        "out_indices": (3, 4),
        "out_feature_indices": (22, 34),
    }
    detector["neck"] |= {"in_channels": (512, 1024), "out_channels": (512, 1024, 16)}
    detector["bbox_head"]["in_channels"] = (512, 1024, 16)
    return Case(detector, dense.CASES["ssd"].spread, dense.RESIZED)


def _ssd_legacy() -> Case:
    """Return an SSD with the anchors of MMDetection 1."""
    detector = copy.deepcopy(dense.CASES["ssd"].model)
    sizes = {
        "strides": [8, 16, 32],
        "ratios": [[2], [2, 3], [2]],
        "input_size": 300,
        "basesize_ratio_range": (0.15, 0.9),
    }
    detector["bbox_head"]["anchor_generator"] = {"type": "LegacySSDAnchorGenerator", **sizes}
    return Case(detector, dense.CASES["ssd"].spread, dense.RESIZED)


_TWO_FULLY_CONNECTED = {"num_shared_convs": 0, "num_shared_fcs": 1, "num_cls_fcs": 1, "num_reg_fcs": 1}
CASES = {
    **{f"backbone_{name}": _backbone(part_cases.BACKBONES[name], *maps) for name, maps in BACKBONES.items()},
    **{f"backbone_timm_{name}": _backbone(_timm(name), *maps) for name, maps in TIMM.items()},
    **{f"neck_{name}": _neck(name) for name in part_cases.NECKS},
    "backbone_ssd_vgg": _ssd_vgg(),
    "coder_legacy": _coder(
        {"type": "LegacyDeltaXYWHBBoxCoder", "target_stds": [0.5] * 4}, type="LegacyAnchorGenerator", center_offset=0.5
    ),
    "ssd_legacy_anchors": _ssd_legacy(),
    "coder_tblr": _coder({"type": "TBLRBBoxCoder", "normalizer": 2.0}),
    "coder_centre_clamp": _coder({**dense.CODER, "add_ctr_clamp": True, "ctr_clamp": 4}),
    "head_conv_fc": _with_head(type="ConvFCBBoxHead", **_TWO_FULLY_CONNECTED, conv_out_channels=16),
    "head_4conv1fc": _with_head(
        type="Shared4Conv1FCBBoxHead", conv_out_channels=16, norm_cfg={"type": "GN", "num_groups": 4}
    ),
}

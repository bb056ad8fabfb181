"""Small detectors with the dense heads that differ in priors, decoding and scores."""

import copy

from tests.detect import query_cases

ANCHORS = {
    "type": "AnchorGenerator",
    "ratios": [1.0],
    "octave_base_scale": 8,
    "scales_per_octave": 1,
    "strides": [8, 16],
}
SQUARES = {"type": "AnchorGenerator", "ratios": [1.0], "scales": [4], "strides": [8, 16]}
DELTAS = {"type": "DeltaXYWHBBoxCoder", "target_stds": [0.1, 0.1, 0.2, 0.2]}
FOCAL = {"type": "FocalLoss", "use_sigmoid": True}
SMALL = {"num_classes": 3, "in_channels": 32, "feat_channels": 32, "stacked_convs": 1}
OVER_ANCHORS = {**SMALL, "anchor_generator": ANCHORS, "loss_cls": FOCAL}
HEADS = {
    "ATSSHead": {**OVER_ANCHORS, "bbox_coder": DELTAS},
    "DDODHead": {**OVER_ANCHORS, "bbox_coder": DELTAS},
    "GFLHead": {**OVER_ANCHORS, "reg_max": 4},
    "LDHead": {**OVER_ANCHORS, "loss_ld": {"type": "KnowledgeDistillationKLDivLoss"}},
    "VFNetHead": {**SMALL, "strides": [8, 16], "regress_ranges": [(-1, 64), (64, 128)], "anchor_generator": ANCHORS},
    "TOODHead": {**OVER_ANCHORS, "bbox_coder": DELTAS},
    "PAAHead": {**OVER_ANCHORS, "bbox_coder": DELTAS},
    "LADHead": {**OVER_ANCHORS, "bbox_coder": DELTAS},
    "FoveaHead": {**SMALL, "strides": [8, 16], "base_edge_list": [16, 32], "sigma": 0.4},
    "AutoAssignHead": {**SMALL, "strides": [8, 16], "regress_ranges": [(-1, 64), (64, 128)]},
    "RepPointsHead": {**SMALL, "point_feat_channels": 8, "point_strides": [8, 16]},
    "SABLRetinaHead": {
        **SMALL,
        "square_anchor_generator": {**ANCHORS, "octave_base_scale": 4},
        "bbox_coder": {"type": "BucketingBBoxCoder", "num_buckets": 14, "scale_factor": 3.0},
    },
    "GARetinaHead": {
        **SMALL,
        "square_anchor_generator": SQUARES,
        "loss_cls": {"type": "FocalLoss", "use_sigmoid": True},
    },
    "NASFCOSHead": {**SMALL, "strides": [8, 16]},
    "CenterNetUpdateHead": {**SMALL, "strides": [8, 16]},
    "FreeAnchorRetinaHead": {**OVER_ANCHORS, "bbox_coder": DELTAS, "bbox_thr": 0.6},
    "RetinaSepBNHead": {**OVER_ANCHORS, "num_ins": 2, "norm_cfg": {"type": "BN"}},
    "YOLOFHead": {
        "num_classes": 3,
        "in_channels": 32,
        "anchor_generator": {"type": "AnchorGenerator", "ratios": [1.0], "scales": [1, 4], "strides": [32]},
        "bbox_coder": {"type": "DeltaXYWHBBoxCoder", "add_ctr_clamp": True, "ctr_clamp": 32},
    },
}
TEST_CFG = {
    "nms_pre": 100,
    "min_bbox_size": 0,
    "score_thr": 0.05,
    "nms": {"type": "nms", "iou_threshold": 0.6},
    "max_per_img": 4,
}


def config(kind, **entries):
    """Return the config of a detector with a head of this type."""
    backbone = {"type": "ResNet", "depth": 18, "base_channels": 4, "stem_channels": 4, "out_indices": (1, 2)}
    neck = {"type": "FPN", "in_channels": [8, 16], "out_channels": 32, "num_outs": 2}
    if kind == "YOLOFHead":
        backbone["out_indices"] = (3,)
        neck = {"type": "DilatedEncoder", "in_channels": 32, "out_channels": 32, "block_mid_channels": 8}
        neck |= {"num_residual_blocks": 2, "block_dilations": [2, 4]}
    return {
        "model": {
            "data_preprocessor": {},
            "backbone": backbone,
            "neck": neck,
            "bbox_head": {"type": kind, **copy.deepcopy(HEADS[kind]), **entries},
            "test_cfg": copy.deepcopy(TEST_CFG),
        }
    }


def fill(detector):
    """Give all weights values that nothing cancels.

    Those of the head are small, so that scores are not near 1, and those of offsets, so that samples lie in the map.
    """
    query_cases.fill(detector)
    for name, tensor in detector.state_dict().items():
        if tensor.ndim == 4 and "offset" in name:
            tensor.mul_(0.02)
        elif tensor.ndim == 4 and name.startswith("bbox_head"):
            tensor.mul_(0.1 if "pts" in name else 0.3)

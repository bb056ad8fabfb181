"""Small detectors of rotated boxes."""

import copy

BACKBONE = {"type": "ResNet", "depth": 18, "base_channels": 4, "stem_channels": 4}
SQUARES = {"type": "RotatedAnchorGenerator", "scales": [4], "ratios": [1.0], "strides": [8, 16]}
DELTAS = {"type": "DeltaXYWHAOBBoxCoder", "angle_range": "le90", "edge_swap": True, "proj_xy": True}
UPRIGHT_DELTAS = {"type": "DeltaXYWHAHBBoxCoder", "angle_range": "le90", "edge_swap": True, "norm_factor": 2}
FOCAL = {"type": "FocalLoss", "use_sigmoid": True}
SMALL = {"num_classes": 3, "in_channels": 32, "feat_channels": 32, "stacked_convs": 1, "loss_cls": FOCAL}
RETINA = {"type": "RotatedRetinaHead", **SMALL, "anchor_generator": SQUARES, "bbox_coder": DELTAS}
PSEUDO = {"type": "PseudoAnchorGenerator", "strides": [8, 16]}
OPENCV_DELTAS = {"type": "DeltaXYWHAOBBoxCoder", "angle_range": "oc"}
DENSE_CFG = {"nms_pre": 100, "min_bbox_size": 0, "score_thr": 0.05, "nms": {"iou_thr": 0.1}, "max_per_img": 20}

DENSE = {
    "Rotated RetinaNet": {"bbox_head": RETINA},
    "Rotated FCOS": {
        "bbox_head": {
            "type": "RotatedFCOSHead",
            **SMALL,
            "strides": [8, 16],
            "norm_on_bbox": True,
            "centerness_on_reg": True,
            "bbox_coder": {"type": "DistanceAnglePointCoder", "angle_version": "le90"},
        }
    },
    "Rotated RepPoints": {
        "bbox_head": {"type": "RotatedRepPointsHead", **SMALL, "point_feat_channels": 8, "point_strides": [8, 16]}
    },
    "Rotated ATSS": {"bbox_head": {**RETINA, "type": "RotatedATSSHead"}},
    "CSL RetinaNet": {
        "bbox_head": {
            **RETINA,
            "type": "CSLRRetinaHead",
            "angle_coder": {"type": "CSLCoder", "angle_version": "le90", "omega": 4, "window": "gaussian", "radius": 3},
        }
    },
    "CSL FCOS": {
        "bbox_head": {
            "type": "CSLRFCOSHead",
            **SMALL,
            "strides": [8, 16],
            "bbox_coder": {"type": "DistanceAnglePointCoder", "angle_version": "le90"},
            "angle_coder": {"type": "CSLCoder", "angle_version": "le90"},
        }
    },
    "R3Det": {
        "bbox_head": {**RETINA, "anchor_generator": {**SQUARES, "ratios": [0.5, 1.0]}, "bbox_coder": OPENCV_DELTAS},
        "frm_cfgs": [{"in_channels": 32, "featmap_strides": [8, 16]}] * 2,
        "num_refine_stages": 2,
        "refine_heads": [
            {**RETINA, "type": "RotatedRetinaRefineHead", "anchor_generator": PSEUDO, "bbox_coder": OPENCV_DELTAS}
        ]
        * 2,
    },
    "S2ANet": {
        "fam_head": {**RETINA, "bbox_coder": {**DELTAS, "edge_swap": False, "norm_factor": 1}},
        "align_cfgs": {"type": "AlignConv", "kernel_size": 3, "channels": 32, "featmap_strides": [8, 16]},
        "odm_head": {**RETINA, "type": "ODMRefineHead", "anchor_generator": PSEUDO},
    },
}

ANCHORS = {"type": "AnchorGenerator", "scales": [8], "ratios": [0.5, 1.0, 2.0], "strides": [4, 8]}
RPN = {
    "type": "RotatedRPNHead",
    "in_channels": 32,
    "feat_channels": 32,
    "version": "le90",
    "anchor_generator": ANCHORS,
    "bbox_coder": {"type": "DeltaXYWHBBoxCoder"},
}
ORIENTED_RPN = {
    **RPN,
    "type": "OrientedRPNHead",
    "bbox_coder": {"type": "MidpointOffsetCoder", "angle_range": "le90", "target_stds": [1, 1, 1, 1, 0.5, 0.5]},
}
UPRIGHT_ROIS = {
    "type": "SingleRoIExtractor",
    "roi_layer": {"type": "RoIAlign", "output_size": 3, "sampling_ratio": 0},
    "out_channels": 32,
    "featmap_strides": [4, 8],
}
ROTATED_ROIS = {
    **UPRIGHT_ROIS,
    "type": "RotatedSingleRoIExtractor",
    "roi_layer": {"type": "RoIAlignRotated", "out_size": 3, "sample_num": 2, "clockwise": True},
}
BOX_HEAD = {
    "type": "RotatedShared2FCBBoxHead",
    "in_channels": 32,
    "fc_out_channels": 16,
    "roi_feat_size": 3,
    "num_classes": 3,
    "bbox_coder": DELTAS,
    "reg_class_agnostic": True,
}
TWO_STAGE_CFG = {
    "rpn": {"nms_pre": 60, "max_per_img": 60, "nms": {"type": "nms", "iou_threshold": 0.7}, "min_bbox_size": 0},
    "rcnn": {**DENSE_CFG, "nms": {"type": "le90", "iou_thr": 0.1}},
}

TWO_STAGE = {
    "Oriented R-CNN": {
        "type": "OrientedRCNN",
        "rpn_head": ORIENTED_RPN,
        "roi_head": {
            "type": "OrientedStandardRoIHead",
            "bbox_roi_extractor": ROTATED_ROIS,
            "bbox_head": BOX_HEAD,
        },
    },
    "Rotated Faster R-CNN": {
        "type": "RotatedFasterRCNN",
        "rpn_head": RPN,
        "roi_head": {
            "type": "RotatedStandardRoIHead",
            "version": "le90",
            "bbox_roi_extractor": UPRIGHT_ROIS,
            "bbox_head": {**BOX_HEAD, "bbox_coder": UPRIGHT_DELTAS},
        },
    },
    "Gliding Vertex": {
        "type": "GlidingVertex",
        "rpn_head": RPN,
        "roi_head": {
            "type": "GVRatioRoIHead",
            "version": "le90",
            "bbox_roi_extractor": UPRIGHT_ROIS,
            "bbox_head": {
                **BOX_HEAD,
                "type": "GVBBoxHead",
                "version": "le90",
                "ratio_thr": 0.5,
                "bbox_coder": {"type": "DeltaXYWHBBoxCoder", "target_stds": [0.1, 0.1, 0.2, 0.2]},
                "fix_coder": {"type": "GVFixCoder", "angle_range": "le90"},
                "ratio_coder": {"type": "GVRatioCoder", "angle_range": "le90"},
            },
        },
    },
    "RoI Transformer": {
        "type": "RoITransformer",
        "rpn_head": RPN,
        "roi_head": {
            "type": "RoITransRoIHead",
            "version": "le90",
            "num_stages": 2,
            "stage_loss_weights": [1, 1],
            "bbox_roi_extractor": [UPRIGHT_ROIS, ROTATED_ROIS],
            "bbox_head": [
                {**BOX_HEAD, "bbox_coder": UPRIGHT_DELTAS},
                {**BOX_HEAD, "reg_class_agnostic": False},
            ],
        },
    },
}

CASES = [*DENSE, *TWO_STAGE]


def config_of(name):
    """Return the config of a small detector."""
    if name in DENSE:
        backbone, channels, entries = {**BACKBONE, "out_indices": (1, 2)}, [8, 16], {"type": "-", **DENSE[name]}
        entries["test_cfg"] = DENSE_CFG
    else:
        backbone, channels, entries = {**BACKBONE, "out_indices": (0, 1)}, [4, 8], TWO_STAGE[name]
        entries = {**entries, "test_cfg": TWO_STAGE_CFG}
    neck = {"type": "FPN", "in_channels": channels, "out_channels": 32, "num_outs": 2}
    return copy.deepcopy({"model": {"backbone": backbone, "neck": neck, **entries}})

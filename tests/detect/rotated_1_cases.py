"""Small detectors of rotated boxes in MMRotate 1's spelling.

MMRotate 1.0.0rc1 got the same: ``tests/data/detect/rotated_1.json`` has what they detected
(``tests/originals/records.py`` writes it).
"""

import copy

from tests.detect import query_cases, rotated_cases

STRIDES = [8, 16]
PREPROCESSOR = {
    "type": "mmdet.DetDataPreprocessor",
    "mean": [123.675, 116.28, 103.53],
    "std": [58.395, 57.12, 57.375],
    "bgr_to_rgb": True,
    "pad_size_divisor": 32,
    "boxtype2tensor": False,
}
BACKBONE = {
    "type": "mmdet.ResNet",
    "depth": 18,
    "base_channels": 4,
    "stem_channels": 4,
    "norm_cfg": {"type": "BN", "requires_grad": True},
}
FOCAL = {"type": "mmdet.FocalLoss", "use_sigmoid": True}
L1 = {"type": "mmdet.L1Loss", "loss_weight": 1.0}
CENTERNESS = {"type": "mmdet.CrossEntropyLoss", "use_sigmoid": True}
LOSSES = {"loss_cls": FOCAL, "loss_bbox": L1}
SMALL = {"num_classes": 3, "in_channels": 32, "feat_channels": 32, "stacked_convs": 1, **LOSSES}
ANCHORS = {
    "type": "FakeRotatedAnchorGenerator",
    "angle_version": "le90",
    "scales": [4],
    "ratios": [1.0, 0.5, 2.0],
    "strides": STRIDES,
}
SQUARES = {**ANCHORS, "ratios": [1.0]}
PSEUDO = {"type": "PseudoRotatedAnchorGenerator", "strides": STRIDES}
DELTAS = {"type": "DeltaXYWHTRBBoxCoder", "angle_version": "le90", "edge_swap": True, "proj_xy": True}
OPENCV_DELTAS = {"type": "DeltaXYWHTRBBoxCoder", "angle_version": "oc"}
ALIGNED_DELTAS = {"type": "DeltaXYWHTRBBoxCoder", "angle_version": "le135", "norm_factor": 1, "proj_xy": True}
DISTANCES = {"type": "DistanceAnglePointCoder", "angle_version": "le90"}
RETINA = {"type": "mmdet.RetinaHead", **SMALL, "anchor_generator": ANCHORS, "bbox_coder": DELTAS}
FCOS = {
    "type": "RotatedFCOSHead",
    **SMALL,
    "strides": STRIDES,
    "center_sampling": True,
    "norm_on_bbox": True,
    "centerness_on_reg": True,
    "bbox_coder": DISTANCES,
    "loss_angle": None,
    "loss_centerness": CENTERNESS,
}
PHASES = {"type": "PSCCoder", "angle_version": "le90", "dual_freq": True, "num_step": 3}
CLASSES = {"type": "CSLCoder", "angle_version": "le90", "omega": 4, "window": "gaussian", "radius": 3}
POINTS = {
    "type": "RotatedRepPointsHead",
    **{key: value for key, value in SMALL.items() if key != "loss_bbox"},
    "point_feat_channels": 8,
    "point_strides": STRIDES,
    "point_base_scale": 2,
    "transform_method": "rotrect",
    "loss_bbox_init": {"type": "ConvexGIoULoss", "loss_weight": 0.375},
    "loss_bbox_refine": {"type": "ConvexGIoULoss", "loss_weight": 1.0},
}
TEST_CFG = {
    "nms_pre": 60,
    "min_bbox_size": 0,
    "score_thr": 0.05,
    "nms": {"type": "nms_rotated", "iou_threshold": 0.1},
    "max_per_img": 20,
}
DENSE = {
    "Rotated RetinaNet": {"type": "mmdet.RetinaNet", "bbox_head": RETINA},
    "Rotated RetinaNet oc": {
        "type": "mmdet.RetinaNet",
        "bbox_head": {**RETINA, "anchor_generator": {**ANCHORS, "angle_version": "oc"}, "bbox_coder": OPENCV_DELTAS},
    },
    "CSL RetinaNet": {
        "type": "mmdet.RetinaNet",
        "bbox_head": {**RETINA, "type": "AngleBranchRetinaHead", "angle_coder": CLASSES, "loss_angle": L1},
    },
    "PSC RetinaNet": {
        "type": "mmdet.RetinaNet",
        "bbox_head": {
            **RETINA,
            "type": "AngleBranchRetinaHead",
            "anchor_generator": {**ANCHORS, "angle_version": None},
            "use_normalized_angle_feat": True,
            "angle_coder": PHASES,
            "loss_angle": L1,
        },
    },
    "Rotated FCOS": {"type": "mmdet.FCOS", "bbox_head": FCOS},
    "PSC FCOS": {
        "type": "mmdet.FCOS",
        "bbox_head": {**FCOS, "use_hbbox_loss": True, "scale_angle": False, "angle_coder": PHASES, "loss_angle": L1},
    },
    "H2RBox": {
        "type": "H2RBoxDetector",
        "crop_size": (64, 64),
        "bbox_head": {
            **FCOS,
            "type": "H2RBoxHead",
            "square_classes": [1],
            "crop_size": (64, 64),
            "loss_bbox": {"type": "mmdet.IoULoss", "loss_weight": 1.0},
            "loss_bbox_ss": {
                "type": "H2RBoxConsistencyLoss",
                "center_loss_cfg": L1,
                "shape_loss_cfg": {"type": "mmdet.IoULoss"},
                "angle_loss_cfg": L1,
            },
        },
    },
    "Rotated ATSS": {
        "type": "mmdet.ATSS",
        "bbox_head": {
            **RETINA,
            "type": "RotatedATSSHead",
            "anchor_generator": SQUARES,
            "loss_centerness": CENTERNESS,
        },
    },
    "Rotated RepPoints": {"type": "mmdet.RepPointsDetector", "bbox_head": POINTS},
    "Rotated RTMDet": {
        "type": "mmdet.RTMDet",
        "bbox_head": {
            "type": "RotatedRTMDetSepBNHead",
            **SMALL,
            "angle_version": "le90",
            "anchor_generator": {"type": "mmdet.MlvlPointGenerator", "offset": 0, "strides": STRIDES},
            "bbox_coder": DISTANCES,
            "with_objectness": False,
            "exp_on_reg": True,
            "share_conv": True,
            "pred_kernel_size": 1,
            "use_hbbox_loss": False,
            "scale_angle": False,
            "loss_angle": None,
            "norm_cfg": {"type": "SyncBN"},
            "act_cfg": {"type": "SiLU"},
        },
    },
    "R3Det": {
        "type": "RefineSingleStageDetector",
        "bbox_head_init": {
            **RETINA,
            "type": "R3Head",
            "anchor_generator": {**ANCHORS, "angle_version": "oc"},
            "bbox_coder": {**OPENCV_DELTAS, "use_box_type": False},
        },
        "bbox_head_refine": [
            {
                **RETINA,
                "type": "R3RefineHead",
                "frm_cfg": {"type": "FRM", "feat_channels": 32, "strides": STRIDES},
                "anchor_generator": PSEUDO,
                "bbox_coder": {**OPENCV_DELTAS, "use_box_type": stage == 1},
            }
            for stage in range(2)
        ],
    },
    "S2ANet": {
        "type": "RefineSingleStageDetector",
        "bbox_head_init": {
            **RETINA,
            "type": "S2AHead",
            "anchor_generator": {**SQUARES, "angle_version": "le135"},
            "bbox_coder": {**ALIGNED_DELTAS, "use_box_type": False},
        },
        "bbox_head_refine": [
            {
                **RETINA,
                "type": "S2ARefineHead",
                "stacked_convs": 2,
                "frm_cfg": {"type": "AlignConv", "feat_channels": 32, "kernel_size": 3, "strides": STRIDES},
                "anchor_generator": PSEUDO,
                "bbox_coder": {**ALIGNED_DELTAS, "use_box_type": stage == 1},
            }
            for stage in range(2)
        ],
    },
}
FORKS = {
    "H2RBox-v2": {
        "type": "mmdet.FCOS",
        "bbox_head": {
            **FCOS,
            "type": "H2RBoxV2Head",
            "scale_angle": False,
            "rotation_agnostic_classes": [0, 1],
            "agnostic_resize_classes": [1],
            "angle_coder": {**PHASES, "dual_freq": False, "thr_mod": 0},
            "loss_bbox": {"type": "mmdet.IoULoss", "loss_weight": 1.0},
            "loss_symmetry_ss": {
                "type": "H2RBoxV2ConsistencyLoss",
                "use_snap_loss": True,
                "loss_rot": {"type": "mmdet.SmoothL1Loss", "loss_weight": 1.0, "beta": 0.1},
                "loss_flp": {"type": "mmdet.SmoothL1Loss", "loss_weight": 0.05, "beta": 0.1},
            },
        },
    },
}
"""What no MMRotate has: ``tests/tools/check_projects.py`` compares it with onedl-mmrotate's code."""

SOFTMAX = {"type": "mmdet.CrossEntropyLoss", "use_sigmoid": False}
RPN = {
    "type": "mmdet.RPNHead",
    "in_channels": 32,
    "feat_channels": 32,
    "anchor_generator": {
        "type": "mmdet.AnchorGenerator",
        "scales": [8],
        "ratios": [0.5, 1.0, 2.0],
        "strides": [4, 8],
        "use_box_type": True,
    },
    "bbox_coder": {"type": "DeltaXYWHHBBoxCoder", "target_stds": [1.0, 1.0, 1.0, 1.0], "use_box_type": True},
    "loss_cls": CENTERNESS,
    "loss_bbox": L1,
}
ORIENTED_RPN = {
    **RPN,
    "type": "OrientedRPNHead",
    "bbox_coder": {"type": "MidpointOffsetCoder", "angle_version": "le90", "target_stds": [1.0, 1, 1, 1, 0.5, 0.5]},
}
UPRIGHT_ROIS = {**rotated_cases.UPRIGHT_ROIS, "type": "mmdet.SingleRoIExtractor"}
ROTATED_ROIS = rotated_cases.ROTATED_ROIS
BOX_HEAD = {
    "type": "mmdet.Shared2FCBBoxHead",
    "predict_box_type": "rbox",
    "in_channels": 32,
    "fc_out_channels": 16,
    "roi_feat_size": 3,
    "num_classes": 3,
    "reg_predictor_cfg": {"type": "mmdet.Linear"},
    "cls_predictor_cfg": {"type": "mmdet.Linear"},
    "bbox_coder": {**DELTAS, "target_stds": [0.1, 0.1, 0.2, 0.2, 0.1]},
    "reg_class_agnostic": True,
    "loss_cls": SOFTMAX,
    "loss_bbox": L1,
}
UPRIGHT_DELTAS = {
    "type": "DeltaXYWHTHBBoxCoder",
    "angle_version": "le90",
    "norm_factor": 2,
    "edge_swap": True,
    "target_stds": [0.1, 0.1, 0.2, 0.2, 0.1],
    "use_box_type": True,
}
TWO_STAGE = {
    "Oriented R-CNN": {
        "type": "mmdet.FasterRCNN",
        "rpn_head": ORIENTED_RPN,
        "roi_head": {
            "type": "mmdet.StandardRoIHead",
            "bbox_roi_extractor": ROTATED_ROIS,
            "bbox_head": BOX_HEAD,
        },
    },
    "Rotated Faster R-CNN": {
        "type": "mmdet.FasterRCNN",
        "rpn_head": RPN,
        "roi_head": {
            "type": "mmdet.StandardRoIHead",
            "bbox_roi_extractor": UPRIGHT_ROIS,
            "bbox_head": {**BOX_HEAD, "bbox_coder": UPRIGHT_DELTAS},
        },
    },
    "RoI Transformer": {
        "type": "mmdet.CascadeRCNN",
        "rpn_head": RPN,
        "roi_head": {
            "type": "mmdet.CascadeRoIHead",
            "num_stages": 2,
            "stage_loss_weights": [1, 1],
            "bbox_roi_extractor": [UPRIGHT_ROIS, ROTATED_ROIS],
            "bbox_head": [
                {**BOX_HEAD, "bbox_coder": UPRIGHT_DELTAS},
                {**BOX_HEAD, "reg_class_agnostic": False},
            ],
        },
    },
    "Gliding Vertex": {
        "type": "mmdet.FasterRCNN",
        "rpn_head": {**RPN, "bbox_coder": {**RPN["bbox_coder"], "type": "DeltaXYWHQBBoxCoder"}},
        "roi_head": {
            "type": "GVRatioRoIHead",
            "bbox_roi_extractor": UPRIGHT_ROIS,
            "bbox_head": {
                **BOX_HEAD,
                "type": "GVBBoxHead",
                "num_shared_fcs": 2,
                "ratio_thr": 0.5,
                "bbox_coder": {"type": "DeltaXYWHQBBoxCoder", "target_stds": [0.1, 0.1, 0.2, 0.2]},
                "fix_coder": {"type": "GVFixCoder"},
                "ratio_coder": {"type": "GVRatioCoder"},
                "loss_fix": L1,
                "loss_ratio": L1,
            },
        },
    },
}
EQUIVARIANT = {
    "backbone": {"type": "ReResNet", "depth": 18, "base_channels": 16, "stem_channels": 16, "out_indices": (0, 1)},
    "neck": {"type": "ReFPN", "in_channels": [16, 32], "out_channels": 32, "num_outs": 2},
}
ORIENTED_ROIS = {
    **ROTATED_ROIS,
    "roi_layer": {
        "type": "RiRoIAlignRotated",
        "out_size": 3,
        "num_samples": 2,
        "num_orientations": 8,
        "clockwise": True,
    },
}
TWO_STAGE["ReDet"] = {
    **TWO_STAGE["RoI Transformer"],
    **EQUIVARIANT,
    "roi_head": {
        **TWO_STAGE["RoI Transformer"]["roi_head"],
        "bbox_roi_extractor": [UPRIGHT_ROIS, ORIENTED_ROIS],
    },
}
CASES = [*DENSE, *TWO_STAGE]


def config_of(name):
    """Return the config of a small detector."""
    dense = {**DENSE, **FORKS}
    channels = [8, 16] if name in dense else [4, 8]
    neck = {"type": "mmdet.FPN", "in_channels": channels, "out_channels": 32, "num_outs": 2}
    model = {
        "data_preprocessor": PREPROCESSOR,
        "backbone": {**BACKBONE, "out_indices": (1, 2) if name in dense else (0, 1)},
        "neck": neck,
        "train_cfg": None,
        "test_cfg": TEST_CFG if name in dense else {"rpn": rotated_cases.TWO_STAGE_CFG["rpn"], "rcnn": TEST_CFG},
        **{**dense, **TWO_STAGE}[name],
    }
    return copy.deepcopy({"model": model})


def fill(detector):
    """Give all weights values so that scores and boxes vary."""
    query_cases.fill(detector)
    for name, tensor in detector.state_dict().items():
        if tensor.is_floating_point() and tensor.ndim >= 2:
            tensor *= 0.6
        if name.endswith(("sampled_basis", "bias_expansion")):  # e2cnn has one basis for all layers of a kind
            tensor.copy_(query_cases.numbers(name.rpartition(".")[2], *tensor.shape) / 16)
        elif name.endswith("pts_init_out.bias"):  # far apart, as three around all others have equal rectangles
            tensor *= 10

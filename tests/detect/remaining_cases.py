"""Small detectors of the families that no other file of cases has."""

import copy

from tests.detect import dense_cases, query_cases, test_centripetalnet, test_query_detectors, test_rtmdet_yolox
from tests.detect.two_stage_cases import CODER, STDS

BACKBONE = {"type": "ResNet", "depth": 18, "base_channels": 4, "stem_channels": 4}
PYRAMID = {"type": "FPN", "in_channels": [4, 8], "out_channels": 32, "num_outs": 2}
SELECTION = {"nms_pre": 100, "min_bbox_size": 0, "score_thr": 0.05, "max_per_img": 10}
NMS = {"type": "nms", "iou_threshold": 0.6}
NARROW = {"type": "MobileNetV2", "widen_factor": 0.1}
GRIDS = {
    "num_classes": 3,
    "in_channels": 32,
    "feat_channels": 32,
    "strides": [8, 16],
    "scale_ranges": [[1, 96], [48, 192]],
    "num_grids": [12, 8],
    "norm_cfg": {"type": "GN", "num_groups": 8},
}
GRID_SELECTION = {"nms_pre": 50, "score_thr": 0.1, "mask_thr": 0.5, "filter_thr": 0.05, "max_per_img": 10}
GRID_SELECTION |= {"kernel": "gaussian", "sigma": 2.0}
PROPOSALS = {
    "rpn": {"nms_pre": 100, "max_per_img": 50, "nms": {"type": "nms", "iou_threshold": 0.7}, "min_bbox_size": 0},
    "rcnn": {"score_thr": 0.05, "nms": NMS, "max_per_img": 10},
}
ALIGN = {"type": "SingleRoIExtractor", "roi_layer": {"type": "RoIAlign", "output_size": 7, "sampling_ratio": 0}}


def _dense(kind, **entries):
    model = dense_cases.config("ATSSHead")["model"]
    return {**model, "bbox_head": {"type": kind, **dense_cases.SMALL, **entries}}


def _rpn_head(channels, strides):
    anchors = {"type": "AnchorGenerator", "scales": [4], "ratios": [0.5, 1.0, 2.0], "strides": strides}
    coder = {**CODER, "target_stds": [1.0] * 4}
    sizes = {"in_channels": channels, "feat_channels": channels}
    return {"type": "RPNHead", **sizes, "anchor_generator": anchors, "bbox_coder": coder}


def _ssd():
    channels, strides = [16, 1280, 16, 16], [16, 32, 64, 107]
    norm = {"norm_cfg": {"type": "BN", "eps": 0.001}, "act_cfg": {"type": "ReLU6"}, "use_depthwise": True}
    neck = {"type": "SSDNeck", "in_channels": channels[:2], "out_channels": channels, "l2_norm_scale": None, **norm}
    anchors = {"type": "SSDAnchorGenerator", "scale_major": False, "strides": strides, "ratios": [[2, 3]] * 4}
    anchors |= {"min_sizes": [48, 100, 150, 202], "max_sizes": [100, 150, 202, 253]}
    head = {"type": "SSDHead", "in_channels": channels, "num_classes": 3, "anchor_generator": anchors, **norm}
    return {
        "type": "SingleStageDetector",
        "backbone": {**NARROW, "out_indices": [4, 7]},
        "neck": {**neck, "level_strides": [2, 2], "level_paddings": [1, 1]},
        "bbox_head": {**head, "bbox_coder": {**CODER, "target_stds": STDS[0]}},
        "test_cfg": {**SELECTION, "nms": NMS},
    }


def _yolov3():
    sizes = [[(220, 125), (128, 222), (264, 266)], [(35, 87), (102, 96), (60, 170)], [(10, 15), (24, 36), (72, 42)]]
    strides, channels = [32, 16, 8], {"in_channels": [16, 16, 16], "out_channels": [16, 16, 16]}
    head = {"type": "YOLOV3Head", "num_classes": 3, **channels, "featmap_strides": strides}
    head["anchor_generator"] = {"type": "YOLOAnchorGenerator", "base_sizes": sizes, "strides": strides}
    return {
        "type": "YOLOV3",
        "backbone": {**NARROW, "out_indices": [2, 4, 6]},
        "neck": {"type": "YOLOV3Neck", "num_scales": 3, "in_channels": [32, 16, 8], "out_channels": [16, 16, 16]},
        "bbox_head": {**head, "bbox_coder": {"type": "YOLOBBoxCoder"}},
        "test_cfg": {**SELECTION, "conf_thr": 0.005, "nms": NMS},
    }


def _centernet():
    neck = {"type": "CTResNetNeck", "in_channels": 32, "num_deconv_filters": [16, 8], "num_deconv_kernels": [4, 4]}
    return {
        "type": "CenterNet",
        "backbone": {**BACKBONE, "out_indices": (3,)},
        "neck": {**neck, "use_dcn": False},
        "bbox_head": {"type": "CenterNetHead", "num_classes": 3, "in_channels": 8, "feat_channels": 8},
        "test_cfg": {"topk": 20, "local_maximum_kernel": 3, "max_per_img": 10},
    }


def _solo():
    return {
        "type": "SOLO",
        "backbone": {**BACKBONE, "out_indices": (0, 1)},
        "neck": PYRAMID,
        "mask_head": {"type": "SOLOHead", "stacked_convs": 2, "pos_scale": 0.2, "cls_down_index": 0, **GRIDS},
        "test_cfg": GRID_SELECTION,
    }


def _solov2():
    features = {"in_channels": 32, "feat_channels": 16, "out_channels": 16, "norm_cfg": GRIDS["norm_cfg"]}
    features |= {"start_level": 0, "end_level": 1, "mask_stride": 4}
    head = {"type": "SOLOV2Head", "stacked_convs": 1, "pos_scale": 0.2, "cls_down_index": 0, **GRIDS}
    return {**_solo(), "type": "SOLOv2", "mask_head": {**head, "mask_feature_head": features}}


def _trident():
    stage = {"depth": 50, "style": "caffe", "norm_cfg": {"type": "BN"}}
    backbone = {"type": "TridentResNet", **stage, "num_stages": 3, "strides": [1, 2, 2], "dilations": [1, 1, 1]}
    backbone |= {"base_channels": 4, "stem_channels": 4, "trident_dilations": [1, 2, 3], "out_indices": [2]}
    box_head = {"type": "BBoxHead", "with_avg_pool": True, "roi_feat_size": 7, "in_channels": 64, "num_classes": 3}
    branches = {"num_branch": 3, "test_branch_idx": 1}
    return {
        "type": "TridentFasterRCNN",
        "backbone": {**backbone, **branches},
        "rpn_head": _rpn_head(64, [16]),
        "roi_head": {
            "type": "TridentRoIHead",
            "bbox_roi_extractor": {**ALIGN, "out_channels": 64, "featmap_strides": [16]},
            "bbox_head": {**box_head, "bbox_coder": {**CODER, "target_stds": STDS[0]}},
            **branches,
        },
        "test_cfg": PROPOSALS,
    }


def _point_rend():
    sizes = {"in_channels": 32, "num_classes": 3}
    points = {"type": "MaskPointHead", "num_fcs": 2, "fc_channels": 16, "coarse_pred_each_layer": True, **sizes}
    masks = {"type": "GenericRoIExtractor", "out_channels": 32, "featmap_strides": [4], "aggregation": "concat"}
    box_head = {"type": "Shared2FCBBoxHead", "fc_out_channels": 32, "roi_feat_size": 7, **sizes}
    refinement = {"subdivision_steps": 2, "subdivision_num_points": 49, "scale_factor": 2, "mask_thr_binary": 0.5}
    return {
        "type": "PointRend",
        "backbone": {**BACKBONE, "out_indices": (0, 1)},
        "neck": PYRAMID,
        "rpn_head": _rpn_head(32, [4, 8]),
        "roi_head": {
            "type": "PointRendRoIHead",
            "bbox_roi_extractor": {**ALIGN, "out_channels": 32, "featmap_strides": [4, 8]},
            "bbox_head": {**box_head, "bbox_coder": {**CODER, "target_stds": STDS[0]}},
            "mask_roi_extractor": {**masks, "roi_layer": {"type": "SimpleRoIAlign", "output_size": 14}},
            "mask_head": {
                "type": "CoarseMaskHead",
                "num_fcs": 1,
                "conv_out_channels": 32,
                "fc_out_channels": 32,
                **sizes,
            },
            "point_head": points,
        },
        "test_cfg": {"rpn": PROPOSALS["rpn"], "rcnn": {**PROPOSALS["rcnn"], **refinement}},
    }


MODELS = {
    "FCOS": _dense("FCOSHead", strides=[8, 16]),
    "RetinaNet": _dense(
        "RetinaHead",
        anchor_generator=dense_cases.ANCHORS,
        bbox_coder=dense_cases.DELTAS,
        loss_cls=dense_cases.FOCAL,
    ),
    "FSAF": _dense(
        "FSAFHead",
        anchor_generator={**dense_cases.ANCHORS, "octave_base_scale": 1},
        bbox_coder={"type": "TBLRBBoxCoder", "normalizer": 4.0},
        reg_decoded_bbox=True,
    ),
    "SSD": _ssd(),
    "YOLOv3": _yolov3(),
    "CenterNet": _centernet(),
    "CornerNet": test_query_detectors.CORNERNET["model"],
    "CentripetalNet": test_centripetalnet.CONFIG["model"],
    "SOLO": _solo(),
    "SOLOv2": _solov2(),
    "TridentNet": _trident(),
    "PointRend": _point_rend(),
    "DETR": test_query_detectors.DETR["model"],
    "RTMDet": test_rtmdet_yolox.CONFIGS["rtmdet"]["model"],
    "RTMDet-Ins": test_rtmdet_yolox.CONFIGS["rtmdet_ins"]["model"],
    "YOLOX": test_rtmdet_yolox.CONFIGS["yolox"]["model"],
}


def config(name):
    """Return the config of a detector."""
    return {"model": {"data_preprocessor": {}, **copy.deepcopy(MODELS[name])}}


def fill(name, detector):
    """Give all weights values that nothing cancels, smaller ones in heads of maps.

    YOLOX keeps those that it is built with: its sides are exponentials, which others make too sensitive to rounding.
    """
    if name != "YOLOX":
        (query_cases.fill if name == "DETR" else dense_cases.fill)(detector)

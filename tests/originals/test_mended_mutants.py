"""Entries that mmort once read otherwise than MMDetection, or refused without naming them."""

import pytest

from tests.originals.mutants import PIPELINE, REMOVED, Mutant
from tests.originals.outcomes import DEFECTS, EFFECT, MAPPED_LATER, NO_EFFECT, REFUSED, TIES, Judge
from tests.originals.version_3 import VERSION

TEST_CFG = "model", "test_cfg"
ROTATED_CODER = "model", "bbox_head", "bbox_coder"
MASKS_OF_QUERYINST = "model", "roi_head", "mask_roi_extractor"
SOFT_NMS_ABOVE_ALL = {"type": "soft_nms", "iou_threshold": 0.3, "method": "naive", "min_score": 0.2}
SOFTMAX = {"type": "CrossEntropyLoss", "use_sigmoid": False}


@pytest.mark.parametrize(
    ("case", "path", "value", "kind"),
    [
        ("centernet", ("model", "backbone", "strides"), (2, 4, 4, 4), EFFECT),
        ("condinst", ("model", "backbone", "strides"), (2, 4, 4, 4), REFUSED),
        ("condinst", ("model", "neck", "num_outs"), 10, REFUSED),
        ("cornernet", ("model", "backbone", "num_stacks"), 1, EFFECT),
        ("cornernet", ("model", "backbone", "num_stacks"), 3, NO_EFFECT),
        ("centripetalnet", ("model", "bbox_head", "num_feat_levels"), 1, EFFECT),
        ("crowddet", ("model", "rpn_head", "loss_cls"), SOFTMAX, EFFECT),
        ("deformable_roi_pooling", ("model", "neck", "conv_cfg"), {"type": "ConvWS"}, TIES),
        ("detr", ("model", "data_preprocessor", "pad_size_divisor"), 32, EFFECT),
        ("double_heads", ("model", "roi_head", "bbox_roi_extractor", "featmap_strides"), [16], EFFECT),
        ("double_heads", ("model", "roi_head", "mask_roi_extractor"), 2, REFUSED),
        ("fcos", ("model", "neck", "num_outs"), 5, REFUSED),
        ("foveabox_deform", ("model", "bbox_head", "base_edge_list"), [16, 32], REFUSED),
        ("fcos_rpn", ("model", "rpn_head", "loss_cls", "use_sigmoid"), REMOVED, EFFECT),
        ("ga_rpn", (*TEST_CFG, "rpn", "nms", "class_agnostic"), True, REFUSED),
        ("gfl", ("model", "bbox_head", "loss_cls"), SOFTMAX, REFUSED),
        ("ddod", ("model", "neck", "conv_cfg"), {"type": "ConvWS"}, TIES),
        ("gliding_vertex", ("model", "roi_head", "bbox_head", "predict_box_type"), REMOVED, REFUSED),
        ("groie", ("model", "roi_head", "bbox_roi_extractor", "pre_cfg", "act_cfg"), None, EFFECT),
        ("grid_rcnn", ("model", "roi_head", "bbox_head", "bbox_coder", "target_means"), [0.0, 0.0, 0.0], REFUSED),
        ("grid_rcnn", ("model", "roi_head", "bbox_head", "bbox_coder", "target_stds"), None, REFUSED),
        ("grid_rcnn", ("model", "rpn_head", "bbox_coder", "clip_border"), False, EFFECT),
        ("groie", ("model", "data_preprocessor", "std"), [3.0, 4.0, 5.0], TIES),
        ("h2rbox", (*TEST_CFG, "nms_pre"), 0, REFUSED),
        ("h2rbox", (*PIPELINE, 1, "scale"), (131, 100), MAPPED_LATER),
        ("h2rbox", (*TEST_CFG, "min_bbox_size"), 1, REFUSED),
        ("h2rbox", ("model", "bbox_head", "loss_cls", "use_sigmoid"), REMOVED, EFFECT),
        ("maskformer", ("model", "panoptic_head", "pixel_decoder", "norm_cfg"), {"type": "BN", "eps": 0.3}, EFFECT),
        ("nas_fcos", ("model", "bbox_head", "cls_predictor_cfg"), True, REFUSED),
        ("neck_bfp_conv", ("model", "backbone", "strides"), (2, 4, 4, 4), EFFECT),
        ("neck_bfp_conv", ("model", "bbox_head", "strides"), REMOVED, EFFECT),
        ("oriented_rcnn", ("model", "backbone", "conv_cfg"), {"type": "ConvWS"}, TIES),
        ("oriented_rcnn", ("model", "rpn_head", "bbox_coder", "angle_version"), REMOVED, REFUSED),
        ("oriented_rcnn_0", ("model", "rpn_head", "bbox_coder", "use_box_type"), False, REFUSED),
        ("oriented_reppoints", ("model", "bbox_head", "stacked_convs"), 0, TIES),
        ("paa", ("model", "bbox_head", "loss_cls"), SOFTMAX, REFUSED),
        ("panoptic_fpn", ("model", "panoptic_fusion_head", "num_things_classes"), 5, REFUSED),
        ("panoptic_fpn", ("model", "semantic_head", "num_things_classes"), -1, NO_EFFECT),
        ("pisa_retina", ("model", "neck", "conv_cfg"), {"type": "ConvWS"}, TIES),
        ("queryinst", (*MASKS_OF_QUERYINST, "featmap_strides"), [8, 16, 32, 64, 128], EFFECT),
        ("r3det", ("model", "bbox_head_refine", 1, "frm_cfg", "strides"), [8], REFUSED),
        ("redet", ("model", "data_preprocessor", "std"), [3.0, 4.0, 5.0], TIES),
        ("redet", ("model", "neck", "out_channels"), 33, REFUSED),
        ("redet", ("model", "neck", "in_channels"), [17, 32], REFUSED),
        ("retina_sepbn", ("model", "bbox_head", "num_ins"), 6, EFFECT),
        ("retinanet", (*PIPELINE, 1, "keep_ratio"), None, EFFECT),
        ("rpn", ("model", "rpn_head", "num_convs"), 0, NO_EFFECT),
        ("rotated_retinanet", (*PIPELINE, 1, "keep_ratio"), REMOVED, REFUSED),
        ("neck_rfp", ("model", "neck", "rfp_backbone", "rfp_inplanes"), REMOVED, EFFECT),
        ("psc_fcos", ("model", "bbox_head", "angle_coder", "num_step"), 2, REFUSED),
        ("rotated_faster_rcnn", ("model", "backbone", "strides"), (2, 2, 2, 1), TIES),
        ("rotated_faster_rcnn", ("model", "roi_head", "bbox_roi_extractor", "finest_scale"), -1, REFUSED),
        ("rotated_retinanet", (*TEST_CFG, "nms", "iou_threshold"), 0.0, EFFECT),
        ("rotated_retinanet_0", (*ROTATED_CODER, "add_ctr_clamp"), True, NO_EFFECT),
        ("rtmdet_ins", (*PIPELINE, 1, "keep_ratio"), REMOVED, REFUSED),
        ("rtmdet_ins", ("model", "bbox_head", "conv_cfg"), {"type": "ConvWS"}, TIES),
        ("s2anet", ("model", "bbox_head_refine", 0, "conv_cfg"), {"type": "ConvWS"}, TIES),
        ("sabl_faster_rcnn", (*TEST_CFG, "rcnn", "nms"), SOFT_NMS_ABOVE_ALL, EFFECT),
        ("scnet", ("model", "roi_head", "semantic_head", "num_ins"), 10, NO_EFFECT),
        ("solo", (*TEST_CFG, "nms_pre"), 5, EFFECT),
        ("solov2", (*TEST_CFG, "nms_pre"), 5, EFFECT),
        ("solov2", (*TEST_CFG, "nms_pre"), 0, REFUSED),
        ("solov2", ("model", "mask_head", "num_grids"), [40, 36, 24, 16, 12], EFFECT),
        ("solov2", ("model", "mask_head", "mask_feature_head", "in_channels"), 7, NO_EFFECT),
        ("tridentnet", ("model", "roi_head", "shared_head", "stride"), 1, EFFECT),
        ("tridentnet", (*TEST_CFG, "rcnn", "nms", "type"), "soft_nms", REFUSED),
        ("yolact", ("model", "bbox_head", "anchor_generator", "octave_base_scale"), -1, REFUSED),
        ("yolact", ("model", "bbox_head", "bbox_coder"), {"type": "TBLRBBoxCoder", "normalizer": 3.0}, EFFECT),
        ("yolov3", ("model", "neck", "act_cfg"), None, TIES),
    ],
)
def test_outcome(case, path, value, kind):
    mutant = Mutant(path, value)
    outcome = Judge(VERSION, case)(mutant)
    assert outcome.kind not in DEFECTS, outcome
    assert outcome.kind == kind, outcome

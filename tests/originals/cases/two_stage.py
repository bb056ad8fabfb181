"""Detectors with proposals: those of tests/detect/two_stage_cases.py, with the small backbone of the others here."""

from __future__ import annotations

from typing import Any

from tests.detect import two_stage_cases
from tests.originals.cases.case import PREPROCESSOR, Case, Config
from tests.originals.weights import before

SPREAD = {
    r"(fc_cls(\.\d+)?|fc_cls_ref)$": (0.0, 1.5),
    r"fc_reg": (0.0, 0.5),
    r"conv_logits$": (0.0, 2.0),
    r"rpn_cls$": (0.0, 2.0),
    r"(fc_bucket_cls|conv_bucket|bucket_cls)": (0.0, 1.0),
    r"conv_shape$": (0.0, 0.3),
    r"conv_loc$": (0.0, 1.5),
}


def _of(case: str | None, **changes: Any) -> Config:
    """Return a detector of tests/detect/two_stage_cases.py as a config of MMDetection 3."""
    model: Config = (two_stage_cases.config_of(case) if case else two_stage_cases.CONFIG)["model"]
    model = two_stage_cases.copy.deepcopy(model)
    model["train_cfg"] = None
    model["data_preprocessor"] = {**PREPROCESSOR, "pad_mask": True}
    model["backbone"] |= {"base_channels": 4, "stem_channels": 4}
    neck = model["neck"][0] if isinstance(model["neck"], list) else model["neck"]
    neck["in_channels"] = [4, 8, 16, 32]
    for name, extractor in model.get("roi_head", {}).items():
        if (
            name.endswith("_roi_extractor")
            and extractor["type"] == "SingleRoIExtractor"
            and "finest_scale" not in extractor
        ):
            extractor["finest_scale"] = 14  # so that boxes of these small images are read from all levels
    test_cfg = model["test_cfg"]
    if test_cfg["rpn"]:
        test_cfg["rpn"] |= {"nms_pre": 60, "max_per_img": 40}
    if test_cfg.get("rcnn"):
        test_cfg["rcnn"]["max_per_img"] = min(test_cfg["rcnn"]["max_per_img"], 20)
    return model | changes


def _cascade(masks: bool) -> Config:
    """Return a Cascade R-CNN."""
    model = _of("SABL Cascade R-CNN")
    plain = _of(None)["roi_head"]
    head = model["roi_head"]
    head["bbox_head"] = [
        {
            **plain["bbox_head"],
            "reg_class_agnostic": True,
            "bbox_coder": {**two_stage_cases.CODER, "target_stds": list(stds)},
        }
        for stds in two_stage_cases.STDS
    ]
    if masks:
        head |= {"mask_head": [plain["mask_head"]] * 3, "mask_roi_extractor": plain["mask_roi_extractor"]}
    return model


def _faster() -> Config:
    model = _of(None)
    model["type"] = "FasterRCNN"
    del model["roi_head"]["mask_head"], model["roi_head"]["mask_roi_extractor"]
    return model


def _point_rend() -> Config:
    model = _of(None)
    head = model["roi_head"]
    model["type"], head["type"] = "PointRend", "PointRendRoIHead"
    head["mask_roi_extractor"] = {
        "type": "GenericRoIExtractor",
        "aggregation": "concat",
        "roi_layer": {"type": "SimpleRoIAlign", "output_size": 14},
        "out_channels": 32,
        "featmap_strides": [4],
    }
    head["mask_head"] = {
        "type": "CoarseMaskHead",
        "num_fcs": 2,
        "in_channels": 32,
        "conv_out_channels": 16,
        "fc_out_channels": 24,
        "num_classes": 10,
    }
    head["point_head"] = {
        "type": "MaskPointHead",
        "num_fcs": 2,
        "in_channels": 32,
        "fc_channels": 24,
        "num_classes": 10,
        "coarse_pred_each_layer": True,
    }
    model["test_cfg"]["rcnn"] |= {"subdivision_steps": 3, "subdivision_num_points": 196, "scale_factor": 2}
    return model


def _trident() -> Config:
    model = _faster()
    model["type"] = "TridentFasterRCNN"
    model["backbone"] = {
        "type": "TridentResNet",
        "depth": 50,
        "num_stages": 3,
        "strides": (1, 2, 2),
        "dilations": (1, 1, 1),
        "out_indices": (2,),
        "style": "caffe",
        "norm_cfg": {"type": "BN", "requires_grad": False},
        "trident_dilations": (1, 2, 3),
        "num_branch": 3,
        "test_branch_idx": 1,
    }
    model.pop("neck")
    model["rpn_head"] |= {"in_channels": 1024, "feat_channels": 16}
    model["rpn_head"]["anchor_generator"] = {
        "type": "AnchorGenerator",
        "scales": [2, 4],
        "ratios": [0.5, 1.0],
        "strides": [16],
    }
    head = model["roi_head"]
    head |= {"type": "TridentRoIHead", "num_branch": 3, "test_branch_idx": 1}
    head["shared_head"] = {
        "type": "ResLayer",
        "depth": 50,
        "stage": 3,
        "stride": 2,
        "dilation": 1,
        "style": "caffe",
        "norm_cfg": {"type": "BN", "requires_grad": False},
        "norm_eval": True,
    }
    boxes = head["bbox_head"]
    head["bbox_head"] = {
        "type": "BBoxHead",
        "with_avg_pool": True,
        "roi_feat_size": 4,
        "in_channels": 2048,
        **{name: boxes[name] for name in ("num_classes", "bbox_coder", "reg_class_agnostic", "loss_cls", "loss_bbox")},
    }
    head["bbox_roi_extractor"] |= {"out_channels": 1024, "featmap_strides": [16]}
    return model


_MODELS = {
    "faster_rcnn": _faster(),
    "mask_rcnn": _of(None),
    "cascade_rcnn": _cascade(masks=False),
    "cascade_mask_rcnn": _cascade(masks=True),
    "point_rend": _point_rend(),
    "tridentnet": _trident(),
}
_RENAMED = {
    "htc": "HTC",
    "double_heads": "Double-Head R-CNN",
    "mask_scoring_rcnn": "Mask Scoring R-CNN",
    "groie": "GRoIE",
    "dynamic_rcnn": "Dynamic R-CNN",
    "rpn": "RPN",
    "queryinst": "QueryInst",
    "sparse_rcnn": "Sparse R-CNN",
    "scnet": "SCNet",
    "grid_rcnn": "Grid R-CNN",
    "sabl_faster_rcnn": "SABL Faster R-CNN",
    "sabl_cascade_rcnn": "SABL Cascade R-CNN",
    "pisa_faster_rcnn": "PISA",
    "mask_rcnn_carafe": "CARAFE in the mask head",
    "libra_rcnn": "Libra Mask R-CNN",
    "deformable_roi_pooling": "Deformable RoI pooling",
    "ga_rpn": "Guided anchors",
    "cascade_rpn": "Cascade RPN",
    "cascade_rpn_alone": "Cascade RPN alone",
    "fcos_rpn": "FCOS as RPN",
    "crowddet": "CrowdDet",
}
_MODELS |= {name: _of(case) for name, case in _RENAMED.items()}
_SPREADS = {
    "fcos_rpn": {r"rpn_head\.conv_reg$": (2.3, 0.4)},
    "mask_scoring_rcnn": {r"fc_mask_iou$": (0.6, 0.1)},
    "scnet": {r"conv_logits$": (1.5, 3.0)},
    "queryinst": {r"fc_cls$": (-1.0, 1.5)},
    "sparse_rcnn": {r"fc_cls$": (-1.0, 1.5)},
}
_CLASSES = {"rpn": 1, "cascade_rpn_alone": 1, "crowddet": 1}
CASES = {
    name: Case(model, before(_SPREADS.get(name, {}), SPREAD), batches=name != "ga_rpn", classes=_CLASSES.get(name, 2))
    for name, model in _MODELS.items()
}

"""The cases of MMDetection 2 and MMRotate 0: configs in their spelling."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

from tests.detect import rotated_cases
from tests.originals import cases
from tests.originals.cases import rotated, texts
from tests.originals.cases.case import Config
from tests.originals_2 import respelled


def _pipeline(scale: tuple[int, int], preprocessor: Config, kind: str = "Resize") -> list[Config]:
    """Return a test pipeline with the settings of a data preprocessor of MMDetection 3."""
    normalize = {"mean": preprocessor["mean"], "std": preprocessor["std"], "to_rgb": preprocessor["bgr_to_rgb"]}
    steps = [
        {"type": kind, "keep_ratio": True} if kind == "Resize" else {"type": kind},
        {"type": "RandomFlip" if kind == "Resize" else "RRandomFlip"},
        {"type": "Normalize", **normalize},
        {"type": "Pad", "size_divisor": preprocessor["pad_size_divisor"]},
        {"type": "DefaultFormatBundle"},
        {"type": "Collect", "keys": ["img"]},
    ]
    augmentation = {"type": "MultiScaleFlipAug", "img_scale": scale, "flip": False, "transforms": steps}
    return [{"type": "LoadImageFromFile"}, augmentation]


@dataclass(frozen=True)
class Case(cases.Case):
    """A detector to compare; ``scope`` is "mmrotate" for one of rotated boxes."""

    def config(self) -> Config:
        """Return the whole config."""
        data = {"test": {"type": "CocoDataset", "pipeline": self.pipeline}}
        return copy.deepcopy({"model": self.model, "data": data, "rotated": self.scope == "mmrotate"})


_TYPES = {
    "Rotated RetinaNet": "RotatedRetinaNet",
    "Rotated FCOS": "RotatedFCOS",
    "Rotated RepPoints": "RotatedRepPoints",
    "Rotated ATSS": "RotatedRetinaNet",
    "CSL RetinaNet": "RotatedRetinaNet",
    "CSL FCOS": "RotatedFCOS",
    "R3Det": "R3Det",
    "S2ANet": "S2ANet",
}


def _rotated(name: str, head: Config | None = None, **fields: Any) -> Case:
    """Return a case of one of the tests' detectors of rotated boxes, perhaps with other entries of its head."""
    model = rotated_cases.config_of(name)["model"]
    if name in _TYPES:
        model["type"] = _TYPES[name]
    model["bbox_head"] = {**model["bbox_head"], **head} if head else model.get("bbox_head")
    if model["bbox_head"] is None:
        del model["bbox_head"]
    pipeline = _pipeline((130, 100), cases.case.PREPROCESSOR, "RResize")
    return Case(model, **{"pipeline": pipeline, "spread": rotated.SPREAD, "scope": "mmrotate", **fields})


def _of_3(name: str) -> Case:
    """Return a case of MMDetection 3 in the spelling of 2."""
    case = cases.CASES[name]
    fields = {
        "spread": case.spread,
        "batches": case.batches,
        "classes": case.classes,
        **respelled.CHANGES.get(name, {}),
    }
    model = copy.deepcopy(respelled.MODELS.get(name, case.model))
    preprocessor = model.pop("data_preprocessor", case.model["data_preprocessor"])
    if "pipeline" not in fields:
        fields["pipeline"] = _pipeline(case.pipeline[1]["scale"], preprocessor)
    return Case(model, **fields)


_NOT_IN_2 = (
    *("backbone_convnext", "backbone_convnext_unscaled", "backbone_convnext_v2"),
    *("backbone_timm_test_efficientnet", "backbone_timm_test_resnet"),
    *("boxinst", "centernet_update", "conditional_detr", "condinst", "crowddet", "dab_detr", "ddq", "dino", "fcos_rpn"),
    *("neck_fpn_dropblock", "rtmdet", "rtmdet_exp", "rtmdet_ins"),
)
_LEFT_OUT = {*_NOT_IN_2, *rotated.CASES, *texts.CASES}
CASES = {name.lower().replace(" ", "_").replace("r-cnn", "rcnn"): _rotated(name) for name in rotated_cases.CASES}
CASES |= {
    "kfiou_retinanet": _rotated("Rotated RetinaNet", {"type": "KFIoURRetinaHead"}),
    **{
        name: _rotated("Rotated RepPoints", {"type": kind})
        for name, kind in {
            "oriented_reppoints": "OrientedRepPointsHead",
            "sam_reppoints": "SAMRepPointsHead",
        }.items()
    },
}
_KFIOU_RCNN = copy.deepcopy(CASES["rotated_faster_rcnn"].model)
_KFIOU_RCNN["roi_head"]["bbox_head"]["type"] = "RotatedKFIoUShared2FCBBoxHead"
_KFIOU_R3DET = copy.deepcopy(CASES["r3det"].model)
_KFIOU_R3DET["bbox_head"]["type"] = "KFIoURRetinaHead"
for _head in _KFIOU_R3DET["refine_heads"]:
    _head["type"] = "KFIoURRetinaRefineHead"
_KFIOU_S2ANET = copy.deepcopy(CASES["s2anet"].model)
_KFIOU_S2ANET["fam_head"]["type"] = "KFIoURRetinaHead"
_KFIOU_S2ANET["odm_head"]["type"] = "KFIoUODMRefineHead"
CASES |= {
    "kfiou_faster_rcnn": replace(CASES["rotated_faster_rcnn"], model=_KFIOU_RCNN),
    "kfiou_r3det": replace(CASES["r3det"], model=_KFIOU_R3DET),
    "kfiou_s2anet": replace(CASES["s2anet"], model=_KFIOU_S2ANET),
    "rotated_retinanet_not_turned": replace(
        CASES["rotated_retinanet"], pipeline=_pipeline((128, 96), cases.case.PREPROCESSOR, "RResize")
    ),
}
CASES["roi_transformer"] = replace(CASES["roi_transformer"], classes=1)
CASES |= {name: _of_3(name) for name in cases.CASES if name not in _LEFT_OUT}
# MMDetection 2 gives each image of a batch the masks of the last image's best detections.
CASES["queryinst"] = replace(CASES["queryinst"], batches=False)

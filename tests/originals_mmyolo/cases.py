"""The cases of MMYOLO: small detectors, and the test pipelines of its configs."""

from __future__ import annotations

from dataclasses import replace

from tests.detect import yolo_cases
from tests.originals.cases.case import Case

SIDE = 96
PACK = {
    "type": "mmdet.PackDetInputs",
    "meta_keys": ("img_id", "img_path", "ori_shape", "img_shape", "scale_factor", "pad_param"),
}
KEEP_RATIO = {"type": "YOLOv5KeepRatioResize", "scale": (SIDE, SIDE)}
LETTER = {"type": "LetterResize", "scale": (SIDE, SIDE), "allow_scale_up": False, "pad_val": {"img": 114}}
ANNOTATIONS = {"type": "LoadAnnotations", "with_bbox": True, "_scope_": "mmdet"}
LOAD = {"type": "LoadImageFromFile", "backend_args": None}
PIPELINE = [LOAD, KEEP_RATIO, LETTER, PACK]
ALONE = [LOAD, {"type": "LetterResize", "scale": (SIDE, 64), "allow_scale_up": True, "use_mini_pad": True}, PACK]
SMALLER = [LOAD, {"type": "LetterResize", "scale": (SIDE, SIDE), "allow_scale_up": False}, PACK]
BATCH_SHAPES = {
    "type": "BatchShapePolicy",
    "batch_size": 1,
    "img_size": SIDE,
    "size_divisor": 32,
    "extra_pad_ratio": 0.5,
}
SPREAD = {
    r"head_module\.cls_preds\.\d+$": (-1.0, 1.5),
    r"head_module\.reg_preds\.\d+$": (1.5, 1.5),
    r"rtm_cls\.\d+$": (-1.0, 1.5),
    r"rtm_ang\.\d+$": (0.3, 0.7),
    r"rtm_reg\.\d+$": (1.5, 1.5),
    r"conv_cls\.\d+$": (-1.5, 2.0),
    r"conv_obj\.\d+$": (1.0, 1.5),
    r"conv_reg\.\d+$": (0.0, 0.7),
    r"convs_pred\.\d+\.[12]$": (0.0, 1.5),
    r"convs_pred\.\d+$": (0.0, 1.5),
    r"cls_preds\.\d+\.2$": (-1.0, 1.5),
    r"reg_preds\.\d+\.2$": (0.0, 3.0),
}


def _case(name: str) -> Case:
    return Case(
        yolo_cases.MODELS[name],
        SPREAD,
        PIPELINE,
        classes=1 if "one_class" in name else 2,
        scope="mmyolo",
        data_set={"test_mode": True},
    )


CASES = {name: _case(name) for name in yolo_cases.MODELS}
CASES["yolov5_p6"] = replace(  # whose sides are multiples of 64
    CASES["yolov5_p6"],
    spread={r"convs_pred\.\d+$": (-0.5, 0.7)},
    pipeline=[LOAD, {**KEEP_RATIO, "scale": (128, 128)}, {**LETTER, "scale": (128, 128)}, ANNOTATIONS, PACK],
)
for _name in ("yolov7_w", "yolov7_e2e"):
    CASES[_name] = replace(
        CASES[_name],
        pipeline=[LOAD, {**KEEP_RATIO, "scale": (128, 128)}, {**LETTER, "scale": (128, 128)}, PACK],
    )
CASES["yolov5_shapes"] = replace(
    CASES["yolov5"], data_set={"test_mode": True, "batch_shapes_cfg": BATCH_SHAPES}, batches=False
)
CASES["yolov5_alone"] = replace(CASES["yolov5"], pipeline=ALONE, batches=False)
CASES["yolov8_stretched"] = replace(
    CASES["yolov8"],
    pipeline=[
        LOAD,
        {"type": "mmdet.FixShapeResize", "width": 96, "height": 64, "keep_ratio": False, "interpolation": "bicubic"},
        {**PACK, "meta_keys": PACK["meta_keys"][:5]},
    ],
)
CASES["rtmdet_rotated"] = replace(
    CASES["rtmdet_rotated"],
    pipeline=[
        LOAD,
        {"type": "mmdet.Resize", "scale": (SIDE, SIDE), "keep_ratio": True},
        {"type": "mmdet.Pad", "size": (SIDE, SIDE), "pad_val": {"img": (114, 114, 114)}},
        {**PACK, "meta_keys": PACK["meta_keys"][:5]},
    ],
)
CASES["yolov5_ins"] = replace(
    CASES["yolov5_ins"],
    spread={r"convs_pred\.\d+$": (0.3, 1.5), r"proto_pred\.conv3\.conv$": (0.0, 2.0)},
    pipeline=[LOAD, KEEP_RATIO, {**LETTER, "half_pad_param": True}, PACK],
)

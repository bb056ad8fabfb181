"""Writes expected3.json: what MMDetection 3.3.0, where it is installed, makes of the three pictures.

python tests/data/preprocessing/pack3.py
"""

import hashlib
import json
from pathlib import Path

import mmdet.datasets.transforms  # noqa: F401
from mmdet.models.data_preprocessors import DetDataPreprocessor
from mmdet.registry import TRANSFORMS
from mmengine.dataset import Compose
from mmengine.registry import init_default_scope

HERE = Path(__file__).parent
BGR = {"mean": [103.53, 116.28, 123.675], "std": [57.375, 57.12, 58.395], "bgr_to_rgb": False}
RGB = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375], "bgr_to_rgb": True}
GREY = {"img": (114.0, 114.0, 114.0)}
SQUARE = {"type": "Pad", "pad_to_square": True, "pad_val": GREY}


def resize(width, height, **entries):
    return {"type": "Resize", "scale": (width, height), "keep_ratio": True, **entries}


# By name: what loads the picture, further steps, and the data preprocessor.
CASES = {
    "faster_rcnn": ({}, [resize(208, 160)], {**RGB, "pad_size_divisor": 32}),
    "rtmdet": ({}, [resize(160, 160), {"type": "Pad", "size": (160, 160), "pad_val": GREY}], BGR),
    "yolox": (
        {},
        [resize(130, 130), SQUARE],
        {"pad_size_divisor": 32},
    ),
    "bytetrack": (
        {},
        [resize(150, 110), {"type": "Pad", "size_divisor": 32, "pad_val": GREY}],
        {"pad_size_divisor": 32},
    ),
    "mask2former": ({"to_float32": True}, [resize(208, 160)], {**RGB, "pad_size_divisor": 32}),
    "centernet": (
        {"to_float32": True},
        [
            {
                "type": "RandomCenterCropPad",
                "ratios": None,
                "border": None,
                "mean": [0, 0, 0],
                "std": [1, 1, 1],
                "to_rgb": True,
                "test_mode": True,
                "test_pad_mode": ["logical_or", 31],
                "test_pad_add_pix": 1,
            }
        ],
        RGB,
    ),
}


def main() -> None:
    init_default_scope("mmdet")
    expected = {}
    for name, (load, steps, preprocessor) in CASES.items():
        keys = ("ori_shape", "img_shape", "pad_shape", "scale_factor", "border")
        pack = {"type": "PackDetInputs", "meta_keys": keys}
        pipeline = Compose([TRANSFORMS.build(step) for step in ({"type": "LoadImageFromFile", **load}, *steps, pack)])
        images = []
        for path in sorted(HERE.glob("*.png")):
            prepared = pipeline({"img_path": str(path)})
            batch = {"inputs": [prepared["inputs"]], "data_samples": [prepared["data_samples"]]}
            array = DetDataPreprocessor(**preprocessor)(batch)["inputs"][0].numpy()
            meta = prepared["data_samples"].metainfo
            images.append(
                {
                    "file": path.name,
                    "ori_shape": list(meta["ori_shape"]),
                    "img_shape": list(meta["img_shape"][:2]),
                    "pad_shape": list(array.shape[1:]),
                    "scale_factor": list(meta.get("scale_factor", (1.0, 1.0))),
                    "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
                }
                | ({"border": [int(side) for side in meta["border"]]} if "border" in meta else {})
            )
        expected[name] = {"load": load, "steps": steps, "data_preprocessor": preprocessor, "images": images}
    (HERE / "expected3.json").write_text(json.dumps(expected, indent=1) + "\n")


main()

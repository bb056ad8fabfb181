"""Packs what the tests of dense detectors need of MMDetection's results: ``python pack.py DIGITS ORACLE``.

`DIGITS` has small trained detectors with their results, `ORACLE` recipes of the weights of full-size ones; both were
made with MMDetection 2.28.2.  Writes beside itself:

* ``dense.npz``: of image 0 the outputs of each family's head and the detections made from them, in pixels of the
  network's input; three images with FCOS's detections in pixels of the images.
* ``dense.json``: each family's config, and the keys and shapes of its ``state_dict``.
"""

import json
import sys
from pathlib import Path

import numpy as np

from mmort.configs import read_config
from mmort.detect.checkpoint import load_checkpoint

FAMILIES = ("fcos", "fsaf", "retinanet", "ssd", "yolov3")
IMAGES = 3


def main(digits, oracle):
    here = Path(__file__).parent
    arrays, models = {}, {}
    for family in FAMILIES:
        with np.load(digits / family / "ref_results.npz") as file:
            reference = {key: file[key] for key in file.files}
        meta = json.loads(str(reference["raw/0/meta"]))
        arrays[f"{family}/input_shape"] = np.array(reference["raw/0/input"].shape)
        arrays[f"{family}/img_shape"] = np.array(meta["img_shape"][:2])
        maps = [key for key in reference if key.startswith("raw/0/bbox_head.")]
        for index, key in enumerate(maps):
            arrays[f"{family}/map{index}"] = reference[key]
        arrays[f"{family}/dets"] = reference["raw/0/dets_network"]
        arrays[f"{family}/labels"] = reference["raw/0/labels_network"]
        weights, _ = load_checkpoint(digits / family / "checkpoint.pth")
        shapes = {key: list(value.shape) for key, value in weights.items()}
        models[family] = {"config": {"model": read_config(digits / family / "config.py")["model"]}, "shapes": shapes}
        if family == "fcos":
            for index in range(IMAGES):
                rows = reference["image_index"] == index
                arrays[f"image{index}/dets"] = reference["dets"][rows]
                arrays[f"image{index}/labels"] = reference["labels"][rows]
                arrays[f"image{index}/png"] = np.frombuffer(
                    (digits / "data/val2017" / str(reference["file_names"][index])).read_bytes(), np.uint8
                )
    for family in ("retinanet", "yolov3"):
        with np.load(oracle / f"{family}.npz") as file:
            index = json.loads(file["index"].tobytes())
        shapes = {key: shape for key, shape, *_ in index}
        model = read_config(oracle / f"config_{family}.py")["model"]
        models[f"{family} full-size"] = {"config": {"model": model}, "shapes": shapes}
    np.savez_compressed(here / "dense.npz", **arrays)
    (here / "dense.json").write_text(json.dumps(models, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

"""Packs a small Mask R-CNN and what MMDetection found with it, for test_two_stage_detectors.py.

usage: python pack_mask_rcnn.py FOLDER

FOLDER has a folder for each detector, with config.py, checkpoint.pth and ref_results.npz: results of MMDetection 2.28.2
and, for images 0 to 2, the networks' inputs.  Of Mask R-CNN all is taken that three images need, of two others the
names and shapes of the weights in their RoI heads.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from pycocotools import mask

from mmort.configs import read_config

MEAN, STD = np.float32([123.675, 116.28, 103.53]), np.float32([58.395, 57.12, 57.375])

folder, here = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).parent
of_model = folder / "mask_rcnn"
config = read_config(of_model / "config.py")
(here / "mask_rcnn.json").write_text(json.dumps({"model": config["model"]}, indent=1) + "\n")
checkpoint = torch.load(of_model / "checkpoint.pth", weights_only=True)
weights = {key: value for key, value in checkpoint["state_dict"].items() if not key.endswith("num_batches_tracked")}
torch.save({"meta": {"CLASSES": checkpoint["meta"]["CLASSES"]}, "state_dict": weights}, here / "mask_rcnn.pth")
packed = {"mean": MEAN, "std": STD}
with np.load(of_model / "ref_results.npz") as results:
    for i in range(3):
        meta = json.loads(str(results[f"raw/{i}/meta"]))
        height, width = meta["img_shape"][:2]
        pixels = results[f"raw/{i}/input"][0, :, :height, :width].transpose(1, 2, 0) * STD + MEAN
        rows = results["image_index"] == i
        size = [int(side) for side in meta["ori_shape"][:2]]
        counts = results["mask_counts"][rows]
        pasted = [mask.decode({"size": size, "counts": str(one).encode()}) for one in counts]
        packed |= {
            f"image{i}": pixels.round().astype(np.uint8),
            f"scale_factor{i}": np.float32(meta["scale_factor"]),
            f"dets{i}": results["dets"][rows],
            f"labels{i}": results["labels"][rows],
            f"masks{i}": np.array(pasted, bool),
        }
np.savez_compressed(here / "mask_rcnn.npz", **packed)
for family in ("cascade_mask_rcnn", "point_rend"):
    weights = torch.load(folder / family / "checkpoint.pth", weights_only=True)["state_dict"]
    lines = [f"{key} {[*value.shape]}" for key, value in sorted(weights.items()) if key.startswith("roi_head")]
    (here / f"{family}_weights.txt").write_text("\n".join(lines) + "\n")

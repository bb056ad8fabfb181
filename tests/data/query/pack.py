"""Packs a few of MMDetection's results, for test_query_detectors.py, out of a folder of them.

python pack.py FOLDER: FOLDER/<family>/ref_results.npz holds raw outputs of the heads and the detections made of them,
FOLDER/<family>/checkpoint.pth the names and shapes of all weights.
"""

import pathlib
import sys

import numpy as np
import torch

MAPS = ("tl_heat", "br_heat", "tl_emb", "br_emb", "tl_off", "br_off")

folder = pathlib.Path(sys.argv[1])
packed = {}
for family, images, outputs in (("cornernet", [2], MAPS), ("detr", [0, 1], ("logits", "boxes"))):
    results = np.load(folder / family / "ref_results.npz")
    for image in images:
        for place, name in enumerate(outputs):
            # DETR has one output for each decoder layer, of which the last one counts.
            raw = results[f"raw/{image}/bbox_head.{place}.0"]
            packed[f"{family}.{image}.{name}"] = raw[-1] if family == "detr" else raw
        for name in ("dets", "labels"):
            packed[f"{family}.{image}.{name}"] = results[f"raw/{image}/{name}_network"]
    weights = torch.load(folder / family / "checkpoint.pth", weights_only=True)["state_dict"]
    packed[f"{family}.weights"] = np.array([f"{key} {list(value.shape)}" for key, value in weights.items()])
np.savez_compressed(pathlib.Path(__file__).with_name("mmdetection.npz"), **packed)

"""Compare Co-DETR with its authors' own code, for MMDetection 2.  Run by hand, as that is in no package.

    python -m tests.tools.check_co_detr FOLDER [NAME ...] [--record]
    python -m tests.tools.check_co_detr FOLDER --mutations [ARGUMENT ...]

FOLDER is the authors' repository; einops must be installed, and what `.ci/run originals_2` shows.  Torch modules and
exported files detect in images, alone and in a batch.  Prints a line for each detector, or those with a NAME, and exits
with 1 if one differs.  With ``--record``, writes what `tests/detect/test_co_dino.py` expects.  With ``--mutations``,
changes one entry of a config at a time instead; ARGUMENTs are those of `tests.originals.mutations`.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.detect import co_dino_cases, query_cases
from tests.originals import mutations
from tests.originals.cases.case import PREPROCESSOR
from tests.originals.cases.query import SPREAD
from tests.originals.compare import write_record
from tests.originals.weights import before
from tests.originals_2.cases import Case, _pipeline
from tests.originals_2.original import Original
from tests.originals_2.version import VERSION
from tests.tools.check_projects import compare

RECORD = Path(__file__).parents[1] / "data" / "detect" / "co_detr.json"


def import_authors(folder: str) -> None:
    """Import the authors' code, with what it asks of packages and does not detect with."""
    layers: Any = types.ModuleType("timm.models.layers")
    layers.DropPath, layers.trunc_normal_ = torch.nn.Identity, torch.nn.init.trunc_normal_
    layers.to_2tuple = lambda size: (size, size)
    layers.Mlp = None
    loading: Any = types.ModuleType("mmcv_custom")
    loading.load_checkpoint = None
    memory: Any = types.ModuleType("fairscale.nn.checkpoint")
    memory.checkpoint_wrapper = lambda module: module
    initial = [types.ModuleType(name) for name in ("fvcore", "fvcore.nn", "fvcore.nn.weight_init")]
    sys.modules |= {module.__name__: module for module in (layers, loading, memory, *initial)}
    losses = Path(folder, "mmdet/models/losses/cross_entropy_loss.py").read_text()
    (function,) = (node for node in ast.parse(losses).body if getattr(node, "name", "") == "generate_block_target")
    module: Any = importlib.import_module("mmdet.models.losses.cross_entropy_loss")
    exec(ast.unparse(function), vars(module))  # the rest of the file registers what MMDetection has registered
    sys.path.insert(0, folder)
    importlib.import_module("projects.models")  # registers itself, as those below do
    del importlib.import_module("mmdet.models.builder").HEADS.module_dict["MaskIoUHead"]
    masks = "roi_heads.mask_heads"
    for name in ("backbones.vit", "necks.sfp", f"{masks}.refine_mask_head", f"{masks}.maskiou_head"):
        path = Path(folder, "mmdet/models", *name.split(".")).with_suffix(".py")
        spec = importlib.util.spec_from_file_location(f"mmdet.models.{name}", path)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def record(model: dict[str, Any]) -> dict[str, Any]:
    """Return the keys and shapes of a detector's weights, and what the authors' code finds in the tests' batch."""
    theirs = Original({"model": model, "data": {"test": {"pipeline": []}}, "rotated": False}).model
    shapes = {key: [*value.shape] for key, value in theirs.state_dict().items() if ".freqs_" not in key}  # constants
    theirs.load_state_dict(co_dino_cases.weights(shapes), strict=False)
    batch, _ = query_cases.batch()
    canvas = tuple(batch.shape[2:])
    shapes_of_images = query_cases.SHAPES if theirs.with_attn_mask else [canvas] * len(query_cases.SHAPES)
    metas = [
        {"batch_input_shape": canvas, "img_shape": (*shape, 3), "ori_shape": shape, "scale_factor": 1.0}
        for shape in shapes_of_images
    ]
    with torch.inference_mode():
        features = theirs.extract_feat(batch)
        results = theirs.query_head.simple_test(features, metas)
        if hasattr(theirs, "mask_iou_head"):
            results = [
                rescored(theirs, [level[index : index + 1] for level in features], meta)
                for index, meta in enumerate(metas)
            ]
    dets = [boxes.tolist() for boxes, _ in results]
    return {
        "shapes": shapes,
        "dets": [[[float(f"{value:.6g}") for value in row] for row in rows] for rows in dets],
        "labels": [labels.tolist() for _, labels in results],
    }


def rescored(theirs: Any, features: list[torch.Tensor], meta: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the boxes and labels of an image by the scores of their masks."""
    results, maps = theirs.query_head.simple_test(features, [meta], return_encoder_output=True)
    boxes, labels = results[0]
    _, by_class = theirs.simple_test_mask(maps, [meta], boxes[None], labels[None])[0]
    for label, scores in enumerate(by_class):
        boxes[labels == label, 4] = torch.tensor([float(score) for score in scores])
    order = boxes[:, 4].argsort(descending=True, stable=True)
    return boxes[order], labels[order]


def main(folder: str, *arguments: str) -> int:
    """Check the detectors."""
    torch.set_grad_enabled(False)
    import_authors(folder)
    cases = {
        name: Case(
            copy.deepcopy(model),
            before({r"stage_instance_logits\.\d$": (0.0, 3.0), r"fc_mask_iou$": (0.0, 1.0)}, SPREAD),
            _pipeline((131, 90), PREPROCESSOR),
            classes=1,
            batches="mask_head" not in model,  # which the authors' code runs on one image
        )
        for name, model in co_dino_cases.OF_AUTHORS.items()
    }
    if "--mutations" in arguments:
        sys.argv[1:] = [argument for argument in arguments if argument != "--mutations"]
        return mutations.main(replace(VERSION, cases=cases, cases_of_pipeline=("co_dino",)), "tests.originals_2")
    named = [argument for argument in arguments if argument in cases] or cases
    failures = compare({name: cases[name] for name in named}, Original)
    if "--record" in arguments:
        write_record(RECORD, {name: record(model) for name, model in co_dino_cases.OF_AUTHORS.items()})
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

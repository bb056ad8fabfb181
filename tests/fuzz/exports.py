"""Random configs and checkpoints of small detectors: export and parity give a result, or one line.

python -m tests.fuzz.exports --seconds 60 [--seed N] [--count N]

Nearly all cases are refused, in a hundredth of a second: what is accepted takes torch's tracer seconds, whatever the
size of the network.
"""

import copy
import json
import random
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch

import mmort.detect
from tests.detect import dense_cases
from tests.fuzz import commands, json_values
from tests.fuzz.children import Fuzzer, main, parser

ONE_LEVEL = {
    "ATSSHead": {"anchor_generator": {**dense_cases.ANCHORS, "strides": [4]}},
    "FoveaHead": {"strides": [4], "base_edge_list": [16]},
    "GFLHead": {"anchor_generator": {**dense_cases.ANCHORS, "strides": [4]}},
    "RepPointsHead": {"point_strides": [4]},
    "YOLOFHead": {"anchor_generator": {**dense_cases.ANCHORS, "strides": [4]}},
}
"""Entries of heads for the single map of a backbone of one stage, as torch takes a second to trace each stage more."""

PIPELINE = [
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": (64, 64), "keep_ratio": True},
    {"type": "PackDetInputs"},
]
DATASET = {
    "type": "CocoDataset",
    "ann_file": "annotations.json",
    "data_prefix": {"img": "images/"},
    "metainfo": {"classes": ["a", "b"]},
    "pipeline": PIPELINE,
}
STRANGE = float("nan"), float("inf"), -1e30, 0.0, 3e38
MAX_SECONDS, MAX_MEGABYTES = 60.0, 1000.0
"""Limits of a case, which may be an export with its proof."""


def config(head: str) -> dict[str, Any]:
    """Return a valid config."""
    detector = dense_cases.config(head, num_classes=2, **ONE_LEVEL[head])
    model = detector["model"]
    model["backbone"] |= {"num_stages": 1, "strides": [1], "dilations": [1], "out_indices": [0]}
    if model["neck"]["type"] == "FPN":
        model["neck"] |= {"in_channels": [4], "num_outs": 1}
    else:
        model["neck"] |= {"in_channels": 4}
    return {
        **detector,
        "test_pipeline": PIPELINE,
        "test_dataloader": {"batch_size": 1, "dataset": DATASET},
    }


@cache
def weights(head: str) -> dict[str, torch.Tensor]:
    """Return the weights of a detector."""
    torch.manual_seed(0)
    detector = mmort.detect.build(config(head))
    dense_cases.fill(detector)
    return detector.state_dict()


def checkpoint(rng: random.Random, head: str, changes: int) -> Any:
    """Return what a checkpoint holds, with some tensors replaced, removed or added."""
    tensors: dict[Any, Any] = dict(weights(head))
    for _ in range(changes):
        name = rng.choice([name for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor)])
        kind = rng.randrange(6)
        if kind == 0:
            del tensors[name]
        elif kind == 1:
            tensors[name] = torch.full(tensors[name].shape, rng.choice(STRANGE))
        elif kind == 2:
            tensors[name] = tensors[name][None] if rng.random() < 0.5 else tensors[name].flatten()[:1]
        elif kind == 3:
            tensors[name] = tensors[name].to(rng.choice((torch.float16, torch.int64, torch.complex64, torch.bool)))
        elif kind == 4:
            tensors[rng.choice(("x", "", "a\0b", "\x1b[2J", f"module.{name}"))] = tensors[name]
        else:
            tensors[name] = json_values.value(rng)
    meta = json_values.mutated(rng, {"dataset_meta": {"classes": ["a", "b"]}}, rng.choice((0, 0, 1)))
    return {"state_dict": tensors, "meta": meta}


def make(rng: random.Random, folder: Path) -> tuple[Path, list[str]]:
    """Write a config and a checkpoint; return a folder, and a command line."""
    commands.write_files(folder)
    head = rng.choice(list(ONE_LEVEL))
    changes = rng.choice((0, 1, 2, 4, 4, 8))
    document = json_values.mutated(rng, json.loads(json.dumps(config(head))), changes)
    if rng.random() < 0.5 and isinstance(document, dict):
        name = "config.py"
        text = "".join(f"{key} = {value!r}\n" for key, value in copy.deepcopy(document).items() if key.isidentifier())
    else:
        name, text = "config.json", json_values.text(rng, document)
    (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(checkpoint(rng, head, rng.choice((0, 1, 2)) if changes else 1), folder / "checkpoint.pth")
    images = ["--input-img", "images/a.png"]
    return folder, rng.choice(
        (
            ["export", name, "checkpoint.pth", "--output", "out.onnx", *images],
            ["export", name, "checkpoint.pth", "--output", "out.onnx", *images, "--shape", "64"],
            ["export", name, "checkpoint.pth", "--output", "out.onnx", *images, "--shape", "64", "--portable"],
            ["export", name, "--check"],
            ["parity", name, "checkpoint.pth"],
            ["parity", name, "checkpoint.pth", "--ann", "annotations.json", "--img-dir", "images"],
        )
    )


def run(case: tuple[Path, list[str]]) -> None:
    """Run a command; what it refuses leaves nothing behind."""
    folder, arguments = case
    try:
        commands.run(folder, arguments)
    finally:
        left = {path.name for path in folder.iterdir() if path.name.startswith(".mmort")}
        assert not left, left
    assert "--output" not in arguments or (folder / "out.onnx").is_file()


if __name__ == "__main__":
    commands.prepare()
    commands.MAX_WAIT = 600
    options = parser("Random exports, each a result or refused within limits.")
    options.set_defaults(max_seconds=MAX_SECONDS, max_megabytes=MAX_MEGABYTES)
    sys.exit(main(Fuzzer("exports", make, run, (commands.RefusedError,), 50), options.parse_args()))

"""What the tools that compare small detectors share: an export as a user makes it, and records for the tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from mmort.detect import build
from mmort.detect.export import ExportOptions, export
from mmort.onnx import Report


def export_small(
    config: dict[str, Any], fill: Callable[[torch.nn.Module], None], folder: Path, options: ExportOptions
) -> tuple[Path, Report]:
    """Export a detector with the weights of `fill` from a config and a checkpoint in `folder`.

    Returns
    -------
    (path, Report)
        Of ``detector.onnx`` there; ``config.json`` and ``weights.pth`` are beside it.

    Raises
    ------
    ValueError
        If the detector cannot be exported.
    """
    torch.manual_seed(0)  # for what `fill` leaves as it was built
    detector = build(config)
    fill(detector)
    settings, weights, file = (folder / name for name in ("config.json", "weights.pth", "detector.onnx"))
    settings.write_text(json.dumps(config))
    torch.save({"state_dict": detector.state_dict(), "meta": {}}, weights)
    return file, export(settings, weights, file, options, progress=lambda line: None)


def print_problems(differences: Iterable[tuple[str, str]]) -> bool:
    """Print a line for each name and what is wrong with it, "" if nothing is; return whether anything is."""
    different = False
    for name, problem in differences:
        print(f"{name}: {problem or 'equal'}", flush=True)
        different |= bool(problem)
    return different


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write JSON with a line for each entry."""
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in record.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")

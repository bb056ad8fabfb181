"""Build both sides of a case, and compare what they detect."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from tests.originals.candidate import Candidate
from tests.originals.cases import CASES
from tests.originals.cases.case import Case, Config
from tests.originals.images import image_files
from tests.originals.original import Original
from tests.originals.weights import fill


def filled(case: Case, config: Config, scales: dict[str, float] | None = None) -> tuple[Original, dict[str, float]]:
    """Return MMDetection's detector of a config with the weights of a case, and their scales."""
    original = Original(config)
    with torch.no_grad():
        scales = fill(original.model, lambda: original.run(image_files()[:1]), case.spread, scales)
    return original, scales


def batches_of(case: Case) -> list[list[str]]:
    """Return each image alone, and both as a batch where MMDetection can."""
    alone = [[path] for path in image_files()]
    return [*alone, list(image_files())] if case.batches else alone


def save(original: Original, folder: Path) -> str:
    """Write MMDetection's checkpoint, and return its path."""
    path = folder / "weights.pth"
    torch.save({"state_dict": original.model.state_dict(), "meta": {}}, path)
    return str(path)


def pair(name: str) -> tuple[Original, Candidate]:
    """Return both sides of a case."""
    case = CASES[name]
    original, _ = filled(case, case.config())
    with tempfile.TemporaryDirectory() as folder:
        return original, Candidate(case.config(), save(original, Path(folder)))

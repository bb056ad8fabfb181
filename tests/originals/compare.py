"""Build both sides of a case, and compare what they detect."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from tests.originals.candidate import Candidate
from tests.originals.cases.case import Case, Config
from tests.originals.comparison import differences, require_substance
from tests.originals.images import image_files
from tests.originals.weights import fill


def filled(
    build: Callable[[Config], Any], case: Case, config: Config, scales: dict[str, float] | None = None
) -> tuple[Any, dict[str, float]]:
    """Return MMDetection's detector of a config, which `build` makes, with the weights of a case, and their scales."""
    original = build(config)
    with torch.no_grad():
        scales = fill(original.model, lambda: original.run(image_files()[:1]), case.spread, scales)
    return original, scales


def batches_of(case: Case) -> list[list[str]]:
    """Return each image alone, and both as a batch where MMDetection can."""
    alone = [[path] for path in image_files()]
    return [*alone, list(image_files())] if case.batches else alone


def save(original: Any, folder: Path) -> str:
    """Write MMDetection's checkpoint, and return its path."""
    path = folder / "weights.pth"
    torch.save({"state_dict": original.model.state_dict(), "meta": {}}, path)
    return str(path)


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write JSON with a line for each entry."""
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in record.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def assert_equal(build: Callable[[Config], Any], case: Case) -> None:
    """Assert that mmort detects what MMDetection detects, image by image and in a padded batch."""
    original, _ = filled(build, case, case.config())
    with tempfile.TemporaryDirectory() as folder:
        candidate = Candidate(case.config(), save(original, Path(folder)))
    batches = batches_of(case)
    expected = [original.run(batch, mapped=case.mapped) for batch in batches]
    require_substance(expected, case.classes)
    different = [
        line
        for batch, result in zip(batches, expected, strict=True)
        for line in differences(candidate.run(batch, mapped=case.mapped), result)
    ]
    if different and not any("inputs" in line for line in different):  # perhaps rounding decided
        different = [
            f"{line}, in float64"
            for batch in batches
            for line in differences(
                *(side.run(batch, torch.float64, case.mapped) for side in (candidate, original)), "float64"
            )
        ]
    assert not different

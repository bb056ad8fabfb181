"""Exported files: ONNX Runtime detects what MMDetection detects; a sample, another one for each ORIGINALS_SEED.

All cases: ``ORIGINALS_EXPORTS=0 pytest tests/originals/test_exports.py``.
"""

import json
import os
import random

import pytest
import torch

from mmort.detect.export import ExportOptions, export
from tests.originals.candidate import Candidate
from tests.originals.cases import CASES
from tests.originals.compare import batches_of, filled, save
from tests.originals.comparison import differences, require_substance
from tests.originals.images import image_files
from tests.originals.original import Original

NAMES = sorted(CASES)
COUNT = int(os.environ.get("ORIGINALS_EXPORTS", "3")) or len(NAMES)
SAMPLE = random.Random(int(os.environ.get("ORIGINALS_SEED", "0"))).sample(NAMES, COUNT)


@pytest.mark.parametrize("name", SAMPLE)
def test_equal(name, tmp_path):
    case = CASES[name]
    original, _ = filled(Original, case, case.config())
    settings, file = tmp_path / "config.json", tmp_path / "detector.onnx"
    settings.write_text(json.dumps(case.config()))
    checkpoint = save(original, tmp_path)
    image = image_files()[0]
    export(settings, checkpoint, file, ExportOptions(input_img=image, dynamic_export=True), progress=lambda line: None)
    candidate = Candidate(case.config(), checkpoint, str(file))
    batches = batches_of(case)
    expected = [original.run(batch, mapped=case.mapped) for batch in batches]
    require_substance(expected, case.classes)
    actual = [candidate.run(batch, mapped=case.mapped) for batch in batches]
    if any(differences(*pair) for pair in zip(actual, expected, strict=True)):  # rounding may decide: ask float64
        exact = Candidate(case.config(), checkpoint)
        for batch, result in zip(batches, actual, strict=True):
            truth = exact.run(batch, torch.float64, case.mapped)
            assert not differences(truth, original.run(batch, torch.float64, case.mapped), "float64")
            assert not differences(result, truth)

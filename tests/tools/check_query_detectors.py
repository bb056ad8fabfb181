"""Compare detectors with queries with MMDetection's own, as whole networks.  Run by hand, as it needs MMDetection.

    python -m tests.tools.check_query_detectors FOLDER [NAME ...]     # compare; with --record, write what tests expect
    python -m tests.tools.check_query_detectors export [NAME ...]     # export each at dynamic size, without MMDetection

FOLDER is that of check_parts; the detectors are those of tests/detect/query_cases.py.  Both sides have the same
weights, and detect in a batch of two images, one of which is padded.  Prints a line for each detector.  Exit code 1 if
names, shapes or detections differ, or an export fails.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.detect.export import ExportOptions
from tests.detect import query_cases
from tests.detect.part_cases import names
from tests.tools.check_detectors import Found, compare
from tests.tools.check_parts import mmdetection
from tests.tools.small_detectors import export_small, write_record

PIPELINE = [
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": (128, 96), "keep_ratio": True},
    {"type": "PackDetInputs"},
]
RECORD = Path(__file__).parents[1] / "data" / "detect" / "query_detectors.json"


def difference(
    registry: Any,
    model: dict[str, Any],
    record: dict[str, Any],
    fill: Callable[[torch.nn.Module], None] = query_cases.fill,
) -> str:
    """Return how a detector differs from MMDetection's, "" if it does not; write what MMDetection finds to `record`."""
    from mmdet.structures import DetDataSample
    from mmengine.config import ConfigDict

    theirs = registry.build(ConfigDict(copy.deepcopy(model))).eval()
    fill(theirs)
    ours = build({"model": copy.deepcopy(model)})
    try:
        load_weights(ours, theirs.state_dict())
    except ValueError as error:
        return str(error)
    batch, shapes = query_cases.batch()
    canvas = tuple(batch.shape[2:])
    samples = [
        DetDataSample(metainfo={"batch_input_shape": canvas, "img_shape": shape}) for shape in query_cases.SHAPES
    ]
    record.update(names=names(theirs), dets=[], labels=[])
    unmatched = []
    predicted = theirs.predict(batch, samples, rescale=False)
    for sample, found, classes in zip(predicted, *(output.numpy() for output in ours(batch, shapes)), strict=True):
        instances = sample.pred_instances
        expected = torch.cat([instances.bboxes, instances.scores[:, None]], 1)
        record["dets"].append([[float(f"{value:.6g}") for value in row] for row in expected.tolist()])
        record["labels"].append(instances.labels.tolist())
        used = classes >= 0
        result = compare(
            Found(found[used], classes[used]), Found(expected.numpy(), instances.labels.numpy()), box=1e-3, score=1e-5
        )
        unmatched += result.unmatched
    return "; ".join(unmatched)


def exported(model: dict[str, Any], fill: Callable[[torch.nn.Module], None] = query_cases.fill) -> str:
    """Return why a detector cannot be exported for any size and batch, "" if it can."""
    begin = time.perf_counter()
    options = ExportOptions(shape=query_cases.SHAPES[0], dynamic_export=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            export_small({"model": model, "test_pipeline": PIPELINE}, fill, Path(folder), options)
        except ValueError as error:
            return str(error)
    print(f"{time.perf_counter() - begin:.0f} s", end=" ")
    return ""


def main(folder: str, *arguments: str) -> int:
    """Check the detectors of the command line, by default all."""
    torch.set_grad_enabled(False)
    registry = None if folder == "export" else mmdetection(folder)
    records: dict[str, dict[str, Any]] = {}
    different = False
    for name in [argument for argument in arguments if argument != "--record"] or query_cases.MODELS:
        model, records[name] = query_cases.MODELS[name], {}
        problem = exported(model) if registry is None else difference(registry, model, records[name])
        print(f"{name}: {problem or 'equal'}", flush=True)
        different |= bool(problem)
    if "--record" in arguments:
        write_record(RECORD, records)
    return different


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

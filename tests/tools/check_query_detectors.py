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
from tests.tools.small_detectors import export_small, print_problems, write_record

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
    from mmengine.config import ConfigDict

    theirs = registry.build(ConfigDict(copy.deepcopy(model))).eval()
    fill(theirs)
    ours = build({"model": copy.deepcopy(model)})
    try:
        load_weights(ours, theirs.state_dict())
    except ValueError as error:
        return str(error)
    record["names"] = names(theirs)
    return difference_of_detections(ours, theirs, record, box=1e-3)


def difference_of_detections(
    ours: torch.nn.Module,
    theirs: Any,
    record: dict[str, Any],
    box: float,
    canonical: Callable[[torch.Tensor], torch.Tensor] = lambda boxes: boxes,
) -> str:
    """Return how two detectors differ in a batch, within `box` pixels; write what theirs finds to `record`.

    Of several descriptions of the same box, `canonical` returns one.
    """
    from mmdet.structures import DetDataSample

    batch, shapes = query_cases.batch()
    canvas = tuple(batch.shape[2:])
    samples = [
        DetDataSample(metainfo={"batch_input_shape": canvas, "img_shape": shape}) for shape in query_cases.SHAPES
    ]
    record.update(dets=[], labels=[])
    unmatched = []
    predicted = theirs.predict(batch, samples, rescale=False)
    for sample, dets, classes in zip(predicted, *ours(batch, shapes), strict=True):
        instances = sample.pred_instances
        boxes = getattr(instances.bboxes, "tensor", instances.bboxes)
        expected = torch.cat([canonical(boxes), instances.scores[:, None]], 1)
        record["dets"].append([[float(f"{value:.6g}") for value in row] for row in expected.tolist()])
        record["labels"].append(instances.labels.tolist())
        used = classes >= 0
        actual = torch.cat([canonical(dets[used, :-1]), dets[used, -1:]], 1)
        result = compare(
            Found(actual.numpy(), classes[used].numpy()),
            Found(expected.numpy(), instances.labels.numpy()),
            box=box,
            score=1e-5,
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

    def problem(name: str) -> str:
        if registry is None:
            return exported(query_cases.MODELS[name])
        return difference(registry, query_cases.MODELS[name], records.setdefault(name, {}))

    chosen = [argument for argument in arguments if argument != "--record"] or query_cases.MODELS
    different = print_problems((name, problem(name)) for name in chosen)
    if "--record" in arguments:
        write_record(RECORD, records)
    return different


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

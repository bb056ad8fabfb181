"""Compare small detectors with masks of the image with MMDetection's own, from the image to the masks.  Run by hand.

    python -m tests.tools.check_masks FOLDER [NAME ...]     # compare; with --record, write what the tests expect
    python -m tests.tools.check_masks export [NAME ...]     # export each for all sizes, and predict with the file

FOLDER is that of tests.tools.check_parts.  Both sides are built from the configs of tests/detect/mask_cases.py with the
same weights, and detect in a batch of two images of different sizes.  Prints a line for each detector and frame.  Exit
code 1 if detections differ, or an export fails.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mmort import Predictor
from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.detect.export import ExportOptions
from mmort.detect.network import load_network
from mmort.evaluate.parity.comparison import compare_image
from tests.detect import mask_cases, part_cases
from tests.tools.check_detectors import Difference, Found, compare, detect, run_torch
from tests.tools.check_parts import mmdetection
from tests.tools.small_detectors import export_small, write_record

RECORD = Path(__file__).parents[1] / "data" / "detect" / "mask_detectors.json"


def theirs(model: Any, batch: torch.Tensor, metas: list[dict[str, Any]], rescale: bool) -> list[Found]:
    """Return the instances that MMDetection finds, by descending score."""
    from mmdet.structures import DetDataSample

    samples = [DetDataSample(metainfo={**meta, "batch_input_shape": mask_cases.INPUT}) for meta in metas]
    with torch.inference_mode():
        samples = model.predict(batch, samples, rescale=rescale)
    result = []
    for sample in samples:
        instances = sample.pred_instances
        order = np.argsort(-instances.scores.numpy(), kind="stable")
        dets = np.column_stack([instances.bboxes.numpy(), instances.scores.numpy()])[order]
        result.append(Found(dets, instances.labels.numpy()[order], instances.masks.numpy()[order].astype(bool)))
    return result


def differences(registry: Any, name: str, record: dict[str, Any]) -> Iterator[tuple[str, Difference]]:
    """Yield how the detections of each image and frame differ; write those of the network's frame to `record`."""
    from mmengine.config import ConfigDict

    model = registry.build(ConfigDict(copy.deepcopy(mask_cases.MODELS[name])))
    model.eval()
    mask_cases.fill(model)
    detector = build(mask_cases.config(name))
    load_weights(detector, model.state_dict())
    batch, metas = mask_cases.batch(name)
    scaled = [{**meta, "scale_factor": np.tile(np.float32(meta["scale_factor"]), 2)} for meta in metas]
    for rescale in (True, False):
        ours = detect(run_torch(detector), detector.mask_format, batch.numpy(), scaled, rescale)
        expected = theirs(model, batch, metas, rescale)
        record[name] = [mask_cases.summary(actual.dets, actual.labels, actual.masks) for actual in expected]
        for index, pair in enumerate(zip(ours, expected, strict=True)):
            yield f"image {index}, {'original' if rescale else 'network'} frame", compare(*pair, 2e-2, 1e-4, 2e-3)


def exported(settings: dict[str, Any], fill: Callable[[torch.nn.Module], None], **options: Any) -> str:
    """Return how the file of a config and torch differ in a picture, "" if they do not; or why there is no file."""
    image = part_cases.numbers(130, 170, 3).mul(127).add(128).numpy().astype(np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        arguments = ExportOptions(**options)
        try:
            file, _ = export_small(settings, fill, Path(folder), arguments)
        except ValueError as error:
            return str(error)
        network = load_network(settings, file.with_name("weights.pth"))
        detections = Predictor(file, score_threshold=0)(image)
        expected = Predictor(network, preprocessing=network.preprocessing, score_threshold=0)(image)
        comparison = compare_image(expected, detections)
        return "" if comparison.equal and len(expected) else str(comparison)


def main(folder: str, *arguments: str) -> int:
    """Check the detectors of the command line, by default all."""
    names = [argument for argument in arguments if argument != "--record"] or list(mask_cases.MODELS)
    problems, record = 0, {}
    registry = None if folder == "export" else mmdetection(folder)
    for name in names:
        if registry is None:
            problem = exported(mask_cases.config(name), mask_cases.fill)
            print(f"{name}: {problem or 'exported'}", flush=True)
            problems += bool(problem)
            continue
        for image, difference in differences(registry, name, record):
            problems += not difference.equal
            print(
                f"{name}, {image}: {difference.theirs} detections, {len(difference.unmatched)} differ; box "
                f"{difference.box:.1e}, score {difference.score:.1e}, mask IoU {difference.mask:.4f}",
                *difference.unmatched[:5],
                sep="\n    ",
            )
    if "--record" in arguments:
        write_record(RECORD, record)
    return problems > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

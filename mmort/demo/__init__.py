"""The demo: a Mask R-CNN exported by MMDetection finds handwritten digits, in ONNX Runtime with mmort's operators.

`detector` is the part to copy: reading, preprocessing, running, postprocessing.  This file draws the detections, and
prints them with the custom nodes that ran and the time of each stage.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnxruntime

import mmort
import mmort.ort
from mmort._kernels import simd_level
from mmort.demo import detector, drawing

IMAGES = tuple(sorted(Path(__file__).with_name("images").glob("*.png")))


def demo(images: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str], score_threshold: float) -> None:
    """Detect digits in images, print the detections, and draw them all on one sheet.

    Parameters
    ----------
    images : sequence of paths
        Files in any format that Pillow reads.
    output : path
        The sheet to write, as PNG.
    score_threshold : float
        Detections with a higher score count.

    Raises
    ------
    OSError
        If an image cannot be read, the sheet cannot be written, or mmort was built without its library.
    """
    colours = drawing.class_colours(detector.CLASSES)
    seconds: defaultdict[str, float] = defaultdict(float)
    panels = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with _timed(seconds, "load the model"):
            session = detector.load(os.path.join(folder, "profile"))
        runtime = f"ONNX Runtime {onnxruntime.__version__}, mmort {mmort.__version__} ({simd_level()})"
        print(f"{detector.MODEL.name} in {runtime}")
        for path in images:
            with _timed(seconds, "read and preprocess"):
                image = detector.read_image(path)
                network_input, network_size = detector.preprocess(image)
            with _timed(seconds, "run"):
                outputs = detector.run(session, network_input)
            with _timed(seconds, "postprocess"):
                detections = detector.postprocess(*outputs, network_size, image.size, score_threshold)
            with _timed(seconds, "draw"):
                name = _printable(Path(path).name)
                panels.append((f"{name}: {_count(detections)}", drawing.annotate(image, detections, colours)))
            print(f"\n{name}, {image.width} x {image.height} pixels: {_count(detections)}")
            _print_detections(detections)
        nodes = _kernel_times(session.end_profiling())
    with _timed(seconds, "draw"):
        sheet = drawing.arrange(panels)
        sheet.save(output, "PNG")
    _print_custom_nodes(nodes)
    _print_times(seconds, nodes)
    print(f"\nwrote {os.fspath(output)}, {sheet.width} x {sheet.height} pixels")


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Add the time that the block takes to a stage."""
    begin = time.perf_counter()
    yield
    seconds[stage] += time.perf_counter() - begin


def _kernel_times(profile: str) -> dict[str, list[float]]:
    """Read a profile of ONNX Runtime: the seconds of each execution, by operator type."""
    times: dict[str, list[float]] = {}
    with open(profile, encoding="utf-8") as file:
        for event in json.load(file):
            if event["name"].endswith("_kernel_time"):
                times.setdefault(event["args"]["op_name"], []).append(event["dur"] / 1e6)
    return times


def _custom(nodes: dict[str, list[float]]) -> dict[str, list[float]]:
    """Keep mmort's operator types."""
    # A profile does not name domains.  This model's NonMaxSuppression is ONNX's own, though mmcv has one, too.
    types = {operator["type"] for operator in mmort.ort.operators()} - {"NonMaxSuppression"}
    return {name: times for name, times in nodes.items() if name in types}


def _printable(name: str) -> str:
    """Replace control characters."""
    return "".join(character if character.isprintable() else "?" for character in name)


def _count(detections: Sequence[drawing.Detection]) -> str:
    """Count the detections in words."""
    return f"{len(detections)} digit{'' if len(detections) == 1 else 's'}"


def _print_detections(detections: Sequence[drawing.Detection]) -> None:
    """Print a table of the detections."""
    if detections:
        print("  class  score      x1      y1      x2      y2")
    for detection in detections:
        box = "".join(f"{edge:8.1f}" for edge in detection.box)
        print(f"  {detection.label:5}{detection.score:7.3f}{box}")


def _print_custom_nodes(nodes: dict[str, list[float]]) -> None:
    """Print how often mmort's operators ran, and for how long."""
    print("\nCustom nodes that ran, by ONNX Runtime's profile\n  type            runs  milliseconds")
    for name, times in sorted(_custom(nodes).items()):
        print(f"  {name:14}{len(times):6}{sum(times) * 1e3:14.1f}")


def _print_times(seconds: dict[str, float], nodes: dict[str, list[float]]) -> None:
    """Print the time of each stage."""
    print("\nWhere the time went\n  stage                 milliseconds")
    custom = sum(sum(times) for times in _custom(nodes).values())
    for stage, duration in seconds.items():
        print(
            f"  {stage:20}{duration * 1e3:14.1f}" + (f"  (custom nodes: {custom * 1e3:.1f})" if stage == "run" else "")
        )
    print(f"  {'total':20}{sum(seconds.values()) * 1e3:14.1f}")

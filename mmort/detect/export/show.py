"""Lines of an export beside its steps: the price of a flip test; with ``--show`` the graph and the detections."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import onnx
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from mmort.detect.detector import Detector
from mmort.images import Image
from mmort.onnx.graph import files
from mmort.onnx.verify.sessions import feeds, open_session
from mmort.predict import Detections, draw, write_image

MIN_SCORE = 0.3  # MMDetection's
FLIP_SIDE = 127  # pixels; the ratio hardly depends on it, and CornerNet's sides are odd


def flip_test_text(detector: Detector) -> str:
    """Return how many times the work a detector's flip test costs, counted for one image."""

    def operations(flip_test: bool) -> int:
        detector.flip_test = flip_test
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            detector(torch.zeros(1, 3, FLIP_SIDE, FLIP_SIDE))
        return counter.get_total_flops()

    ratio = 1 / operations(False) * operations(True)
    return (
        "flip test: the file also detects in the mirror images, as the config's test pipeline asks; that is "
        f"{ratio:.1f} times the work of a file made with --no-flip"
    )


def graph_text(path: Path) -> str:
    """Return a file's graph as text, without weights and functions."""
    model = files.load(path)
    del model.graph.initializer[:], model.functions[:]
    return onnx.printer.to_text(model)


def outputs_text(path: Path, args: Sequence[Tensor]) -> str:
    """Return the names and shapes of a file's outputs for arguments."""
    session = open_session(path)
    outputs = zip(session.get_outputs(), session.run(None, feeds(session, args)), strict=True)
    return "\n".join(f"output {formal.name}: {[*output.shape]}" for formal, output in outputs)


def detections_text(detections: Detections) -> str:
    """Return a line for each detection, by descending score."""
    lines = ["score  class  x1, y1, x2, y2"]
    for score, name, box in zip(detections.scores, detections.names, detections.boxes, strict=True):
        lines.append(f"{score:.3f}  {name}  {', '.join(f'{edge:.1f}' for edge in box)}")
    return "\n".join(lines)


def show_image(path: Path, image: Image, detections: Detections) -> str:
    """Draw detections into a file, open it if there is a display, and return what was done."""
    write_image(path, draw(image, detections))
    opened = _has_display() and webbrowser.open(path.resolve().as_uri())
    return f"wrote {path}, with {len(detections)} detections{'' if opened else '; there is no display to open it on'}"


def _has_display() -> bool:
    """Return whether windows can be opened."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))

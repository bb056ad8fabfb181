"""A trial of an adopted file: it runs on noise, and its detections must not contradict what is stated of the file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmort.contract import DETECTION, Preprocessing
from mmort.detections.boxes import bounding_boxes
from mmort.onnx.adopt.foreign_file import NOISE
from mmort.onnx.adopt.layout import Layout
from mmort.onnx.verify.sessions import refusals
from mmort.predict.engines.onnxruntime import OnnxRuntime
from mmort.predict.fixed_size import fit

_MAX_TURNED = 0.05
"""Maximum share of boxes that end before they begin: networks predict some such boxes with a correct layout, too."""

_MANY = 20
"""Boxes of which the share of such ones says something."""


class Trial(NamedTuple):
    """The outputs for the image of noise, and the height and width of the input that it was in."""

    outputs: list[NDArray[Any]]
    canvas: tuple[int, int]


def run_trial(network: OnnxRuntime, prepare: Preprocessing, *, pads: bool) -> Trial:
    """Run a file on noise.

    `pads` says whether inputs are padded to a size that the file fixes, as MMDetection's need it; others must have it.
    """
    height, width = NOISE
    size = prepare.resized_size(width, height)
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    prepared = prepare.finish(noise, (height, width))
    for expected, got, side in zip(network.input_shape[1:], prepared.pad_shape, ("height", "width"), strict=True):
        if expected not in (None, got) and not pads:
            raise ValueError(
                f"adopt: preprocessing must make inputs of {side} {expected}, the only one that the file takes, got "
                f"{got}"
            )
    batch, img_shape = fit(*prepare.batch([prepared]), network.input_shape)
    with refusals("adopt: the adopted file does not run"):
        outputs = network(batch, img_shape)
    DETECTION.check_arrays(outputs, len(batch))
    return Trial([output[0] for output in outputs], (batch.shape[2], batch.shape[3]))


def check_meaning(trial: Trial, layout: Layout) -> None:
    """Refuse boxes and scores of a trial that contradict the layout, naming the entry that would explain it."""
    dets, labels = trial.outputs[:2]
    side = max(trial.canvas)
    scores = dets[:, -1]
    if not ((scores >= 0) & (scores <= 1)).all():
        raise ValueError(
            f"adopt: scores must be from 0 to 1, got {scores.min():g} to {scores.max():g}; activation may be sigmoid "
            "or softmax"
        )
    rows = labels >= 0
    if rows.any():
        boxes = dets[rows, :4] if layout.angle is None else bounding_boxes(dets[rows, :5])
        _check_boxes(boxes, labels[rows], layout, side)


def check_classes(labels: NDArray[np.int64], layout: Layout) -> None:
    """Refuse labels for which the layout has no names, if it has any."""
    if layout.classes is not None and labels.max(initial=-1) >= len(layout.classes):
        raise ValueError(
            f"adopt: classes must have a name for each label, got {len(layout.classes)} names and label "
            f"{labels.max()}; background, first or last, is no class"
        )


def _check_boxes(boxes: NDArray[np.float32], labels: NDArray[np.int64], layout: Layout, side: int) -> None:
    """Refuse boxes in an input of some side, or labels, that contradict the layout."""
    check_classes(labels, layout)
    turned = (boxes[:, :2] > boxes[:, 2:]).any(axis=1)
    if len(boxes) >= _MANY and turned.mean() > _MAX_TURNED:
        raise ValueError(
            f"adopt: {turned.mean():.0%} of the boxes of a trial end before they begin; box_format may be another than "
            f"{layout.box_format}"
        )
    extent = np.quantile(np.abs(boxes), 0.95, method="higher")  # of infinite ones, others compute NaN
    if layout.box_unit == "pixels" and extent <= 2:
        raise ValueError(f"adopt: boxes of a trial lie within {extent:.2g} pixels; box_unit may be relative")
    if layout.strides is not None and not extent <= 10 * side:
        raise ValueError(
            f"adopt: boxes of a trial reach {extent / side:.3g} times the input; the file may decode them itself, "
            "which strides=null states"
        )
    if layout.box_unit == "relative" and extent > 10 * side:
        raise ValueError(f"adopt: boxes of a trial reach {extent / side:.0f} times the input; box_unit may be pixels")

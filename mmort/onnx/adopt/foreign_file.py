"""`ForeignFile`: what recognizers and presets look at in a file of another exporter."""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from mmort._files.inputs import read_bytes
from mmort.limits import MAX_LITERAL, MAX_PREPROCESSOR_BYTES
from mmort.onnx.adopt.inputs import Inputs, Tensor
from mmort.onnx.adopt.own_steps import OwnSteps

Entries = dict[str, Any]
"""Entries of a layout."""

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of red, green and blue from 0 to 1."""

IMAGENET: Entries = {
    "mean": [255 * value for value in IMAGENET_MEAN],
    "std": [255 * value for value in IMAGENET_STD],
    "divide": True,
}
"""Preprocessing for backbones trained on ImageNet."""

NOISE = 480, 640
"""Height and width of the image of noise that a file is tried with, if it takes any."""


class ForeignFile(NamedTuple):
    """A file as recognizers see it: the inputs, the outputs by name, the metadata, and the folder of `--config`."""

    inputs: Inputs
    outputs: dict[str, Tensor]
    metadata: Mapping[str, str]
    config: Path | None
    operators: frozenset[str]
    """The types of the nodes."""
    own_steps: OwnSteps
    """The steps on an image that the file does before its network."""
    results: Callable[[], Mapping[str, NDArray[Any]]]
    """Runs the file on noise, and returns the outputs."""

    @property
    def image(self) -> Tensor:
        """The input with the image, with channels before rows."""
        return self.inputs.image

    def size(self) -> list[int] | None:
        """Return the width and height of the input if they are fixed."""
        height, width = (self.image.shape or (None, None))[-2:]
        return None if height is None or width is None else [width, height]

    def run_size(self) -> list[int]:
        """Return the width and height of the input of `results`."""
        height, width = (self.image.shape or (None, None))[-2:]
        return [width or NOISE[1], height or NOISE[0]]

    def stated_size(self) -> list[int] | None:
        """Return the width and height that the metadata states as ``imgsz``, height first as ultralytics has it."""
        size = parsed_literal(self.metadata.get("imgsz", ""))
        if isinstance(size, int) and size > 0:
            return [size, size]
        return [size[1], size[0]] if is_size(size) else None


def cells(size: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many cells the grids of an input have."""
    return sum(-(-size[0] // stride) * -(-size[1] // stride) for stride in strides)


def scaled_to_one() -> Entries:
    """Return the preprocessing of networks that take red, green and blue from 0 to 1."""
    return {"to_rgb": True, "std": [255.0, 255.0, 255.0], "divide": True}


def parsed_literal(text: str) -> Any:
    """Return the value of a text in Python's notation; None if it is none, or longer than any that exporters write."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes that Python does not know
            return ast.literal_eval(text) if len(text) <= MAX_LITERAL else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def is_size(value: Any) -> bool:
    """Return whether a value is a height and a width."""
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(is_positive, value))


def is_positive(value: Any) -> bool:
    """Return whether a value is a positive integer."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises
    ------
    ValueError
        If it is not JSON, or no object.
    """
    try:
        values = json.loads(read_bytes("config", path, MAX_PREPROCESSOR_BYTES))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"adopt: {path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"adopt: {path} must be an object, got {type(values).__name__}")
    return values

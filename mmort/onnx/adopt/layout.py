"""`Layout`: what the outputs of another exporter's file mean, and how images become its input."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from mmort.configs.schema import Config, Schema, at_least, read_entries, suggested
from mmort.predict.metadata import read_preprocessing
from mmort.predict.preprocessing import Preprocessing

_CHOICES = {
    "box_format": ("xyxy", "xywh", "cxcywh"),
    "box_unit": ("pixels", "relative"),
    "activation": ("none", "sigmoid", "softmax"),
    "background": ("none", "first", "last"),
}
"""The words that entries of a layout may be."""

_COLUMNS = re.compile(r"(?P<output>.+?)(\[(?P<first>\d*)(?P<colon>:?)(?P<end>\d*)\])?")


class Columns(NamedTuple):
    """Columns of an output's rows, one row for each box: all, or those from `first` to before `end`."""

    output: str
    first: int = 0
    end: int | None = None

    @classmethod
    def parse(cls, entry: str, text: str) -> Columns:
        """Return what a text such as ``output0[4:]`` or ``output0[5]`` names; `entry` is for messages."""
        match = _COLUMNS.fullmatch(text)
        if match is None or (match["colon"] == "" and match["first"] == ""):
            raise ValueError(f"adopt: {entry} must be OUTPUT, OUTPUT[COLUMN] or OUTPUT[FIRST:END], got {text!r}")
        first = int(match["first"] or 0)
        if match["colon"] == "":
            return cls(match["output"], first, first + 1)
        columns = cls(match["output"], first, int(match["end"]) if match["end"] else None)
        if columns.end is not None and columns.end <= first:
            raise ValueError(f"adopt: {entry} must have an end above its first column, got {text!r}")
        return columns


@dataclass(frozen=True, kw_only=True)
class Layout(Schema):
    """What the outputs of a detector's file mean, and how images become its input.

    `boxes`, `scores`, `labels` and `objectness` name an output, or columns of its rows: ``output0``, ``output0[4]``,
    ``output0[4:84]``.  An output has a row for each box, in a batch (N, boxes, columns) or of one image (boxes,
    columns) or (boxes,).

    Parameters
    ----------
    boxes : str
        Four numbers for each box.
    box_format : {"xyxy", "xywh", "cxcywh"}
        Two corners; a corner, width and height; or the centre, width and height.
    scores : str
        A score for each box and class, or, with `labels`, for each box.
    labels : str, optional
        The class of each box, if the file chooses it.
    objectness : str, optional
        A factor of the scores for each box.
    box_unit : {"pixels", "relative"}
        Pixels of the input, or shares of its width and height.
    activation : {"none", "sigmoid", "softmax"}
        What turns scores and objectness into probabilities.
    background : {"none", "first", "last"}
        The class that is no object.
    columns_first : bool
        Whether outputs are (N, columns, boxes).
    strides : tuple of int, optional
        Boxes are offsets from the cells of grids with these strides, and logarithms of sizes in cells, as in YOLOX.
    multi_label : bool
        Whether a box may have several classes.  Otherwise it has the one with the highest score.
    iou_threshold : float, optional
        Suppress boxes whose IoU with a better one of the same class is above it.  By default no boxes are suppressed,
        as the file does so itself, or has a box for each object.
    class_agnostic : bool
        Whether boxes of other classes suppress, too.
    score_threshold : float
        Leave out boxes whose score is not above it.
    max_detections : int
        Detections in an image; there are never more than the file has boxes.
    classes : sequence of str, optional
        The names of the classes, without the background.
    preprocessing : dict
        The parameters of `mmort.predict.Preprocessing`.

    Examples
    --------
    >>> from mmort.onnx.adopt.layout import Layout
    >>> layout = Layout.read({"boxes": "out[:4]", "scores": "out[4:]", "box_format": "xyxy",
    ...                       "preprocessing": {"size": [640, 640], "keep_ratio": False}})
    >>> layout.columns("scores")
    Columns(output='out', first=4, end=None)
    """

    reader: ClassVar[str] = "adopt"

    boxes: str
    box_format: str
    scores: str
    labels: str | None = None
    objectness: str | None = None
    box_unit: str = "pixels"
    activation: str = "none"
    background: str = "none"
    columns_first: bool = False
    strides: list[int] | None = None
    multi_label: bool = False
    iou_threshold: float | None = None
    class_agnostic: bool = False
    score_threshold: float = 0.0
    max_detections: int = at_least(1, default=300)
    classes: list[str] | None = None
    preprocessing: Config

    @classmethod
    def read(cls, entries: Mapping[str, Any]) -> Layout:
        """Return a layout of entries, complete and checked.

        Raises
        ------
        ValueError
            If an entry is unknown, missing, or not what it must be; the message names it.
        """
        fields = dataclasses.fields(cls)
        known = [field.name for field in fields]
        if unknown := [suggested(name, known) for name in entries if name not in known]:
            raise ValueError(f"adopt: a layout has no entry {', '.join(unknown)}; its entries: {', '.join(known)}")
        required = [field.name for field in fields if field.default is dataclasses.MISSING]
        missing = [name for name in required if name not in entries]
        if missing:
            words = [f"{name} ({', '.join(_CHOICES[name])})" if name in _CHOICES else name for name in missing]
            raise ValueError(
                f"adopt: the file does not say what {', '.join(words)} {'is' if len(words) == 1 else 'are'}; pass "
                "--layout FILE.json or --set NAME=VALUE with it"
            )
        return read_entries("the layout", cls, dict(entries))

    def check(self, name: str) -> None:
        """Raise a ValueError if entries are not among the words that they may be, or contradict each other."""
        for entry, words in _CHOICES.items():
            if getattr(self, entry) not in words:
                raise ValueError(f"adopt: {entry} must be {' or '.join(words)}, got {getattr(self, entry)!r}")
        for entry in ("score_threshold", "iou_threshold"):
            value = getattr(self, entry)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"adopt: {entry} must be a number from 0 to 1, got {value}")
        for entry in ("boxes", "scores", "labels", "objectness"):
            if getattr(self, entry) is not None:
                self.columns(entry)
        if self.strides is not None and (not self.strides or min(self.strides) < 1 or self.box_format != "cxcywh"):
            raise ValueError("adopt: strides must be positive, and box_format cxcywh with them")
        if self.multi_label and self.class_agnostic:
            raise ValueError("adopt: class_agnostic must be false with multi_label, as a box would suppress itself")
        if self.labels is not None and (self.multi_label or self.activation == "softmax"):
            raise ValueError("adopt: with labels there is one score for each box: no multi_label, no softmax")
        _ = self.prepare

    @property
    def prepare(self) -> Preprocessing:
        """The preprocessing of images."""
        return read_preprocessing(self.preprocessing)

    def columns(self, entry: str) -> Columns:
        """Return the columns that an entry names."""
        return Columns.parse(entry, getattr(self, entry))

    def to_json(self) -> str:
        """Return the entries that are not defaults, without those that the file's metadata has under its own names."""
        entries = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("classes", "preprocessing") and getattr(self, field.name) != field.default
        }
        return json.dumps(entries)

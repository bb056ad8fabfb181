"""`Layout`: what the outputs of another exporter's file mean, and how images become its input."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from mmort.configs.schema import Config, Schema, at_least, read_entries, suggested
from mmort.contract.mask_format import MaskFormat
from mmort.contract.metadata import read_mask_format, read_preprocessing
from mmort.contract.preprocessing import Preprocessing
from mmort.limits import MAX_DETECTIONS, MAX_PARTS

_CHOICES = {
    "box_format": ("xyxy", "xywh", "cxcywh", "ltrb", "yxyx"),
    "box_unit": ("pixels", "relative", "original"),
    "activation": ("none", "sigmoid", "softmax"),
    "background": ("none", "first", "last"),
}
"""The words that entries of a layout may be."""

OUTPUT_ENTRIES = (
    *("boxes", "scores", "labels", "objectness", "angle", "keypoints", "masks", "prototypes"),
    *("batch_index", "row_counts"),
)
"""The entries that name outputs, or columns of them."""

_JOIN = " + "
"""The separator of outputs whose rows follow each other."""

_COLUMNS = re.compile(r"(?P<output>.+?)(\[(?P<first>\d{0,9})(?P<colon>:?)(?P<end>\d{0,9})\])?")


class Columns(NamedTuple):
    """Columns of an output's rows, one row for each box: all, or those from `first` to before `end`."""

    output: str
    first: int = 0
    end: int | None = None

    @classmethod
    def parse(cls, entry: str, text: str) -> Columns:
        """Return the columns that a text such as ``output0[4:]`` or ``output0[5]`` names; `entry` is for messages."""
        match = _COLUMNS.fullmatch(text)
        if match is None or (match["colon"] == "" and match["first"] == ""):
            raise ValueError(f"adopt: {entry} must be OUTPUT, OUTPUT[COLUMN] or OUTPUT[FIRST:END], got {text[:80]!r}")
        first = int(match["first"] or 0)
        if match["colon"] == "":
            return cls(match["output"], first, first + 1)
        columns = cls(match["output"], first, int(match["end"]) if match["end"] else None)
        if columns.end is not None and columns.end <= first:
            raise ValueError(f"adopt: {entry} must have an end above its first column, got {text[:80]!r}")
        return columns


@dataclass(frozen=True, kw_only=True)
class Layout(Schema):
    """The meaning of the outputs of a detector's file, and how images become its input.

    `boxes`, `scores`, `labels`, `objectness`, `angle`, `keypoints` and `masks` name an output, or columns of its rows:
    ``output0``, ``output0[4]``, ``output0[4:84]``.  An output has a row for each box, in a batch (N, boxes, columns) or
    of one image (boxes, columns) or (boxes,).  ``first + second`` are the rows of two outputs, one after the other.

    Parameters
    ----------
    inputs : dict, optional
        The contents of inputs besides the image, by name; `mmort.onnx.adopt.inputs.MEANINGS` has the words.  The usual
        names are known.
    channels_last : bool, optional
        Whether the image is (N, H, W, 3).  By default that is read from the input's shape.
    boxes : str
        Four numbers for each box.
    box_format : {"xyxy", "xywh", "cxcywh", "ltrb", "yxyx"}
        Two corners, x first or with "yxyx" y first; a corner, width and height; the centre, width and height; or, with
        `strides`, the distances of the left, top, right and bottom side from the middle of a cell, in cells.  Instead
        of each distance there may be as many columns as it has values, whose softmax is the probability of 0, 1, 2 and
        so on, as in PicoDet.
    scores : str
        A score for each box and class, or, with `labels`, for each box.
    labels : str, optional
        The class of each box, if the file chooses it.
    objectness : str, optional
        A factor of the scores for each box.
    angle : str, optional
        The angle of each box in radians, clockwise on screen; `box_format` is cxcywh.  The IoU is then the
        probabilistic one of ultralytics, and also boxes that are suppressed suppress.
    keypoints : str, optional
        Columns with x, y and score of each keypoint, or its x and y.
    keypoint_columns : int, default 3
        Numbers of each keypoint: 3, or 2 without scores.
    masks : str, optional
        An output with a mask for each box, (N, boxes, h, w) or (N, boxes, 1, h, w); with `prototypes`, columns.
    prototypes : str, optional
        An output (N, masks, h, w).  The mask of a box is their sum with the columns of `masks` as factors.
    mask_format : dict, optional
        The parameters of `mmort.predict.MaskFormat`, required with `masks`.
    box_unit : {"pixels", "relative", "original"}, default "pixels"
        Pixels of the input, shares of its width and height, or pixels of the original image.
    activation : {"none", "sigmoid", "softmax"}, default "none"
        What turns scores and objectness into probabilities.
    background : {"none", "first", "last"}, default "none"
        The class that is no object.
    columns_first : bool, default False
        Whether outputs are (N, columns, boxes).
    batch_index : str, optional
        The index in the batch of the image that a row belongs to, where the rows of all images follow each other.
    row_counts : str, optional
        How many rows each image has, where those of all images follow each other, or each has further, unused ones.
    strides : tuple of int, optional
        Boxes are offsets from the cells of grids with these strides, and logarithms of sizes in cells, as in YOLOX; or
        distances, with `box_format` ltrb.
    multi_label : bool, default False
        Whether a box may have several classes.  Otherwise it has the one with the highest score.
    iou_threshold : float, optional
        Suppress boxes whose IoU with a better one of the same class is above it.  By default no boxes are suppressed,
        as the file does so itself, or has a box for each object.
    class_agnostic : bool, default False
        Whether boxes of other classes suppress, too.
    score_threshold : float, default 0
        Leave out boxes whose score is not above it.
    max_detections : int, default 300
        Detections in an image: the best boxes, or with `multi_label` the best pairs of a box and a class.
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

    inputs: Config | None = None
    channels_last: bool | None = None
    boxes: str
    box_format: str
    scores: str
    labels: str | None = None
    objectness: str | None = None
    angle: str | None = None
    keypoints: str | None = None
    keypoint_columns: int = 3
    masks: str | None = None
    prototypes: str | None = None
    mask_format: Config | None = None
    box_unit: str = "pixels"
    activation: str = "none"
    background: str = "none"
    columns_first: bool = False
    batch_index: str | None = None
    row_counts: str | None = None
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
        return read_entries("the layout", cls, dict(entries))

    @classmethod
    def missing(cls, entries: Mapping[str, Any]) -> list[str]:
        """Return the names of the required entries that are missing, with the words that they may be.

        Raises
        ------
        ValueError
            If an entry is unknown.
        """
        fields = dataclasses.fields(cls)
        known = [field.name for field in fields]
        if unknown := [suggested(name, known) for name in entries if name not in known]:
            raise ValueError(f"adopt: a layout has no entry {', '.join(unknown)}; its entries: {', '.join(known)}")
        required = [field.name for field in fields if field.default is dataclasses.MISSING]
        names = [name for name in required if name not in entries]
        return [f"{name} ({', '.join(_CHOICES[name])})" if name in _CHOICES else name for name in names]

    def check(self, name: str) -> None:
        """Raise a ValueError if entries are not among the words that they may be, or contradict each other."""
        for entry, words in _CHOICES.items():
            if getattr(self, entry) not in words:
                raise ValueError(f"adopt: {entry} must be {' or '.join(words)}, got {getattr(self, entry)[:80]!r}")
        for entry in ("score_threshold", "iou_threshold"):
            value = getattr(self, entry)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"adopt: {entry} must be a number from 0 to 1, got {value}")
        for entry in OUTPUT_ENTRIES:
            if getattr(self, entry) is not None:
                self.parts(entry)
        if self.max_detections > MAX_DETECTIONS:
            raise ValueError(f"adopt: max_detections must be at most {MAX_DETECTIONS}, got more")
        if (self.masks is None) != (self.mask_format is None) or (self.prototypes and self.masks is None):
            raise ValueError("adopt: masks must come with mask_format, and prototypes with both")
        if self.strides is not None and (not self.strides or min(self.strides) < 1):
            raise ValueError(f"adopt: strides must be positive, got {self.strides}")
        if (self.box_format == "ltrb" and self.strides is None) or (
            self.strides is not None and self.box_format not in ("cxcywh", "ltrb")
        ):
            raise ValueError("adopt: box_format must be cxcywh or ltrb with strides, and ltrb has strides")
        if self.box_unit == "original" and (self.masks or self.keypoints or self.strides or self.prepare.is_centred):
            raise ValueError(
                "adopt: with box_unit original there are no masks, keypoints and strides, and padding is not centred"
            )
        if self.batch_index is not None and self.row_counts is not None:
            raise ValueError("adopt: batch_index and row_counts exclude each other")
        if self.multi_label and self.class_agnostic:
            raise ValueError("adopt: class_agnostic must be false with multi_label, as a box would suppress itself")
        if self.labels is not None and (self.multi_label or self.activation == "softmax"):
            raise ValueError("adopt: with labels there is one score for each box: no multi_label, no softmax")
        if self.angle is not None and (self.box_format != "cxcywh" or self.box_unit != "pixels" or self.multi_label):
            raise ValueError("adopt: with angle, box_format must be cxcywh, box_unit pixels, and multi_label false")
        if self.angle is not None and (self.masks is not None or self.keypoints is not None):
            raise ValueError("adopt: with angle there are no masks and no keypoints")
        if self.keypoints is not None and self.masks is not None:
            raise ValueError("adopt: with keypoints there are no masks")
        if self.keypoint_columns not in (2, 3) or (self.keypoints is not None and self.box_unit != "pixels"):
            raise ValueError("adopt: keypoint_columns must be 2 or 3, and box_unit pixels with keypoints")
        _ = self.prepare, self.format_of_masks

    @property
    def prepare(self) -> Preprocessing:
        """The preprocessing of images."""
        return read_preprocessing(self.preprocessing)

    @property
    def format_of_masks(self) -> MaskFormat | None:
        """The format of the masks."""
        return None if self.mask_format is None else read_mask_format(self.mask_format)

    def columns(self, entry: str) -> Columns:
        """Return the columns that an entry names, which must be of one output."""
        columns = self.parts(entry)
        if len(columns) > 1:
            raise ValueError(f"adopt: {entry} must be of one output, got {getattr(self, entry)!r}")
        return columns[0]

    def parts(self, entry: str) -> list[Columns]:
        """Return the columns that an entry names in each of its outputs, whose rows follow each other."""
        texts = getattr(self, entry).split(_JOIN)
        if len(texts) > MAX_PARTS:
            raise ValueError(f"adopt: {entry} must be of at most {MAX_PARTS} outputs, got {len(texts)}")
        return [Columns.parse(entry, text) for text in texts]

    def to_dict(self) -> dict[str, Any]:
        """Return the entries that are not defaults, without those that the file's metadata has under its own names."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("classes", "preprocessing", "mask_format")
            and getattr(self, field.name) != field.default
        }


def merged(entries: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return entries with others added or replaced, those of inner dicts one by one."""
    result = dict(entries)
    for name, value in more.items():
        inner = result.get(name)
        result[name] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return result

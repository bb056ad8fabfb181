"""The metadata of a detector's file: written by `write_entries`, checked completely when the file is opened.

An entry of another type than mmort writes is an error, never a default: it would change detections without a word.
Sizes are limited by the memory that they imply, as a file of some bytes could ask for any.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from mmort.contract import checks, mask_format, pose_format, preprocessing
from mmort.contract.format import Format
from mmort.contract.mask_format import MaskFormat
from mmort.contract.pose_format import PoseFormat
from mmort.contract.preprocessing import Preprocessing
from mmort.contract.recognition_format import DECODINGS, RecognitionFormat
from mmort.contract.segmentation_format import SegmentationFormat
from mmort.contract.tasks import DETECTION, TASKS
from mmort.contract.text_detection_format import SHAPES, TextDetectionFormat
from mmort.contract.text_kernels_format import GROWTHS, TextKernelsFormat
from mmort.contract.texts import EncoderFile
from mmort.detections.panoptic import Source
from mmort.limits import MAX_CHANNELS, MAX_CONTRACT_VERSION, MAX_INPUT_PIXELS, MAX_PADDING_STEP

VERSION = 1
"""The version of the contract that this mmort writes.  Files of 0, the first ones, do not state it."""

CONTRACT = "mmort_contract"
"""The entry of the contract's version and the task."""

MMORT_VERSION = "mmort_version"
VERIFIED = "verified"
"""The entry that is ``false`` in files which have not been compared with their models.

It is `BY_TOLERANCE` where outputs were compared from end to end, as there is no program to prove the file by.
"""

BY_TOLERANCE = "by tolerance"

PREPROCESSING, CLASSES, MASKS, SEGMENTATION, POSE = "preprocessing", "classes", "masks", "segmentation", "pose"
RECOGNITION, TEXT_DETECTION, TEXT_KERNELS = "recognition", "text_detection", "text_kernels"
FOR_CLIENTS = (CLASSES, PREPROCESSING, MASKS, SEGMENTATION, POSE, RECOGNITION, TEXT_DETECTION, TEXT_KERNELS)
"""The entries that programs need which run a file on images."""


@dataclass(frozen=True)
class Metadata:
    """The statements of a file; None where it states nothing.

    Parameters
    ----------
    task : str, default "detection"
        The row of the table of tasks.
    family : str, optional
        The detector, such as "Faster R-CNN".
    classes : tuple of str, optional
        The classes' names by label.
    preprocessing : Preprocessing, optional
        What makes the input of an image.
    mask_format : MaskFormat, optional
        What the output ``masks`` holds.
    segmentation : SegmentationFormat, optional
        How the output ``logits`` of a semantic segmentation is made and read.
    pose : PoseFormat, optional
        How the outputs of a file of poses become keypoints.
    recognition : RecognitionFormat, optional
        How the output ``characters`` of a text recognition becomes a text.
    text_detection : TextDetectionFormat, optional
        How the output ``probability`` of a text detection becomes polygons.
    text_kernels : TextKernelsFormat, optional
        How the output ``kernels`` of a text detection becomes polygons.
    palette : tuple of tuple of int, optional
        The colour of each class, red, green, blue, if the data set has some.
    thresholds : mapping, optional
        The config's ``test_cfg``, for people.
    angle_version : str, optional
        Of rotated boxes, MMRotate's version of their angles.
    texts : EncoderFile, optional
        The text encoder's file, if the words that the detector looks for are chosen when it runs.
    layout : mapping, optional
        How ``mmort adopt`` read the outputs of another exporter, for people.
    mmort_version : str, optional
        The version of mmort that wrote the file.
    is_verified : bool, default True
        False if the file was written without a comparison with its model.

    Examples
    --------
    >>> from mmort.contract import Metadata, read_metadata, write_entries
    >>> metadata = Metadata(classes=("cat", "dog"), family="FCOS")
    >>> write_entries(metadata)["classes"]
    '["cat", "dog"]'
    >>> read_metadata("fcos.onnx", write_entries(metadata)) == metadata
    True
    """

    task: str = DETECTION.name
    family: str | None = None
    classes: tuple[str, ...] | None = None
    preprocessing: Preprocessing | None = None
    mask_format: MaskFormat | None = None
    segmentation: SegmentationFormat | None = None
    pose: PoseFormat | None = None
    recognition: RecognitionFormat | None = None
    text_detection: TextDetectionFormat | None = None
    text_kernels: TextKernelsFormat | None = None
    palette: tuple[tuple[int, int, int], ...] | None = None
    thresholds: Mapping[str, Any] | None = None
    angle_version: str | None = None
    texts: EncoderFile | None = None
    layout: Mapping[str, Any] | None = None
    mmort_version: str | None = None
    is_verified: bool = True


def write_entries(metadata: Metadata) -> dict[str, str]:
    """Return the entries of a file's metadata; `read_metadata` reads them."""
    entries: dict[str, Any] = {
        CLASSES: metadata.classes,
        PREPROCESSING: metadata.preprocessing and metadata.preprocessing.to_dict(),
        MASKS: metadata.mask_format and metadata.mask_format.to_dict(),
        **{name: format and format.to_dict() for name in _FORMATS for format in [getattr(metadata, name)]},
        "palette": metadata.palette,
        "thresholds": metadata.thresholds,
        "texts": metadata.texts and metadata.texts._asdict(),
        "layout": metadata.layout,
        CONTRACT: {"version": VERSION, "task": metadata.task},
        VERIFIED: None if metadata.is_verified else False,
    }
    texts = {
        "family": metadata.family,
        "angle_version": metadata.angle_version,
        **{name: json.dumps(value) for name, value in entries.items() if value is not None},
        MMORT_VERSION: metadata.mmort_version,
    }
    return {name: text for name, text in texts.items() if text is not None}


def read_metadata(path: str, entries: Mapping[str, str]) -> Metadata:
    """Read and check the metadata of a file.

    Parameters
    ----------
    path : str
        Of the file, for messages.
    entries : mapping of str to str
        As ONNX Runtime returns them; those that mmort does not write are ignored.

    Raises
    ------
    ValueError
        If an entry is not JSON, or not of the type or in the range that it must be, or if a later mmort wrote the file
        by a contract that this one does not know.
    """
    try:
        version, task = version_and_task(entries)
        is_of_mmort = MMORT_VERSION in entries or CONTRACT in entries
        names = (*FOR_CLIENTS, "palette", "texts", *(("thresholds", "layout") if is_of_mmort else ()))
        values = {
            name: checks.parsed(name, entries[name], finite=name != "thresholds") for name in names if name in entries
        }
        for name in ("thresholds", "layout"):
            if values.get(name) is not None:
                checks.require(name, values[name], checks.OBJECT)
        classes = values.get(CLASSES)
        if classes is not None:
            checks.require(CLASSES, classes, _NAMES)
        settings, masks = values.get(PREPROCESSING), values.get(MASKS)
        if masks is None and MMORT_VERSION in entries and version == 0:
            masks = {}  # before mmort wrote "masks", all of its files had masks over boxes
        return Metadata(
            task=task,
            family=entries.get("family") if is_of_mmort else None,
            classes=tuple(classes) if classes else None,
            preprocessing=None if settings is None else read_preprocessing(settings),
            mask_format=None if masks is None else read_mask_format(masks),
            **_formats(values),
            palette=_palette(values.get("palette")),
            thresholds=values.get("thresholds"),
            angle_version=entries.get("angle_version") if is_of_mmort else None,
            texts=_encoder_file(values.get("texts")),
            layout=values.get("layout"),
            mmort_version=entries.get(MMORT_VERSION),
            is_verified=entries.get(VERIFIED) != "false",
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: metadata that mmort cannot read: {error}") from None


def version_and_task(entries: Mapping[str, str]) -> tuple[int, str]:
    """Return the version of a file's contract, and its task."""
    if CONTRACT not in entries:
        return 0, DETECTION.name
    stated = checks.parsed(CONTRACT, entries[CONTRACT])
    checks.check_entries(CONTRACT, stated, {"version": _CONTRACT["version"]})
    if stated.get("version", VERSION) > VERSION:
        raise ValueError(
            f"a later mmort wrote the file, by version {stated['version']} of the contract, and this one knows version "
            f"{VERSION}; pip install --upgrade mmort"
        )
    checks.check_entries(CONTRACT, stated, _CONTRACT)
    _require_all(CONTRACT, stated, _CONTRACT)
    return stated["version"], stated["task"]


def _require_all(name: str, values: Mapping[str, Any], required: Iterable[str]) -> None:
    """Refuse an object without an entry that it needs."""
    for key in required:
        if key not in values:
            raise ValueError(f"{name} must have {key}")


def _encoder_file(texts: Any) -> EncoderFile | None:
    """Read the entry "texts", if the file has it."""
    if texts is None:
        return None
    checks.check_entries("texts", texts, _TEXTS)
    _require_all("texts", texts, _TEXTS)
    return EncoderFile(texts["encoder"], texts["digest"])


def _formats(values: Mapping[str, Any]) -> dict[str, Any]:
    """Read the entries of the formats of outputs that the file has."""
    formats = {}
    for name, (kind, schema, required) in _FORMATS.items():
        if values.get(name) is not None:
            checks.check_entries(name, values[name], schema)
            _require_all(name, values[name], required)
            formats[name] = kind.from_dict(values[name])
    return formats


def _palette(values: Any) -> tuple[tuple[int, int, int], ...] | None:
    """Return the colours of the classes, if the file has any."""
    if values is None:
        return None
    checks.require("palette", values, _COLOURS)
    return tuple((red, green, blue) for red, green, blue in values)


def is_complete(entries: Mapping[str, str]) -> bool:
    """Return whether mmort wrote a file's metadata, with all that running it on images needs."""
    return {CLASSES, PREPROCESSING, MMORT_VERSION} <= entries.keys()


def read_preprocessing(values: Any) -> Preprocessing:
    """Return a `Preprocessing` of entries that a person wrote, by the same rules as a file's.

    Raises
    ------
    ValueError
        If an entry is unknown, or not of the type or in the range that it must be.
    """
    checks.check_entries(PREPROCESSING, values, _PREPROCESSING)
    return Preprocessing.from_dict(values)


def read_mask_format(values: Any) -> MaskFormat:
    """Return a `MaskFormat` of entries that a person wrote, by the same rules as a file's.

    Raises
    ------
    ValueError
        If an entry is unknown, or not of the type or in the range that it must be.
    """
    checks.check_entries(MASKS, values, _MASKS)
    return MaskFormat.from_dict(values)


def _is_names(value: Any) -> bool:
    """Return whether a value is a list of names, which JSON may hold with halves of characters."""
    return isinstance(value, list) and all(isinstance(name, str) and not _has_surrogate(name) for name in value)


def _has_surrogate(text: str) -> bool:
    """Return whether a text has half a character."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _is_size(value: Any) -> bool:
    """Return whether a value is a width and a height that fit into memory."""
    side = checks.integer(1, MAX_INPUT_PIXELS)[0]
    return (
        isinstance(value, list) and len(value) == 2 and all(map(side, value)) and math.prod(value) <= MAX_INPUT_PIXELS
    )


def _is_colour(value: Any) -> bool:
    """Return whether a value is null, a number for all channels, or one for each."""
    return value is None or checks.is_number(value) or _CHANNELS[0](value)


_NAMES: checks.Rule = (_is_names, "a list of names")
_CHANNELS: checks.Rule = (
    lambda value: isinstance(value, list) and 0 < len(value) <= MAX_CHANNELS and all(map(checks.is_number, value)),
    f"finite numbers, one for each channel, at most {MAX_CHANNELS}",
)
_SIZE: checks.Rule = (_is_size, f"width and height, integers from 1 with a product of at most {MAX_INPUT_PIXELS}")

_PREPROCESSING: dict[str, Any] = {
    "mean": _CHANNELS,
    "std": _CHANNELS,
    "to_rgb": checks.FLAG,
    "size": checks.optional(_SIZE),
    "keep_ratio": checks.FLAG,
    "size_divisor": checks.integer(1, MAX_PADDING_STEP),
    "pad_or": checks.integer(0, MAX_PADDING_STEP - 1),
    "pad_add": checks.integer(0, MAX_PADDING_STEP),
    "padding": {
        "value": (_is_colour, "a finite number, one for each channel, or null"),
        "size": checks.optional(_SIZE),
        "square": checks.FLAG,
        "size_divisor": checks.integer(1, MAX_PADDING_STEP),
        "in_image": checks.FLAG,
        "centred": checks.FLAG,
        "half_pixels": checks.FLAG,
        "long_side": checks.optional(checks.integer(1, MAX_INPUT_PIXELS)),
        "margin": checks.number(0, MAX_PADDING_STEP),
    },
    "to_float32": checks.FLAG,
    "divide": checks.FLAG,
    "flip": checks.FLAG,
    "turn_boxes": checks.FLAG,
    "turn_size": checks.FLAG,
    "clip_boxes": checks.FLAG,
    "inclusive_boxes": checks.FLAG,
    "side_divisor": checks.integer(1, MAX_PADDING_STEP),
    "by_ratio": checks.FLAG,
    "enlarges": checks.FLAG,
    "edge": checks.optional(checks.integer(1, MAX_PADDING_STEP)),
    "crop": checks.optional(_SIZE),
    "crop_padding": checks.optional(checks.integer(0, MAX_PADDING_STEP)),
    "line": {
        "height": checks.integer(1, MAX_INPUT_PIXELS),
        "min_width": checks.optional(checks.integer(1, MAX_INPUT_PIXELS)),
        "max_width": checks.optional(checks.integer(1, MAX_INPUT_PIXELS)),
        "width_divisor": checks.integer(1, MAX_PADDING_STEP),
    },
    **{name: checks.words(*words) for name, words in preprocessing.WORDS.items()},
}
"""The entries of "preprocessing", the fields of `Preprocessing`."""

_MASKS: dict[str, Any] = {
    "threshold": checks.number(),
    "stride": checks.integer(1, MAX_PADDING_STEP),
    **{name: checks.words(*words) for name, words in mask_format.WORDS.items()},
    "inside_boxes": checks.FLAG,
    "inside_input_boxes": checks.FLAG,
    "panoptic": {
        "source": checks.words(*get_args(Source)),
        "things": checks.integer(0, 999),
        "classes": checks.integer(0, 999),
        "min_visible": checks.number(0, 1),
        "inside_only": checks.FLAG,
        "max_overlap": checks.number(0, 1),
        "min_stuff_area": checks.integer(0, 2**31),
    },
}
"""The entries of "masks", the fields of `MaskFormat`."""


def _is_file_name(value: Any) -> bool:
    """Return whether a value is the name of an ONNX file in the same folder."""
    return isinstance(value, str) and value.endswith(".onnx") and not set(value) & set("/\\:\0")


def _is_palette(value: Any) -> bool:
    """Return whether a value is a list of colours."""
    level = checks.integer(0, 255)[0]
    return isinstance(value, list) and all(
        isinstance(colour, list) and len(colour) == 3 and all(map(level, colour)) for colour in value
    )


def _is_links(value: Any) -> bool:
    """Return whether a value is a list of pairs of integers; `Skeleton` checks that they are keypoints."""
    return isinstance(value, list) and all(
        isinstance(link, list) and len(link) == 2 and all(type(end) is int for end in link) for link in value
    )


_COLOURS: checks.Rule = (_is_palette, "a list of red, green, blue, integers from 0 to 255")

_SEGMENTATION: dict[str, Any] = {
    "window": checks.optional(_SIZE),
    "stride": checks.optional(_SIZE),
    "align_corners": checks.FLAG,
    "threshold": checks.optional(checks.number(0, 1)),
}
"""The entries of "segmentation", the fields of `SegmentationFormat`."""

_POSE: dict[str, Any] = {
    **{name: checks.words(*words) for name, words in pose_format.WORDS.items()},
    "names": _NAMES,
    "padding": checks.number(0, MAX_PADDING_STEP),
    "aligned": checks.FLAG,
    "bins": checks.number(0, MAX_PADDING_STEP),
    "blur": checks.integer(1, MAX_PADDING_STEP),
    "links": (_is_links, "a list of pairs of keypoints"),
    "colours": _COLOURS,
    "link_colours": _COLOURS,
    "sigmas": (lambda value: isinstance(value, list) and all(map(checks.number(0)[0], value)), "numbers from 0"),
}
"""The entries of "pose", the fields of `PoseFormat`."""

_INDEX = checks.integer(0, 2**31)

_RECOGNITION: dict[str, Any] = {
    "decoding": checks.words(*DECODINGS),
    "dictionary": _NAMES,
    "padding": checks.optional(_INDEX),
    "end": checks.optional(_INDEX),
    "ignored": (lambda value: isinstance(value, list) and all(map(_INDEX[0], value)), f"a list, each {_INDEX[1]}"),
}
"""The entries of "recognition", the fields of `RecognitionFormat`."""

_TEXT_DETECTION: dict[str, Any] = {
    "shape": checks.words(*SHAPES),
    "threshold": checks.number(0, 1),
    "min_score": checks.number(0, 1),
    "min_width": checks.number(0, MAX_PADDING_STEP),
    "unclip_ratio": checks.number(0, MAX_PADDING_STEP),
    "epsilon_ratio": checks.number(0, 1),
    "max_candidates": checks.integer(0, 2**31),
}
"""The entries of "text_detection", the fields of `TextDetectionFormat`."""

_TEXT_KERNELS: dict[str, Any] = {
    "growth": checks.words(*GROWTHS),
    "shape": checks.words(*SHAPES),
    **dict.fromkeys(("min_text", "min_kernel", "min_score"), checks.number(0, 1)),
    **dict.fromkeys(("min_kernel_area", "min_text_area"), checks.integer(0, 2**31)),
    "max_distance": checks.number(0, MAX_PADDING_STEP),
    "scale": checks.number(0, 1),
}
"""The entries of "text_kernels", the fields of `TextKernelsFormat`."""

_FORMATS: dict[str, tuple[type[Format], Mapping[str, Any], tuple[str, ...]]] = {
    SEGMENTATION: (SegmentationFormat, _SEGMENTATION, ()),
    POSE: (PoseFormat, _POSE, ("codec", "names")),
    RECOGNITION: (RecognitionFormat, _RECOGNITION, tuple(_RECOGNITION)),
    TEXT_DETECTION: (TextDetectionFormat, _TEXT_DETECTION, ()),
    TEXT_KERNELS: (TextKernelsFormat, _TEXT_KERNELS, ("growth",)),
}
"""The formats of outputs by the fields of `Metadata`: the class, its entries, and those of them that it needs."""

_TEXTS: dict[str, checks.Rule] = {
    "encoder": (_is_file_name, "the name of an ONNX file"),
    "digest": checks.TEXT,
}
"""The entries of "texts", the fields of `EncoderFile`."""

_CONTRACT: dict[str, checks.Rule] = {"version": checks.integer(1, MAX_CONTRACT_VERSION), "task": checks.words(*TASKS)}
"""The entries of `CONTRACT`."""

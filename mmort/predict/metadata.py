"""What a detector's file states about itself, checked completely when the file is opened.

An entry of another type than `mmort export` writes is an error, never a default: it would change detections without a
word.  Sizes are limited by the memory that they imply, as a file of some bytes could ask for any.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, get_args

from mmort.detections.panoptic import Source
from mmort.predict import mask_format, preprocessing
from mmort.predict.mask_format import MaskFormat
from mmort.predict.preprocessing import Preprocessing

MAX_TEXT = 2**22
"""Characters of an entry; the names of 20,000 classes have a tenth."""

MAX_INPUT_PIXELS = 2**24
"""Of the sizes that a file states: 200 MB as the network's input."""

MAX_SIDE = 2**12
"""What a side is padded to a multiple of, or by, at most, and pixels for each cell of a mask."""

Check = Callable[[Any], bool]


class EncoderFile(NamedTuple):
    """The text encoder that a detector's file was exported with: a file's name, and what both files state of it."""

    encoder: str
    digest: str


class Metadata(NamedTuple):
    """A detector's metadata; None for what the file does not state."""

    classes: tuple[str, ...] | None
    preprocessing: Preprocessing | None
    mask_format: MaskFormat | None
    encoder: EncoderFile | None


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
        If an entry is not JSON, or not of the type or in the range that it must be.
    """
    try:
        values = {
            name: _parsed(name, entries[name])
            for name in ("classes", "preprocessing", "masks", "texts")
            if name in entries
        }
        classes = values.get("classes")
        if classes is not None:
            _require("classes", classes, _is_names, "a list of names")
        settings, masks = values.get("preprocessing"), values.get("masks")
        if masks is None and "mmort_version" in entries:
            masks = {}  # before mmort wrote "masks", all of its files had masks over boxes
        return Metadata(
            tuple(classes) if classes else None,
            None if settings is None else read_preprocessing(settings),
            None if masks is None else read_mask_format(masks),
            _encoder_file(values.get("texts")),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: metadata that mmort cannot read: {error}") from None


def _encoder_file(texts: Any) -> EncoderFile | None:
    """Return what the entry "texts" states, if the file has it."""
    if texts is None:
        return None
    _check_entries("texts", texts, _TEXTS)
    missing = [name for name in _TEXTS if name not in texts]
    if missing:
        raise ValueError(f"texts must have {missing[0]}")
    return EncoderFile(texts["encoder"], texts["digest"])


def read_preprocessing(values: Any) -> Preprocessing:
    """Return a `Preprocessing` of entries that a person wrote, by the same rules as a file's.

    Raises
    ------
    ValueError
        If an entry is unknown, or not of the type or in the range that it must be.
    """
    _check_entries("preprocessing", values, _PREPROCESSING)
    return Preprocessing.from_dict(values)


def read_mask_format(values: Any) -> MaskFormat:
    """Return a `MaskFormat` of entries that a person wrote, by the same rules as a file's.

    Raises
    ------
    ValueError
        If an entry is unknown, or not of the type or in the range that it must be.
    """
    _check_entries("masks", values, _MASKS)
    return MaskFormat.from_dict(values)


def _parsed(name: str, text: str) -> Any:
    """Return an entry's value."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"numbers must be finite, got {constant}")

    if len(text) > MAX_TEXT:
        raise ValueError(f"{name} must have at most {MAX_TEXT} characters, got {len(text)}")
    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not JSON: {error}") from None


def _check_entries(name: str, values: Any, schema: Mapping[str, tuple[Check, str] | Mapping[str, Any]]) -> None:
    """Refuse values that are not of a schema; names that it does not have are of a later mmort."""
    _require(name, values, lambda value: isinstance(value, dict), "an object")
    for key, rule in schema.items():
        if key not in values:
            continue
        if isinstance(rule, Mapping):
            if values[key] is not None:
                _check_entries(f"{name}.{key}", values[key], rule)
        else:
            _require(f"{name}.{key}", values[key], *rule)


def _require(name: str, value: Any, check: Check, requirement: str) -> None:
    """Refuse a value that fails a check."""
    if not check(value):
        text = json.dumps(value)[:60] if not isinstance(value, dict) else "an object"
        raise ValueError(f"{name} must be {requirement}, got {text}")


def _is_names(value: Any) -> bool:
    """Return whether a value is a list of names, which JSON may hold with halves of characters."""
    return isinstance(value, list) and all(isinstance(name, str) and not _has_surrogate(name) for name in value)


def _has_surrogate(text: str) -> bool:
    """Return whether a text has half a character."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _is_number(value: Any, low: float = -math.inf, high: float = math.inf) -> bool:
    """Return whether a value is a finite number in a range that has float32."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and abs(value) < 1e38 and low <= value <= high


def _integer(low: int, high: int) -> tuple[Check, str]:
    """Return the rule of integers in a range."""

    def check(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return check, f"an integer from {low} to {high}"


def _number(low: float = -math.inf, high: float = math.inf) -> tuple[Check, str]:
    """Return the rule of numbers in a range."""
    limits = "" if low == -math.inf else f" from {low:g} to {high:g}"
    return lambda value: _is_number(value, low, high), f"a finite number{limits}"


def _words(*words: str) -> tuple[Check, str]:
    """Return the rule of some words."""
    return lambda value: isinstance(value, str) and value in words, " or ".join(map(repr, words))


def _optional(rule: tuple[Check, str]) -> tuple[Check, str]:
    """Return a rule that allows null besides."""
    check, requirement = rule
    return lambda value: value is None or check(value), f"{requirement}, or null"


def _is_size(value: Any) -> bool:
    """Return whether a value is a width and a height that fit into memory."""
    side = _integer(1, MAX_INPUT_PIXELS)[0]
    return (
        isinstance(value, list) and len(value) == 2 and all(map(side, value)) and math.prod(value) <= MAX_INPUT_PIXELS
    )


_FLAG: tuple[Check, str] = (lambda value: isinstance(value, bool), "true or false")
_CHANNELS: tuple[Check, str] = (
    lambda value: isinstance(value, list) and len(value) == 3 and all(map(_is_number, value)),
    "three finite numbers",
)
_SIZE: tuple[Check, str] = (_is_size, f"width and height, integers from 1 with a product of at most {MAX_INPUT_PIXELS}")

_PREPROCESSING: dict[str, Any] = {
    "mean": _CHANNELS,
    "std": _CHANNELS,
    "to_rgb": _FLAG,
    "size": _optional(_SIZE),
    "keep_ratio": _FLAG,
    "size_divisor": _integer(1, MAX_SIDE),
    "pad_or": _integer(0, MAX_SIDE - 1),
    "pad_add": _integer(0, MAX_SIDE),
    "padding": {
        "value": _optional(_number()),
        "size": _optional(_SIZE),
        "square": _FLAG,
        "size_divisor": _integer(1, MAX_SIDE),
        "in_image": _FLAG,
        "centred": _FLAG,
    },
    "to_float32": _FLAG,
    "divide": _FLAG,
    "flip": _FLAG,
    "turn_boxes": _FLAG,
    "turn_size": _FLAG,
    "clip_boxes": _FLAG,
    "inclusive_boxes": _FLAG,
    **{name: _words(*words) for name, words in preprocessing.WORDS.items()},
}
"""The entries of "preprocessing", the fields of `Preprocessing`."""

_MASKS: dict[str, Any] = {
    "threshold": _number(),
    "stride": _integer(1, MAX_SIDE),
    **{name: _words(*words) for name, words in mask_format.WORDS.items()},
    "inside_boxes": _FLAG,
    "panoptic": {
        "source": _words(*get_args(Source)),
        "things": _integer(0, 999),
        "classes": _integer(0, 999),
        "min_visible": _number(0, 1),
        "inside_only": _FLAG,
        "max_overlap": _number(0, 1),
        "min_stuff_area": _integer(0, 2**31),
    },
}
"""The entries of "masks", the fields of `MaskFormat`."""


def _is_file_name(value: Any) -> bool:
    """Return whether a value is the name of an ONNX file in the same folder."""
    return isinstance(value, str) and value.endswith(".onnx") and not set(value) & set("/\\:\0")


_TEXTS: dict[str, tuple[Check, str]] = {
    "encoder": (_is_file_name, "the name of an ONNX file"),
    "digest": (lambda value: isinstance(value, str), "a text"),
}
"""The entries of "texts", the fields of `EncoderFile`."""

"""Annotation files in COCO's formats: read, and checked for all that the evaluation relies on."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from mmort._files.inputs import read_bytes
from mmort.contract.names import as_names
from mmort.evaluate.dataset import DatasetImage
from mmort.limits import MAX_ANNOTATED_PIXELS, MAX_COCO_COORDINATE, MAX_PATH, MAX_POLYGON_RATIO

MAX_LISTED = 10
"""Names in a message."""

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.0+)?")
"""Text that is a whole number: the id "5" is 5, and "007" is not 7."""

Check = Callable[[Any], bool]


def number(value: Any) -> float | int | None:
    """Return a finite number, which may be written as text as tools for tables do; None for other values."""
    if type(value) is int:  # first, as there are millions
        return value
    if isinstance(value, str):
        try:
            value = float(value) if value.isascii() and "_" not in value else None
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def id_key(value: Any) -> int | float | str:
    """Return the value by which ids are compared: 5, 5.0, "5" and "5.0" are the same id."""
    if isinstance(value, str):
        return int(value.partition(".")[0]) if _WHOLE.fullmatch(value) else value
    return int(value) if value == int(value) else float(value)


def id_order(value: Any) -> tuple[bool, float, str]:
    """Return the key by which ids are sorted: numbers, then text."""
    key = id_key(value)
    return (True, 0, key) if isinstance(key, str) else (False, key, "")


def is_id(value: Any) -> bool:
    """Return whether a value can be an id: a number, or text."""
    return isinstance(value, str) or number(value) is not None


def flag(value: Any) -> bool | None:
    """Return whether a value is 1 rather than 0; None for other values."""
    if isinstance(value, bool):
        return value
    digit = number(value)
    return bool(digit) if digit in (0, 1) else None


def is_flag(value: Any) -> bool:
    """Return whether a value is 0 or 1."""
    return flag(value) is not None


def is_list(value: Any) -> bool:
    """Return whether a value is a list of objects."""
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def is_text(value: Any) -> bool:
    """Return whether a value is text that can be written."""
    return isinstance(value, str) and value.isprintable()


def is_path(value: Any) -> bool:
    """Return whether a value can be the path of a file."""
    return isinstance(value, str) and 0 < len(value) <= MAX_PATH and "\0" not in value


def is_side(value: Any) -> bool:
    """Return whether a value can be a height or a width."""
    side = number(value)
    return side is not None and 0 < side <= MAX_ANNOTATED_PIXELS and side == int(side)


def is_area(value: Any) -> bool:
    """Return whether a value can be an area."""
    area = number(value)
    return area is not None and 0 <= area <= MAX_COCO_COORDINATE**2


def is_box(value: Any) -> bool:
    """Return whether a value is a box: x, y, width, height."""
    if not isinstance(value, list) or len(value) != 4:
        return False
    edges = [edge for edge in map(number, value) if edge is not None and abs(edge) <= MAX_COCO_COORDINATE]
    return len(edges) == 4 and min(edges[2:]) >= 0


def is_detected_box(value: Any) -> bool:
    """Return whether a value begins with a detector's box: x, y, width, height."""
    if not isinstance(value, list) or len(value) < 4:
        return False
    return all(edge is not None and abs(edge) <= MAX_COCO_COORDINATE for edge in map(number, value[:4]))


def is_score(value: Any) -> bool:
    """Return whether a value can be the score of a detection."""
    score = number(value)
    return score is not None and abs(score) <= float(np.finfo(np.float32).max)


def is_keypoints(value: Any) -> bool:
    """Return whether a value has x, y and visibility of one keypoint or more."""
    if not isinstance(value, list) or not value or len(value) % 3:
        return False
    return all(_is_number(part) and abs(part) <= MAX_COCO_COORDINATE for part in value)


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and (isinstance(value, int) or math.isfinite(value))


_WORDS: dict[Check, str] = {
    is_id: "a number or text",
    is_flag: "0 or 1",
    is_list: "a list of objects",
    is_text: "text without control characters",
    is_path: "the path of a file",
    is_side: f"a whole number from 1 to {MAX_ANNOTATED_PIXELS}",
    is_area: "a finite number, not negative",
    is_keypoints: "finite numbers, three for each keypoint",
    is_box: "x, y, width, height: finite numbers, the last two not negative",
    is_detected_box: "x, y, width, height: finite numbers",
    is_score: "a number of float32",
}
"""The requirement of each check, in words."""


def categories_of(
    annotation_file: str | os.PathLike[str], annotations: Mapping[str, Any], classes: Sequence[str] | None
) -> tuple[tuple[str, ...], list[Mapping[str, Any]]]:
    """Return the classes, by default all of the file, and the file's categories that are among them, in its order.

    Raises
    ------
    ValueError
        If the file lacks one of the classes, or has it twice, or it is twice among them.
    """
    names = [category["name"] for category in annotations["categories"]]
    classes = as_names("evaluate", names if classes is None else classes)
    missing = [name for name in classes if name not in names]
    if missing:
        raise ValueError(
            f"evaluate: {annotation_file} has no category {listed(missing)}; classes: {listed(classes)}; categories of "
            f"the file: {listed(names)}; mmort test --classes NAME ... evaluates some of a detector's classes"
        )
    if len(set(classes)) != len(classes) or sum(name in classes for name in names) != len(classes):
        raise ValueError(
            f"evaluate: {annotation_file} has several categories of the same name, or classes are given twice"
        )
    return classes, [category for category in annotations["categories"] if category["name"] in classes]


def images_of(annotations: Mapping[str, Any], folder: Path) -> tuple[DatasetImage, ...]:
    """Return the images that annotations list, which lie in a folder."""
    return tuple(
        DatasetImage(image["id"], folder / image["file_name"], image["file_name"]) for image in annotations["images"]
    )


def read_annotations(
    path: Path, format: str, required: Mapping[str, Mapping[str, Check]], optional: Mapping[str, Mapping[str, Check]]
) -> dict[str, Any]:
    """Read an annotation file.

    Parameters
    ----------
    path : Path
    format : str
        What messages call the format.
    required, optional : mapping of str to mapping of str to check
        The entries that each object of a kind, such as "images", must and may have, with what they must be; null is no
        entry.  A file must have images and categories.

    Raises
    ------
    ValueError
        If the file is not in this format.
    """
    content = read_bytes("annotation file", path)
    try:
        annotations = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"evaluate: {path} is not a JSON file: {error}") from None
    del content
    if not isinstance(annotations, dict) or not {"images", "categories"} <= annotations.keys():
        raise ValueError(f"evaluate: {path} is not in {format}: it must have images and categories")
    if is_list(annotations["images"]):
        _name_files(annotations["images"])
    for kind in required.keys() & annotations.keys():
        check_objects(path, kind, annotations[kind], required[kind], optional.get(kind, {}))
    for index, image in enumerate(annotations["images"]):
        if math.prod(number(image.get(side)) or 1 for side in ("height", "width")) > MAX_ANNOTATED_PIXELS:
            raise ValueError(f"evaluate: images[{index}] in {path} must have at most {MAX_ANNOTATED_PIXELS} pixels")
    return annotations


def _name_files(images: list[dict[str, Any]]) -> None:
    """Give images without a file_name the folder and file of their address, as MMDetection does for LVIS."""
    for image in images:
        if "file_name" not in image and is_path(image.get("coco_url")):
            image["file_name"] = "/".join(image["coco_url"].split("/")[-2:])


def check_objects(
    path: Path, kind: str, objects: Any, required: Mapping[str, Check], optional: Mapping[str, Check]
) -> None:
    """Refuse objects that are not in the format; the parameters are those of `read_annotations`."""
    if not is_list(objects):
        raise ValueError(f"evaluate: {kind} in {path} must be a list of objects")
    for index, entry in enumerate(objects):
        missing = [name for name in required if name not in entry]
        if missing:
            raise ValueError(f"evaluate: {kind}[{index}] in {path} has no {', '.join(missing)}")
        for name, check in {**optional, **required}.items():
            is_missing = entry.get(name) is None and name not in required
            if not is_missing and not check(entry[name]):
                got = shown(entry[name])
                raise ValueError(f"evaluate: {kind}[{index}].{name} in {path} must be {_WORDS[check]}, got {got}")
    if "id" in required and len({id_key(entry["id"]) for entry in objects}) != len(objects):
        raise ValueError(f"evaluate: ids of {kind} in {path} are not unique")


def unknown_ids(path: Path, annotations: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return warnings of annotated objects, or segments, whose category or image the file does not list."""
    texts = []
    for kind, name in (("categories", "category_id"), ("images", "image_id")):
        listed = {id_key(entry["id"]) for entry in annotations[kind]}
        unknown = [entry[name] for entry in objects if id_key(entry[name]) not in listed]
        if unknown:
            ids = ", ".join(map(shown, list(dict.fromkeys(unknown))[:3]))
            texts.append(f"{path}: {len(unknown)} of {len(objects)} objects are left out; {kind} has no id {ids}")
    return texts


def segmentation_problem(segmentation: Any, height: int, width: int) -> str | None:
    """Return the rule that a segmentation of an image of this size breaks, or None."""
    if isinstance(segmentation, list):
        limit = MAX_POLYGON_RATIO * max(height, width)
        for polygon in segmentation:
            if not isinstance(polygon, list) or len(polygon) < 6 or len(polygon) % 2:
                return "polygons, lists of x and y of three corners or more"
            if not all(_is_number(number) and -limit <= number <= limit for number in polygon):
                return f"polygons of finite numbers, from {-limit} to {limit} in an image of {height} x {width} pixels"
        return None if segmentation else "polygons, at least one"
    if not isinstance(segmentation, dict) or not {"size", "counts"} <= segmentation.keys():
        return "polygons, or an object with size and counts"
    if segmentation["size"] != [height, width]:
        return f"of the image's size, {[height, width]}"
    return None if _is_run_lengths(segmentation["counts"], height * width) else "run lengths of all pixels of the image"


def _is_run_lengths(counts: Any, pixels: int) -> bool:
    """Return whether counts, a list or COCO's compressed text, are the lengths of runs of so many pixels."""
    if isinstance(counts, list):
        integers = all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts)
        return integers and sum(counts) == pixels
    if not isinstance(counts, str) or not counts.isascii():
        return False
    codes = np.frombuffer(counts.encode(), np.uint8).astype(np.int64) - 48
    if not len(codes) or codes.min() < 0 or codes.max() > 63 or codes[-1] & 32:
        return False
    ends = np.flatnonzero(codes & 32 == 0)  # each character has five bits of a number, and whether more follow
    begins = np.concatenate([[0], ends[:-1] + 1])
    sizes = ends + 1 - begins
    if sizes.max() > 7:
        return False
    positions = np.arange(len(codes)) - np.repeat(begins, sizes)
    numbers = np.add.reduceat((codes & 31) << (5 * positions), begins)
    numbers -= np.where(codes[ends] & 16, np.int64(1) << (5 * sizes), 0)
    for first in (1, 2):  # each number from the fourth on is the difference to the one two before
        numbers[first::2] = numbers[first::2].cumsum()
    return bool(numbers.min() >= 0 and numbers.max() <= pixels and numbers.sum() == pixels)


def listed(names: Sequence[str]) -> str:
    """Return the first names for a message: COCO and LVIS have 80 and 1,203 classes."""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def shown(value: Any) -> str:
    """Return a value for a message, shortened."""
    text = repr(value) if not isinstance(value, (list, dict)) else json.dumps(value)[:1000]
    return text if len(text) <= 60 else f"{text[:57]}..."

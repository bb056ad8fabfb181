"""Annotation files in COCO's formats: read, and checked for what the evaluation relies on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def read_annotations(path: Path, format: str, required: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Read an annotation file.

    Parameters
    ----------
    path : Path
    format : str
        What messages call the format.
    required : mapping of str to sequence of str
        What each entry of a kind, such as "images", must have; a file must have images and categories.

    Raises
    ------
    ValueError
        If the file is not in this format.
    """
    try:
        annotations = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"evaluate: {path} is not a JSON file: {error}") from None
    if not isinstance(annotations, dict) or not {"images", "categories"} <= annotations.keys():
        raise ValueError(f"evaluate: {path} is not in {format}: it must have images and categories")
    for kind in required.keys() & annotations.keys():
        _check_entries(path, kind, annotations[kind], required[kind])
    return annotations


def _check_entries(path: Path, kind: str, entries: Any, required: Sequence[str]) -> None:
    """Refuse entries that are not in the format."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"evaluate: {kind} in {path} must be a list of objects")
    for index, entry in enumerate(entries):
        missing = [name for name in required if name not in entry]
        if missing:
            raise ValueError(f"evaluate: {kind}[{index}] in {path} has no {', '.join(missing)}")
    if "id" in required and len({entry["id"] for entry in entries}) != len(entries):
        raise ValueError(f"evaluate: ids of {kind} in {path} are not unique")

"""Which family detects what a config describes: each family states what it claims, and is registered under it.

Importing this module registers everything that configs can name: both packages below import their modules, and each
module registers its types.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config, plain_type
from mmort.detect import families as _families  # noqa: F401 - registers the types of heads
from mmort.detect import parts as _parts  # noqa: F401 - registers those of all parts
from mmort.detect.detector import Detector
from mmort.detect.entries import AROUND, DETECTOR, OF_YOUR_OWN, PARTS, Parts, read_entries


@dataclass(frozen=True)
class Family:
    """A family of detectors; see `list_families`.

    Attributes
    ----------
    name : str
        The name of its class.
    heads : tuple of str
        The types of heads that it claims.
    entries : tuple of str
        The entries of ``model`` that may hold such a head.
    summary : str
        The first line of the documentation of its class.
    """

    name: str
    heads: tuple[str, ...]
    entries: tuple[str, ...]
    summary: str


def list_families() -> list[Family]:
    """List the supported families of detectors, with those of your own that are registered, by name.

    Returns
    -------
    list of Family
        What each claims of a config; `unsupported` tells whether all else of the config is supported too.

    Examples
    --------
    >>> from mmort.detect import list_families
    >>> [family.name for family in list_families() if "StandardRoIHead" in family.heads]
    ['FasterRCNN', 'OrientedRCNN']
    """
    heads: dict[type[Detector], list[str]] = {}
    for name, family in PARTS.types[DETECTOR].items():
        heads.setdefault(family, []).append(name)
    for name, (_, family) in PARTS.particular[DETECTOR].items():
        heads.setdefault(family, []).append(name)
    for types in PARTS.of_models.values():
        for name, family in types.items():
            heads.setdefault(family, []).append(name)
    listed = [
        Family(
            family.__name__,
            tuple(sorted(names)),
            family.head_entries,
            (inspect.getdoc(family) or "").partition("\n")[0],
        )
        for family, names in heads.items()
    ]
    return sorted(listed, key=lambda family: family.name)


def family_of(config: DetectorConfig) -> Callable[[DetectorConfig, Parts], Detector]:
    """Return the class of the detector that a config describes.

    Raises
    ------
    ValueError
        If the config has no model, or its head is missing or not supported; the message names it.
    """
    if config.package is not None:
        raise ValueError(
            f"detect.build: {config.package.name}'s models are not supported as detectors; mmort export --original "
            f"exports them from its own code, which it executes ({config.package.command})"
        )
    branch = branch_of(config)
    model = config.model
    entry = _last_head(model)
    if entry is None or (config.around is not None and branch is None):
        kind = (model if config.around is None else config.around).get("type")
        raise ValueError(
            f"detect.build: model.type {kind!r} without a head, such as bbox_head or roi_head, is not supported; "
            f"supported: models with a head in docs/mmdetection.md; {OF_YOUR_OWN}"
        )
    head = model[entry][-1] if isinstance(model[entry], list) else model[entry]
    if not isinstance(head, dict):
        raise ValueError(f"detect.build: {entry} must be a dict, or a list of dicts, got {type(head).__name__}")
    name, of_model = plain_type(head.get("type")), PARTS.of_models.get(plain_type(model.get("type")))
    families = PARTS.types[DETECTOR] if of_model is None else of_model
    coders, particular = PARTS.particular[DETECTOR].get(name, ("", None)) if of_model is None else ("", None)
    family = particular if _coder(head) in PARTS.types.get(coders, {}) else families.get(name)
    if family is None:
        similar = difflib.get_close_matches(str(name), families)
        heads = ", ".join(similar) or "those in docs/mmdetection.md"  # all of them would be some ninety
        raise ValueError(
            f"detect.build: {entry} {name!r} of model.type {model.get('type')!r} is not supported; "
            f"supported {'heads like it' if similar else 'heads'}: {heads}; {OF_YOUR_OWN}"
        )
    return family


def _last_head(model: Config) -> str | None:
    """Return the entry of a model that holds its last head, by the order that the families state."""
    families = dict.fromkeys(PARTS.types[DETECTOR].values())
    present = list(dict.fromkeys(entry for family in families for entry in family.head_entries if model.get(entry)))
    earlier = {
        entry for family in families if set(family.head_entries) & set(present) for entry in family.earlier_heads
    }
    return next((entry for entry in present if entry not in earlier), None)


def _coder(head: Config) -> str:
    """Return the type of a head's box coder, or of that of a second stage's last head."""
    boxes = head.get("bbox_head", head)
    boxes = boxes[-1] if isinstance(boxes, list) and boxes else boxes
    coder = boxes.get("bbox_coder") if isinstance(boxes, dict) else None
    return plain_type(coder.get("type")) if isinstance(coder, dict) else ""


def branch_of(config: DetectorConfig) -> str | None:
    """Return which part of a model around a detector detects, by its weights' first name; None for a detector.

    Raises
    ------
    ValueError
        If an entry of the model is not supported, or it lacks the detector; the message names it.
    """
    if not config.has_model:
        return None
    model = config.outer_model
    schema = PARTS.types[AROUND].get(plain_type(model.get("type")))
    return None if schema is None else read_entries("model", schema, model).branch

"""Schemas: which entries a dict of a config may have, and which of them are read.

A schema is a dataclass with a field for each entry that is read, and the entries that are ignored, with the reason.
Any other entry is refused, as it could change the results.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from difflib import get_close_matches
from typing import Any, ClassVar, TypeVar

Config = dict[str, Any]
"""A config, or a part of one, as `read_config` returns it."""

IGNORED = {
    "init_cfg": "weights come from the checkpoint",
    "pretrained": "weights come from the checkpoint",
    "train_cfg": "training only",
    "test_cfg": "read from the model",
    "_scope_": "where MMEngine looks the type up",
}
"""Entries that any part of MMDetection may have, beside its losses, ``loss_...``."""

_CHECKED: Mapping[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "True or False"),
    "int": ((int,), "an integer"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a string"),
    "Config": ((dict,), "a dict"),
    "None": ((type(None),), "None"),
}
"""Annotations of entries whose values are checked, also in ``list[...]``, ``Sequence[...]`` and ``tuple[...]``."""


def plain_type(name: Any) -> str:
    """Return a type's name without the scope that MMDetection 3 may put before it (``mmdet.FCOSHead``)."""
    return str(name).rpartition(".")[2]


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Base of all schemas: a subclass has a field for each entry, by its name.

    A field annotated as ``bool``, ``int``, ``float``, ``str``, ``Config``, or a ``list`` or ``Sequence`` of these, or a
    ``tuple`` of a certain length, optional or not, takes nothing else.

    Attributes
    ----------
    ignored : dict of str to str
        Entries that are accepted and not read, with the reason.
    types : tuple of str
        What the entry ``type`` may be, where a config has it; by default it is not looked at.
    reader : str
        What reads the entries; errors begin with it.
    """

    ignored: ClassVar[Mapping[str, str]] = {}
    types: ClassVar[tuple[str, ...]] = ()
    reader: ClassVar[str] = "detect.build"

    @classmethod
    def respelled(cls, name: str, config: Config) -> Config:
        """Return a config, called `name` in errors, with the names that the fields have: MMDetection 2's differ."""
        return config

    def check(self, name: str) -> None:
        """Raise a ValueError, in which the config is called `name`, if the entries contradict each other."""


_Entries = TypeVar("_Entries", bound=Schema)


@dataclass(frozen=True)
class _Nested:
    """Metadata of a `Schema`'s field that holds another schema; see `nested`."""

    schema: type[Schema]
    name: str | None
    default: Config | None
    optional: bool


def training_only(*names: str) -> dict[str, str]:
    """Return the part of `Schema.ignored` for entries that change nothing but the training."""
    return dict.fromkeys(names, "training only")


def default(config: Config) -> Any:
    """Declare an entry that is a dict, with its default."""
    return field(default_factory=lambda: dict(config))


def at_least(minimum: float, *, default: Any = MISSING) -> Any:
    """Declare an entry that is a number, with its smallest value."""
    return field(default=default, metadata={"minimum": minimum})


def only(value: Any, *, required: bool = False) -> Any:
    """Declare an entry of which one value is supported, which is its default unless a config must have the entry."""
    return field(default=MISSING if required else value, metadata={"only": value})


def as_many_as(entry: str, *, default: Any = MISSING) -> Any:
    """Declare an entry that is a list, or may be one, of as many elements as the list that another entry is."""
    return field(default=default, metadata={"as_many_as": entry})


def nested(schema: type[Schema], name: str | None = None, *, default: Any = MISSING, optional: bool = False) -> Any:
    """Declare an entry that is a dict with a schema of its own; the field holds an instance of the schema.

    Parameters
    ----------
    schema : subclass of Schema
    name : str, optional
        Its name in errors, "test_cfg.rpn" for instance.  By default it follows from the entry's.
    default : dict or None, optional
        The dict if the entry is left out; None leaves the field None.  By default the entry is required.
    optional : bool, default False
        Whether a config may have None for an entry that is required.
    """
    described = default if isinstance(default, dict) else None
    metadata = {
        "nested": _Nested(schema, name, described, optional or default is None),
        "required": default is MISSING,
    }
    return field(default=None if default is None else MISSING, metadata=metadata)


def read_entries(name: str, schema: type[_Entries], config: Any) -> _Entries:
    """Read a dict by its schema.

    Raises
    ------
    ValueError
        If `config` is not a dict, an entry is unknown or a required one missing, or a number is of the wrong type or
        too small; the message has `name`.
    """
    entries = schema(**read_values(name, schema, config))
    entries.check(name)
    return entries


def read_values(
    name: str, schema: type[Schema], config: Any, read: Callable[[str, type[Schema], Any], Schema] = read_entries
) -> dict[str, Any]:
    """Return the values of a schema's fields in a dict, those of nested schemas as `read` does; see `read_entries`."""
    if not isinstance(config, dict):
        raise ValueError(f"{schema.reader}: {name} must be a dict, got {type(config).__name__}")
    config = schema.respelled(name, config)
    _check_type(name, schema, config.get("type"))
    fields = {entry.name: entry for entry in dataclasses.fields(schema)}
    present = [key for key in config if not key.startswith("loss_")]
    check_names(name, (key for key in present if key not in schema.ignored), fields, schema.reader)
    missing = [
        f"{key}={entry.metadata['only']!r}" if "only" in entry.metadata else key
        for key, entry in fields.items()
        if key not in config and _is_required(entry)
    ]
    if missing:
        raise ValueError(f"{schema.reader}: {name} must have {', '.join(missing)}")
    values = {key: value for key, value in config.items() if key in fields and key not in schema.ignored}
    for key, value in values.items():
        if "only" not in fields[key].metadata:
            _check_value(name, schema, fields[key], value)
        elif value != (supported := fields[key].metadata["only"]):
            raise ValueError(f"{schema.reader}: {key} of {name} must be {supported!r}, got {value!r}")
    for key, entry in fields.items():
        child: _Nested | None = entry.metadata.get("nested")
        if child is None:
            continue
        described = values.get(key, child.default)
        if described is not None or not child.optional:
            values[key] = read(child.name or f"{name}.{key}", child.schema, described)
    for key, entry in fields.items():
        if "as_many_as" in entry.metadata:
            _check_length(name, schema, entry, values.get(key, entry.default), values)
    return values


def _check_length(
    name: str, schema: type[Schema], entry: dataclasses.Field[Any], value: Any, values: Mapping[str, Any]
) -> None:
    """Refuse a list that is not as long as that of the entry which it belongs to."""
    measured = entry.metadata["as_many_as"]
    expected = values.get(measured, getattr(schema, measured, None))
    if isinstance(value, (list, tuple)) and isinstance(expected, (list, tuple)) and len(value) != len(expected):
        raise ValueError(
            f"{schema.reader}: {entry.name} of {name} must have as many elements as {measured}, {len(expected)}, "
            f"got {len(value)}"
        )


def _check_type(name: str, schema: type[Schema], type_name: Any) -> None:
    """Refuse a type that is not among those of a schema."""
    if schema.types and type_name is not None and plain_type(type_name) not in schema.types:
        raise ValueError(
            f"{schema.reader}: {name} {plain_type(type_name)!r} is not supported; supported: {', '.join(schema.types)}"
        )


def check_names(name: str, names: Iterable[str], known: Iterable[str], reader: str = "detect.build") -> None:
    """Refuse names of entries that are not known; the message has the most similar known ones."""
    known = tuple(known)
    unknown = [key for key in names if key not in known and key not in IGNORED and key != "type"]
    if unknown:
        raise ValueError(
            f"{reader}: {name} with {', '.join(suggested(key, known) for key in unknown)} is not supported; "
            f"supported entries: {', '.join(known) or 'none'}"
        )


def suggested(name: str, known: Iterable[str]) -> str:
    """Return a name, followed by the most similar known one if there is one."""
    similar = get_close_matches(name, known, 1)
    return f"{name} (did you mean {similar[0]}?)" if similar else name


def _check_value(name: str, schema: type[Schema], entry: dataclasses.Field[Any], value: Any) -> None:
    """Refuse a value that is not of the entry's type, if values of that type are checked, or below its minimum."""
    kinds = str(entry.type).split(" | ")
    fits = [_fits(kind, value) for kind in kinds]
    if None in fits:
        return
    minimum = entry.metadata.get("minimum", -math.inf)
    # A NaN is not at least anything.
    too_small = isinstance(value, (int, float)) and not isinstance(value, bool) and not value >= minimum
    if not any(fits) or too_small:
        limit = "" if minimum == -math.inf else f" of at least {minimum}"
        required = " or ".join(_description(kind) for kind in kinds if kind != "None")
        raise ValueError(f"{schema.reader}: {entry.name} of {name} must be {required}{limit}, got {value!r}")


def _fits(kind: str, value: Any) -> bool | None:
    """Return whether a value is of an annotation's kind; None if values of that kind are not checked."""
    outer, _, inner = kind.removesuffix("]").partition("[")
    if outer == "tuple":
        return _fit_each(inner.split(", "), value)
    if inner not in _CHECKED or outer not in ("list", "Sequence"):
        return type(value) in _CHECKED[kind][0] if kind in _CHECKED else None
    return isinstance(value, (list, tuple)) and all(type(element) in _CHECKED[inner][0] for element in value)


def _fit_each(kinds: Sequence[str], value: Any) -> bool | None:
    """Return whether a value has an element of each kind; None if values of a kind are not checked."""
    if any(kind not in _CHECKED for kind in kinds):
        return None
    return (
        isinstance(value, (list, tuple))
        and len(value) == len(kinds)
        and all(type(element) in _CHECKED[kind][0] for element, kind in zip(value, kinds, strict=True))
    )


def _description(kind: str) -> str:
    """Return the name of an annotation's kind for errors."""
    outer, _, inner = kind.removesuffix("]").partition("[")
    if outer == "tuple":
        kinds = inner.split(", ")
        return f"{len(kinds)} elements, each {_CHECKED[kinds[0]][1]}"
    return f"a list, each element {_CHECKED[inner][1]}" if inner else _CHECKED[kind][1]


def _is_required(entry: dataclasses.Field[Any]) -> bool:
    """Return whether a config must have an entry."""
    if "required" in entry.metadata:
        return bool(entry.metadata["required"])
    return entry.default is MISSING and entry.default_factory is MISSING

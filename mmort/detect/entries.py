"""Schemas of the config entries that parts read, and what builds parts from their configs.

Every class that a config can name has a nested dataclass ``Entries``: a field for each entry that it reads, and the
entries that it ignores, with the reason.  Any other entry is refused, as it could change the results.  Dictionaries
that configure no part, such as ``test_cfg``, have schemas of the same kind.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from difflib import get_close_matches
from typing import Any, ClassVar, TypeVar

from torch import nn

from mmort.detect.versions import Config, plain_type

_IGNORED = {
    "init_cfg": "weights come from the checkpoint",
    "pretrained": "weights come from the checkpoint",
    "train_cfg": "training only",
    "test_cfg": "read from the model",
}
"""Entries that any part of MMDetection may have, beside its losses, ``loss_...``."""

_NUMBERS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "True or False"),
    "int": ((int,), "an integer"),
    "float": ((int, float), "a number"),
}
"""Annotations of entries whose values are checked: what they may be, and its name."""

_IN_A_ROW = ("neck",)
"""Kinds of parts of which a config may have a list."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Base of the classes ``Entries``: a subclass has a field for each entry, by its name.

    A field annotated as ``bool``, ``int`` or ``float``, optional or not, takes nothing else.

    Attributes
    ----------
    ignored : dict of str to str
        Entries that are accepted and not read, with the reason.
    """

    ignored: ClassVar[Mapping[str, str]] = {}


_Entries = TypeVar("_Entries", bound=Schema)


@dataclass(frozen=True)
class _Nested:
    """Metadata of a `Schema`'s field that holds another schema; see `nested`."""

    schema: type[Schema]
    name: str | None


@dataclass(frozen=True)
class _Part:
    """Metadata of a `Schema`'s field that holds a part; see `part`."""

    kind: str
    types: Mapping[str, type[Any]] | None
    default: Any
    count: str | None


def default(config: Config) -> Any:
    """Declare an entry that is a dict, with its default."""
    return field(default_factory=lambda: dict(config))


def at_least(minimum: float, *, default: Any = MISSING) -> Any:
    """Declare an entry that is a number, with its smallest value."""
    return field(default=default, metadata={"minimum": minimum})


def part(
    kind: str, *, types: Mapping[str, type[Any]] | None = None, default: Any = MISSING, count: str | None = None
) -> Any:
    """Declare an entry that configures another part; the field holds the part itself.

    Parameters
    ----------
    kind : str
        A kind of the registry, such as "box coder"; errors name it.
    types : dict of str to class, optional
        The supported types, if not those of the registry.
    default : dict or None, optional
        The config if the entry is left out; None leaves the field None.  By default the entry is required.
    count : str, optional
        The entry with the number of such parts: their configs are then a list, or one config for all.
    """
    return field(metadata={"part": _Part(kind, types, default, count)})


def nested(schema: type[Schema], name: str | None = None, *, default: Any = MISSING) -> Any:
    """Declare an entry that is a dict with a schema of its own; the field holds an instance of the schema.

    Parameters
    ----------
    schema : subclass of Schema
    name : str, optional
        Its name in errors, "test_cfg.rpn" for instance.  By default it follows from the entry's.
    default : None, optional
        Default of the field.  By default the entry is required.
    """
    return field(default=default, metadata={"nested": _Nested(schema, name)})


def read_entries(name: str, schema: type[_Entries], config: Config) -> _Entries:
    """Read a dict by its schema.

    Raises
    ------
    ValueError
        If `config` is not a dict, an entry is unknown or a required one missing, or a number is of the wrong type or
        too small; the message has `name`.
    """
    return schema(**_values(name, schema, config))


def check_names(name: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names of entries that are not known; the message has the most similar known ones."""
    known = tuple(known)
    unknown = [key for key in names if key not in known and key not in _IGNORED and key != "type"]
    if unknown:
        raise ValueError(
            f"detect.build: {name} with {', '.join(suggested(key, known) for key in unknown)} is not supported; "
            f"supported entries: {', '.join(known)}"
        )


def suggested(name: str, known: Iterable[str]) -> str:
    """Return a name, followed by the most similar known one if there is one."""
    similar = get_close_matches(name, known, 1)
    return f"{name} (did you mean {similar[0]}?)" if similar else name


class Parts:
    """The supported parts, built from their configs.

    Parameters
    ----------
    types : dict of str to dict of str to class
        By kind, the class of each of MMDetection's type names.
    """

    def __init__(self, types: Mapping[str, Mapping[str, type[Any]]]) -> None:
        self.types = types

    def build(self, kind: str, config: Any, types: Mapping[str, type[Any]] | None = None) -> Any:
        """Build the part that a config describes; a list of necks becomes one, in which each reads the one before.

        Raises
        ------
        ValueError
            If its type is not among `types` (default: the registry's), an entry is unknown or a required one missing.
        """
        if kind in _IN_A_ROW and isinstance(config, (list, tuple)):
            return nn.Sequential(*(self.build(kind, each, types) for each in config))
        if not isinstance(config, dict):
            raise ValueError(f"detect.build: {kind} must be one dict, got {type(config).__name__}")
        if types is None:
            types = self.types[kind]
        return self.construct(kind, types[require(kind, config.get("type"), *types)], config)

    def construct(self, kind: str, part_class: type[Any], config: Config) -> Any:
        """Build an object of a class that has `Entries` from a config; see `build`."""
        schema: type[Schema] = part_class.Entries
        values = _values(f"{kind} {plain_type(config.get('type'))!r}", schema, config)
        for entry in dataclasses.fields(schema):
            child: _Part | None = entry.metadata.get("part")
            if child is None:
                continue
            described = values.get(entry.name, child.default)
            if described is None:
                values[entry.name] = None
            elif child.count is None:
                values[entry.name] = self.build(child.kind, described, child.types)
            else:
                configs = described if isinstance(described, list) else [described] * values[child.count]
                values[entry.name] = [self.build(child.kind, child_config, child.types) for child_config in configs]
        return part_class(schema(**values))


def _values(name: str, schema: type[Schema], config: Any) -> dict[str, Any]:
    """Return the fields' values in a config, those of nested schemas read; refuse unknown and missing entries."""
    if not isinstance(config, dict):
        raise ValueError(f"detect.build: {name} must be a dict, got {type(config).__name__}")
    fields = {entry.name: entry for entry in dataclasses.fields(schema)}
    given = [key for key, value in config.items() if value is not None and not key.startswith("loss_")]
    check_names(name, (key for key in given if key not in schema.ignored), fields)
    missing = [key for key, entry in fields.items() if key not in config and _is_required(entry)]
    if missing:
        raise ValueError(f"detect.build: {name} must have {', '.join(missing)}")
    values = {key: value for key, value in config.items() if key in fields}
    for key, value in values.items():
        _check_number(name, fields[key], value)
    for key, entry in fields.items():
        child: _Nested | None = entry.metadata.get("nested")
        if child is not None and values.get(key) is not None:
            values[key] = read_entries(child.name or f"{name}.{key}", child.schema, values[key])
    return values


def _check_number(name: str, entry: dataclasses.Field[Any], value: Any) -> None:
    """Refuse a value that is not of the entry's type, if that is a number or a bool, or that is below its minimum."""
    kind = str(entry.type).removesuffix(" | None")
    if value is None or kind not in _NUMBERS:
        return
    types, required = _NUMBERS[kind]
    minimum = entry.metadata.get("minimum", -math.inf)
    # A bool is an int to Python; a NaN is not at least anything.
    if type(value) not in types or (kind != "bool" and not value >= minimum):
        limit = "" if minimum == -math.inf else f" of at least {minimum}"
        raise ValueError(f"detect.build: {entry.name} of {name} must be {required}{limit}, got {value!r}")


def _is_required(entry: dataclasses.Field[Any]) -> bool:
    """Return whether a config must have an entry."""
    if "part" in entry.metadata:
        return entry.metadata["part"].default is MISSING
    return entry.default is MISSING and entry.default_factory is MISSING


def require(kind: str, name: Any, *supported: str) -> str:
    """Return a type's plain name; ValueError if it is not one of the supported ones."""
    plain = plain_type(name)
    if plain not in supported:
        raise ValueError(f"detect.build: {kind} {plain!r} is not supported; supported: {', '.join(supported)}")
    return plain

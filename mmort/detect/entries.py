"""Schemas of the config entries that parts read, and what builds parts from their configs.

Every class that a config can name has a nested dataclass ``Entries``: a field for each entry that it reads, and the
entries that it ignores, with the reason.  Any other entry is refused, as it could change the results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, ClassVar

from mmort.detect.versions import Config, plain_type

_IGNORED = {
    "init_cfg": "weights come from the checkpoint",
    "pretrained": "weights come from the checkpoint",
    "train_cfg": "training only",
    "test_cfg": "read from the model",
}
"""Entries that any part of MMDetection may have, beside its losses, ``loss_...``."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Base of the classes ``Entries``: a subclass has a field for each entry, by its name.

    Attributes
    ----------
    ignored : dict of str to str
        Entries that are accepted and not read, with the reason.
    """

    ignored: ClassVar[Mapping[str, str]] = {}


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


class Parts:
    """The supported parts, built from their configs.

    Parameters
    ----------
    types : dict of str to dict of str to class
        By kind, the class of each of MMDetection's type names.
    """

    def __init__(self, types: Mapping[str, Mapping[str, type[Any]]]) -> None:
        self.types = types

    def build(self, kind: str, config: Config, types: Mapping[str, type[Any]] | None = None) -> Any:
        """Build the part that a config describes.

        Raises
        ------
        ValueError
            If its type is not among `types` (default: the registry's), an entry is unknown or a required one missing.
        """
        if not isinstance(config, dict):
            raise ValueError(f"detect.build: {kind} must be one dict, got {type(config).__name__}")
        if types is None:
            types = self.types[kind]
        return self.construct(kind, types[require(kind, config.get("type"), *types)], config)

    def construct(self, kind: str, part_class: type[Any], config: Config) -> Any:
        """Build an object of a class that has `Entries` from a config; see `build`."""
        schema: type[Schema] = part_class.Entries
        fields = {entry.name: entry for entry in dataclasses.fields(schema)}
        _check_entries(f"{kind} {plain_type(config.get('type'))!r}", config, schema, fields)
        values: dict[str, Any] = {key: value for key, value in config.items() if key in fields}
        for name, entry in fields.items():
            child: _Part | None = entry.metadata.get("part")
            if child is None:
                continue
            described = values.get(name, child.default)
            if described is None:
                values[name] = None
            elif child.count is None:
                values[name] = self.build(child.kind, described, child.types)
            else:
                configs = described if isinstance(described, list) else [described] * values[child.count]
                values[name] = [self.build(child.kind, child_config, child.types) for child_config in configs]
        return part_class(schema(**values))


def _check_entries(
    name: str, config: Config, schema: type[Schema], fields: Mapping[str, dataclasses.Field[Any]]
) -> None:
    """Refuse entries that the schema does not have, and a config without those that it requires."""
    known = {"type", *fields, *schema.ignored, *_IGNORED}
    unknown = [
        key for key, value in config.items() if key not in known and not key.startswith("loss_") and value is not None
    ]
    if unknown:
        raise ValueError(
            f"detect.build: {name} with {', '.join(unknown)} is not supported; supported entries: {', '.join(fields)}"
        )
    missing = [key for key, entry in fields.items() if key not in config and _is_required(entry)]
    if missing:
        raise ValueError(f"detect.build: {name} must have {', '.join(missing)}")


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

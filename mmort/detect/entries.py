"""Schemas of the config entries that parts read, and what builds parts from their configs.

Every class that a config can name has a nested dataclass ``Entries``, a `Schema`.  Dictionaries that configure no part,
such as ``test_cfg``, have schemas of the same kind.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, TypeVar

from torch import nn

from mmort.configs.schema import (
    Config,
    Schema,
    as_many_as,
    at_least,
    check_names,
    default,
    nested,
    only,
    plain_type,
    read_entries,
    read_values,
    suggested,
    training_only,
)

__all__ = [
    "PARTS",
    "Parts",
    "Schema",
    "as_many_as",
    "at_least",
    "check_names",
    "default",
    "nested",
    "only",
    "part",
    "read_entries",
    "read_values",
    "refusing",
    "require",
    "suggested",
    "training_only",
    "type_of",
]

_Entries = TypeVar("_Entries", bound=Schema)
_Class = TypeVar("_Class", bound=Callable[..., Any])
_IN_A_ROW = ("neck",)
"""Kinds of parts of which a config may have a list."""


@dataclass(frozen=True)
class _Part:
    """Metadata of a `Schema`'s field that holds a part; see `part`."""

    kind: str
    types: Mapping[str, type[Any]] | None
    default: Any
    count: str | None


def part(
    kind: str, *, types: Mapping[str, type[Any]] | None = None, default: Any = MISSING, count: str | None = None
) -> Any:
    """Declare an entry that configures another part; the field holds the part itself.

    Parameters
    ----------
    kind : str
        A kind of registered parts, such as "box coder"; errors name it.
    types : dict of str to class, optional
        The supported types, if not the registered ones.
    default : dict or None, optional
        The config if the entry is left out; None leaves the field None.  By default the entry is required.
    count : str, optional
        The entry with the number of such parts: their configs are then a list, or one config for all.
    """
    return field(metadata={"part": _Part(kind, types, default, count), "required": default is MISSING})


class Parts:
    """The supported parts, built from their configs.

    Parameters
    ----------
    types : dict of str to dict of str to class
        By kind, the class of each of MMDetection's type names.
    """

    def __init__(self, types: dict[str, dict[str, Any]]) -> None:
        self.types = types
        self.particular: dict[str, dict[str, tuple[str, Any]]] = {}
        """By kind, the classes of type names of heads with some box coders only, and the kind of these."""
        self.of_models: dict[str, dict[str, Any]] = {}
        """By ``model.type``, the detectors that the type names of heads mean in such a model only."""

    def register(
        self, kind: str, *names: str, coder: str | None = None, model: str | None = None
    ) -> Callable[[_Class], _Class]:
        """Return a decorator: the class is what these type names mean in configs.

        Parameters
        ----------
        kind : str
            "detector", by the type of its last head, or the kind of a part, such as "backbone" or "box coder".
        *names : str
            MMDetection's type names, without a scope.
        coder : str, optional
            A kind of box coders; the class is then what the names mean of heads with such a coder.
        model : str, optional
            A ``model.type``; the class is then the detector that the names mean in such a model, where names of heads
            that are registered without one mean nothing.

        Raises
        ------
        ValueError
            If a name is registered already.

        Examples
        --------
        >>> from mmort.detect.entries import Parts
        >>> parts = Parts({})  # `mmort.detect.register` is that of the parts that `mmort.detect.build` has
        >>> @parts.register("neck", "MyNeck")
        ... class MyNeck: ...
        >>> parts.types["neck"]["MyNeck"].__name__
        'MyNeck'
        """

        def register(part_class: _Class) -> _Class:
            tables: dict[str, dict[str, Any]] = self.types if coder is None else self.particular
            types = tables.setdefault(kind, {}) if model is None else self.of_models.setdefault(model, {})
            for name in names:
                if name in types:
                    taken = types[name] if coder is None else types[name][1]
                    raise ValueError(f"detect: {kind} {name!r} is registered already, as {taken.__qualname__}")
                types[name] = part_class if coder is None else (coder, part_class)
            return part_class

        return register

    def replacing(self, kind: str, **types: type[Any]) -> Mapping[str, type[Any]]:
        """Return the registered types of a kind, with others for some of their names: those of another code base."""
        return ChainMap(types, self.types.setdefault(kind, {}))

    def build(
        self,
        kind: str,
        config: Any,
        types: Mapping[str, type[Any]] | None = None,
        *,
        test_cfg: Config | None = None,
    ) -> Any:
        """Build the part that a config describes; a list of necks becomes one, in which each reads the one before.

        A head of a stage gets its part of ``test_cfg``, too, by its schema `TestCfg`.

        Raises
        ------
        ValueError
            If its type is not among `types` (default: all registered), an entry is unknown or a required one missing.
        """
        if kind in _IN_A_ROW and isinstance(config, (list, tuple)):
            return nn.Sequential(*(self.build(kind, each, types) for each in config))
        advice = f"; {OF_YOUR_OWN}" if types is None else ""
        types = self.types[kind] if types is None else types
        return self.construct(kind, types[type_of(kind, config, types, advice)], config, test_cfg=test_cfg)

    def construct(self, kind: str, part_class: type[Any], config: Config, *, test_cfg: Config | None = None) -> Any:
        """Build an object of a class that has `Entries` from a config; see `build`."""
        name = f"{kind} {plain_type(config.get('type'))!r}"
        arguments: list[Schema] = [self.read(name, part_class.Entries, config)]
        if test_cfg is not None:
            arguments.append(self.read(part_class.TestCfg.name, part_class.TestCfg, test_cfg))
        with refusing(name):
            return part_class(*arguments)

    def read(self, name: str, schema: type[_Entries], config: Any) -> _Entries:
        """Read a dict by its schema as `read_entries` does, and build the parts that it configures."""
        values = read_values(name, schema, config, self.read)
        for entry in dataclasses.fields(schema):
            child: _Part | None = entry.metadata.get("part")
            if child is None:
                continue
            described = values.get(entry.name, child.default)
            if described is None and child.default is not MISSING:
                values[entry.name] = None
                continue
            if not isinstance(described, (dict, list, tuple)):
                raise ValueError(f"detect.build: {entry.name} of {name} must be a dict, got {type(described).__name__}")
            if child.count is None:
                values[entry.name] = self.build(child.kind, described, child.types)
            else:
                count: int = values.get(child.count, getattr(schema, child.count, 0))
                configs = described if isinstance(described, (list, tuple)) else [described] * count
                if len(configs) != count:
                    raise ValueError(
                        f"detect.build: {entry.name} of {name} must have {child.count} = {count} entries, "
                        f"got {len(configs)}"
                    )
                values[entry.name] = [self.build(child.kind, child_config, child.types) for child_config in configs]
        entries = schema(**values)
        entries.check(name)
        return entries


@contextlib.contextmanager
def refusing(name: str) -> Iterator[None]:
    """Turn what is raised of sizes that cannot be and values of wrong types into an error that names the part."""
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"detect.build: {name} cannot be built: {type(error).__name__}: {reason}") from error


OF_YOUR_OWN = "one of your own: --import FILE.py registers it; docs/own_detectors.md has an example"
"""Advice for a type that is not supported."""

PARTS = Parts({})
"""All that is registered, by kind; a part of only one family is named in that family's file.

Detectors are registered by the type of their last head: ``model.type`` is not enough, since two-stage detectors may
share one.
"""

DETECTOR, AROUND = "detector", "model around a detector"
"""Kinds of what is registered: families, by their last head; by ``model.type``, the entries of models around them."""


register = PARTS.register
"""Registers detectors and parts of one's own; see `Parts.register`."""


def type_of(kind: str, config: Any, supported: Iterable[str], advice: str = "") -> str:
    """Return the plain name of a config's type; ValueError, with the advice, if it is no dict, or not supported."""
    if not isinstance(config, dict):
        raise ValueError(f"detect.build: {kind} must be a dict, got {type(config).__name__}")
    return require(kind, config.get("type"), *supported, advice=advice)


def require(kind: str, name: Any, *supported: str, advice: str = "") -> str:
    """Return a type's plain name; ValueError if it is not one of the supported ones."""
    plain = plain_type(name)
    if plain not in supported:
        raise ValueError(f"detect.build: {kind} {plain!r} is not supported; supported: {', '.join(supported)}{advice}")
    return plain

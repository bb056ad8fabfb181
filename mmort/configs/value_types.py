"""The two types of values that configs have besides Python's own: dictionaries of bases, and imported names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class Imported(str):
    """The dotted name of an object that a config imports; the object itself is never imported."""


class ConfigDict(dict[Any, Any]):
    """A dictionary of a base config: entries are attributes too, and `update` merges nested dictionaries.

    Examples
    --------
    >>> from mmort.configs.value_types import ConfigDict
    >>> model = ConfigDict({"head": {"classes": 80, "channels": 256}})
    >>> model.update({"head": {"classes": 10}})
    >>> model
    {'head': {'classes': 10, 'channels': 256}}
    """

    def __init__(self, entries: Mapping[Any, Any] | None = None) -> None:
        super().__init__()
        for key, value in (entries or {}).items():
            self[key] = value

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, self.convert(value))

    @classmethod
    def convert(cls, value: Any) -> Any:
        """Return the value with plain dictionaries, nested ones included, as `ConfigDict`."""
        if type(value) is dict:
            return cls(value)
        if isinstance(value, (list, tuple)):
            return type(value)(cls.convert(item) for item in value)
        return value

    def copy(self) -> ConfigDict:
        """Return a shallow copy."""
        return ConfigDict(self)

    def pop(self, key: Any, default: Any = None) -> Any:
        """Remove an entry and return it, or return the default."""
        return super().pop(key, default)

    def update(self, *mappings: Mapping[Any, Any] | Iterable[tuple[Any, Any]], **entries: Any) -> None:  # type: ignore[override]
        """Merge other dictionaries into this one, entry by entry."""
        for other in (*mappings, entries):
            for key, value in dict(other).items():
                if isinstance(self.get(key), dict) and isinstance(value, dict):
                    self[key].update(value)
                else:
                    self[key] = value

    def merge(self, other: dict[Any, Any]) -> None:
        """Merge another dictionary into this one; its dictionaries with ``_delete_=True`` replace those here."""
        if not isinstance(other, dict):
            raise TypeError(f"merge takes a dictionary, not a {type(other).__name__}")
        merged = _merged(other, self)
        self.clear()
        self.update(merged)


def _merged(new: Any, old: Any) -> Any:
    """Merge two values as `ConfigDict.merge` does."""
    if not isinstance(new, dict):
        return new
    entries = {key: value for key, value in new.items() if key != "_delete_"}
    if not isinstance(old, dict):
        return entries
    kept = {} if new.get("_delete_") else old
    return {**kept, **{key: _merged(value, kept.get(key)) for key, value in entries.items()}}

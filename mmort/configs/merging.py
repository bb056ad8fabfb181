"""Merge a config into its base as MMEngine does."""

from __future__ import annotations

from typing import Any

from mmort.configs.errors import ConfigError
from mmort.configs.value_types import Imported


def merge(new: Any, old: Any, source: str, *, into_lists: bool = False) -> Any:
    """Merge a config into its base: dictionaries entry by entry, everything else is replaced.

    Parameters
    ----------
    new, old : dict
        The config, from which ``_delete_`` entries are removed where the base has the key, as MMEngine does it, and
        its base, which is not changed.
    source : str
        What `new` was read from, for messages.
    into_lists : bool, default False
        Whether a key that is a number addresses an element of a list, as in options.
    """
    if not isinstance(new, dict):
        return new
    merged = old.copy()
    for key, value in new.items():
        if into_lists and isinstance(merged, list) and str(key).isdigit():
            index = int(key)
            if index >= len(merged):
                raise ConfigError(f"{source}: index {key} is out of range for a list of {len(merged)}")
            element = merged[index]
            mergeable = isinstance(element, (dict, list))
            merged[index] = merge(value, element, source, into_lists=True) if mergeable else value
        elif isinstance(merged, list):
            raise ConfigError(f"{source}: {key!r} is not an index into a list")
        elif isinstance(value, dict) and key in merged and not value.pop("_delete_", False):
            if not isinstance(merged[key], (dict, list) if into_lists else dict):
                raise ConfigError(
                    f"{source}: {key} is a dict, but a {type(merged[key]).__name__} in the base; "
                    "to replace it, add _delete_=True"
                )
            merged[key] = merge(value, merged[key], source, into_lists=into_lists)
        else:
            merged[key] = value
    return merged


def add_scope(config: dict[str, Any], scope: str) -> dict[str, Any]:
    """Add the package in which types are looked up to the outermost dictionaries with a type, as MMEngine does."""
    if "type" in config:
        return config if config.get("_scope_") is not None else {**config, "_scope_": scope}

    def scoped(value: Any) -> Any:
        if isinstance(value, dict):
            return add_scope(value, scope)
        return type(value)(map(scoped, value)) if isinstance(value, (list, tuple)) else value

    return {key: scoped(value) for key, value in config.items()}


def unshared(value: Any) -> Any:
    """Copy a value so that a container that occurs twice becomes two, which are merged independently."""
    if isinstance(value, dict):
        return type(value)({key: unshared(item) for key, item in value.items()})
    return type(value)(map(unshared, value)) if isinstance(value, (list, tuple)) else value


def plain(value: Any) -> Any:
    """Copy a value into plain dictionaries, lists, tuples and strings."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    return str(value) if isinstance(value, Imported) else value

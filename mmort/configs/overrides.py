"""Options that override a config: ``key=value`` text, as MMDetection's ``--cfg-options`` takes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mmort.configs.errors import ConfigError
from mmort.configs.merging import plain
from mmort.configs.schema import suggested


def parse_options(options: Iterable[str]) -> dict[str, Any]:
    """Parse options as MMDetection's ``--cfg-options`` does.

    A value is an int, a float, a bool, None or text; ``1,2`` and ``[1,2]`` are lists, ``(1,2)`` is a tuple, and they
    nest.  Spaces and outer quotes are dropped.

    Parameters
    ----------
    options : iterable of str
        Each ``key=value``.

    Returns
    -------
    dict
        The values by key.

    Raises
    ------
    ValueError
        If an option has no ``=``, or its brackets do not match.

    Examples
    --------
    >>> from mmort.configs import parse_options
    >>> parse_options(["model.test_cfg.score_thr=0.3", "scale=(800,1333)", "ratios=[0.5,1]", "name=x", "flip=False"])
    {'model.test_cfg.score_thr': 0.3, 'scale': (800, 1333), 'ratios': [0.5, 1], 'name': 'x', 'flip': False}
    """
    parsed = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not key or not equals:
            raise ValueError(f"options must be key=value, got {option!r}")
        try:
            parsed[key] = _value(value)
        except RecursionError:
            raise ValueError(f"option {key} is nested too deeply") from None
    return parsed


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Turn dotted keys into nested dictionaries, which can be changed without changing the options."""
    result: dict[str, Any] = {}
    for name, value in options.items():
        *outer, last = name.split(".")
        target = result
        for key in outer:
            target = target.setdefault(key, {})
            if not isinstance(target, dict):
                raise ConfigError(f"options: {name} needs entries in {key}, which is set to a value")
        target[last] = plain(value)
    return result


def added_entries(options: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the keys of options that a config does not have, each with the part that is missing and those beside it.

    Examples
    --------
    >>> from mmort.configs.overrides import added_entries
    >>> added_entries({"data.test.nope": 3, "data.0": 1}, {"data": {"test": {"type": "A"}}})
    {'data.test.nope': ('nope', ('type',)), 'data.0': ('0', ('test',))}
    """
    added = {}
    for key in options:
        value: Any = config
        for name in key.split("."):
            if isinstance(value, (list, tuple)) and name.isdigit() and int(name) < len(value):
                value = value[int(name)]
            elif isinstance(value, Mapping) and name in value:
                value = value[name]
            else:
                added[key] = name, tuple(map(str, value)) if isinstance(value, Mapping) else ()
                break
    return added


def refuse_unread(options: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Refuse options that add entries where an export reads none: beside the model and the pipelines.

    Raises
    ------
    ValueError
    """
    for key, (name, siblings) in added_entries(options, config).items():
        if not key.startswith("model.") and "pipeline" not in key:
            raise ValueError(
                f"export: cfg_options must name entries of the config, got {key}: it has no {suggested(name, siblings)}"
            )


def _value(text: str) -> Any:
    """Parse a value."""
    text = text.strip("'\"").replace(" ", "")
    parts = _split(text)
    if parts and len(parts) > 1:
        return _values(parts)
    if "," in text and not parts:
        raise ValueError(f"brackets do not match in {text!r}")
    inner = _split(text[1:-1]) if text[:1] + text[-1:] in ("()", "[]") else None
    if inner:
        return _values(inner) if text[0] == "[" else tuple(_values(inner))
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text.lower(), None if text == "None" else text)


def _values(parts: list[str]) -> list[Any]:
    """Parse the elements of a list, which may end in a comma."""
    return [_value(part) for part in (parts if parts[-1] else parts[:-1])]


def _split(text: str) -> list[str] | None:
    """Split at the commas outside all brackets; None if brackets do not match."""
    depth, parts = 0, [""]
    for character in text:
        depth += (character in "([") - (character in ")]")
        if depth < 0:
            return None
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return None if depth else parts

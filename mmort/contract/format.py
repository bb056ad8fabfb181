"""The base of the formats of a file's outputs: their fields are an entry of the metadata."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypeVar

_Kind = TypeVar("_Kind", bound="Format")


@dataclass(frozen=True)
class Format:
    """How a task's outputs become results."""

    @classmethod
    def from_dict(cls: type[_Kind], values: dict[str, Any]) -> _Kind:
        """Return the format that `to_dict` returned; entries of a later mmort are ignored."""
        return cls(**{name: _tuples(values[name]) for name in cls.__dataclass_fields__ if name in values})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def _tuples(value: Any) -> Any:
    """Return lists, also in lists, as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value

"""The forms of portable models."""

from __future__ import annotations

from typing import Literal, TypeAlias

Form: TypeAlias = Literal["functions", "inlined"]
"""Where a model has its definitions: in functions, or in the graph."""

FORMS: tuple[Form, ...] = "functions", "inlined"

"""A version of MMDetection that judges mutants: its cases, how it builds detectors, and how its configs are spelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.originals.cases.case import Case, Config


@dataclass(frozen=True)
class Version:
    """A version of MMDetection.

    Attributes
    ----------
    cases : mapping
        Small detectors by their names.
    build : callable
        Makes MMDetection's detector of a config.
    type_named : callable
        Returns the class that is built from a config's ``type``, or None.
    pipelines : sequence of paths
        Where lists of the test pipeline's steps are in a config.
    steps : sequence of dict
        What is put into these.
    cases_of_pipeline : sequence of str
        Of the cases with the same pipeline as the first of these, those in which it is changed.
    """

    cases: Mapping[str, Case]
    build: Callable[[Config], Any]
    type_named: Callable[[str], Any]
    pipelines: Sequence[tuple[Any, ...]]
    steps: Sequence[Config]
    cases_of_pipeline: Sequence[str]

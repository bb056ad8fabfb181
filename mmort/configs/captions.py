"""What detectors with a language model look for: names, and the captions that MMDetection makes of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmort._files.inputs import read_text
from mmort.configs.local_files import refuse_address
from mmort.configs.schema import Schema, read_entries

SEPARATOR = ". "
"""What ends each name in a caption."""


@dataclass(frozen=True, kw_only=True)
class Wording(Schema):
    """The entries of a name in ``caption_prompt``: what a caption has instead of it, and around it."""

    reader = "captions"

    prefix: str = ""
    name: str | None = None
    suffix: str = ""


@dataclass(frozen=True)
class Prompt:
    """The names of what is to be found, by label, and how a caption words them.

    Attributes
    ----------
    names : tuple of str
    wordings : dict of str to Wording
        By name, as `cleaned` has it.
    """

    names: tuple[str, ...]
    wordings: Mapping[str, Wording] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.names:
            raise ValueError("texts must have at least one name, got none")
        for name in self.names:
            if not cleaned(name).strip():
                raise ValueError(f"texts must be names, got {name!r}, of which a caption would have nothing")

    @classmethod
    def of(cls, texts: str | Sequence[str]) -> Prompt:
        """Return that of a caption, whose names end with ``". "``, or of a list of names.

        Examples
        --------
        >>> from mmort.configs.captions import Prompt
        >>> Prompt.of("cat . traffic light . person").names
        ('cat', 'traffic light', 'person')
        >>> Prompt.of(["cat", "traffic_light"]).names
        ('cat', 'traffic_light')
        """
        names = texts.strip(SEPARATOR).split(SEPARATOR) if isinstance(texts, str) else texts
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"texts must be a caption or names, got {texts!r}")
        stripped = [name.strip() for name in names]
        return cls(tuple(name for name in stripped if name) if isinstance(texts, str) else tuple(stripped))

    @classmethod
    def of_data_set(cls, classes: Sequence[str], caption_prompt: Any) -> Prompt:
        """Return that of a data set's classes and its ``caption_prompt``, a dict or None."""
        prompts = {} if caption_prompt is None else caption_prompt
        if not isinstance(prompts, Mapping):
            raise ValueError(f"captions: caption_prompt must be a dict, got {type(prompts).__name__}")
        wordings = {
            name: read_entries(f"caption_prompt of {name!r}", Wording, entries) for name, entries in prompts.items()
        }
        return cls(tuple(classes), wordings)

    def chunks(self, size: int) -> tuple[Prompt, ...]:
        """Return prompts of `size` names each, and one of those that remain."""
        starts = range(0, len(self.names), size)
        return tuple(Prompt(self.names[start : start + size], self.wordings) for start in starts)

    def caption(self) -> Caption:
        """Return the caption of all names."""
        text, spans = "", []
        for name in map(cleaned, self.names):
            wording = self.wordings.get(name, Wording())
            text += wording.prefix
            begin = len(text)
            text += name if wording.name is None else wording.name
            spans.append((begin, len(text)))
            text += wording.suffix + SEPARATOR
        return Caption(text, tuple(spans))


@dataclass(frozen=True)
class Caption:
    """A text, and where in it each name begins and ends."""

    text: str
    spans: tuple[tuple[int, int], ...]


def cleaned(name: str) -> str:
    """Return a name as MMDetection's captions have it: without what is in parentheses, with spaces for underscores."""
    return re.sub("  ", " ", re.sub("_", " ", re.sub(r"\(.*\)", "", name)))


def read_texts(argument: str) -> str | list[str]:
    """Return a caption, or the names in a file that ends in ``.txt``, one in each line that is not blank."""
    if not argument.endswith(".txt"):
        return argument
    refuse_address("texts", argument)
    return [line for line in read_text("texts", argument).splitlines() if line.strip()]

"""Prompts of detectors with a language model: names, and the captions that MMDetection makes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mmort._files.inputs import read_text, refuse_address
from mmort.configs.schema import Schema, read_entries
from mmort.limits import MAX_NAMES

Texts: TypeAlias = str | Sequence[str] | Mapping[str, Any]
"""A caption whose names end with ``". "``, names, or a text with `Phrases`, as MMDetection has them."""

Span: TypeAlias = tuple[int, int]
"""Where in a text something begins, and where it ends."""

SEPARATOR = ". "
"""The characters that end a name in a caption."""


@dataclass(frozen=True, kw_only=True)
class Wording(Schema):
    """The entries of a name in ``caption_prompt``: what a caption has instead of it, and around it."""

    reader = "captions"

    prefix: str = ""
    name: str | None = None
    suffix: str = ""


@dataclass(frozen=True, kw_only=True)
class Phrases(Schema):
    """A text in which phrases are marked: for each label where its phrases begin and end, counted in characters."""

    reader = "captions"

    text: str
    tokens_positive: Any

    def check(self, name: str) -> None:
        """Raise a ValueError if the spans are not in the text."""
        spans = self.tokens_positive
        if not isinstance(spans, (list, tuple)) or not all(isinstance(phrase, (list, tuple)) for phrase in spans):
            raise ValueError(f"captions: tokens_positive must be a list of spans for each label, got {spans!r}")
        for phrase in spans:
            for span in phrase:
                is_span = isinstance(span, (list, tuple)) and len(span) == 2 and all(type(end) is int for end in span)
                if not is_span or not 0 <= span[0] < span[1] <= len(self.text):
                    raise ValueError(
                        "captions: tokens_positive must have [begin, end] with 0 <= begin < end <= "
                        f"{len(self.text)}, the length of the text, got {span!r}"
                    )

    def caption(self) -> Caption:
        """Return the caption, which ends with a dot."""
        text = self.text if self.text.endswith(".") else self.text + SEPARATOR
        return Caption(text, tuple(tuple((begin, end) for begin, end in phrase) for phrase in self.tokens_positive))


@dataclass(frozen=True)
class Prompt:
    """The names of what is to be found, by label, and how a caption words them.

    Attributes
    ----------
    names : tuple of str
    wordings : dict of str to Wording
        By name, as `cleaned` has it.
    marked : Caption, optional
        The caption itself, if it is a text in which the names are marked.
    """

    names: tuple[str, ...]
    wordings: Mapping[str, Wording] = field(default_factory=dict)
    marked: Caption | None = None

    def __post_init__(self) -> None:
        _require_few(len(self.names))
        if not self.names:
            raise ValueError("texts must have at least one name, got none")
        for name in self.names:
            if not (cleaned(name) if self.marked is None else name).strip():
                raise ValueError(f"texts must be names, got {name!r}, of which a caption would have nothing")

    @classmethod
    def of(cls, texts: Texts) -> Prompt:
        """Return that of a caption, whose names end with ``". "``, of a list of names, or of a text with phrases.

        Examples
        --------
        >>> from mmort.configs.captions import Prompt
        >>> Prompt.of("cat . traffic light . person").names
        ('cat', 'traffic light', 'person')
        >>> Prompt.of(["cat", "traffic_light"]).names
        ('cat', 'traffic_light')
        >>> Prompt.of({"text": "a cat on a red car", "tokens_positive": [[[0, 5]], [[11, 14], [15, 18]]]}).names
        ('a cat', 'red / car')
        """
        if isinstance(texts, Mapping):
            caption = read_entries("texts", Phrases, dict(texts)).caption()
            phrases = ([caption.text[begin:end] for begin, end in spans] for spans in caption.spans)
            return cls(tuple(" / ".join(phrase) for phrase in phrases), marked=caption)
        if isinstance(texts, str):
            _require_few(texts.count(SEPARATOR))
        names = texts.strip(SEPARATOR).split(SEPARATOR) if isinstance(texts, str) else texts
        if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
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
        """Return prompts of `size` names each, and one of those that remain; a text with phrases stays one."""
        if self.marked is not None:
            return (self,)
        starts = range(0, len(self.names), size)
        return tuple(Prompt(self.names[start : start + size], self.wordings) for start in starts)

    def caption(self, *, closed: bool = True) -> Caption:
        """Return the caption of all names; without `SEPARATOR` after the last one if it is not `closed`."""
        if self.marked is not None:
            return self.marked
        text, spans = "", []
        for name in map(cleaned, self.names):
            wording = self.wordings.get(name, Wording())
            text += wording.prefix
            begin = len(text)
            text += name if wording.name is None else wording.name
            spans.append(((begin, len(text)),))
            text += wording.suffix + SEPARATOR
        return Caption(text if closed else text.removesuffix(SEPARATOR), tuple(spans))


@dataclass(frozen=True)
class Caption:
    """A text, and where in it each name begins and ends, or each part of it."""

    text: str
    spans: tuple[tuple[Span, ...], ...]

    def __post_init__(self) -> None:
        try:
            self.text.encode()
        except UnicodeEncodeError as error:
            text = error.object[error.start : error.start + 20]
            raise ValueError(f"texts must be Unicode text without surrogates, got {text!r}") from None


def _require_few(names: int) -> None:
    """Raise ValueError if there are too many names."""
    if names > MAX_NAMES:
        raise ValueError(f"texts must have at most {MAX_NAMES} names, got {names}")


def cleaned(name: str) -> str:
    """Return a name as MMDetection's captions have it: without parentheses, with spaces for underscores."""
    return "\n".join(map(_without_parentheses, name.split("\n"))).replace("_", " ").replace("  ", " ")


def _without_parentheses(line: str) -> str:
    r"""Return a line without what ``re.sub(r"\(.*\)", "", line)`` removes, in linear time."""
    begin, end = line.find("("), line.rfind(")")
    return line[:begin] + line[end + 1 :] if 0 <= begin < end else line


def read_texts(argument: str) -> Texts:
    """Return a caption, or the contents of a file: names in each line of a ``.txt``, or `Phrases` in a ``.json``."""
    if not argument.endswith((".txt", ".json")):
        return argument
    refuse_address("texts", argument)
    if argument.endswith(".json"):
        try:
            phrases = json.loads(read_text("texts", argument))
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"texts: {argument} must be JSON: {error}") from None
        if not isinstance(phrases, dict):
            raise ValueError(f"texts: {argument} must have text and tokens_positive, got a {type(phrases).__name__}")
        return phrases
    return [line for line in read_text("texts", argument).splitlines() if line.strip()]

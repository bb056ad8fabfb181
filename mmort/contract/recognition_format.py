"""How the probabilities of characters that a text recognition's file gives become a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from mmort.contract.format import Format

Decoding = Literal["ctc", "attention"]
"""How steps become characters.

"ctc": equal characters in a row are one, unless `RecognitionFormat.padding` stands between them.  "attention": each
step is a character, up to `RecognitionFormat.end`.
"""

DECODINGS: tuple[str, ...] = get_args(Decoding)


@dataclass(frozen=True)
class RecognitionFormat(Format):
    """The characters by index, and how the most probable one of each step becomes a text, as in MMOCR.

    Parameters
    ----------
    decoding : {"ctc", "attention"}
    dictionary : tuple of str
        The characters by index, with the names of the signs that are none.
    padding, end : int, optional
        The index of the blank of "ctc", and of the end of a text of "attention".
    ignored : tuple of int, default ()
        Indices that are left out.
    """

    decoding: Decoding
    dictionary: tuple[str, ...]
    padding: int | None = None
    end: int | None = None
    ignored: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("dictionary", "ignored"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        indices = [index for index in (self.padding, self.end, *self.ignored) if index is not None]
        if any(not 0 <= index < len(self.dictionary) for index in indices):
            raise ValueError(
                f"recognition: padding, end and ignored must be indices of the dictionary, which has "
                f"{len(self.dictionary)} characters, got {self.padding}, {self.end} and {list(self.ignored)}"
            )

"""The text encoder's file, which lies beside a detector's whose words are chosen when it runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

INPUTS, OUTPUT = ("ids", "positions"), "text"
"""The names in the text encoder's graph."""

TOKENIZER, DIGEST = "tokenizer", "digest"
"""The entries of its metadata: the tokenizer as JSON, and the digest by which the detector's file names it."""


class EncoderFile(NamedTuple):
    """The text encoder of a detector's file: its file's name, and the digest that both files state."""

    encoder: str
    digest: str


def path_of_encoder(detector: str | os.PathLike[str]) -> Path:
    """Return the path of the text encoder's file that belongs to a detector's."""
    return Path(detector).with_suffix(".texts.onnx")


def encoder_entries(tokenizer: str, digest: str, mmort_version: str) -> dict[str, str]:
    """Return the metadata of a text encoder's file."""
    return {TOKENIZER: tokenizer, DIGEST: digest, "mmort_version": mmort_version}

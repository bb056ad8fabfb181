"""What commands share that load a detector with a language model: ``--texts`` and ``--vocabulary``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmort.configs.captions import Texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add both."""
    parser.add_argument(
        "--texts",
        metavar="TEXT",
        help="what a detector with a language model looks for, such as 'cat . traffic light . person', or FILE.txt "
        "with a name in each line, or FILE.json with a text and its tokens_positive (default: the classes of the "
        "config's test data set)",
    )
    parser.add_argument(
        "--vocabulary",
        metavar="vocab.txt",
        help="the vocabulary of the language model (default: vocab.txt in the folder that the config names)",
    )


def read(arguments: argparse.Namespace) -> Texts | None:
    """Return what ``--texts`` says, which may be a file."""
    if arguments.texts is None:
        return None
    from mmort.configs.captions import read_texts

    return read_texts(arguments.texts)


def refuse(arguments: argparse.Namespace, reason: str) -> None:
    """Raise a ValueError if one of both is given to what has its words already."""
    for option in ("texts", "vocabulary"):
        if getattr(arguments, option) is not None:
            raise ValueError(f"--{option} is for checkpoints: {reason}")

"""Arguments of commands that run a detector with a language model: ``--texts`` and ``--vocabulary``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmort.configs.captions import Texts
    from mmort.predict import DetectorFile

_HELP = (
    "what a detector with a language model looks for, such as 'cat . traffic light . person', or FILE.txt with a name "
    "in each line, or FILE.json with a text and its tokens_positive"
)


def add_texts(parser: argparse.ArgumentParser) -> None:
    """Add ``--texts`` alone, of a command without a config."""
    parser.add_argument("--texts", metavar="TEXT", help=_HELP)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add both."""
    parser.add_argument("--texts", metavar="TEXT", help=f"{_HELP} (default: the classes of the config's test data set)")
    parser.add_argument(
        "--vocabulary",
        metavar="vocab.txt",
        help="the vocabulary of the language model (default: vocab.txt in the folder that the config names)",
    )


def read(arguments: argparse.Namespace) -> Texts | None:
    """Return the texts of ``--texts``, read from a file if it names one."""
    if arguments.texts is None:
        return None
    from mmort.configs.captions import read_texts

    return read_texts(arguments.texts)


def with_texts(
    arguments: argparse.Namespace, network: DetectorFile, config: dict[str, Any] | None = None
) -> DetectorFile:
    """Return a file's detector with its texts: ``--texts``, or if it takes these, by default the classes."""
    from mmort.configs.captions import Prompt
    from mmort.configs.layout import DetectorConfig

    texts = read(arguments)
    if texts is not None:
        return network.with_texts(Prompt.of(texts))
    return network.with_texts(DetectorConfig(config).prompt) if network.takes_texts and config else network

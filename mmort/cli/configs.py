"""Arguments of commands that read configs: overrides whose keys are checked, and detectors of the user's own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--cfg-options`` and ``--import``."""
    parser.add_argument(
        "--cfg-options",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="override the config, by dotted key",
    )
    parser.add_argument(
        "--import",
        dest="extensions",
        action="append",
        default=[],
        metavar="FILE.py",
        help="run a Python file that registers detectors of your own, which must be trusted; may be repeated",
    )


def run_extensions(arguments: argparse.Namespace) -> None:
    """Run the files of ``--import``."""
    if arguments.extensions:
        try:
            from mmort.detect.extension import run_extension
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError("--import needs torch: pip install 'mmort[detect]'") from None
        for file in arguments.extensions:
            run_extension(file)


def read(path: str, options: Sequence[str]) -> dict[str, Any]:
    """Read a config with its overrides.

    Raises
    ------
    ValueError
        If an override adds an entry that is not read.
    """
    from mmort.configs import parse_options, read_config
    from mmort.configs.layout import READ_ENTRIES
    from mmort.configs.overrides import added_entries
    from mmort.configs.schema import suggested

    overrides = parse_options(options)
    for key, (name, siblings) in added_entries(overrides, read_config(path) if overrides else {}).items():
        if key.split(".")[0] == name and name not in READ_ENTRIES:
            entry = suggested(name, {*READ_ENTRIES, *siblings})
            raise ValueError(f"--cfg-options must name entries of the config, got {key}: it has no {entry}")
    return read_config(path, overrides)


def without_effect(options: Sequence[str]) -> list[str]:
    """Return the keys of overrides that change the network, which an exported file has already."""
    keys = [option.partition("=")[0] for option in options]
    return [key for key in keys if key.startswith("model.") and not key.startswith("model.data_preprocessor")]

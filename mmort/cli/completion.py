"""``mmort completion``: a script that completes mmort's commands and options in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Callable

HELP = 'print a script that completes commands and options in a shell: eval "$(mmort completion bash)" in ~/.bashrc'
SHELLS = ("bash", "zsh", "tcsh", "fish", "powershell")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(arguments: argparse.Namespace) -> None:
    """Print the script."""
    try:
        import shtab
    except ModuleNotFoundError:
        raise ImportError("mmort completion needs shtab: pip install 'mmort[completion]'") from None
    parser: Callable[[], argparse.ArgumentParser] = arguments.parser
    print(shtab.complete(parser(), shell=arguments.shell))

"""The tables of docs/reference/commands.md: every command with its arguments, from its own parser.

Builds of the site make them; in the repository the page is a stub, as ``--help`` has the same.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any

from mmort import cli

MARK = "<!-- commands -->\n"


def fill_in(app: Any, docname: str, source: list[str]) -> None:
    """Append a section for each command; called by Sphinx for each page."""
    if docname == "docs/reference/commands":
        source[0] = source[0].replace(MARK, "\n".join(lines()))


def lines() -> Iterator[str]:
    """Yield the lines of all sections."""
    parser = cli._parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        if name in cli.COMMANDS:
            yield from (f"## mmort {name}", "", _sentence(command.description or ""), "", "| | |", "|-|-|")
            formatter = command._get_formatter()
            for action in command._actions:
                if action.help is not argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
                    yield f"| {_names(formatter, action)} | {_marked(_cell(formatter._expand_help(action)))} |"
            yield ""


def _names(formatter: argparse.HelpFormatter, action: argparse.Action) -> str:
    """Return the words by which an argument is given."""
    default = formatter._get_default_metavar_for_positional(action)
    if not action.option_strings:
        return f"`{_cell(formatter._format_args(action, default))}`"
    default = formatter._get_default_metavar_for_optional(action)
    value = "" if action.nargs == 0 else f" {formatter._format_args(action, default)}"
    return ", ".join(f"`{_cell(option + value)}`" for option in action.option_strings)


def _sentence(text: str) -> str:
    """Return a help text as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."


def _marked(text: str) -> str:
    """Return a text whose options are code, else their hyphens become a dash, and whose asterisks are asterisks."""
    return re.sub(r"(?<!\S)--[a-z][\w=-]*", r"`\g<0>`", text.replace("*", "\\*"))


def _cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")

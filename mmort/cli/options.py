"""Arguments made from a class or function with options: names, defaults and help are stated there, and nowhere else."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable
from typing import Any


def add_options(parser: argparse.ArgumentParser, options: Callable[..., Any], **arguments: dict[str, Any]) -> None:
    """Add an argument for some parameters of a function, or of a class such as a dataclass of options.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    options : callable
        Its docstring has a list of parameters.  An argument's help is the first sentence there, and the default.
    **arguments : dict
        By the names of parameters, what argparse takes besides: ``type``, ``nargs``, ``metavar``.  An option that is
        False by default becomes ``--name``, one that is True ``--no-name``, and one that may be either or None both.
    """
    texts = help_texts(options)
    parameters = inspect.signature(options).parameters
    for name, settings in arguments.items():
        default, dashed, text = parameters[name].default, name.replace("_", "-"), texts[name]
        if default is True:
            parser.add_argument(f"--no-{dashed}", dest=name, action="store_false", help=f"do not {text}")
            continue
        if default is False:
            settings = {"action": "store_true", **settings}
        elif parameters[name].annotation == "bool | None":
            settings = {"action": argparse.BooleanOptionalAction, **settings}
        elif default is not None:
            settings, text = {"default": default, **settings}, f"{text} (default: %(default)s)"
        parser.add_argument(f"--{dashed}", help=text, **settings)


def help_texts(options: Callable[..., Any]) -> dict[str, str]:
    """Return for each parameter in a docstring its first sentence and its default, in the words of a command line."""
    section = inspect.cleandoc(options.__doc__ or "").partition("\nParameters\n")[2]
    entries = re.findall(r"^(\w+) : .*\n((?: {4}.*\n?)+)", section, re.MULTILINE)
    return {name: _as_help(name, " ".join(text.split()), [name for name, _ in entries]) for name, text in entries}


def _as_help(name: str, text: str, options: list[str]) -> str:
    """Return the help of a parameter's text, in which other options are called as the command line does."""
    sentences = re.split(r"\.(?: (?=[A-Z`])|$)", text)
    first = sentences[0] if sentences[0][1:2].isupper() else sentences[0][0].lower() + sentences[0][1:]
    default = next((f" (default: {part[9:]})" for part in sentences if part.startswith("Default: ")), "")
    for option in options:
        dashed = option.replace("_", "-")
        first, default = (part.replace(f"`{option}`", f"--{dashed}") for part in (first, default))
    first = first.replace(" if False,", f" --no-{name.replace('_', '-')}:")
    return (first + default).replace("`", "").replace("%", "%%")

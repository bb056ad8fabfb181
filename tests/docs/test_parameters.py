"""Docstrings list the parameters of their signatures, and the defaults that these have."""

import ast
import importlib
import inspect
import re

import pytest

from tests.docs.test_docstrings import MODULES

ENTRY = re.compile(r"^(?P<names>\**\w+(?:, \**\w+)*)(?: : (?P<description>.+))?$")
DEFAULT = re.compile(r"default:? (?P<value>.+)$")


def documented(docstring):
    """Return {name: description} of the section "Parameters"; None without one."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    if "Parameters" not in lines:
        return None
    parameters = {}
    section = lines[lines.index("Parameters") + 2 :]
    for line, underline in zip(section, [*section[1:], ""], strict=True):
        if underline and not underline.strip("-"):
            break  # the next section
        entry = ENTRY.match(line)
        if entry:
            parameters |= dict.fromkeys(entry["names"].split(", "), entry["description"] or "")
    return parameters


def starred(parameter):
    """Return a parameter's name as docstrings write it."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return stars.get(parameter.kind, "") + parameter.name


def problems(function):
    """Return what of a docstring's list of parameters contradicts the signature."""
    described = documented(function.__doc__)
    if described is None:
        return []
    parameters = {starred(parameter): parameter for parameter in inspect.signature(function).parameters.values()}
    parameters.pop("self", None)
    if described.keys() != parameters.keys():
        return [f"lists {', '.join(described)}, and takes {', '.join(parameters)}"]
    return [
        f"{name}: {text}: {problem}"
        for name, text in described.items()
        if (problem := contradiction(text, parameters[name].default)) is not None
    ]


def contradiction(description, default):
    """Return why what is written of a parameter is not its default, or None."""
    stated = DEFAULT.search(description)
    if default is inspect.Parameter.empty:
        return "has no default" if stated or description.endswith("optional") else None
    if stated is None and not description:
        return None  # "As for ...", which has it
    if stated is None:
        plain = default is not None and isinstance(default, bool | int | float | str)
        return f"has the default {default!r}" if plain else None
    try:
        value = ast.literal_eval(stated["value"])
    except (SyntaxError, ValueError):
        return None  # in words
    is_same = value == default and isinstance(value, bool) is isinstance(default, bool)
    return None if is_same else f"has the default {default!r}"


def functions_of(module):
    """Yield the functions and classes that a module defines, and their methods."""
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value):
            yield value
        elif inspect.isclass(value):
            yield value
            yield from filter(inspect.isfunction, vars(value).values())


@pytest.mark.parametrize("name", MODULES)
def test_parameters_are_those_of_the_signature(name):
    contradicting = {
        function.__qualname__: contradictions
        for function in functions_of(importlib.import_module(name))
        if (contradictions := problems(function))
    }
    assert contradicting == {}

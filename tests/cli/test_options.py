"""Options are stated once: a command's arguments have the names and defaults of what they are passed to, and help."""

import argparse
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields

import pytest

import mmort.cli
import mmort.evaluate
import mmort.onnx
from mmort.cli.options import add_options, help_texts
from mmort.detect.export import ExportOptions, export
from mmort.onnx.triton import write_triton_repository
from mmort.onnx.verify.command import verify_against


@dataclass(frozen=True)
class Command:
    """What a command's arguments are passed to."""

    functions: tuple[Callable, ...]
    """Functions and classes; a later one has the parameters that an earlier one has as well."""
    names: dict[str, str] = field(default_factory=dict)
    """Parameters by another name than the argument's, {argument: parameter}."""
    only: set[str] = field(default_factory=set)
    """Arguments of the command alone: what it prints, or checks before it calls a function."""
    python: set[str] = field(default_factory=set)
    """Parameters that the command sets itself, or that have no argument."""


MODEL = {"model": "path"}
DATA = {"ann": "annotation_file", "img_dir": "image_dir"}
ENGINE = {"engine", "precision", "threads", "parallel"}
COMMANDS = {
    "export": Command(
        (export, ExportOptions),
        {"output": "output_file"},
        {"check", "force", "extensions", "dataset", "list", "mean", "original", "std"},
        {"options", "progress"},
    ),
    "test": Command(
        (mmort.evaluate.dataset_of, mmort.evaluate.test, mmort.evaluate.TestOptions),
        DATA | {"eval": "metrics", "eval_options": "metric_options"},
        ENGINE | {"backend", "cfg_options", "extensions", "format_only", "texts", "vocabulary"},
        {"dataset", "labels_by_name", "options", "predict"},
    ),
    "browse": Command(
        (mmort.evaluate.dataset_of, mmort.evaluate.browse), DATA, {"cfg_options"}, {"dataset", "labels_by_name"}
    ),
    "verify": Command(
        (verify_against,), MODEL | {"library": "libraries", "image": "inputs"}, {"json"}, {"example_image"}
    ),
    "upgrade": Command((mmort.onnx.upgrade,), {}, {"in_place", "json"}),
    "portable": Command((mmort.onnx.make_portable,), {"portable": "form"}, {"in_place", "json"}),
    "adopt": Command((mmort.onnx.adopt,), MODEL | {"set": "layout"}, {"presets"}),
    "accelerate": Command((mmort.onnx.accelerate,), MODEL | {"input": "inputs"}, {"threads", "json"}),
    "quantize": Command(
        (mmort.evaluate.dataset_of, mmort.onnx.quantize),
        MODEL | DATA | {"calibrate": "calibration"},
        python={"classes", "config", "labels_by_name"},
    ),
    "triton-repository": Command((write_triton_repository,), {"output": "directory"}),
}
"""The commands whose functions have the same options."""

WITHOUT_FUNCTION = {"benchmark", "info", "demo", "completion", "predict", "parity"}


def subparsers():
    """Return the parser of each command."""
    parser = mmort.cli._parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return commands.choices


PARSERS = subparsers()
ACTIONS = [
    pytest.param(command, action, id=f"{command}-{action.dest}-{number}")
    for command, parser in PARSERS.items()
    for number, action in enumerate(parser._actions)
]


def arguments_of(command):
    """Return the command's arguments by name; several options may set one."""
    common = {"help", "verbose", "quiet"}
    return {action.dest: action for action in PARSERS[command]._actions if action.dest not in common}


def parameters_of(command):
    """Return the parameters of what the command calls, by name."""
    return {
        name: parameter
        for function in reversed(COMMANDS[command].functions)
        for name, parameter in inspect.signature(function).parameters.items()
    }


def test_every_command_is_compared():
    assert COMMANDS.keys() | WITHOUT_FUNCTION == mmort.cli.COMMANDS.keys()
    assert not COMMANDS.keys() & WITHOUT_FUNCTION


@pytest.mark.parametrize("command", COMMANDS)
def test_arguments_are_parameters(command):
    names, only, python = COMMANDS[command].names, COMMANDS[command].only, COMMANDS[command].python
    arguments, parameters = arguments_of(command), parameters_of(command)
    assert {names.get(name, name) for name in arguments.keys() - only} == parameters.keys() - python
    assert only <= arguments.keys()
    assert names.keys() <= arguments.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_defaults_are_those_of_the_parameters(command):
    parser, parameters = PARSERS[command], parameters_of(command)
    for name in arguments_of(command).keys() - COMMANDS[command].only:
        parameter = parameters[COMMANDS[command].names.get(name, name)]
        expected = None if parameter.default is inspect.Parameter.empty else parameter.default
        default = parser.get_default(name)
        assert default == expected or (not default and not expected and False not in (default, expected)), name


def test_predict_leaves_out_the_same_scores_in_python():
    default = inspect.signature(mmort.Predictor).parameters["score_threshold"].default
    assert PARSERS["predict"].get_default("score_thr") == default == 0.3


@pytest.mark.parametrize(("command", "action"), ACTIONS)
def test_every_argument_has_help(command, action):
    assert action.help, action.option_strings
    assert not action.help.endswith(".")
    shows_default = action.default not in (None, False, [], argparse.SUPPRESS) and action.const is None
    if shows_default and not isinstance(action.default, bool):
        assert "(default: %(default)s)" in action.help, action.option_strings


@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
def test_no_option_is_understood_by_its_beginning(parser):
    assert not parser.allow_abbrev


@dataclass(frozen=True, kw_only=True)
class Toy:
    """Options.

    Parameters
    ----------
    big_hat : bool, default False
        Wear a hat, as with `no_rain`.  It is 100 % felt.
    no_rain : bool, default True
        ONNX is dry in
        ``FILE.onnx``.
    size : bool, optional
        Measure; if False, guess.  Default: that of `big_hat`.
    """

    big_hat: bool = False
    no_rain: bool = True
    size: "bool | None" = None


def test_help_is_the_first_sentence_and_the_default():
    texts = help_texts(Toy)
    assert texts == {
        "big_hat": "wear a hat, as with --no-rain",
        "no_rain": "ONNX is dry in FILE.onnx",
        "size": "measure; --no-size: guess (default: that of --big-hat)",
    }


def test_arguments_are_made_from_options():
    parser = argparse.ArgumentParser()
    add_options(parser, Toy, big_hat={}, no_rain={}, size={})
    assert vars(parser.parse_args([])) == vars(Toy())
    given = parser.parse_args(["--big-hat", "--no-no-rain", "--no-size"])
    assert vars(given) == vars(Toy(big_hat=True, no_rain=False, size=False))
    assert "do not ONNX is dry" in parser.format_help()


def test_options_of_an_export_have_help():
    """Those that other commands have too are added with theirs."""
    shared = {"cfg_options", "texts", "vocabulary", "portable", "dynamic_export"}
    assert help_texts(ExportOptions).keys() >= {field.name for field in fields(ExportOptions)} - shared

"""The command line: a module for each command maps its arguments onto functions.

Errors become one line and an exit code.

A command's module has `HELP`, `add_arguments(parser)` and `run(arguments)`, which returns why the command failed, or
None.  It imports what it calls in `run`, so that ``mmort info`` works where extras are not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import NoReturn

import mmort
from mmort._files.drafts import remove_unfinished
from mmort.cli import (
    accelerate,
    adopt,
    benchmark,
    browse,
    completion,
    demo,
    export,
    info,
    parity,
    portable,
    predict,
    quantize,
    terminal,
    test,
    triton_repository,
    upgrade,
    verify,
)

DESCRIPTION = (
    "Turn detectors trained in MMDetection or MMRotate into ONNX files that are proven to detect the same, and run "
    "them on any CPU."
)

COMMANDS = {
    "info": info,
    "demo": demo,
    "export": export,
    "predict": predict,
    "verify": verify,
    "test": test,
    "parity": parity,
    "benchmark": benchmark,
    "browse": browse,
    "upgrade": upgrade,
    "adopt": adopt,
    "portable": portable,
    "accelerate": accelerate,
    "quantize": quantize,
    "triton-repository": triton_repository,
    "completion": completion,
}

COMMANDS_ELSEWHERE = {
    "convert": "export",
    "deploy": "export",
    "detect": "predict",
    "eval": "test",
    "evaluate": "test",
    "list": "export --list",
    "infer": "predict",
    "inference": "predict",
    "val": "test",
    "version": "--version",
}
"""Names of commands in other programs, and the commands here."""

OPTIONS_ELSEWHERE = {
    "--conf": "--score-thr",
    "--conf-thres": "--score-thr",
    "--device": "--provider",
    "--imgsz": "--shape",
    "--metrics": "--eval",
    "--out-file": "--output",
    "--pred-score-thr": "--score-thr",
    "--print-result": "--json",
    "--project": "--show-dir",
    "--save": "--show-dir",
    "--save-dir": "--show-dir",
    "--save-json": "--json",
    "--save-txt": "--output",
    "--threshold": "--score-thr",
    "--work-dir": "--output",
}
"""Names of options in other programs, and the options here."""

WITHOUT_OPTION = (
    "--checkpoint",
    "--config",
    "--image",
    "--images",
    "--img",
    "--inputs",
    "--model",
    "--source",
    "--weights",
)
IN_THE_FILE = "--agnostic-nms", "--half", "--imgsz", "--iou", "--iou-thres", "--max-det"
NOT_NEEDED = (
    dict.fromkeys(WITHOUT_OPTION, "its value is given without an option")
    | dict.fromkeys(IN_THE_FILE, "the file has it since its export")
    | {
        "--device": "it runs on the CPU",
        "--dump-info": "the file has it as metadata",
        "--launcher": "it runs in one process",
    }
)
"""Options of other programs that have none here, and why."""

NO_TELEMETRY = "ORT_DISABLE_TELEMETRY"
"""The environment variable that keeps ONNX Runtime 1.29 and later from reporting models and runs to its makers."""

WRONG_USAGE = 2
"""The exit code for wrong arguments, argparse's."""

INTERRUPTED = 130
"""The exit code after Ctrl-C, 128 + SIGINT, as shells have it."""

TERMINATED = 143
"""The exit code after SIGTERM, which ends a command as Ctrl-C does: what is not finished is removed."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, optional
        Command and arguments; those of the process by default.

    Returns
    -------
    int
        Exit code: 0, or 1 after an error or a comparison that failed, 130 after Ctrl-C, or 143 after SIGTERM.  Wrong
        usage exits with 2, as do errors of a command whose `ERROR_CODE` tells them apart from its failures.
    """
    try:
        return _run(argv)
    except KeyboardInterrupt as error:  # at any time: while arguments are read, drafts removed or errors printed, too
        remove_unfinished()
        is_termination = isinstance(error, _TerminatedError)
        print("mmort: terminated" if is_termination else "mmort: interrupted", file=sys.stderr)
        return TERMINATED if is_termination else INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    """Run a command, and return its exit code."""
    os.environ.setdefault(NO_TELEMETRY, "1")  # before ONNX Runtime is imported
    for name in ("stdout", "stderr"):  # None if the caller has closed it, as some daemons do
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (until the process ends)
    words = sys.argv[1:] if argv is None else argv
    _refuse_unknown_command(words)
    commands = [word for word in words if word in COMMANDS][:1]
    arguments, unknown = _parser(commands).parse_known_args(words)
    unknown = _take_after_options(arguments, unknown)
    if unknown:
        arguments.error(f"unrecognized arguments: {_with_suggestions(unknown, arguments.options)}")
    if arguments.command is None:
        _parser(()).print_help()
        return 0
    if arguments.command == "help":
        of = [arguments.of] if arguments.of else []
        _refuse_unknown_command(of)
        _parser(of).parse_args([*of, "--help"])
    arguments.parser = _parser
    try:
        silent = arguments.quiet and not getattr(arguments, "json", False)
        with _ended_by_sigterm(), terminal.neutral_output(silent=silent), terminal.one_line_warnings():
            failure = COMMANDS[arguments.command].run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has stopped reading: nothing may be flushed at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        terminal.print_error(error, verbose=arguments.verbose)
        if isinstance(error, terminal.UsageError):
            return WRONG_USAGE
        return getattr(COMMANDS[arguments.command], "ERROR_CODE", 1)
    if failure is None:
        return 0
    lines = [failure] if isinstance(failure, str) else failure
    print("mmort: error:", "\n  ".join(map(terminal.one_line, lines)), file=sys.stderr)
    return 1


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM has come, as of ``timeout``, ``docker stop`` or Kubernetes."""


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Raise `_TerminatedError` in the block when SIGTERM comes, unless a program that calls `main` handles it."""

    def end(number: int, frame: object) -> NoReturn:
        raise _TerminatedError

    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are two lines, which the usage of thirty options does not hide.

    They cannot control the terminal, either: a shell's pattern may name a file that begins with dashes.
    """

    def error(self, message: str) -> NoReturn:
        advice = f"{self.prog} --help lists the arguments\n" if " " in self.prog else ""
        self.exit(2, f"{self.prog}: error: {terminal.one_line(message)}\n{advice}")


def _refuse_unknown_command(words: Sequence[str]) -> None:
    """Exit with an error that suggests a similar command, if the first word is not a command."""
    commands = [*COMMANDS, "help"]
    if words and not words[0].startswith("-") and words[0] not in commands:
        name = words[0].lower().replace("_", "-")
        similar = COMMANDS_ELSEWHERE.get(name) or next(iter(get_close_matches(name, commands, 1)), None)
        advice = f"did you mean {similar}?" if similar else "mmort --help lists them"
        _parser(()).error(f"no command is called {words[0]} ({advice})")


def _take_after_options(arguments: argparse.Namespace, unknown: list[str]) -> list[str]:
    """Set positional arguments that may be left out and stand after an option; return what is still unknown.

    Before Python 3.12.7, argparse takes them to be left out there.
    """
    values = _values(arguments.options)
    for action in arguments.optional:
        earlier, is_list = getattr(arguments, action.dest), action.nargs == "*"
        wanted = len(unknown) if is_list else int(earlier is None)
        words = list(takewhile(lambda word: not word.startswith("-") and word not in values, unknown[:wanted]))
        if words:
            setattr(arguments, action.dest, [*earlier, *words] if is_list else words[0])
        unknown = unknown[len(words) :]
    return unknown


def _with_suggestions(unknown: Sequence[str], options: Sequence[str]) -> str:
    """Return unknown arguments, each followed by the option that may have been meant."""
    values = _values(options)
    words = []
    for word in unknown:
        name, separator, value = word.partition("=")
        meant = values.get(word) or _similar_option(name.replace("_", "-"), options)
        if meant == name:
            words.append(f"{word} (options come after the command)")
        elif meant is None and name in NOT_NEEDED:
            words.append(f"{word} ({NOT_NEEDED[name]})")
        else:
            words.append(f"{word} (did you mean {meant}{separator}{value}?)" if meant else word)
    return " ".join(words)


def _values(options: Sequence[str]) -> dict[str, str]:
    """Return the options that end with a value, such as ``--portable=inlined``, by their values."""
    return {option.partition("=")[2]: option for option in options if "=" in option}


def _similar_option(name: str, options: Sequence[str]) -> str | None:
    """Return the option that a name is another program's word for, is the beginning of, begins with, or misspells."""
    if (meant := OPTIONS_ELSEWHERE.get(name)) in options:
        return meant
    longer = [option for option in options if option.startswith(f"{name}-")]
    shorter = sorted(filter(name.startswith, options), key=len, reverse=True)
    return next(iter(longer or shorter or get_close_matches(name, options, 1, 0.81)), None)


def _parser(commands: Collection[str] = COMMANDS.keys()) -> argparse.ArgumentParser:
    """Build the parser, with the arguments of some commands: those of `predict` import numpy and the engines."""
    parser = _Parser("mmort", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"mmort {mmort.__version__}")
    parser.set_defaults(error=parser.error, options=(), optional=())
    subparsers = parser.add_subparsers(metavar="COMMAND", dest="command")
    for name, command in COMMANDS.items():
        command_parser = subparsers.add_parser(name, help=command.HELP, description=command.HELP, allow_abbrev=False)
        if name not in commands:
            continue
        command.add_arguments(command_parser)
        amount = command_parser.add_mutually_exclusive_group()
        amount.add_argument("-v", "--verbose", action="store_true", help="print the traceback of an error")
        amount.add_argument(
            "-q", "--quiet", action="store_true", help="print errors and warnings only, and what --json prints"
        )
        options = [option for action in command_parser._actions for option in action.option_strings]
        optional = [
            action for action in command_parser._actions if action.nargs in ("?", "*") and not action.option_strings
        ]
        # With the command's usage, not that of mmort.
        command_parser.set_defaults(error=command_parser.error, options=options, optional=optional)
    help_parser = subparsers.add_parser("help", help="print this help, or that of a command", allow_abbrev=False)
    help_parser.add_argument("of", metavar="COMMAND", nargs="?", help="the command")
    return parser

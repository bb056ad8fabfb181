"""``mmort export``: a detector's config and checkpoint to an ONNX file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import fields
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mmort._files.inputs import is_checkpoint
from mmort.cli import configs, texts
from mmort.cli.option_types import at_least
from mmort.cli.options import add_options
from mmort.cli.outputs import add_output, check_new_models, check_new_outputs
from mmort.cli.portable import add_form
from mmort.cli.terminal import UsageError, message_of
from mmort.detect.export.options import ExportOptions

HELP = "export a detector, or with --original a model of another task, to an ONNX file, and prove it first"

IGNORED = ("--dataset", "--mean", "--std")
"""Arguments of pytorch2onnx.py that do nothing here."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of MMDetection's pytorch2onnx.py, and further ones."""
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        help="MMDetection config, 2.x or 3.x, or with --original one of MMPretrain, MMSegmentation, MMPose or MMOCR 1; "
        "it is read, not executed",
    )
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        nargs="*",
        help="the .pth file that was trained with it; with --check, further configs",
    )
    parser.add_argument(
        "--original",
        action="store_true",
        help="export a classifier of MMPretrain, a segmentation of MMSegmentation, poses of MMPose or texts of MMOCR "
        "from the package's own code, which is executed and must be installed",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="export nothing; list what of the config is not supported, in seconds; with --original, build and trace "
        "the model, in minutes",
    )
    parser.add_argument(
        "--list",
        nargs="?",
        const="*",
        metavar="PATTERN",
        help="export nothing; list the supported families of detectors and the types of parts, all or those with a "
        "name that has a word such as fcos, or matches a pattern such as 'fcos*'",
    )
    add_output(
        parser,
        "--output-file",
        force=True,
        default="tmp.onnx",
        metavar="FILE.onnx",
        help="the file to write (default: %(default)s)",
    )
    texts.add_arguments(parser)
    add_options(
        parser,
        ExportOptions,
        open_vocabulary={},
        input_img={},
        test_img={},
        shape={"type": at_least(1), "nargs": "+", "metavar": ("H", "W")},
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--static",
        dest="dynamic_export",
        action="store_const",
        const=False,
        help="make a file for inputs of one size only, the smallest that holds every image of the config's test "
        "pipeline (default: a file for batches and inputs of all sizes)",
    )
    sizes.add_argument(
        "--dynamic-export",
        action="store_const",
        const=True,
        help="the default, by MMDetection's name; with --shape, the file takes all sizes too",
    )
    flags: dict[str, dict[str, Any]] = {
        name: {} for name in ("show", "verify", "flip", "simplify", "skip_postprocess", "paste_masks")
    }
    add_options(parser, ExportOptions, opset_version={"type": int}, **flags)
    add_form(parser)
    configs.add_arguments(parser)
    for name in IGNORED:
        parser.add_argument(name, nargs="+", help="does nothing, as the config's values are used")


def run(arguments: argparse.Namespace) -> str | list[str] | None:
    """Export a detector, or check its config."""
    configs.run_extensions(arguments)
    if arguments.list is not None:
        return _list(arguments.list)
    if arguments.config is None:
        raise UsageError("export: CONFIG is required, unless --list is given")
    if arguments.check:
        return _check(arguments)
    if not arguments.checkpoint:
        if is_checkpoint(arguments.config):
            elsewhere = "; of a checkpoint of ultralytics, its own export makes a file, and mmort adopt takes that"
            advice = elsewhere if Path(arguments.config).suffix == ".pt" else ""
            raise UsageError(f"export: CONFIG is required before the checkpoint {arguments.config}{advice}")
        raise UsageError("export: CHECKPOINT is required, unless --check is given")
    if len(arguments.checkpoint) > 1:
        files = ", ".join([arguments.config, *arguments.checkpoint])
        raise UsageError(
            f"export: there must be one CONFIG and one CHECKPOINT, got {files}; a deploy config of MMDeploy is not "
            "needed"
        )
    from mmort.contract import path_of_encoder

    drawn = str(Path(arguments.output).with_suffix(".png")) if arguments.show and arguments.output else None
    encoder = str(path_of_encoder(arguments.output)) if arguments.open_vocabulary and arguments.output else None
    check_new_models(arguments.output, encoder, force=arguments.force)
    check_new_outputs(drawn, force=arguments.force)
    if arguments.shape is not None:
        if len(arguments.shape) > 2:
            raise UsageError(f"--shape must be one or two numbers, got {len(arguments.shape)}")
        arguments.shape = arguments.shape[0], arguments.shape[-1]
    for name in IGNORED:
        if getattr(arguments, name.removeprefix("--")) is not None:
            print(f"{name} does nothing: the config's values are used", flush=True)
    if arguments.test_img and not (arguments.verify or arguments.show or arguments.original):
        print("--test-img does nothing without --verify or --show", flush=True)
    arguments.texts = texts.read(arguments)
    values = {field.name: getattr(arguments, field.name) for field in fields(ExportOptions)}
    export = _export_function(original=arguments.original)
    export(arguments.config, arguments.checkpoint[0], arguments.output, ExportOptions(**values))
    return None


def _export_function(*, original: bool) -> Callable[..., Any]:
    """Return the function that exports detectors, or the one for models from their packages' own code."""
    if original:
        from mmort.original import export as export_from_original

        return export_from_original
    from mmort.detect.export import export

    return export


def _list(pattern: str) -> str | None:
    """Print the families and parts with a name that matches a pattern, whatever its case; return why there is none."""
    from mmort.detect import list_families
    from mmort.detect.listing import list_parts
    from mmort.tables import lay_out

    wanted = pattern.lower() if set(pattern) & set("*?[") else f"*{pattern.lower()}*"

    def matches(name: str) -> bool:
        return fnmatch(name.lower(), wanted)

    rows = [
        (family.name, ", ".join(family.heads), family.summary)
        for family in list_families()
        if any(map(matches, (family.name, *family.heads)))
    ]
    parts = [(kind, ", ".join(filter(matches, types))) for kind, types in list_parts().items()]
    parts = [row for row in parts if row[1]]
    if not rows and not parts:
        return f"no family, head or part matches {pattern!r}; --list without a pattern lists all"
    if rows:
        print(lay_out([("family", "heads", ""), *rows]))
    if parts:
        print(*([""] if rows else []), lay_out([("part", "types"), *parts]), sep="\n")
    return None


def _check(arguments: argparse.Namespace) -> str | list[str] | None:
    """Print that a config is supported, or return what of it is not; of several, print a table."""
    from mmort.detect.entries import OF_YOUR_OWN

    configs = [arguments.config, *(path for path in arguments.checkpoint if not is_checkpoint(path))]
    if arguments.original:
        _check_original(configs, arguments.cfg_options)
        return None
    if len(configs) > 1:
        return _check_all(configs, arguments.cfg_options)
    problems, left_out = _problems(arguments.config, arguments.cfg_options)
    if problems:
        unknown_type = any(problem.endswith("is not supported") and " with " not in problem for problem in problems)
        advice = [OF_YOUR_OWN] if unknown_type else []
        return [f"{arguments.config}: not supported:", *problems, *advice]
    print(f"{arguments.config}: supported")
    for omission in left_out:
        print(f"left out: {omission}")
    return None


def _check_original(configs: Sequence[str], cfg_options: Sequence[str]) -> None:
    """Build and trace a model with its package's own code, and print what it is."""
    from mmort.original import check

    if len(configs) > 1:
        raise UsageError(f"export: --check --original traces one model, got {len(configs)} configs")
    family = check(configs[0], ExportOptions(cfg_options=cfg_options))
    print(f"{configs[0]}: {family} can be traced, with random weights; exporting it proves the file")


def _check_all(configs: Sequence[str], cfg_options: Sequence[str]) -> str | None:
    """Print for each config, as soon as it is read, whether it is supported; return how many are not."""
    width, failures = max(map(len, configs)), 0
    for config in configs:
        try:
            problems, _ = _problems(config, cfg_options)
        except (OSError, ValueError) as error:
            problems = [message_of(error)]
        failures += bool(problems)
        for line, problem in enumerate(problems or ["supported"]):
            print(f"{config if line == 0 else '':<{width}}  {problem}", flush=True)
    return f"{failures} of {len(configs)} configs are not supported" if failures else None


def _problems(path: str, cfg_options: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the unsupported entries of a config, and the parts that an export leaves out."""
    from mmort.configs.layout import DetectorConfig
    from mmort.configs.reader import read_for_export
    from mmort.detect import unsupported

    config = read_for_export(path, cfg_options)
    problems = unsupported(config)
    return problems, () if problems else DetectorConfig(config).test_time_augmentation

"""``mmort parity``: a detector's file compared with torch on a data set, or any file with another."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mmort._files.drafts import temporary_folder
from mmort.cli import configs, datasets, engines, texts
from mmort.cli.option_types import at_least
from mmort.cli.outputs import add_output, check_new_outputs, print_written
from mmort.cli.terminal import UsageError

if TYPE_CHECKING:
    from mmort.evaluate import Dataset, TrainedNetwork
    from mmort.evaluate.parity import Parity, ParityOptions

HELP = (
    "export a detector, evaluate torch and the file on a data set, and report what differs; or compare two files, also "
    "of other tasks; exit code 1 if they differ"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "config",
        metavar="CONFIG",
        help="MMDetection config, 2.x or 3.x; it is read, not executed.  Or FILE.onnx, the reference",
    )
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="the .pth file that was trained with it.  Or OTHER.onnx, which is compared with FILE.onnx",
    )
    parser.add_argument(
        "images",
        nargs="*",
        default=[],  # or argparse says that one is required
        metavar="IMAGE",
        help="of two files: images, folders or patterns in which they are compared; or CONFIG.py with a data set",
    )
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="OLD.onnx",
        help="another file to compare with torch, such as one of MMDetection's own export; may be repeated",
    )
    datasets.add_eval(
        parser, "as for mmort test (default: bbox, and segm of a detector with masks; PQ or mAP of other data sets)"
    )
    datasets.add_arguments(parser)
    parser.add_argument("--batch-size", type=at_least(1), help="images that run together (default: the config's, or 1)")
    engines.add_arguments(parser)
    add_output(parser, "--output-file", force=True, metavar="FILE.onnx", help="keep the exported file")
    parser.add_argument(
        "--report", default="parity.html", metavar="FILE.html", help="the report to write (default: %(default)s)"
    )
    configs.add_arguments(parser)
    texts.add_arguments(parser)


def run(arguments: argparse.Namespace) -> str | None:
    """Export or open the files, compare, print the table and write the report."""
    _check(arguments)
    compare = _compare_files if arguments.config.endswith(".onnx") else _compare_export
    result = compare(arguments)
    print(result)
    for file in (arguments.output, arguments.report):
        if file is not None:
            print_written(file)
    differing = [column.name for column in result.columns if not column.equal]
    return f"these differ from {result.reference}: {', '.join(differing)}" if differing else None


def _compare_export(arguments: argparse.Namespace) -> Parity:
    """Compare torch with the file that is exported, and with others."""
    try:
        from mmort.detect.export import ExportOptions, export_network
        from mmort.detect.network import load_network
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "onnxscript", "torch"):
            raise
        raise ImportError(f"mmort parity needs {error.name}: pip install 'mmort[detect]'") from None
    from mmort.evaluate.parity import parity
    from mmort.predict import OnnxRuntime

    configs.run_extensions(arguments)
    config = configs.read(arguments.config, arguments.cfg_options)
    network = load_network(config, arguments.checkpoint, texts=texts.read(arguments), vocabulary=arguments.vocabulary)
    dataset = datasets.dataset(arguments, config, network.classes, labels_by_name=arguments.texts is not None)
    is_openvino = arguments.engine == engines.OPENVINO
    with temporary_folder() as folder:
        file = Path(arguments.output or Path(folder, "detector.onnx"))
        against = {name: OnnxRuntime(path) for name, path in _named(arguments.against).items()}

        def progress(line: str) -> None:
            if arguments.output or not line.startswith("wrote"):  # a file that ends with the comparison
                print(line, flush=True)

        def networks() -> Iterator[tuple[str, TrainedNetwork]]:
            yield "torch", network
            options = ExportOptions(portable="inlined" if is_openvino else False)
            export_network(network, config, file, options, progress=progress)
            yield "OpenVINO" if is_openvino else "ONNX", engines.open_file(arguments, file)
            yield from against.items()

        facts = {
            "Config": arguments.config,
            "Overrides": " ".join(arguments.cfg_options),
            "Checkpoint": arguments.checkpoint,
            "Texts": arguments.texts or "",
        }
        subject = f"{network.detector.family}, {Path(arguments.checkpoint).name}"
        return parity(networks(), dataset, config, _options(arguments, subject, facts))


def _compare_files(arguments: argparse.Namespace) -> Parity:
    """Compare files with the first one."""
    from mmort.evaluate import UnlabelledDataset
    from mmort.evaluate.parity import parity
    from mmort.predict import OnnxRuntime
    from mmort.predict.engines.network import task_of

    paths = [arguments.config, arguments.checkpoint, *arguments.against]
    if repeated := [path for index, path in enumerate(paths) if path in paths[:index]]:
        raise UsageError(f"parity compares different files, got {repeated[0]} twice")
    (name, path), *compared = _named(paths).items()
    networks = {name: texts.with_texts(arguments, OnnxRuntime(path))}
    for other, path in compared:
        networks[other] = texts.with_texts(arguments, engines.open_file(arguments, path))
    classes = networks[name].classes or ()
    dataset: Dataset
    config = configs.read(arguments.images[0], ()) if _is_config(arguments.images) else None
    if arguments.images and config is None:
        dataset = UnlabelledDataset(arguments.images, classes, task_of(networks[name]))
    else:
        dataset = datasets.dataset(arguments, config, classes, labels_by_name=arguments.texts is not None)
    facts = {"Reference": arguments.config, "Files": ", ".join(paths[1:])}
    return parity(networks, dataset, config, _options(arguments, name, facts))


def _options(arguments: argparse.Namespace, subject: str, facts: dict[str, str]) -> ParityOptions:
    """Return the options of the comparison; facts without a text are left out."""
    from mmort.evaluate.parity import ParityOptions

    return ParityOptions(
        metrics=arguments.eval or (),
        batch_size=arguments.batch_size,
        report=arguments.report,
        subject=subject,
        facts={label: text for label, text in facts.items() if text},
    )


def _check(arguments: argparse.Namespace) -> None:
    """Refuse wrong arguments before the export, which takes a minute."""
    is_file = [path.endswith(".onnx") for path in (arguments.config, arguments.checkpoint)]
    if any(is_file) and not all(is_file):
        raise UsageError("parity compares a CONFIG with its CHECKPOINT, or two ONNX files; got one ONNX file")
    if not any(is_file) and arguments.images:
        file = next((path for path in arguments.images if path.endswith(".onnx")), None)
        if file is not None:
            raise UsageError(
                f"parity exports the detector itself; --against {file} compares another file with torch, too"
            )
        raise UsageError("parity of a CONFIG and its CHECKPOINT takes a data set; images are for two ONNX files")
    if all(is_file):
        if arguments.cfg_options or arguments.extensions or arguments.output:
            raise UsageError("parity of two files exports nothing: leave out --cfg-options, --import and --output")
        if arguments.vocabulary is not None:
            raise UsageError("--vocabulary is for checkpoints: files have their vocabulary already")
        is_config = _is_config(arguments.images)
        if not is_config and bool(arguments.images) == bool(arguments.ann):
            raise UsageError(
                "parity of two files needs images, or a data set: CONFIG.py, --ann and --img-dir, or --ann data.yaml"
            )
        if arguments.images and not is_config and (arguments.eval or arguments.img_dir or arguments.data_root):
            raise UsageError("--eval, --img-dir and --data-root are for a data set, which --ann names")
    check_new_outputs(arguments.report, arguments.output, force=arguments.force)


def _is_config(images: Sequence[str]) -> bool:
    """Return whether a config stands for a data set, where images could."""
    return len(images) == 1 and images[0].endswith(".py")


def _named(files: Sequence[str]) -> dict[str, str]:
    """Return files by the names to show: their own, or whole paths if two have the same."""
    names = {Path(file).name: file for file in files}
    return names if len(names) == len(set(files)) else {file: file for file in files}

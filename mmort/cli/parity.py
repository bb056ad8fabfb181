"""``mmort parity``: a detector's file compared with torch on a data set."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mmort.cli import configs, datasets, engines
from mmort.cli.outputs import add_output, check_new_outputs, check_outputs, print_written

if TYPE_CHECKING:
    from mmort.detect.network import TorchNetwork
    from mmort.evaluate import Dataset
    from mmort.onnx.portable.forms import Form

HELP = "export a detector, evaluate torch and the file on a data set, and report what differs; exit code 1 if they do"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("config", metavar="CONFIG", help="MMDetection config, 2.x or 3.x; it is read, not executed")
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the .pth file that was trained with it")
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="OLD.onnx",
        help="another file to compare with torch, such as one of MMDetection's own export; may be repeated",
    )
    parser.add_argument(
        "--eval",
        nargs="+",
        metavar="METRIC",
        help="as for mmort test (default: bbox, and segm of a detector with masks; PQ or mAP of other data sets)",
    )
    datasets.add_arguments(parser)
    parser.add_argument("--batch-size", type=int, help="pictures that run together (default: the config's, or 1)")
    parser.add_argument(
        "--engine",
        choices=("local", *engines.OPENVINO),
        default="local",
        help="what runs the exported file: ONNX Runtime, or OpenVINO in float32 or bfloat16, for which it is exported "
        "with --portable=inlined (default: %(default)s)",
    )
    add_output(parser, "--output-file", force=True, metavar="FILE.onnx", help="keep the exported file")
    parser.add_argument(
        "--report", default="parity.html", metavar="FILE.html", help="the report to write (default: %(default)s)"
    )
    parser.add_argument(
        "--cfg-options", nargs="+", action="extend", metavar="KEY=VALUE", help="override the config, by dotted key"
    )
    configs.add_import(parser)


def run(arguments: argparse.Namespace) -> str | None:
    """Export, compare, print the table and write the report."""
    _check(arguments)
    try:
        from mmort.detect.export import ExportOptions, export_network
        from mmort.detect.network import load_network
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "onnxscript", "torch"):
            raise
        raise ImportError(f"mmort parity needs {error.name}: pip install 'mmort[detect]'") from None
    from mmort.evaluate import batch_size_of, metric_options
    from mmort.evaluate.parity import compare_models, write_report
    from mmort.predict import Predictor

    configs.run_extensions(arguments)
    config = configs.read(arguments.config, arguments.cfg_options)
    network = load_network(config, arguments.checkpoint)
    dataset = datasets.dataset(arguments, config, network.classes)
    metrics, options = arguments.eval or _metrics(dataset, network), metric_options(config, dataset)
    dataset.check(metrics, options)
    batch_size = batch_size_of(config) if arguments.batch_size is None else arguments.batch_size
    predictor = partial(Predictor, classes=network.classes or dataset.classes, preprocessing=network.preprocessing)
    against = {name: predictor(file) for name, file in _named(arguments.against).items()}
    with TemporaryDirectory() as folder:
        file = Path(arguments.output or Path(folder, "detector.onnx"))
        openvino = arguments.engine in engines.OPENVINO
        portable: Form | bool = "inlined" if openvino else False
        export_network(network, config, file, ExportOptions(portable=portable))
        exported = predictor(file, engine=arguments.engine if openvino else "onnxruntime")
        models = {"torch": predictor(network), "OpenVINO" if openvino else "ONNX": exported, **against}
        predict = {name: partial(model.predict, batch_size=batch_size) for name, model in models.items()}
        parity = compare_models(dataset, predict, metrics, **options)
    print(parity)
    subject = f"{network.detector.family}, {Path(arguments.checkpoint).name}, on {len(dataset):,} images"
    write_report(parity, arguments.report, subject=subject, facts=_facts(arguments, dataset, batch_size))
    for file in (arguments.output, arguments.report):
        if file is not None:
            print_written(file)
    differing = [column.name for column in parity.columns if not column.equal]
    return f"these differ from torch: {', '.join(differing)}" if differing else None


def _check(arguments: argparse.Namespace) -> None:
    """Refuse wrong arguments before the export, which takes a minute."""
    if arguments.batch_size is not None and arguments.batch_size < 1:
        raise ValueError(f"--batch-size must be positive, got {arguments.batch_size}")
    check_outputs(arguments.report)
    check_new_outputs(arguments.output, force=arguments.force)


def _named(files: Sequence[str]) -> dict[str, str]:
    """Return files by the names to show: their own, or whole paths if two have the same."""
    names = {Path(file).name: file for file in files}
    return names if len(names) == len(set(files)) else {file: file for file in files}


def _metrics(dataset: Dataset, network: TorchNetwork) -> list[str]:
    """Return the metrics of what the detector finds."""
    if "bbox" not in dataset.metric_names:
        return [dataset.metric_names[0]]
    return ["bbox", "segm"] if "masks" in network.detector.output_names else ["bbox"]


def _facts(arguments: argparse.Namespace, dataset: Dataset, batch_size: int) -> dict[str, str]:
    """Return how the comparison was made, for the report."""
    from importlib.metadata import version

    packages = ["mmort", "torch", "onnxruntime", *(["openvino"] if arguments.engine in engines.OPENVINO else [])]
    facts = {
        "Config": arguments.config,
        "Overrides": " ".join(arguments.cfg_options or ()),
        "Checkpoint": arguments.checkpoint,
        "Images": f"{len(dataset):,} with {len(dataset.classes)} classes, in {dataset.images[0].path.parent}",
        "Batch size": str(batch_size),
        "Versions": ", ".join(f"{package} {version(package)}" for package in packages),
        "Date": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
    }
    return {label: text for label, text in facts.items() if text}

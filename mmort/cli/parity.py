"""``mmort parity``: a detector's file compared with torch on a data set, or with another file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mmort.cli import configs, datasets, engines, texts
from mmort.cli.outputs import add_output, check_new_outputs, check_outputs, print_written

if TYPE_CHECKING:
    from mmort.detect.network import TorchNetwork
    from mmort.evaluate import Dataset
    from mmort.evaluate.parity import Parity
    from mmort.onnx.portable.forms import Form

HELP = (
    "export a detector, evaluate torch and the file on a data set, and report what differs; or compare two files; exit "
    "code 1 if they differ"
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
        metavar="IMAGE",
        help="of two files: images, folders or patterns in which their detections are compared, instead of a data set",
    )
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
    texts.add_arguments(parser)


def run(arguments: argparse.Namespace) -> str | None:
    """Export or open the files, compare, print the table and write the report."""
    _check(arguments)
    if arguments.config.endswith(".onnx"):
        return _run_files(arguments)
    try:
        from mmort.detect.export import ExportOptions, export_network
        from mmort.detect.network import load_network
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "onnxscript", "torch"):
            raise
        raise ImportError(f"mmort parity needs {error.name}: pip install 'mmort[detect]'") from None
    from mmort.evaluate import batch_size_of, metric_options
    from mmort.evaluate.parity import compare_models
    from mmort.predict import Predictor

    configs.run_extensions(arguments)
    config = configs.read(arguments.config, arguments.cfg_options)
    network = load_network(config, arguments.checkpoint, texts=texts.read(arguments), vocabulary=arguments.vocabulary)
    by_name = arguments.texts is not None
    dataset = datasets.dataset(arguments, config, network.classes, labels_by_name=by_name)
    metrics, options = arguments.eval or _metrics(dataset, network), metric_options(config, dataset)
    dataset.check(metrics, options)
    batch_size = batch_size_of(config) if arguments.batch_size is None else arguments.batch_size
    predictor = partial(
        Predictor, classes=network.classes or dataset.classes, preprocessing=network.preprocessing, score_threshold=0
    )
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
    subject = f"{network.detector.family}, {Path(arguments.checkpoint).name}, on {len(dataset):,} images"
    files = {
        "Config": arguments.config,
        "Overrides": " ".join(arguments.cfg_options or ()),
        "Checkpoint": arguments.checkpoint,
        "Texts": arguments.texts or "",
    }
    return _report(arguments, parity, dataset, subject, files, batch_size)


def _run_files(arguments: argparse.Namespace) -> str | None:
    """Compare files with the first one."""
    from mmort.evaluate import UnlabelledDataset
    from mmort.evaluate.parity import compare_models
    from mmort.predict import Predictor

    paths = [arguments.config, arguments.checkpoint, *arguments.against]
    if repeated := [path for index, path in enumerate(paths) if path in paths[:index]]:
        raise ValueError(f"parity compares different files, got {repeated[0]} twice")
    reference, *files = _named(paths).items()
    words = texts.read(arguments)
    models = {reference[0]: Predictor(reference[1], texts=words, score_threshold=0)}
    for name, file in files:
        models[name] = Predictor(
            file,
            texts=words,
            engine="onnxruntime" if arguments.engine == "local" else arguments.engine,
            score_threshold=0,
        )
    classes = models[reference[0]].classes
    dataset: Dataset
    if arguments.images:
        dataset = UnlabelledDataset(arguments.images, classes)
        metrics: list[str] = []
    else:
        dataset = datasets.dataset(arguments, None, classes, labels_by_name=words is not None)
        metrics = arguments.eval or [dataset.metric_names[0]]
    dataset.check(metrics, {})
    batch_size = arguments.batch_size or 1
    predict = {name: partial(model.predict, batch_size=batch_size) for name, model in models.items()}
    parity = compare_models(dataset, predict, metrics)
    facts = {"Reference": arguments.config, "Files": ", ".join(paths[1:])}
    return _report(arguments, parity, dataset, f"{reference[0]}, on {len(dataset):,} images", facts, batch_size)


def _report(
    arguments: argparse.Namespace,
    parity: Parity,
    dataset: Dataset,
    subject: str,
    files: dict[str, str],
    batch_size: int,
) -> str | None:
    """Print the table and write the report; return which models differ from the reference."""
    from mmort.evaluate.parity import write_report

    print(parity)
    write_report(parity, arguments.report, subject=subject, facts=_facts(arguments, dataset, files, batch_size))
    for file in (arguments.output, arguments.report):
        if file is not None:
            print_written(file)
    differing = [column.name for column in parity.columns if not column.equal]
    return f"these differ from {parity.reference}: {', '.join(differing)}" if differing else None


def _check(arguments: argparse.Namespace) -> None:
    """Refuse wrong arguments before the export, which takes a minute."""
    if arguments.batch_size is not None and arguments.batch_size < 1:
        raise ValueError(f"--batch-size must be positive, got {arguments.batch_size}")
    is_file = [path.endswith(".onnx") for path in (arguments.config, arguments.checkpoint)]
    if any(is_file) and not all(is_file):
        raise ValueError("parity compares a CONFIG with its CHECKPOINT, or two ONNX files; got one ONNX file")
    if not any(is_file) and arguments.images:
        raise ValueError("parity of a CONFIG and its CHECKPOINT takes a data set; images are for two ONNX files")
    if all(is_file):
        if arguments.cfg_options or arguments.extensions or arguments.output:
            raise ValueError("parity of two files exports nothing: leave out --cfg-options, --import and --output")
        if arguments.vocabulary is not None:
            raise ValueError("--vocabulary is for checkpoints: files have their vocabulary already")
        if bool(arguments.images) == bool(arguments.ann):
            raise ValueError("parity of two files needs images, or a data set: --ann and --img-dir, or --ann data.yaml")
        if arguments.images and (arguments.eval or arguments.img_dir or arguments.data_root):
            raise ValueError("--eval, --img-dir and --data-root are for a data set, which --ann names")
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


def _facts(arguments: argparse.Namespace, dataset: Dataset, files: dict[str, str], batch_size: int) -> dict[str, str]:
    """Return how the comparison was made, for the report."""
    from importlib.metadata import version

    packages = [
        "mmort",
        *([] if arguments.config.endswith(".onnx") else ["torch"]),
        "onnxruntime",
        *(["openvino"] if arguments.engine in engines.OPENVINO else []),
    ]
    facts = {
        **files,
        "Images": f"{len(dataset):,} with {len(dataset.classes)} classes, in {dataset.images[0].path.parent}",
        "Batch size": str(batch_size),
        "Versions": ", ".join(f"{package} {version(package)}" for package in packages),
        "Date": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
    }
    return {label: text for label, text in facts.items() if text}

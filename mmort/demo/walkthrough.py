"""From a checkpoint of MMDetection to an ONNX file, to images of what it finds, and to a comparison with torch."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mmort._files.outputs import make_folder
from mmort.configs.captions import Prompt, Texts
from mmort.contract import path_of_encoder
from mmort.demo import (
    ANNOTATIONS,
    CHECKPOINT,
    CONFIG,
    IMAGES,
    LANGUAGE_MODEL,
    MODEL,
    WORDS_CHECKPOINT,
    WORDS_CONFIG,
)
from mmort.images import Image
from mmort.predict import Detections, Predictor, contact_sheet, read_image, write_image

SCORE_THRESHOLD = 0.3  # of the detections in the images
WORDS_SCORE_THRESHOLD = 0.4  # of a detector that suppresses no second box of an object
METRICS = "bbox", "segm"
WORDS_MODEL = "grounding_dino.onnx"

FILES = MODEL.name, "parity.html", "detections.png"
FILES_WITH_TEXTS = WORDS_MODEL, path_of_encoder(WORDS_MODEL).name, "words.png"
"""The files that `run` and `run_with_texts` write."""


def run(output: str | os.PathLike[str]) -> None:
    """Export the checkpoint, verify the file, draw what it finds, and compare it with torch on annotated images.

    Without torch, the file that comes with mmort finds and draws, and nothing is compared.

    Parameters
    ----------
    output : path
        Directory to write to; it is made if its parent exists.

    Raises
    ------
    OSError
        If the directory cannot be made or written to, or mmort was built without its library.
    ValueError
        If the file differs from the checkpoint.
    ImportError
        If a package is missing; the message names the extra to install.
    """
    begin, output = time.perf_counter(), _directory(output)
    model, report, sheet = (output / name for name in FILES)
    torch = _has_torch()
    if torch:
        print(f"Export {CONFIG.name} and {CHECKPOINT.name}, and verify the file", flush=True)
        _export(model)
    else:
        model = MODEL
        print(f"No torch here, so {MODEL.name} has been exported before")
    print("\nDetect digits with ONNX Runtime and mmort's operators", flush=True)
    _draw(Predictor(model, score_threshold=SCORE_THRESHOLD), sheet)
    if torch:
        print("\nCompare the file with the checkpoint on annotated images", flush=True)
        _compare(model, report)
    print(f"\n{time.perf_counter() - begin:.0f} s. Next: mmort predict {model} YOUR_IMAGES --show-dir DIR")
    if not torch:
        print("With torch, mmort demo also exports the checkpoint and compares: pip install 'mmort[demo]'")


def run_with_texts(output: str | os.PathLike[str], texts: Texts) -> None:
    """Export a Grounding DINO whose words are chosen when it runs, and draw the objects that it finds for them.

    Parameters
    ----------
    output : path
        Directory to write to; it is made if its parent exists.
    texts : str, sequence of str or dict
        What to look for, as `mmort.Predictor` takes it.

    Raises
    ------
    OSError
        If the directory cannot be made or written to, or mmort was built without its library.
    ValueError
        If the texts are empty or too long, or a file differs from the checkpoint.
    ImportError
        If a package is missing, torch among them; the message names the extra to install.
    """
    Prompt.of(texts)  # refuses what names nothing before the export, which takes most of the time
    begin, output = time.perf_counter(), _directory(output)
    print("Export a Grounding DINO for words that are chosen when it runs, and verify its files", flush=True)
    model, _, sheet = (output / name for name in FILES_WITH_TEXTS)
    export_words(model, open_vocabulary=True)
    predictor = Predictor(model, texts=texts, score_threshold=WORDS_SCORE_THRESHOLD)
    print(f"\nLook for {', '.join(predictor.classes)} with ONNX Runtime and mmort's operators", flush=True)
    _draw(predictor, sheet)
    print(f"\n{time.perf_counter() - begin:.0f} s. Next: mmort predict {model} YOUR_IMAGES --texts 'OTHER . WORDS'")


def export_words(model: Path, **options: Any) -> None:
    """Export the Grounding DINO; `options` are those of the export."""
    from mmort.detect.export import ExportOptions, export

    export(
        WORDS_CONFIG,
        WORDS_CHECKPOINT,
        model,
        ExportOptions(cfg_options={"model.language_model.name": str(LANGUAGE_MODEL)}, input_img=IMAGES[0], **options),
        progress=lambda line: print(f"  {line}", flush=True),
    )


def _directory(output: str | os.PathLike[str]) -> Path:
    """Make the output directory unless it exists, and return its path."""
    make_folder(output, parents=False)
    return Path(output)


def _has_torch() -> bool:
    """Whether the packages that an export needs are installed."""
    return all(map(find_spec, ("onnx", "onnxscript", "torch")))


def _export(model: Path) -> None:
    """Export the checkpoint."""
    from mmort.detect.export import ExportOptions, export

    export(
        CONFIG,
        CHECKPOINT,
        model,
        ExportOptions(input_img=IMAGES[0]),
        progress=lambda line: print(f"  {line}", flush=True),
    )


def _draw(predictor: Predictor, image: Path) -> None:
    """Draw the detections in the demo's images, on one image."""
    write_image(image, contact_sheet(_panels(predictor)))
    print(f"  wrote {image}")


def _panels(predictor: Predictor) -> Iterator[tuple[str, Image, Detections]]:
    """Yield caption, image and detections of each image, and print what was found."""
    for path, detections in zip(IMAGES, predictor.predict(IMAGES), strict=True):
        print(f"  {path.name}: {' '.join(detections.names) or 'nothing'}", flush=True)
        yield f"{path.name}: {len(detections)} digits", read_image(path), detections


def _compare(model: Path, report: Path) -> None:
    """Print and report metrics and detections of the checkpoint in torch, and of the file."""
    from mmort.configs import read_config
    from mmort.detect.network import load_network
    from mmort.evaluate import CocoDataset
    from mmort.evaluate.parity import compare_models, write_report

    network = load_network(read_config(CONFIG), CHECKPOINT)
    in_torch = Predictor(network, classes=network.classes, preprocessing=network.preprocessing, score_threshold=0)
    dataset = CocoDataset(ANNOTATIONS, IMAGES[0].parent, network.classes)
    models = {"torch": in_torch.predict, "ONNX Runtime": Predictor(model, score_threshold=0).predict}
    parity = compare_models(dataset, models, METRICS)
    print(textwrap.indent(str(parity), "  "))
    write_report(parity, report, subject=f"{network.detector.family} on {len(dataset)} images", facts={})
    print(f"  wrote {report}")
    if not parity.ok:
        raise ValueError(f"demo: {model} does not find what the checkpoint finds in torch")

"""Export published configs at full size with random weights, as a user does, with the comparison at the end.

    python -m tests.tools.export_full_size CONFIG ... [--arguments ARGUMENT ...]

ARGUMENTs are those of `mmort export`; detectors with a language model need its ``--vocabulary``.  The weights are such
that something is detected: maps keep their magnitude, as the statistics of batch normalization are those of the
example.  Prints a table: seconds, those of CPU time and peak memory of each export.  Exit code 1 if a file was not
written.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from mmort.configs import read_config
from mmort.configs.captions import Prompt
from mmort.detect import Detector, build
from mmort.detect.export.examples import Examples
from mmort.detect.export.export_steps import DEFAULT_IMAGE
from mmort.predict import Preprocessing, read_image
from tests.tools.oracle_table import measured

FACTORS = {"fc_reg": 0.1, "rpn_reg": 0.1, "fc_cls": 0.1, "rpn_cls": 0.02, "bn3.weight": 0.2}
"""Of weights by parts of their keys: boxes are exponentials, and scores of 1 are all equal.  Random branches of full
weight triple the rounding error in each stage of a ResNet, until torch's own exceeds the tolerance."""

SHAPE = 320, 416
"""Of the example by which batch normalization is calibrated, in pixels."""


def fill(detector: Detector, preprocessing: Preprocessing, vocabulary: str | os.PathLike[str] | None) -> None:
    """Give a detector random weights; `vocabulary` is that of a language model."""
    torch.manual_seed(1)
    for name, value in detector.state_dict().items():
        if not value.is_floating_point() or name.endswith(("running_mean", "running_var")) or "embed" in name:
            continue
        if value.ndim > 2:
            nn.init.kaiming_normal_(value)
        elif value.ndim == 2:
            nn.init.normal_(value, std=value.shape[1] ** -0.5)
        else:
            value.add_(torch.randn_like(value) * 0.1)
        value.mul_(next((factor for part, factor in FACTORS.items() if part in name), 1))
    for layer in detector.modules():
        if isinstance(layer, nn.BatchNorm2d) and layer.eps > 0:  # torch trains none without it, as NAS-FCOS has
            layer.train()
            layer.momentum = 1.0  # the example's own statistics
    image = read_image(DEFAULT_IMAGE)
    with torch.no_grad():
        if detector.takes_texts:
            detector.set_texts(Prompt.of("cat . dog"), vocabulary)
        detector(*Examples(preprocessing, dynamic=False, with_shapes=True)(image, 1, *SHAPE))
    detector.eval()


def row(config: Path, folder: Path, arguments: list[str]) -> tuple[str, int]:
    """Return the row of a config, and the exit code of its export."""
    settings = read_config(config)
    detector, checkpoint = build(settings), folder / "weights.pth"
    vocabulary = arguments[arguments.index("--vocabulary") + 1] if "--vocabulary" in arguments else None
    fill(detector, Preprocessing.from_config(settings), vocabulary)
    torch.save({"state_dict": detector.state_dict(), "meta": {}}, checkpoint)
    del detector
    command = [sys.executable, "-c", "import sys; from mmort.cli import main; sys.exit(main())", "export"]
    command += [str(config), str(checkpoint), "--output", str(folder / "file.onnx"), "--dynamic-export"]
    begin = time.perf_counter()
    code, cost = measured([*command, *arguments])
    seconds = time.perf_counter() - begin
    return f"| {config.stem} | {'refused' if code else 'written'} | {seconds:.0f} s | {cost} |", code


def main() -> int:
    """Export the configs of the command line; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", type=Path, nargs="+")
    parser.add_argument("--arguments", nargs=argparse.REMAINDER, default=[], help="of mmort export")
    options = parser.parse_args()
    failed = 0
    print("| config | file | time | CPU time, peak memory |\n|-|-|-|-|", flush=True)
    for config in options.configs:
        with tempfile.TemporaryDirectory() as folder:
            line, code = row(config, Path(folder), options.arguments)
        failed += code != 0
        print(line, flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())

"""Small detectors as files of a small fixed size, with the proof that `mmort export` makes of them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import torch

from mmort.detect import build
from mmort.detect.export import ExportOptions
from mmort.detect.export.pipeline import DEFAULT_IMAGE, _Export
from mmort.detect.export.progress import Steps
from mmort.detect.export.proof import Proof
from mmort.onnx import Report
from mmort.onnx.export.options import Options
from mmort.predict import FixedSizeWarning, Preprocessing, read_image
from tests.tools.small_cases import Fill

SHAPE = 128, 160
PIPELINE = [
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": SHAPE[::-1], "keep_ratio": True},
    {"type": "PackDetInputs"},
]


class SmallExport:
    """A small detector, what it is exported with, and its file."""

    def __init__(self, model: dict[str, Any], fill: Fill, path: Path, *, dynamic: bool = False) -> None:
        self.path = path
        torch.manual_seed(0)  # for what `fill` leaves as it was built
        config = copy.deepcopy({"model": model, "test_pipeline": PIPELINE})
        self.detector = build(config).eval()
        fill(self.detector)
        self.detector.prepare_for_export(flip=False)
        image = read_image(DEFAULT_IMAGE)
        options = ExportOptions(shape=SHAPE, dynamic_export=dynamic)
        preprocessing = Preprocessing.from_config(config)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FixedSizeWarning)  # of upright images, which are not used
            self._export = _Export(self.detector, preprocessing, {}, options, Steps(lambda line: None), (image, image))
        self.inputs = [self._export.args, *self._export.checks]

    def write(self) -> Report:
        """Export the detector with proof."""
        return self._export.write(self.path)

    def prove(self, path: Path, inputs: Sequence[tuple[torch.Tensor, ...]] | None = None) -> Report:
        """Compare another file with the detector as it is now, by default with the inputs of the export."""
        proof = Proof(self.detector, self._export.module, path, Options())
        return proof(path, self.inputs if inputs is None else inputs, lambda step: None)

    def reweighted(self, path: Path, state: dict[str, torch.Tensor]) -> list[str]:
        """Load other weights, and write a file that has them; return the names of tensors that might be weights.

        Weights are found by their values: torch's exporter keeps them as they are, or transposes them.
        """
        model = onnx.load(self.path)
        old = {name: tensor.detach().clone() for name, tensor in self.detector.state_dict().items()}
        unknown = []
        for tensor in model.graph.initializer:
            values = torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())
            if not values.is_floating_point() or values.numel() < 2:
                continue
            new = next((value for key, value in _forms(tensor.name, values, old, state)), None)
            if new is None:
                unknown.append(tensor.name)
            else:
                tensor.CopyFrom(onnx.numpy_helper.from_array(new.contiguous().numpy(), tensor.name))
        onnx.save(model, path)
        self.detector.load_state_dict(state)
        return unknown


def _forms(name: str, values: torch.Tensor, old: dict[str, torch.Tensor], new: dict[str, torch.Tensor]) -> Any:
    """Yield the names and new values of weights that an initializer is or is the transpose of."""
    known = [key for key in old if name.endswith(key)]
    for key in known or old:
        if old[key].shape == values.shape and torch.equal(old[key], values):
            yield key, new[key]
        elif old[key].ndim == 2 and old[key].T.shape == values.shape and torch.equal(old[key].T, values):
            yield key, new[key].T

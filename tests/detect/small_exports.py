"""The small detectors of all cases, and their files of a small fixed size with the proof that `mmort export` makes."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import torch

from mmort.contract import Metadata
from mmort.detect import build
from mmort.detect.export import ExportOptions
from mmort.detect.export.export_steps import DEFAULT_IMAGE, _Export
from mmort.detect.export.head_outputs import among
from mmort.detect.export.progress import Steps
from mmort.detect.export.proof import noisy_views
from mmort.onnx import Report
from mmort.onnx.artifact import Artifact
from mmort.onnx.verify.proof import prove
from mmort.predict import FixedSizeWarning, Preprocessing, read_image
from tests.detect import (
    co_dino_cases,
    dense_cases,
    dino_projects_cases,
    efficientdet_cases,
    mask_cases,
    panoptic_cases,
    query_cases,
    remaining_cases,
    rotated_1_cases,
    rotated_cases,
    sparseinst_cases,
    text_cases,
    two_stage_cases,
    yolo_cases,
)

Fill = Callable[[torch.nn.Module], None]
State = Mapping[str, torch.Tensor]

SHAPE = 128, 160
PIPELINE = [
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": SHAPE[::-1], "keep_ratio": True},
    {"type": "PackDetInputs"},
]


def small_cases() -> dict[str, tuple[dict[str, Any], Fill]]:
    """Return the model entry of each config, and what fills its weights."""
    queries = {**query_cases.MODELS, **dino_projects_cases.MODELS}
    rotated_1 = [*rotated_1_cases.CASES, *rotated_1_cases.FORKS]
    groups: list[tuple[Any, Callable[[str], dict[str, Any]], Callable[[str], Fill]]] = [
        (dense_cases.HEADS, dense_cases.config, lambda name: dense_cases.fill),
        (mask_cases.MODELS, mask_cases.config, lambda name: mask_cases.fill),
        (
            sparseinst_cases.MODELS,
            lambda name: {"model": sparseinst_cases.MODELS[name]},
            lambda name: sparseinst_cases.fill,
        ),
        (panoptic_cases.MODELS, panoptic_cases.config, lambda name: partial(panoptic_cases.fill, name)),
        (queries, lambda name: {"model": queries[name]}, lambda name: query_cases.fill),
        (
            ["efficientdet", "efficientdet_yxyx"],
            lambda name: {"model": efficientdet_cases.MODELS[name]},
            lambda name: efficientdet_cases.fill,
        ),
        (co_dino_cases.MODELS, co_dino_cases.config, lambda name: query_cases.fill),
        (["co_deformable"], lambda name: {"model": co_dino_cases.OF_AUTHORS[name]}, lambda name: query_cases.fill),
        (text_cases.MODELS, text_cases.config, lambda name: text_cases.fill),
        (two_stage_cases.CASES, two_stage_cases.config_of, lambda name: two_stage_cases.fill),
        (rotated_cases.CASES, rotated_cases.config_of, lambda name: dense_cases.fill),
        (rotated_1, rotated_1_cases.config_of, lambda name: rotated_1_cases.fill),
        (yolo_cases.MODELS, lambda name: {"model": yolo_cases.MODELS[name]}, lambda name: dense_cases.fill),
        (remaining_cases.MODELS, remaining_cases.config, lambda name: partial(remaining_cases.fill, name)),
    ]
    return {name: (config(name)["model"], fill(name)) for names, config, fill in groups for name in names}


def shape_of(model: Mapping[str, Any]) -> tuple[int, int]:
    """Return `SHAPE`, widened to a multiple of the largest stride of the levels that a YOLO head reads."""
    head = model.get("bbox_head")
    strides = head.get("head_module", {}).get("featmap_strides", [32]) if isinstance(head, dict) else [32]
    return SHAPE[0], -(-SHAPE[1] // max(strides)) * max(strides)


def with_limits(entry: Any, changes: Mapping[str, Callable[[int], int]]) -> Any:
    """Return a model's entry with other limits: for each name, what becomes of those that are there."""
    if not isinstance(entry, dict):
        return entry
    return {key: changes[key](value) if key in changes else with_limits(value, changes) for key, value in entry.items()}


class SmallExport:
    """A small detector, what it is exported with, and its file."""

    def __init__(self, model: dict[str, Any], fill: Fill, path: Path, *, dynamic: bool = False) -> None:
        self.path = path
        torch.manual_seed(0)  # for what `fill` leaves as it was built
        config = copy.deepcopy({"model": model, "test_pipeline": PIPELINE})
        self.detector = build({"model": config["model"]}).eval()  # YOLOv5-Ins refuses this pipeline
        fill(self.detector)
        self.detector.prepare_for_export(flip=False)
        image = read_image(DEFAULT_IMAGE)
        options = ExportOptions(shape=shape_of(model), dynamic_export=dynamic)
        preprocessing = Preprocessing.from_config(config)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FixedSizeWarning)  # of upright images, which are not used
            self._export = _Export(
                self.detector, preprocessing, Metadata(), options, Steps(lambda line: None), (image, image)
            )
        self.inputs = [self._export.args, *self._export.checks]

    def write(self) -> Report:
        """Export the detector with proof."""
        self._weights = {name: tensor.detach().clone() for name, tensor in self.detector.state_dict().items()}
        return self._export.write(self.path)

    def prove(self, path: Path, inputs: Sequence[Any] | None = None, seed: int = 0) -> Report:
        """Compare another file with the detector as it is now, by default with the inputs of the export."""
        draft = self._export.draft
        assert draft is not None
        assert draft.program is not None
        inputs = self.inputs if inputs is None else inputs
        return prove(
            Artifact(onnx.load(path), path.parent),
            draft.program,
            self._export.traced,
            inputs,
            heads=among(draft.output_names),
            noisy=noisy_views(inputs, seed),
        )

    def reweighted(self, path: Path, state: dict[str, torch.Tensor]) -> None:
        """Load other weights, and write a file that has them.

        Weights are found by their values, so none may be alike: torch's exporter keeps them as they are, reshapes or
        transposes them, or multiplies those of convolutions by what follows.  What it computes from them otherwise
        stays as it was.
        """
        model, old = onnx.load(self.path), self._weights
        norms = {
            name: module.eps
            for name, module in self.detector.named_modules()
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
        }
        for tensor in model.graph.initializer:
            values = torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())
            if not values.is_floating_point():
                continue
            forms = itertools.chain(_forms(tensor.name, values, old, state), _folded(tensor.name, old, state, norms))
            for before, after in forms:
                before = before.to(values.dtype)  # ReDet's buffers are float64
                if before.shape == values.shape and torch.allclose(before, values, rtol=1e-5, atol=1e-7):
                    tensor.CopyFrom(onnx.numpy_helper.from_array(after.contiguous().numpy(), tensor.name))
                    break
        onnx.save(model, path)
        self.detector.load_state_dict(state)


def _forms(name: str, values: torch.Tensor, old: State, new: State) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield weights, or thirds of them, reshaped and transposed, as they are and as they are to become."""
    for key in [key for key in old if name.endswith(key)] or old:
        for before, after in ((old[key], new[key]), *zip(_thirds(old[key]), _thirds(new[key]), strict=True)):
            if before.numel() == values.numel() and before.is_floating_point():
                yield before.reshape(values.shape), after.reshape(values.shape)
                if before.ndim == 2:
                    yield before.T, after.T


def _thirds(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return the thirds of a tensor, which attention has of queries, keys and values."""
    return tensor.chunk(3) if tensor.ndim and tensor.shape[0] % 3 == 0 else ()


def _folded(
    name: str, old: State, new: State, norms: Mapping[str, float]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the weights and biases of a convolution and each normalization after it."""
    convolution = next((key for key in old if name.endswith((key, f"{key}_bias")) and old[key].ndim == 4), None)
    if convolution is None:
        return
    for norm, eps in norms.items():
        folded = []
        for state in (old, new):
            weight, bias, mean, variance = (
                state[f"{norm}.{field}"] for field in ("weight", "bias", "running_mean", "running_var")
            )
            scale = weight / (variance + eps).sqrt()
            if len(scale) != len(state[convolution]):
                break
            shift = state.get(f"{convolution.removesuffix('weight')}bias", torch.zeros(())) - mean
            if name.endswith("_bias"):
                folded.append(shift * scale + bias)
            else:
                folded.append(state[convolution] * scale[:, None, None, None])
        else:
            yield folded[0], folded[1]

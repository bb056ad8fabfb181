"""mmort's side: the same config and MMDetection's checkpoint, through the calls that users make."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mmort import Predictor
from mmort.configs import read_config
from mmort.configs.captions import Texts
from mmort.detect.network import TorchNetwork, load_network
from mmort.predict import Detections, OnnxRuntime
from tests.originals.results import BatchResult, ImageResult


class Candidate:
    """A detector of mmort.

    Parameters
    ----------
    config : dict or path
        It is not changed.
    checkpoint : path
        Of MMDetection's detector.
    file : path, optional
        The exported detector, which runs instead of the torch module.
    texts : optional
        As for `load_network`.
    """

    def __init__(
        self, config: dict[str, Any] | str, checkpoint: str, file: str | None = None, texts: Texts | None = None
    ) -> None:
        if file is not None:
            self.predictor = Predictor(OnnxRuntime(file, threads=1), score_threshold=0)
            return
        config = read_config(config) if isinstance(config, str) else copy.deepcopy(config)
        network = load_network(config, checkpoint, texts=texts)
        self.network = _AnyFloat(network)
        self.predictor = Predictor(self.network, preprocessing=network.preprocessing, score_threshold=0)

    def run(self, paths: Sequence[str], dtype: torch.dtype = torch.float32, mapped: bool = True) -> BatchResult:
        """Detect objects in images, as one batch; boxes stay in pixels of the resized images unless `mapped`."""
        if dtype != torch.float32:
            self.network.to(dtype)
        elif hasattr(self, "network"):
            self.network.to(torch.float32)
        prepared = [self.predictor.preprocessing(path) for path in paths]
        if not mapped:
            unscaled = np.ones(4, np.float32)
            prepared = [replace(image, ori_shape=image.img_shape, scale_factor=unscaled) for image in prepared]
        input, _ = self.predictor.preprocessing.batch(prepared)
        return BatchResult(input, [_image_result(detections) for detections in self.predictor.run(prepared)])


class _AnyFloat:
    """`TorchNetwork` that can compute in float64 too."""

    input_shape = None, None, None

    def __init__(self, network: TorchNetwork) -> None:
        self.network, self.dtype = network, torch.float32
        self.mask_format = network.mask_format

    def to(self, dtype: torch.dtype) -> None:
        if dtype != self.dtype:
            self.network.detector.to(dtype)
            self.dtype = dtype

    def __call__(self, input: NDArray[np.float32], img_shape: NDArray[np.int64]) -> list[NDArray[Any]]:
        if self.dtype == torch.float32:
            return self.network(input, img_shape)
        with torch.inference_mode():
            outputs = self.network.detector(torch.from_numpy(input).to(self.dtype), torch.from_numpy(img_shape))
        return [output.numpy() for output in outputs]


def _image_result(detections: Detections) -> ImageResult:
    """Return what mmort's detections hold."""
    panoptic = detections.panoptic_map
    if panoptic is not None:
        empty = np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64)
        return ImageResult(*empty, None, panoptic.astype(np.int64))
    boxes = detections.boxes if detections.rotated_boxes is None else detections.rotated_boxes
    return ImageResult(boxes, detections.scores, detections.labels, detections.masks)

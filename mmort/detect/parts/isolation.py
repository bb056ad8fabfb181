"""Images of a batch kept apart: padding is excluded from the network before a transformer that reads its last map."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.contract import Preprocessing
from mmort.contract.pipeline_settings import settings_of
from mmort.detect.entries import Parts
from mmort.detect.parts.positions import image_cells
from mmort.detect.parts.queries import QueryDetector


class SingleMapDetector(QueryDetector):
    """Base of detectors whose transformer reads the last map of the backbone, or of the neck after it.

    Notes
    -----
    Padding takes no part in the transformer.  It does in the backbone, as in MMDetection, so that an image in a batch
    of larger ones gives slightly different results than alone; see `isolate_images`.
    """

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        # To a multiple of it an image alone is padded, and its padding stays.
        self.size_divisor = Preprocessing(**settings_of(config)).size_divisor if config.has_test_pipeline else 1
        self._isolation: Isolation | None = None

    def prepare_for_export(self, *, flip: bool) -> tuple[str, ...]:
        """Isolate the images of a batch."""
        self.isolate_images()
        return super().prepare_for_export(flip=flip)

    def isolate_images(self) -> None:
        """Exclude padding from the backbone too: an image gives the same results in any batch as alone.

        MMDetection's results for batches differ: they lose some accuracy.
        """
        if self._isolation is None:
            self._isolation = Isolation(nn.Sequential(self.backbone, self.neck))

    def last_map(self, input: Tensor, limits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the last map [N, C, h, w], and which of its rows [N, h] and columns [N, w] are the images'."""
        if self._isolation is not None:
            with self._isolation.of(torch.ceil(limits / self.size_divisor) * self.size_divisor):
                map = self.levels(input)[-1]
            return map, *used_cells(map, limits, self._isolation.stride)
        map = self.levels(input)[-1]
        return map, *image_cells(map, input, limits)


class Isolation:
    """Keeps zeros around each image of a batch before each layer of a network, as around an image alone.

    Hooks on the layers clear what the layers before have put there; outside of `of` they do nothing.  1x1 convolutions
    need none, as they bring nothing from one cell to another.

    Attributes
    ----------
    stride : int
        That of the network's last maps.
    """

    def __init__(self, network: nn.Module) -> None:
        size = 256
        self._strides: dict[nn.Module, int] = {}  # of each layer's inputs
        self._limits: Tensor | None = None
        layers = [
            layer
            for layer in network.modules()
            if isinstance(layer, (nn.Conv2d, nn.MaxPool2d)) and layer.kernel_size not in (1, (1, 1))
        ]

        def note(layer: nn.Module, inputs: tuple[Tensor]) -> None:
            self._strides[layer] = size // inputs[0].shape[3]

        hooks = [layer.register_forward_pre_hook(note) for layer in layers]
        self.stride = size // network(torch.zeros(1, 3, size, size))[-1].shape[3]
        for hook in hooks:
            hook.remove()
        for layer in layers:
            layer.register_forward_pre_hook(self._clear)

    @contextmanager
    def of(self, limits: Tensor) -> Iterator[None]:
        """Isolate images that end at `limits`, [N, 1, 4], while the backbone runs."""
        self._limits = limits
        try:
            yield
        finally:
            self._limits = None

    def _clear(self, layer: nn.Module, inputs: tuple[Tensor]) -> Tensor | None:
        """Return the input of a layer with zeros around each image."""
        if self._limits is None:
            return None
        rows, columns = used_cells(inputs[0], self._limits, self._strides[layer])
        return torch.where(rows[:, None, :, None] & columns[:, None, None], inputs[0], 0)


def used_cells(map: Tensor, limits: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Return which rows [N, h] and columns [N, w] of a map an image alone would have."""
    columns, rows = (
        torch.arange(size, device=map.device) < torch.ceil(limits[..., axis] / stride)
        for axis, size in enumerate((map.shape[3], map.shape[2]))
    )
    return rows, columns

"""Masks from networks whose weights are predicted for each detection; their inputs are shared but for coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmort.detect.parts.priors import Priors


@dataclass(frozen=True)
class DynamicMasks:
    """Networks of 1x1 convolutions with ReLU between them; call it with their weights and inputs.

    Attributes
    ----------
    features : int
        Channels of the shared features, which come after the coordinates x and y.
    width : int
        Channels between the layers.
    depth : int
        Number of layers.
    """

    features: int
    width: int
    depth: int

    @property
    def layers(self) -> list[tuple[int, int]]:
        """Inputs and outputs of each layer."""
        outputs = [self.width] * (self.depth - 1) + [1]
        return list(zip([self.features + 2, *outputs[:-1]], outputs, strict=True))

    @property
    def weights(self) -> int:
        """Numbers that make up a network."""
        return sum(inputs * outputs + outputs for inputs, outputs in self.layers)

    def __call__(self, weights: Tensor, features: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return mask logits.

        Parameters
        ----------
        weights : Tensor, [N, K, weights]
            The kernels of all layers, then their biases.
        features : Tensor, [N, features, h, w]
        x, y : Tensor, [N, K, w], [N, K, h]
            Coordinates of the features' locations, relative to each detection.

        Returns
        -------
        Tensor, [N, K, h, w]
        """
        kernels, biases = self._split(weights)
        # The coordinates' terms are added to those of the features, which all masks share: no copies of the features.
        columns, rows = kernels[0][..., 0, None, None], kernels[0][..., 1, None, None]  # [N, K, width, 1, 1]
        mixed = kernels[0][..., 2:].flatten(1, 2) @ features.flatten(2)  # [N, K * width, h * w]
        mixed = torch.unflatten(torch.unflatten(mixed, 1, (-1, kernels[0].shape[2])), 3, features.shape[2:])
        along_x = columns * x[:, :, None, None] + biases[0][..., None]
        hidden = (mixed + along_x + rows * y[:, :, None, :, None]).flatten(3)
        for kernel, bias in zip(kernels[1:], biases[1:], strict=True):
            hidden = kernel @ hidden.relu() + bias  # [N, K, C, h * w]
        return torch.unflatten(hidden[:, :, 0], 2, features.shape[2:])

    def _split(self, weights: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Split weights [N, K, W] into kernels [N, K, outputs, inputs] and biases [N, K, outputs, 1] by layer."""
        layers = self.layers
        sizes = [inputs * outputs for inputs, outputs in layers] + [outputs for _, outputs in layers]
        parts = torch.split(weights, sizes, 2)
        kernels = [
            torch.unflatten(values, 2, (outputs, inputs))
            for values, (inputs, outputs) in zip(parts[: self.depth], layers, strict=True)
        ]
        return kernels, [bias[..., None] for bias in parts[self.depth :]]


def relative_coordinates(points: Tensor, units: Tensor, grid: Tensor) -> tuple[Tensor, Tensor]:
    """Return x [N, K, w] and y [N, K, h] from locations to points [N, K, 2], in `units` [N, K].

    `grid` [h, w, 2] has the locations.
    """
    x, y = points[..., 0, None] - grid[0, :, 0], points[..., 1, None] - grid[:, 0, 1]
    return x / units[..., None], y / units[..., None]


def points_and_strides(priors: Priors, maps: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the points [P, 2] of all levels, and their strides [P], for maps [N, C, h, w] by level."""
    points = [priors.level(level, map) for level, map in enumerate(maps)]
    strides = [
        level[:, 0].new_full((level.shape[0],), stride)
        for level, (stride, _) in zip(points, priors.strides, strict=True)
    ]
    return torch.cat(points), torch.cat(strides)


def of_priors(maps: Sequence[Tensor], indices: Tensor) -> Tensor:
    """Return the rows [N, K, C] of maps [N, C, h, w] by level, for priors by their `indices` [N, K] over all levels."""
    flat = torch.cat([map.flatten(2) for map in maps], 2)  # [N, C, priors of all levels]
    return flat.gather(2, indices[:, None].expand(-1, flat.shape[1], -1)).transpose(1, 2)

"""The size of the image that a detector is traced with: large enough that torch freezes none of its maps.

torch takes a size of 1 for a constant.  Where a small image makes one, and a larger image more (the coarsest map, or
the windows of a Swin Transformer along a side), the file would fail with larger images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from mmort.detect.detector import Detector
from mmort.onnx.verify.operator_calls import Intercepted

SUFFICIENT_SIDE = 800  # pixels; no network is known that freezes a size here, and larger images take long


def sufficient_shape(detector: Detector, height: int, width: int, rounded: Callable[[int], int]) -> tuple[int, int]:
    """Return a height and a width, doubled as often as is needed, at which backbone and neck have no size to freeze.

    Parameters
    ----------
    detector : Detector
    height, width : int
        The sides to begin with.
    rounded : callable
        Returns the next side that suits the network.
    """
    shapes = None
    while min(height, width) < SUFFICIENT_SIDE:
        larger = rounded(2 * height), rounded(2 * width)
        shapes, next_shapes = shapes or _shapes(detector, height, width), _shapes(detector, *larger)
        if not any(map(_freezes, shapes, next_shapes)):
            break
        (height, width), shapes = larger, next_shapes
    return height, width


def _shapes(detector: Detector, height: int, width: int) -> list[torch.Size]:
    """Return the shapes of all that is computed up to the neck's maps."""
    shapes: list[torch.Size] = []

    def note(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        outputs = func(*args, **kwargs)
        shapes.extend(output.shape for output in tree_leaves(outputs) if isinstance(output, Tensor))
        return outputs

    with torch.no_grad(), Intercepted(note):
        detector.levels(torch.zeros(1, 3, height, width))
    return shapes


def _freezes(shape: torch.Size, larger: torch.Size) -> bool:
    """Return whether a tensor has a size of 1 that is more in a larger image."""
    return any(size == 1 < more for size, more in zip(shape, larger, strict=False))

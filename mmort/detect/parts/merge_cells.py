"""How searched necks merge two maps of different sizes.

Source: G. Ghiasi et al., "NAS-FPN", CVPR 2019; MMCV's ``BaseMergeCell`` and ``GlobalPoolingCell``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def resize(x: Tensor, size: Sequence[int], finer: bool) -> Tensor:
    """Return maps [N, C, h, w] at another size, of a `finer` level than theirs or of a coarser one.

    To a coarser level, maps are padded with zeros to a multiple of the size, and the maximum of each window is taken.
    """
    if finer:
        return F.interpolate(x, size=size)
    padding: list[int] = []
    windows: list[int] = []
    for axis in (1, 0):  # the last is padded first
        side, target = x.shape[axis + 2], size[axis]
        window = (side + target - 1) // target
        missing = window * target - side
        padding += [missing // 2, missing - missing // 2]
        windows.insert(0, window)
    x = F.pad(x, padding)
    x = torch.unflatten(torch.unflatten(x, 3, (size[1], windows[1])), 2, (size[0], windows[0]))
    return x.amax((3, 5))


def weighted_sum(first: Tensor, second: Tensor) -> Tensor:
    """Return `second` plus `first`, whose channels are weighted by what the whole of `second` shows."""
    return second + second.mean((2, 3), keepdim=True).sigmoid() * first

"""Lines of the originals that torch cannot trace for all sizes, each with what takes their place and why.

They hold while a file is made and proven.  The end results are compared with the original as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor


def _joined(windows: Tensor, height: int, width: int, size: int) -> Tensor:
    """Return windows (N, size, size, C) as images; the number of images is left to the view, not computed by int()."""
    x = windows.reshape(-1, height // size, width // size, size, size, windows.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(x.shape[0], height, width, windows.shape[-1])


def _joined_of_mmsegmentation(self: Any, windows: Tensor, height: int, width: int) -> Tensor:
    return _joined(windows, height, width, self.window_size)


_SHIMS = (
    # mmpretrain/models/utils/attention.py:462: B = int(windows.shape[0] / (H * W / window_size / window_size))
    ("mmpretrain.models.utils.attention", "ShiftWindowMSA", "window_reverse", staticmethod(_joined)),
    # mmseg/models/backbones/swin.py:266: the same
    ("mmseg.models.backbones.swin", "ShiftWindowMSA", "window_reverse", _joined_of_mmsegmentation),
)
"""Module, class, method, and what takes the method's place."""


@contextmanager
def applied() -> Iterator[None]:
    """Let the shims of the packages that are imported hold in the block."""
    with ExitStack() as stack:
        for module, owner, name, function in _SHIMS:
            if module in sys.modules:
                shimmed = getattr(sys.modules[module], owner)
                stack.callback(setattr, shimmed, name, vars(shimmed)[name])
                setattr(shimmed, name, function)
        yield

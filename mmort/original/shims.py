"""Lines of the originals that torch cannot trace for all sizes, each with what takes their place and why.

They hold while a file is made and proven.  The end results are compared with the original as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor
from torch.nn import functional


def _joined(windows: Tensor, height: int, width: int, size: int) -> Tensor:
    """Return windows (N, size, size, C) as images; the number of images is left to the view, not computed by int()."""
    x = windows.reshape(-1, height // size, width // size, size, size, windows.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(x.shape[0], height, width, windows.shape[-1])


def _joined_of_mmsegmentation(self: Any, windows: Tensor, height: int, width: int) -> Tensor:
    return _joined(windows, height, width, self.window_size)


def _upsampled(self: Any, x: Tensor) -> Tensor:
    """Return an enlarged image, whose sides are computed without floats if the factor is an integer."""
    sides, factor = x.shape[-2:], self.scale_factor
    size = self.size or [side * int(factor) if factor == int(factor) else int(side * factor) for side in sides]
    return functional.interpolate(x, size, mode=self.mode, align_corners=self.align_corners)


def _convolved_where_padded(self: Any, x: Tensor) -> Tensor:
    """Pad an image so that a convolution's output has its size over the stride, rounded up, and convolve it.

    The maximum with zero is left out where it changes nothing: nested in each other, maxima keep torch busy for hours.
    """
    pads: list[int] = []
    for side, *lengths in zip(x.shape[:1:-1], *(values[::-1] for values in _sizes_of(self)), strict=True):
        kernel, stride, dilation = lengths
        reach = (kernel - 1) * dilation + 1
        pad = -side % stride + reach - stride
        pad = pad if reach >= stride else max(pad, 0)
        pads += [pad // 2, pad - pad // 2]
    x = functional.pad(x, pads)
    return functional.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def _sizes_of(convolution: Any) -> tuple[tuple[int, int], ...]:
    """Return kernel, stride and dilation, each vertical and horizontal."""
    return convolution.weight.shape[-2:], convolution.stride, convolution.dilation


_SHIMS = (
    # mmpretrain/models/utils/attention.py:462: B = int(windows.shape[0] / (H * W / window_size / window_size))
    ("mmpretrain.models.utils.attention", "ShiftWindowMSA", "window_reverse", staticmethod(_joined)),
    # mmseg/models/backbones/swin.py:266: the same
    ("mmseg.models.backbones.swin", "ShiftWindowMSA", "window_reverse", _joined_of_mmsegmentation),
    # mmseg/models/utils/wrappers.py:48, of HRNet: int(t * self.scale_factor), which is a float
    ("mmseg.models.utils.wrappers", "Upsample", "forward", _upsampled),
    # mmcv/cnn/bricks/conv2d_adaptive_padding.py:48, of MobileNetV3: max((...) * self.stride[0] + ... - img_h, 0)
    ("mmcv.cnn.bricks.conv2d_adaptive_padding", "Conv2dAdaptivePadding", "forward", _convolved_where_padded),
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

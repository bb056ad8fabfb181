"""Lines of the originals that torch cannot trace for all sizes, each with what takes their place and why.

They hold while a file is made and proven.  The end results are compared with the original as it is.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mmort.detect.parts.backbones.swin import ShiftedWindows, chunks


def _joined(windows: Tensor, height: int, width: int, size: int) -> Tensor:
    """Return windows (N, size, size, C) as images; the number of images is left to the view, not computed by int()."""
    x = windows.reshape(-1, height // size, width // size, size, size, windows.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(x.shape[0], height, width, windows.shape[-1])


def _attended(self: Any, query: Tensor, sides: tuple[int, int]) -> Tensor:
    """Attend within windows of tokens (N, H * W, C) as mmort's own Swin, whose counts of windows torch can simplify."""

    def attention(windows: Tensor, mask: Tensor | None) -> Tensor:
        """Attend within windows (N, W, T, C)."""
        attended: Tensor = self.w_msa(windows.flatten(0, 1), mask)
        return attended.reshape(windows.shape)

    windows = ShiftedWindows(self.window_size, self.shift_size, attention)  # type: ignore[arg-type]
    x = windows.forward(query.reshape(query.shape[0], *sides, query.shape[-1]))
    tokens: Tensor = self.drop(x.flatten(1, 2))
    return tokens


def _upsampled(self: Any, x: Tensor) -> Tensor:
    """Return an enlarged image, whose sides are computed without floats if the factor is an integer."""
    sides, factor = x.shape[-2:], self.scale_factor
    size = self.size or [side * int(factor) if factor == int(factor) else int(side * factor) for side in sides]
    return functional.interpolate(x, size, mode=self.mode, align_corners=self.align_corners)


def _padding(x: Tensor, *lengths: tuple[int, int]) -> Iterator[int]:
    """Yield by how much width and height must grow, so that windows give their size over the stride, rounded up.

    `lengths` are kernel, stride and dilation, each vertical and horizontal.  The maximum with zero is left out where it
    changes nothing: nested in each other, maxima keep torch busy for hours.
    """
    for side, *of_side in zip(x.shape[:-3:-1], *(values[::-1] for values in lengths), strict=True):
        kernel, stride, dilation = of_side
        reach = (kernel - 1) * dilation + 1
        pad = chunks(side, stride) * stride - side + reach - stride  # remainders cannot be simplified
        yield pad if reach >= stride else max(pad, 0)


def _convolved_where_padded(self: Any, x: Tensor) -> Tensor:
    """Pad an image on both sides, and convolve it."""
    pads = _padding(x, self.weight.shape[-2:], self.stride, self.dilation)
    x = functional.pad(x, [length for pad in pads for length in (pad // 2, pad - pad // 2)])
    return functional.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def _padded(self: Any, x: Tensor) -> Tensor:
    """Pad an image, by nothing if need be, which a program for all sizes must not decide."""
    lengths: list[int] = []
    for pad in _padding(x, self.kernel_size, self.stride, self.dilation):
        before = pad // 2 if self.padding == "same" else 0
        lengths += before, pad - before
    return functional.pad(x, lengths)


def _filtered(self: Any, x: Tensor) -> Tensor:
    """Convolve each image with the filters that are made of it; their number must not be that of the images."""
    side, low = self.filter_size, self.filter_size // 2
    filters = self.filter_gen_conv(functional.adaptive_avg_pool2d(x, side))
    x = self.input_redu_conv(x)
    height, width = x.shape[-2:]
    x = functional.pad(x, (low, side - 1 - low) * 2)
    positions = itertools.product(range(side), repeat=2)
    products = (
        x[..., row : row + height, column : column + width] * filters[..., row, column, None, None]
        for row, column in positions
    )
    x = functools.reduce(torch.add, products)
    x = self.activate(x if self.norm is None else self.norm(x))
    filtered: Tensor = self.fusion_conv(x) if self.fusion else x
    return filtered


_SHIMS = (
    # mmpretrain/models/utils/attention.py:462: B = int(windows.shape[0] / (H * W / window_size / window_size))
    ("mmpretrain.models.utils.attention", "ShiftWindowMSA", "window_reverse", staticmethod(_joined)),
    # mmseg/models/backbones/swin.py:187: (self.window_size - W % self.window_size) % ..., and :266: int() as above
    ("mmseg.models.backbones.swin", "ShiftWindowMSA", "forward", _attended),
    # mmseg/models/utils/wrappers.py:48, of HRNet: int(t * self.scale_factor), which is a float
    ("mmseg.models.utils.wrappers", "Upsample", "forward", _upsampled),
    # mmseg/models/utils/embed.py:64: max((output_h - 1) * stride_h + ... - input_h, 0), and :72: if pad_h > 0 ...
    ("mmseg.models.utils.embed", "AdaptivePadding", "forward", _padded),
    # mmpose/models/utils/transformer.py:109, and mmcv/cnn/bricks/transformer.py:127, of MMPretrain: the same
    ("mmpose.models.utils.transformer", "AdaptivePadding", "forward", _padded),
    ("mmcv.cnn.bricks.transformer", "AdaptivePadding", "forward", _padded),
    # mmseg/models/decode_heads/dm_head.py:79: F.conv2d(input=x, weight=generated_filter, groups=b * c)
    ("mmseg.models.decode_heads.dm_head", "DCM", "forward", _filtered),
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

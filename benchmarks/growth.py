"""Curves: an operator's time while one of its sizes grows and the others stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from peers import (
    batched_nms,
    box_iou,
    corner_pool,
    cummax,
    deform_conv2d,
    grid_sample,
    multi_scale_deformable_attention,
    multiclass_nms,
    nms,
    roi_align,
    soft_nms,
)
from rows import Function, Row


class Curve(NamedTuple):
    """The values of a size, and the row for each; beyond `compared_until`, where peers take minutes, mmort is alone."""

    function: Function
    variable: str
    values: tuple[int, ...]
    row: Callable[[int], Row]
    compared_until: int = 2**63

    @property
    def operator(self) -> str:
        return self.function.__name__


def suppression(count: int) -> Row:
    return {"kind": "square", "boxes": count, "iou_threshold": 0.5}


def in_classes(count: int) -> Row:
    return suppression(count) | {"classes": 80}


def in_many_classes(count: int) -> Row:
    return {"boxes": 10_000, "classes": count, "score_threshold": 0.5}


def decaying(count: int) -> Row:
    return {"kind": "square", "boxes": count, "method": "gaussian"}


def regions(rois: int = 100, batch: int = 1, channels: int = 64, height: int = 50, width: int = 76) -> Row:
    input = batch, channels, height, width
    return {"rois": rois, "input": input, "output_size": 7, "sampling_ratio": 2, "aligned": True}


def samples(batch: int = 1, channels: int = 16, side: int = 64, positions: int = 10_000) -> Row:
    sizes = {"input": (batch, channels, side, side), "output": (1, positions)}
    return sizes | {"positions": "scattered", "mode": "bilinear", "padding": "zeros", "align": False}


def convolution(batch: int = 1, channels: int = 32, height: int = 32, width: int = 32) -> Row:
    return {"input": (batch, channels, height, width), "outputs": channels}


def attention(side: int) -> Row:
    return {"sizes": ((side, side), (side // 2, side // 2)), "heads": 8, "channels": 32}


def pooling(mode: str, channels: int = 1, height: int = 64, width: int = 64) -> Row:
    return {"input": (1, channels, height, width), "mode": mode}


MANY = 100, 1000, 10_000, 100_000, 1_000_000
SIDES = 16, 64, 256, 1024, 4096, 16_384
CHANNELS = 1, 4, 16, 64, 256, 1024
BATCHES = 1, 4, 16, 64
CURVES = [
    Curve(nms, "boxes (N)", MANY, suppression, 10_000),
    Curve(batched_nms, "boxes (N), 80 classes", MANY, in_classes, 100_000),
    Curve(soft_nms, "boxes (N)", MANY[:4], decaying, 1000),
    Curve(multiclass_nms, "classes", (1, 10, 100), in_many_classes),
    Curve(box_iou, "boxes (N) x boxes (N)", MANY[:3], lambda count: {"boxes1": count, "boxes2": count}, 1000),
    Curve(roi_align, "regions (K)", (1, 10, 100, 1000, 10_000), regions, 1000),
    Curve(roi_align, "channels (C)", CHANNELS, lambda count: regions(channels=count)),
    Curve(roi_align, "height (H)", SIDES[:4], lambda height: regions(height=height)),
    Curve(roi_align, "batch", BATCHES, lambda count: regions(batch=count)),
    Curve(grid_sample, "positions (K)", MANY[::2], lambda count: samples(positions=count)),
    Curve(grid_sample, "channels (C)", CHANNELS, lambda count: samples(channels=count)),
    Curve(grid_sample, "height, width (H = W)", SIDES, lambda side: samples(channels=1, side=side)),
    Curve(grid_sample, "batch", BATCHES, lambda count: samples(batch=count)),
    Curve(deform_conv2d, "channels (C)", CHANNELS[1:5], lambda count: convolution(channels=count)),
    Curve(deform_conv2d, "width (W)", (8, 32, 128, 512), lambda width: convolution(width=width)),
    Curve(deform_conv2d, "batch", BATCHES[:3], convolution),
    Curve(multi_scale_deformable_attention, "height, width (H = W)", (8, 16, 32, 64, 128), attention),
    Curve(corner_pool, "height, width (H = W)", SIDES, lambda side: pooling("left", height=side, width=side), 1024),
    Curve(corner_pool, "channels (C)", CHANNELS[:5], lambda count: pooling("top", channels=count)),
    Curve(cummax, "elements (N)", MANY, lambda count: {"input": (count,), "values": "normal", "dim": 0}),
]

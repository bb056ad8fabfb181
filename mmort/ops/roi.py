"""Pooling of regions of interest."""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from mmort import _arrays
from mmort._kernels import call

POOL_MODES = ("avg", "max")


def roi_align(
    input: ArrayLike,
    rois: ArrayLike,
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    pool_mode: Literal["avg", "max"] = "avg",
    aligned: bool = True,
) -> NDArray[Any]:
    """Pool the features of regions of interest into bins, by bilinear samples on a regular grid in each bin.

    Parameters
    ----------
    input : array_like, [N, C, H, W]
        Feature maps.  float16, float32, float64 or integers (taken as float64).
    rois : array_like, [K, 5]
        Rows of (batch index, x1, y1, x2, y2).  The index, its fraction dropped, must be in [0, N).  Coordinates must be
        finite; they may be in any order, and outside the map.
    output_size : int or (int, int)
        Bins along y and x, at least 1.
    spatial_scale : float, default 1.0
        Pixels of the map per unit of `rois`, for instance 1/16.
    sampling_ratio : int, default 0
        Samples in a bin along each axis, at most 1024.  0 or less: the size of a bin in pixels, rounded up.
    pool_mode : {"avg", "max"}, default "avg"
        What becomes of the samples in a bin.
    aligned : bool, default True
        Whether a pixel's centre is at its index + 0.5.  If not, it is at its index, and a region counts as at least one
        pixel wide and high.

    Returns
    -------
    ndarray, [K, C, output height, output width]
        Of the inputs' floating dtype; float16 is computed in float32.  Without regions, or channels, it is empty.

    Raises
    ------
    ValueError
        If a shape, a row of `rois` or an attribute is not as said above, or a region would need more than 2**31 samples
        along a bin.
    TypeError
        If `input` or `rois` is not of a real dtype, or an attribute not of its type.

    Notes
    -----
    A sample up to one pixel outside the centres at the border takes the border's value; one further away is 0, and
    counts.  NaN propagates into the bins that sample it.  A bin without samples (`aligned`, `sampling_ratio` 0, and a
    region of no or negative size) is 0 with "avg" and -10000 with "max".

    "max" is the true maximum; MMCV's kernel never went below -10000.  MMCV's kernel also multiplied the first pixel of
    the map by 0 for samples outside, and so let a NaN there spread.

    Source: K. He et al., "Mask R-CNN", ICCV 2017; ``mmcv.ops.roi_align``.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> features = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    >>> mmort.roi_align(features, np.array([[0, 0, 0, 4, 4]], np.float32), 2)
    array([[[[ 2.5,  4.5],
             [10.5, 12.5]]]], dtype=float32)
    """
    (features, regions), dtype = _arrays.floating("roi_align", input=input, rois=rois)
    height, width = _arrays.pair("roi_align", "output_size", output_size)
    attributes = (
        height,
        width,
        _arrays.number("roi_align", "spatial_scale", spatial_scale),
        _arrays.integer("roi_align", "sampling_ratio", sampling_ratio),
        _arrays.choice("roi_align", "pool_mode", pool_mode, POOL_MODES),
        int(bool(aligned)),
    )
    (output,) = call("roi_align", (features, regions), attributes)
    return output.astype(dtype, copy=False)

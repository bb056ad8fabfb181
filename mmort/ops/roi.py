"""Pooling of regions of interest."""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from mmort._kernels import call
from mmort.ops._other_names import explains_other_names

__all__ = ["roi_align"]


@explains_other_names
def roi_align(
    input: ArrayLike,
    rois: ArrayLike,
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    pool_mode: Literal["avg", "max"] = "avg",
    aligned: bool = True,
) -> NDArray[Any]:
    """Pool the features of regions of interest into bins, from bilinear samples on a regular grid in each bin.

    Parameters
    ----------
    input : array_like of shape (N, C, H, W)
        Feature maps; float16, float32 or float64 (integers are converted to float64).
    rois : array_like of shape (K, 5)
        Rows (batch index, x1, y1, x2, y2).  The index, truncated to an integer, must be in [0, N).  Coordinates must be
        finite; they may be in any order, and outside the map.
    output_size : int or (int, int)
        Number of bins along y and x, at least 1.
    spatial_scale : float, default 1.0
        Pixels of the map per unit of `rois`, for instance 1/16.
    sampling_ratio : int, default 0
        Samples in a bin along each axis, at most 1024.  0 or less: the size of a bin in pixels, rounded up.
    pool_mode : {"avg", "max"}, default "avg"
        Average or maximum of the samples in a bin.
    aligned : bool, default True
        Whether the centre of a pixel is at its index + 0.5.  If not, it is at its index, and a region counts as at
        least one pixel wide and high.

    Returns
    -------
    ndarray of shape (K, C, output height, output width)
        Of the common floating dtype of the inputs; float16 is computed in float32.

    Raises
    ------
    ValueError
        If a shape, a row of `rois` or another argument is not as described above, or a region needs more than 2**31
        samples along a bin.
    TypeError
        If `input` or `rois` is not of a real dtype, or another argument not of its type.

    Notes
    -----
    A sample up to one pixel outside the centres at the border takes the border's value; one further away is 0, and
    counts.  NaN propagates into the bins that sample it.  A bin without samples (`aligned`, `sampling_ratio` 0, and a
    region of zero or negative size) is 0 with "avg" and -10000 with "max".

    "max" is the true maximum; that of MMCV's kernel is never below -10000.  For samples outside the map, MMCV's kernel
    also multiplies the first pixel by 0, so that a NaN there spreads.

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
    (output,) = call(
        "roi_align",
        input=input,
        rois=rois,
        output_size=output_size,
        spatial_scale=spatial_scale,
        sampling_ratio=sampling_ratio,
        pool_mode=pool_mode,
        aligned=aligned,
    )
    return output

"""Attention over feature maps."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray

from mmort import _arrays
from mmort._kernels import call


def multi_scale_deformable_attention(
    value: ArrayLike,
    spatial_shapes: ArrayLike,
    level_start_index: ArrayLike,
    sampling_locations: ArrayLike,
    attention_weights: ArrayLike,
) -> NDArray[Any]:
    """Sum bilinear samples of several feature maps, weighted, for each query and head.

    Parameters
    ----------
    value : array_like, [B, S, M, D]
        The pixels of all maps one after another, with D channels for each of M heads; float16, float32 or float64.
    spatial_shapes : array_like of integers, [L, 2]
        Height and width of each map.
    level_start_index : array_like of integers, [L]
        Where each map begins in `value`.
    sampling_locations : array_like, [B, Q, M, L, P, 2]
        P points (x, y) for each query, head and map; (0, 0) and (1, 1) are the outer corners of the map.
    attention_weights : array_like, [B, Q, M, L, P]

    Returns
    -------
    ndarray, [B, Q, M * D]
        Of the common floating dtype of the inputs.

    Raises
    ------
    ValueError
        If a shape is another, or a map does not lie within `value`.
    TypeError
        If an array does not hold the numbers it should.

    Notes
    -----
    Pixels outside a map count as 0, and so do points that are not finite.  float16 is computed in float32.

    Source: X. Zhu et al., "Deformable DETR", ICLR 2021; ``mmcv.ops.multi_scale_deform_attn``; in ONNX Runtime
    ``mmort::MultiScaleDeformableAttention``.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> value = np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1, 1)  # one map of 2 x 2 pixels
    >>> middle = np.full((1, 1, 1, 1, 1, 2), 0.5)
    >>> mmort.multi_scale_deformable_attention(value, [[2, 2]], [0], middle, np.ones((1, 1, 1, 1, 1)))
    array([[[2.5]]])
    """
    name = "multi_scale_deformable_attention"
    (value, locations, weights), dtype = _arrays.floating(
        name, value=value, sampling_locations=sampling_locations, attention_weights=attention_weights
    )
    shapes = _arrays.integers(name, "spatial_shapes", spatial_shapes)
    starts = _arrays.integers(name, "level_start_index", level_start_index)
    (output,) = call(name, (value, shapes, starts, locations, weights), ())
    return output.astype(dtype, copy=False)

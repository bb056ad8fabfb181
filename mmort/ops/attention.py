"""Attention over feature maps."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray

from mmort._kernels import call

__all__ = ["multi_scale_deformable_attention"]


def multi_scale_deformable_attention(
    value: ArrayLike,
    spatial_shapes: ArrayLike,
    level_start_index: ArrayLike,
    sampling_locations: ArrayLike,
    attention_weights: ArrayLike,
) -> NDArray[Any]:
    """Compute multi-scale deformable attention: weighted sums of bilinear samples from several feature maps.

    Parameters
    ----------
    value : array_like of shape (B, S, M, D)
        The pixels of all maps, one map after another, with D channels for each of M heads; float16, float32 or float64.
    spatial_shapes : array_like of int, shape (L, 2)
        Height and width of each map.
    level_start_index : array_like of int, shape (L,)
        Index in S of the first pixel of each map.
    sampling_locations : array_like of shape (B, Q, M, L, P, 2)
        P points (x, y) for each query, head and map; (0, 0) and (1, 1) are the outer corners of the map.
    attention_weights : array_like of shape (B, Q, M, L, P)
        Weight of each point.

    Returns
    -------
    ndarray of shape (B, Q, M * D)
        Of the common floating dtype of the inputs.

    Raises
    ------
    ValueError
        If a shape does not match, or a map does not lie within `value`.
    TypeError
        If an array is not of a real dtype, or `spatial_shapes` or `level_start_index` not of integers.

    Notes
    -----
    Pixels outside a map count as 0, and so do points that are not finite.  float16 is computed in float32.

    Source: X. Zhu et al., "Deformable DETR", ICLR 2021; ``mmcv.ops.multi_scale_deform_attn``.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> value = np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1, 1)  # one map of 2 x 2 pixels
    >>> centre = np.full((1, 1, 1, 1, 1, 2), 0.5)
    >>> mmort.multi_scale_deformable_attention(value, [[2, 2]], [0], centre, np.ones((1, 1, 1, 1, 1)))
    array([[[2.5]]])
    """
    (output,) = call(
        "multi_scale_deformable_attention",
        value=value,
        spatial_shapes=spatial_shapes,
        level_start_index=level_start_index,
        sampling_locations=sampling_locations,
        attention_weights=attention_weights,
    )
    return output

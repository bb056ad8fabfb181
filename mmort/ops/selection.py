"""Selection among class scores, before suppression."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray

from mmort._kernels import call

__all__ = ["filter_scores"]


def filter_scores(scores: ArrayLike, score_threshold: float = 0.05, nms_pre: int = -1) -> NDArray[Any]:
    """Set all class scores to 0 but the best of each image.

    Parameters
    ----------
    scores : array_like of shape (B, N, C)
        Score of each box for each class; float16, float32 or float64 (integers are converted to float64).
    score_threshold : float, default 0.05
        Only scores greater than this stay.
    nms_pre : int, default -1
        If positive, the number of scores of an image that stay, over all boxes and classes; more do if they equal the
        lowest of these.

    Returns
    -------
    ndarray of shape (B, N, C)
        Of the floating dtype of the input.

    Raises
    ------
    ValueError
        If `scores` is not of shape (B, N, C).
    TypeError
        If `scores` is not of a real dtype, or another argument not of its type.

    Notes
    -----
    NaN scores never stay.  `multiclass_nms` has a parameter ``nms_pre`` too, which counts the boxes of each class.

    Source: MMDetection's ``filter_scores_and_topk``.

    Examples
    --------
    >>> import mmort
    >>> mmort.filter_scores([[[0.9, 0.3], [0.8, 0.01], [0.7, 0.6]]], nms_pre=3)
    array([[[0.9, 0. ],
            [0.8, 0. ],
            [0.7, 0. ]]])
    """
    (output,) = call("filter_scores", scores=scores, score_threshold=score_threshold, nms_pre=nms_pre)
    return output

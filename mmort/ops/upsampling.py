"""CARAFE: maps enlarged by weights that depend on their content."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray

from mmort._kernels import call

__all__ = ["carafe"]


def carafe(features: ArrayLike, masks: ArrayLike, kernel_size: int, group_size: int, scale_factor: int) -> NDArray[Any]:
    """Enlarge maps: each new pixel is a weighted sum of the pixels around the old one that it lies in.

    Parameters
    ----------
    features : array_like of shape (N, C, H, W)
        Maps; float16, float32 or float64 (integers are converted to float64).
    masks : array_like of shape (N, group_size * kernel_size**2, H * scale_factor, W * scale_factor)
        Weights of each new pixel: for each group of channels, those of the neighbours by row and column.
    kernel_size : int
        Rows and columns of the neighbourhood, an odd number of pixels of `features`.  Pixels outside are 0.
    group_size : int
        Number of groups of channels, each of which has weights of its own.
    scale_factor : int
        By how much the maps are enlarged.

    Returns
    -------
    ndarray of shape (N, C, H * scale_factor, W * scale_factor)
        Of the common floating dtype of the inputs.

    Raises
    ------
    ValueError
        If a shape does not match, `kernel_size` is even, or a number is not positive.
    TypeError
        If an array is not of a real dtype, or a number not an integer.

    Notes
    -----
    Source: J. Wang et al., "CARAFE: Content-Aware ReAssembly of FEatures", ICCV 2019; MMCV's ``carafe``.

    Examples
    --------
    >>> import mmort
    >>> mmort.carafe([[[[3.0, 5.0]]]], [[[[1, 0.5, 1, 2], [1, 1, 1, 1]]]], kernel_size=1, group_size=1, scale_factor=2)
    array([[[[ 3. ,  1.5,  5. , 10. ],
             [ 3. ,  3. ,  5. ,  5. ]]]])
    """
    (output,) = call(
        "carafe",
        features=features,
        masks=masks,
        kernel_size=kernel_size,
        group_size=group_size,
        scale_factor=scale_factor,
    )
    return output

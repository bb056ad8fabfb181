"""`Drawable`: results that can be drawn on their image, and saved so."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray


class Drawable(ABC):
    """A result of an image, which can be drawn on it."""

    @abstractmethod
    def plot(self, image: NDArray[np.uint8] | str | os.PathLike[str], *, scale: float = 1.0) -> NDArray[np.uint8]:
        """Draw what was found on a copy of its image, as `mmort.predict.draw` does.

        Parameters
        ----------
        image : ndarray of uint8, (H, W, 3), or path
            Blue, green, red; or the image's file.  Grey arrays and those with alpha are taken as files are.
        scale : float, default 1.0
            Resize the image by this factor first.

        Returns
        -------
        ndarray of uint8, (H * scale, W * scale, 3)
            Blue, green, red; ``[..., ::-1]`` is red, green, blue, which matplotlib and notebooks show.

        Raises
        ------
        ValueError
            If it is not the image of the result, not of this shape and dtype, or cannot be decoded; if `scale` is not
            positive.
        TypeError
            If `image` is neither an array nor a path.
        OSError
            If the file cannot be opened.
        ImportError
            If OpenCV is not installed.
        """

    def save(
        self,
        path: str | os.PathLike[str],
        image: NDArray[np.uint8] | str | os.PathLike[str],
        *,
        scale: float = 1.0,
    ) -> None:
        """Write the drawing of `plot` to an image file, whose suffix, such as ``.png``, decides about the format.

        A file that exists is replaced, but never the image itself.

        Raises
        ------
        ValueError
            As for `plot`, if OpenCV writes no format with this suffix, or if it would replace the image itself.
        OSError
            If the image cannot be opened, or the file not be written.
        ImportError
            If OpenCV is not installed.
        """
        from mmort.detections.drawing import save_drawn

        save_drawn(path, image, lambda: self.plot(image, scale=scale))

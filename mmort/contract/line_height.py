"""Resizing of images of words to one height, as MMOCR's ``RescaleToHeight``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mmort.limits import MAX_RESIZED_PIXELS


@dataclass(frozen=True)
class LineHeight:
    """A height, and the widths that images of it may have.

    Parameters
    ----------
    height : int
    min_width, max_width : int, optional
        An image that would be narrower or wider is stretched or squeezed.
    width_divisor : int, default 1
        The width is rounded to a multiple of this, halves to an even number of them.

    Examples
    --------
    >>> from mmort.contract import LineHeight
    >>> LineHeight(32, min_width=32, width_divisor=16).size(300, 60)
    (160, 32)
    """

    height: int
    min_width: int | None = None
    max_width: int | None = None
    width_divisor: int = 1

    def __post_init__(self) -> None:
        if self.height < 1 or self.width_divisor < 1:
            raise ValueError(
                f"preprocessing: line's height and width_divisor must be positive, got {self.height} and "
                f"{self.width_divisor}"
            )
        low, high = self.min_width or 1, self.max_width
        if low < 1 or (high is not None and high < low):
            raise ValueError(
                f"preprocessing: line's max_width must be at least its min_width, from 1, got {high} and {low}"
            )

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Return the width and height that an image of the given width and height is resized to.

        Raises
        ------
        ValueError
            If the image is so narrow that no pixel of its width is left, or so wide that it would take too much memory.
        """
        resized = self._rounded(math.ceil(self.height / height * width))  # the order of MMOCR's arithmetic
        if resized < 1:
            raise ValueError(
                f"preprocessing: an image of {width} x {height} pixels is too narrow: it must be at least half of "
                f"{self.width_divisor} pixels wide at a height of {self.height}"
            )
        if resized * self.height > MAX_RESIZED_PIXELS:
            raise ValueError(
                f"preprocessing: an image of {width} x {height} pixels is too wide: at a height of {self.height} it "
                f"would have {resized} x {self.height} pixels, and the limit is {MAX_RESIZED_PIXELS}"
            )
        return resized, self.height

    @property
    def widest(self) -> int | None:
        """The largest width of a resized image; None if there is no limit."""
        return None if self.max_width is None else self._rounded(self.max_width)

    @property
    def narrowest(self) -> int:
        """The smallest width of a resized image."""
        return max(1, self._rounded(1))

    def _rounded(self, width: int) -> int:
        """Return a width between the limits, as a multiple of the divisor."""
        width = max(width, self.min_width or width)
        width = min(width, self.max_width or width)
        return width if width % self.width_divisor == 0 else round(width / self.width_divisor) * self.width_divisor

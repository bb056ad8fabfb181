"""How a file's logits of a semantic segmentation are made of an image, and what they say of its pixels."""

from __future__ import annotations

from dataclasses import dataclass

from mmort.contract.format import Format
from mmort.limits import MAX_WINDOWS


@dataclass(frozen=True)
class SegmentationFormat(Format):
    """The windows in which a file looks at an image, and how its logits become classes.

    Parameters
    ----------
    window, stride : (int, int), optional
        Width and height of the windows that the file runs on, and by how much they advance: the logits of a pixel are
        the mean over the windows that cover it (``mode='slide'``).  By default the file runs on the whole image.
    align_corners : bool, default False
        Whether the centres of the corner pixels stay where they are when logits are resized to the image's own size.
    threshold : float, optional
        Of a file whose logits have one channel for two classes: the probability from which on a pixel is of class 1.

    Examples
    --------
    >>> from mmort.contract import SegmentationFormat
    >>> SegmentationFormat(window=(512, 512), stride=(341, 341)).windows(600, 512)
    [(0, 0, 512, 512), (88, 0, 600, 512)]
    """

    window: tuple[int, int] | None = None
    stride: tuple[int, int] | None = None
    align_corners: bool = False
    threshold: float | None = None

    def __post_init__(self) -> None:
        for name in ("window", "stride"):
            size = getattr(self, name)
            if size is not None:
                object.__setattr__(self, name, tuple(map(int, size)))
        if (self.window is None) != (self.stride is None):
            raise ValueError("segmentation: window and stride must be given together")
        if self.window is not None and self.stride is not None:
            if min(*self.window, *self.stride) < 1:
                raise ValueError(f"segmentation: window and stride must be positive, got {self.window}, {self.stride}")
            if any(step > side for step, side in zip(self.stride, self.window, strict=True)):
                raise ValueError(
                    f"segmentation: stride must be at most window, or pixels are left out, got {self.stride} and "
                    f"{self.window}"
                )

    def windows(self, width: int, height: int) -> list[tuple[int, int, int, int]]:
        """Return the windows in an image: first column, first row, and those after the last.

        The last window of a row or column is moved inside; a smaller image is a window itself.
        """
        if self.window is None or self.stride is None:
            return [(0, 0, width, height)]
        columns, rows = (
            _starts(length, side, step)
            for length, side, step in zip((width, height), self.window, self.stride, strict=True)
        )
        if len(columns) * len(rows) > MAX_WINDOWS:
            raise ValueError(
                f"segmentation: windows of {self.window} with stride {self.stride} must be at most {MAX_WINDOWS} in an "
                f"image, got {len(columns) * len(rows)} in {width} x {height} pixels"
            )
        right, bottom = (min(length, side) for length, side in zip((width, height), self.window, strict=True))
        return [(x, y, x + right, y + bottom) for y in rows for x in columns]


def _starts(length: int, side: int, step: int) -> list[int]:
    """Return where windows of a side start along a length."""
    count = -(-max(length - side, 0) // step) + 1
    return [max(min(index * step + side, length) - side, 0) for index in range(count)]

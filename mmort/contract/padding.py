"""Padding of an image by its test pipeline; `Preprocessing` then pads with zeros, to what the network takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mmort.contract.checks import is_number
from mmort.limits import MAX_PADDING_STEP


@dataclass(frozen=True)
class Padding:
    """Padding of the resized image, on the right and at the bottom as the step ``Pad`` of a test pipeline has it.

    Parameters
    ----------
    value : float or tuple of float, optional
        Value of the padding's pixels, or of their channels (blue, green and red), before they are normalized.  By
        default they are 0 after it.
    size : (int, int), optional
        Width and height to pad to; a larger image keeps its own.
    square : bool, default False
        Pad to the longer side.
    size_divisor : int, default 1
        Pad to a multiple of this.
    in_image : bool, default False
        Whether the padding belongs to the image, so that boxes are not clipped to what is inside it.
    centred : bool, default False
        Pad on all sides, so that the image is in the middle, as YOLOs of ultralytics have it; an odd pixel goes to the
        right or the bottom.
    half_pixels : bool, default False
        Whether boxes are moved by half of the padding even if that is odd, and the image by less, as MMYOLO's
        ``LetterResize`` with ``half_pad_param`` has it; the padding is `centred` then.
    long_side : int, optional
        Pad to the proportions of the original image instead, as MMYOLO's ``BatchShapePolicy``: the longer side would be
        so many pixels, each side gets `margin` times `size_divisor` pixels more, and is rounded up to `size_divisor`.
    margin : float, default 0
        See `long_side`.
    """

    value: float | tuple[float, ...] | None = None
    size: tuple[int, int] | None = None
    square: bool = False
    size_divisor: int = 1
    in_image: bool = False
    centred: bool = False
    half_pixels: bool = False
    long_side: int | None = None
    margin: float = 0.0

    def __post_init__(self) -> None:
        channels = self.value if isinstance(self.value, (tuple, list)) else [self.value]
        if self.value is not None and not all(map(is_number, channels)):
            raise ValueError(f"preprocessing: padding.value must be finite numbers of float32, got {self.value}")
        if isinstance(self.value, (tuple, list)):
            values = tuple(map(float, self.value))
            object.__setattr__(self, "value", values[0] if len(set(values)) == 1 else values)
        if self.size is not None:
            object.__setattr__(self, "size", positive_size("padding.size", self.size))
        if self.size_divisor < 1:
            raise ValueError(f"preprocessing: padding.size_divisor must be positive, got {self.size_divisor}")
        if self.long_side is not None and (self.long_side < 1 or self.size is not None or self.square):
            raise ValueError(
                f"preprocessing: padding.long_side must be positive and without size or square, got {self.long_side}"
            )
        if self.half_pixels and not self.centred:
            raise ValueError("preprocessing: padding.half_pixels must be false without padding.centred")
        if not 0 <= self.margin < MAX_PADDING_STEP:
            raise ValueError(
                f"preprocessing: padding.margin must be from 0 to below {MAX_PADDING_STEP}, got {self.margin}"
            )

    def shape(self, height: int, width: int, original: tuple[int, int] | None = None) -> tuple[int, int]:
        """Return the height and width of a padded image; `original` are those before it was resized."""
        if self.long_side is not None:
            rows, columns = self._shape_in_proportion(*(original or (height, width)))
            return max(height, rows), max(width, columns)
        if self.square:
            height = width = max(height, width)
        if self.size is not None:
            height, width = max(height, self.size[1]), max(width, self.size[0])
        return multiple(height, self.size_divisor), multiple(width, self.size_divisor)

    def _shape_in_proportion(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width that `long_side` makes of those of the original image, by MMYOLO's arithmetic."""
        assert self.long_side is not None
        ratio = height / width
        shares = (ratio, 1.0) if ratio < 1 else (1.0, 1 / ratio)
        rows, columns = (
            math.ceil(share * self.long_side / self.size_divisor + self.margin) * self.size_divisor for share in shares
        )
        return rows, columns

    def offset(self, height: int, width: int, original: tuple[int, int] | None = None) -> tuple[int, int]:
        """Return the row and column of the padded image at which an image of this height and width starts."""
        if not self.centred:
            return 0, 0
        rows, columns = self.shape(height, width, original)
        return (rows - height) // 2, (columns - width) // 2

    def box_offset(
        self, height: int, width: int, original: tuple[int, int] | None = None
    ) -> tuple[float, float] | None:
        """Return the `offset` of boxes; None if it is the same."""
        if not self.half_pixels:
            return None
        rows, columns = self.shape(height, width, original)
        return (rows - height) / 2, (columns - width) / 2


def multiple(length: int, divisor: int) -> int:
    """Return the smallest multiple of a divisor that is not less than a length."""
    return -(-length // divisor) * divisor


def positive_size(name: str, size: tuple[int, int]) -> tuple[int, int]:
    """Return a width and height as integers; ValueError if these are not two positive numbers."""
    if isinstance(size, str) or len(size) != 2:
        raise ValueError(f"preprocessing: {name} must be a width and a height, got {size!r}")
    width, height = map(int, size)
    if min(width, height) < 1:
        raise ValueError(f"preprocessing: {name} must be positive, got {size}")
    return width, height

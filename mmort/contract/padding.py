"""Padding of an image by its test pipeline; `Preprocessing` then pads with zeros, to what the network takes."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    value: float | tuple[float, ...] | None = None
    size: tuple[int, int] | None = None
    square: bool = False
    size_divisor: int = 1
    in_image: bool = False
    centred: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.value, (tuple, list)):
            values = tuple(map(float, self.value))
            object.__setattr__(self, "value", values[0] if len(set(values)) == 1 else values)
        if self.size is not None:
            object.__setattr__(self, "size", positive_size("padding.size", self.size))
        if self.size_divisor < 1:
            raise ValueError(f"preprocessing: padding.size_divisor must be positive, got {self.size_divisor}")

    def shape(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width of a padded image."""
        if self.square:
            height = width = max(height, width)
        if self.size is not None:
            height, width = max(height, self.size[1]), max(width, self.size[0])
        return multiple(height, self.size_divisor), multiple(width, self.size_divisor)

    def offset(self, height: int, width: int) -> tuple[int, int]:
        """Return the row and column of the padded image at which an image of this height and width starts."""
        if not self.centred:
            return 0, 0
        rows, columns = self.shape(height, width)
        return (rows - height) // 2, (columns - width) // 2


def multiple(length: int, divisor: int) -> int:
    """Return the smallest multiple of a divisor that is not less than a length."""
    return -(-length // divisor) * divisor


def positive_size(name: str, size: tuple[int, int]) -> tuple[int, int]:
    """Return a width and height as integers; ValueError if one is not positive."""
    width, height = map(int, size)
    if min(width, height) < 1:
        raise ValueError(f"preprocessing: {name} must be positive, got {size}")
    return width, height

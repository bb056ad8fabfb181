"""Images that are read in parts: files of formats that allow it through rasterio, others and arrays from memory.

A part has the levels that `read_image` has there.  Files whose levels OpenCV converts are read by it, and whole.  Only
TIFF files with JPEG's compression in YCbCr differ, of which GDAL smooths the colours: by 1 of 255 on average.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mmort._files.inputs import require_regular
from mmort.images import IN_COLOR, LEVEL_TYPES, ColorType, Image, read_image, require_proportion
from mmort.images.sizes import Demand, TiffColours, tiff_colours

DRIVERS = {".jp2": "JP2OpenJPEG", ".tif": "GTiff", ".tiff": "GTiff", ".vrt": "VRT"}
"""Suffixes of formats whose files keep their pixels in parts that can be read alone, and GDAL's names of the formats.

Were GDAL to tell the format by the content, a file named .tif could make it read any other file, or ask a server.
"""

CACHE_MEGABYTES = 128
"""Two rows of windows of 1024 pixels in an image 20,000 pixels wide."""


class Pixels(Protocol):
    """An image of which parts can be read."""

    @property
    def height(self) -> int:
        """Rows of the image."""
        ...

    @property
    def width(self) -> int:
        """Columns of the image."""
        ...

    def read(self, top: int, left: int, height: int, width: int) -> Image:
        """Return a part of the image."""
        ...


@contextmanager
def open_pixels(image: NDArray[Any] | str | os.PathLike[str], color_type: ColorType = "color") -> Iterator[Pixels]:
    """Open an image: an array (H, W, 3) of uint8 in blue, green, red, or a file.

    With another `color_type`, arrays and files are those that `mmort.images.as_channels` takes.  Files that rasterio
    reads have what `read_image` returns; those of more bands than OpenCV takes, or of bands that are no colours, have
    them in their order.

    Raises
    ------
    ValueError
        If the file cannot be decoded or states far more pixels than it holds, or the array is not of this shape and
        dtype.
    OSError
        If the file cannot be opened.
    ImportError
        If the file's format needs rasterio, or OpenCV, and it is not installed.
    """
    if isinstance(image, np.ndarray):
        if color_type not in IN_COLOR:
            yield _ArrayPixels(image)  # whose parts are checked as images are
            return
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
            raise ValueError(f"image must be [H, W, 3] of uint8, got {[*image.shape]} of {image.dtype}")
        yield _ArrayPixels(image)
    elif Path(image).suffix.lower() not in DRIVERS:
        yield _ArrayPixels(read_image(image, color_type))
    else:
        try:
            import rasterio
        except ModuleNotFoundError:
            raise ImportError(f"reading windows of {image} needs rasterio: pip install 'mmort[geo]'") from None
        require_regular("image", image)
        with warnings.catch_warnings():
            # Most images are no maps.
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            # An absolute path is not taken for an address.
            try:
                file = rasterio.open(os.path.abspath(image), driver=DRIVERS[Path(image).suffix.lower()])
            except OSError as error:
                raise OSError(f"{image}: {error}") from error
        # By default the blocks that GDAL has decoded may take a twentieth of the machine's memory.
        with rasterio.Env(GDAL_CACHEMAX=CACHE_MEGABYTES), file:
            colours = tiff_colours(image) if file.driver == "GTiff" else TiffColours(1, False)
            if _are_converted(file, colours, color_type):
                yield _ArrayPixels(read_image(image, color_type))
            else:
                yield _FilePixels(image, file, color_type, colours.has_opacity)


@dataclass(frozen=True)
class _ArrayPixels:
    """An image in memory."""

    image: Image

    @property
    def height(self) -> int:
        return len(self.image)

    @property
    def width(self) -> int:
        return len(self.image[0])

    def read(self, top: int, left: int, height: int, width: int) -> Image:
        """Return a copy of a part, so that a memory map is read here."""
        return np.array(self.image[top : top + height, left : left + width])


def _are_converted(file: Any, colours: TiffColours, color_type: ColorType) -> bool:
    """Return whether OpenCV makes other levels of a file than those that are stored."""
    if file.driver == "VRT":  # which OpenCV does not read
        return False
    structure = {*file.tags(ns="IMAGE_STRUCTURE"), *file.tags(1, ns="IMAGE_STRUCTURE")}
    kinds = [kind.name for kind in file.colorinterp]
    if kinds[0] == "palette" or structure & {"MINISWHITE", "NBITS"} or colours.orientation != 1:
        return True
    is_colour = kinds[:3] == RED_GREEN_BLUE
    if color_type == "unchanged":  # three channels of no colours are the first one to OpenCV's decoder of JPEG 2000
        return file.driver == DRIVERS[".jp2"] and file.count == 3 and not is_colour
    if file.count > 4 or "float32" in file.dtypes:  # which OpenCV does not read
        return False
    is_stored = kinds == ["gray"] or (color_type in IN_COLOR and is_colour)
    return set(file.dtypes) != {"uint8"} or not is_stored


RED_GREEN_BLUE = ["red", "green", "blue"]
"""The first bands of images in colour, by GDAL's names."""


class _FilePixels:
    """A file that rasterio has opened."""

    def __init__(self, path: str | os.PathLike[str], file: Any, color_type: ColorType, has_opacity: bool) -> None:
        if color_type == "unchanged":
            if len(set(file.dtypes)) != 1 or file.dtypes[0] not in LEVEL_TYPES:
                raise ValueError(
                    f"{path}: bands must be of one type, {', '.join(LEVEL_TYPES)}, got "
                    f"{', '.join(sorted(set(file.dtypes)))}"
                )
        elif color_type == "grayscale" and (file.count != 1 or file.dtypes[0] != "uint8"):
            raise ValueError(f"{path}: must have 1 band of uint8, got {file.count} of {file.dtypes[0]}")
        elif set(file.dtypes) != {"uint8"} or file.count not in (1, 3, 4):
            raise ValueError(
                f"{path}: must have 1, 3 or 4 bands of uint8 (gray, or red, green, blue and perhaps opacity), got "
                f"{file.count} of {', '.join(sorted(set(file.dtypes)))}"
            )
        if file.driver != "VRT":  # whose pixels are in other files
            size = file.width * file.height * file.count * np.dtype(file.dtypes[0]).itemsize
            asked = Demand(file.width, file.height, size)
            try:
                require_proportion(asked, os.path.getsize(path))
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
        self._path, self._file = path, file
        bands = tuple(range(1, file.count + 1))
        is_colour = [kind.name for kind in file.colorinterp[:3]] == RED_GREEN_BLUE
        self._is_multiplied = has_opacity and is_colour and file.count == 4 and file.dtypes[0] == "uint8"
        # Of floats OpenCV exchanges the bands, whatever they are.
        if color_type in IN_COLOR and file.count == 1:
            bands = 1, 1, 1
        elif color_type in IN_COLOR or is_colour or (file.count in (3, 4) and file.dtypes[0] == "float32"):
            bands = 3, 2, 1, *bands[3:]
        self._channels = 3 if color_type in IN_COLOR else len(bands)
        self._bands = bands if self._is_multiplied else bands[: self._channels]
        self.height, self.width = int(file.height), int(file.width)

    def read(self, top: int, left: int, height: int, width: int) -> Image:
        """Return a part, blue first."""
        try:
            bands = self._file.read(self._bands, window=((top, top + height), (left, left + width)))
        except OSError as error:  # whose cause is GDAL's message
            raise OSError(f"{self._path}: {error.__cause__ or error}") from error
        if self._is_multiplied:  # as OpenCV's decoder does, of 8 bits only
            bands[:3] = (bands[:3].astype(np.uint16) * bands[3] + 127) // 255
        return np.ascontiguousarray(np.moveaxis(bands[: self._channels], 0, 2))

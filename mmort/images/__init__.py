"""Read and resize images with the libraries that MMDetection uses, so that the bits are the same.

That is OpenCV, and Pillow where a config resizes with it.  Pillow weights all pixels that a smaller image merges,
OpenCV only the nearest four; enlarged images differ by 1 in a sixth of the pixels.  Both decode JPEG and PNG files to
the same bits.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mmort._files.inputs import read_bytes
from mmort._files.outputs import write_output
from mmort.images.resampling import Interpolation, interpolate_as_torch, resize_as_torch
from mmort.images.sizes import Demand, demand
from mmort.limits import MAX_DECODING_BYTES, MAX_DECODING_RATIO, MAX_IMAGE_BYTES

if TYPE_CHECKING:
    from types import ModuleType

Image = NDArray[np.uint8]
"""[H, W, 3]; blue, green, red."""

ColorType = Literal["color", "color_ignore_orientation", "grayscale", "unchanged"]
"""Channels that are read of a file, by MMDetection's names: three, one, or all, in their own type."""

IN_COLOR: tuple[ColorType, ...] = ("color", "color_ignore_orientation")
"""Those of three channels; the second, of MMOCR, does not turn an image upright as its EXIF data asks for."""

LEVEL_TYPES = "uint8", "uint16", "int16", "float32"
"""The dtypes of images that are read unchanged."""

MAX_PIXELS_VARIABLE = "OPENCV_IO_MAX_IMAGE_PIXELS"
"""The environment variable by which OpenCV is told how many pixels an image may have; by default 2**30."""


def read_image(path: str | os.PathLike[str], color_type: ColorType = "color") -> Image:
    """Read an image file.

    Parameters
    ----------
    path : path
        In any format that OpenCV reads.
    color_type : {"color", "color_ignore_orientation", "grayscale", "unchanged"}, default "color"
        What is read of it, as in MMDetection.

    Returns
    -------
    ndarray of uint8, (H, W, 3)
        Blue, green, red; with "color" rotated upright if the file's EXIF data asks for it.  (H, W, 1) if "grayscale",
        rotated as well; if "unchanged", (H, W, C) of the file's own channels and dtype, not rotated.

    Raises
    ------
    ValueError
        If OpenCV cannot decode the file, it has more than 2 GB, or it is a pipe or a device; or decoding would take
        more than 500 MB and 200 times its size, unless the environment variable ``OPENCV_IO_MAX_IMAGE_PIXELS`` sets
        another limit.
    OSError
        If the file cannot be opened.
    ImportError
        If OpenCV is not installed.
    """
    data = read_bytes("image", path, MAX_IMAGE_BYTES)
    try:
        return decode_image(data, color_type)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def as_image(function: str, image: NDArray[Any] | str | os.PathLike[str]) -> Image:
    """Return an image in three channels: that of a file, or an array as the file of its pixels would be read.

    Parameters
    ----------
    function : str
        What errors begin with.
    image : ndarray of uint8, (H, W, 3), (H, W), (H, W, 1) or (H, W, 4), or path
        Blue, green, red; grey is repeated, and alpha is left out.

    Raises
    ------
    ValueError, OSError, ImportError
        As for `read_image`; ValueError for an array of another shape or dtype.
    TypeError
        If `image` is neither an array nor a path.
    """
    if isinstance(image, (str, os.PathLike)):
        return read_image(image)
    if not isinstance(image, np.ndarray):
        raise _other_type(function, image)
    channels = 1 if image.ndim == 2 else image.shape[2] if image.ndim == 3 else 0
    if image.dtype != np.uint8 or channels not in (1, 3, 4) or not image.size:
        raise ValueError(
            f"{function}: image must be [H, W, 3] of uint8, or [H, W] or [H, W, 4], got {[*image.shape]} of "
            f"{image.dtype}"
        )
    return np.repeat(image.reshape(*image.shape[:2], 1), 3, axis=2) if channels == 1 else image[..., :3]


def _other_type(function: str, image: object) -> TypeError:
    """Return the error of an image of another type, with the expression that makes an array or bytes of it."""
    kind = type(image)
    advice = ""
    if kind.__module__.startswith("PIL."):
        advice = "; pass np.asarray(image.convert('RGB'))[..., ::-1]"
    elif isinstance(image, (bytearray, memoryview)):
        advice = "; pass bytes(image) if it is a file's content"
    elif kind.__module__ == "torch":
        advice = "; pass image.numpy(), (H, W, 3) of uint8 in blue, green, red"
    return TypeError(f"{function}: image must be a numpy array or a path, got {kind.__name__}{advice}")


def as_channels(function: str, image: NDArray[Any] | str | os.PathLike[str], color_type: ColorType) -> NDArray[Any]:
    """Return an image with the channels that a detector takes, as `as_image` does for color.

    Parameters
    ----------
    function : str
        What errors begin with.
    image : ndarray or path
        For "grayscale" an array that `as_image` takes, of which OpenCV mixes blue, green and red; for "unchanged" one
        of any channels, (H, W) or (H, W, C), of uint8, uint16, int16 or float32.
    color_type : {"color", "color_ignore_orientation", "grayscale", "unchanged"}

    Raises
    ------
    ValueError, TypeError, OSError, ImportError
        As for `as_image`.
    """
    if isinstance(image, (str, os.PathLike)):
        return read_image(image, color_type)
    if color_type in IN_COLOR:
        return as_image(function, image)
    if color_type == "grayscale":
        pixels = as_image(function, image)
        if image.ndim == 2 or image.shape[2] == 1:
            return pixels[..., :1]
        cv2 = opencv()
        grey: NDArray[Any] = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_BGR2GRAY)
        return grey[..., None]
    if not isinstance(image, np.ndarray):
        raise _other_type(function, image)
    if image.dtype not in LEVEL_TYPES or image.ndim not in (2, 3) or not image.size:
        raise ValueError(
            f"{function}: image must be [H, W, C] or [H, W] of {', '.join(LEVEL_TYPES)}, got {[*image.shape]} of "
            f"{image.dtype}"
        )
    return image[..., None] if image.ndim == 2 else image


def image_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return the height and width of the image that `read_image` returns, of most files without decoding them.

    Headers of JPEG and PNG files have it.  If one has EXIF data, which may turn the image, it is decoded at an eighth
    of its size first, which tells height from width.

    Raises
    ------
    ValueError, OSError, ImportError
        As for `read_image`, but what is wrong behind the header may not be noticed.
    """
    data = read_bytes("image", path, MAX_IMAGE_BYTES)
    is_jpeg = data.startswith(b"\xff\xd8\xff")
    if is_jpeg or (data.startswith(b"\x89PNG\r\n\x1a\n") and b"eXIf" not in data):
        with contextlib.suppress(ValueError):
            stated = demand(data)
            if stated is not None and min(stated.width, stated.height) > 0:
                size = stated.height, stated.width
                if not (is_jpeg and b"Exif\0\0" in data):
                    return size
                cv2 = opencv()
                reduced = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_REDUCED_COLOR_8)
                shape = None if reduced is None else reduced.shape[:2]
                upright, turned = ([-(-side // 8) for side in sides] for sides in (size, size[::-1]))
                if shape is not None and upright != turned and list(shape) in (upright, turned):
                    return size if list(shape) == upright else size[::-1]
    height, width = read_image(path).shape[:2]
    return height, width


def decode_image(data: bytes, color_type: ColorType = "color") -> Image:
    """Decode the content of an image file, as `read_image` does.

    Raises
    ------
    ValueError
        If OpenCV cannot decode it, or would take too much memory.
    ImportError
        If OpenCV is not installed.
    """
    cv2, asked = opencv(), None
    try:
        asked = demand(data)
        readable = bool(data) and not _has_too_long_chunk(data)
    except ValueError:
        readable = False
    else:
        if asked is not None:
            require_proportion(asked, len(data))
    flags = {
        "color": cv2.IMREAD_COLOR,
        "color_ignore_orientation": cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION,
        "grayscale": cv2.IMREAD_GRAYSCALE,
        "unchanged": cv2.IMREAD_UNCHANGED,
    }
    try:
        image: Image | None = cv2.imdecode(np.frombuffer(data, np.uint8), flags[color_type]) if readable else None
    except cv2.error:  # an image above OpenCV's size limit, among others
        image = None
    if image is None:
        limit = os.environ.get(MAX_PIXELS_VARIABLE, "")
        if readable and asked is not None and limit.isdecimal() and asked.width * asked.height > int(limit):
            raise ValueError(f"states {asked.width} x {asked.height} pixels, and {MAX_PIXELS_VARIABLE} allows {limit}")
        raise ValueError("not an image in a format that OpenCV reads, or cut short")
    if color_type not in IN_COLOR:
        return image[..., None] if image.ndim == 2 else image
    # OpenCV 5 does not repeat the grey of PFM files.
    return cv2.cvtColor(image, cv2.COLOR_GRAY2BGR) if image.ndim == 2 else image


def read_label_map(path: str | os.PathLike[str]) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Read the labels of a map's pixels, (H, W): grey levels, 0 and 1 of a file of one bit, or indices of a palette.

    PNG files of grey levels are read with OpenCV, and all others with Pillow, as MMSegmentation does: OpenCV keeps no
    palette, and makes 255 of a bit.

    Raises
    ------
    ValueError
        If the file cannot be decoded, has more than one channel, or levels of other types than 1 to 8 bits and uint16;
        or decoding would take as much memory as `read_image` refuses.
    OSError
        If it cannot be opened.
    ImportError
        If it needs Pillow, which is not installed.
    """
    data = read_bytes("map of labels", path, MAX_IMAGE_BYTES)
    is_grey = data.startswith(b"\x89PNG") and data[PNG_KIND] in (b"\2\0", b"\4\0", b"\x08\0", b"\x10\0")
    try:
        labels = decode_image(data, "unchanged") if is_grey else _decode_with_pillow(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if labels.ndim == 3 and labels.shape[2] == 1:
        labels = labels[..., 0]
    if labels.ndim != 2:
        raise ValueError(f"{path}: a map of labels must have one channel, got {[*labels.shape]}")
    if labels.dtype.kind not in "bu" or labels.dtype.itemsize > 2:
        raise ValueError(f"{path}: a map of labels must have levels of up to 16 bits, got {labels.dtype}")
    return labels.astype(np.uint8) if labels.dtype.itemsize == 1 else labels.astype(np.uint16)


PNG_KIND = slice(24, 26)
"""The bytes of a PNG file that state the bits of a level, and the kind of its colours, 0 for grey."""


def _decode_with_pillow(data: bytes) -> NDArray[Any]:
    """Decode an image file to the levels or indices that it has."""
    pillow = _pillow("this map of labels is read")
    asked = demand(data)
    if asked is not None:
        require_proportion(asked, len(data))
    try:
        return np.asarray(pillow.open(io.BytesIO(data)))
    except (
        *(ArithmeticError, EOFError, LookupError, OSError, SyntaxError, TypeError, struct.error),
        pillow.DecompressionBombError,
    ) as error:
        raise ValueError(f"not an image that Pillow reads: {error}") from None


def require_proportion(asked: Demand, size: int) -> None:
    """Refuse an image of `size` bytes that asks for far more, unless the environment has a limit."""
    if MAX_PIXELS_VARIABLE not in os.environ and asked.bytes > max(MAX_DECODING_BYTES, MAX_DECODING_RATIO * size):
        raise ValueError(
            f"states {asked.width} x {asked.height} pixels in {size} bytes, for which decoding may take "
            f"{asked.bytes / 1e6:.0f} MB; to read it, set the environment variable {MAX_PIXELS_VARIABLE} to "
            f"{asked.width * asked.height}"
        )


def _has_too_long_chunk(data: bytes) -> bool:
    """Return whether a PNG file states a chunk longer than itself, which OpenCV 5 allocates before it fails."""
    position, length, kind = 8, 0, b""
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return False
    while length <= len(data) and position < len(data) and kind != b"IEND":
        length, kind = int.from_bytes(data[position : position + 4], "big"), data[position + 4 : position + 8]
        position += 12 + length
    return length > len(data)


def write_image(path: str | os.PathLike[str], image: Image) -> None:
    """Write an image file.

    Parameters
    ----------
    path : path
        Its suffix, such as ``.png`` or ``.jpg``, decides about the format.
    image : ndarray of uint8, (H, W, 3)
        Blue, green, red; or grey, (H, W) or (H, W, 1), or with an opacity, (H, W, 4).  PNG and TIFF files may have
        uint16.

    Raises
    ------
    ValueError
        If OpenCV writes no format with this suffix, or the image is not of this shape and dtype.
    TypeError
        If `image` is not an array.
    OSError
        If the file cannot be written.
    ImportError
        If OpenCV is not installed.
    """
    if not isinstance(image, np.ndarray):
        raise TypeError(f"write_image: image must be a numpy array, got {type(image).__name__}")
    cv2 = opencv()
    suffix = Path(path).suffix
    is_image = image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (1, 3, 4))
    dtypes = ("uint8", "uint16") if suffix.lower() in (".png", ".tif", ".tiff") else ("uint8",)
    if not is_image or not image.size or image.dtype not in dtypes:
        raise ValueError(
            f"{path}: an image must be [H, W, 3], [H, W] or [H, W, 4] of {' or '.join(dtypes)}, got {[*image.shape]} "
            f"of {image.dtype}"
        )
    try:
        _, data = cv2.imencode(suffix, image)
    except cv2.error:
        raise ValueError(f"{path}: OpenCV writes no format with the suffix {suffix!r}, such as .png or .jpg") from None
    write_output(path, data.tobytes())


ResizeBackend = Literal["cv2", "pillow", "torchvision"]
"""The library that resizes, by MMDetection's name, or torchvision, of which `resampling` has the arithmetic."""


def resize(
    image: NDArray[Any],
    width: int,
    height: int,
    backend: ResizeBackend = "cv2",
    interpolation: Interpolation = "bilinear",
) -> NDArray[Any]:
    """Resize an image of any type; return it unchanged if it has that size already.

    With "area", which OpenCV alone has, pixels are averaged; an image that becomes larger is resized bilinearly.
    """
    if image.shape[:2] == (height, width):
        return image
    if backend == "torchvision" and image.dtype == np.float32:
        return interpolate_as_torch(image, width, height)
    if backend == "torchvision":
        return resize_as_torch(image, width, height, interpolation)
    if backend == "pillow":
        pillow = _pillow("this detector's images are resized")
        filters = {"bilinear": pillow.Resampling.BILINEAR, "bicubic": pillow.Resampling.BICUBIC}
        return np.asarray(pillow.fromarray(image).resize((width, height), filters[interpolation]))
    cv2 = opencv()
    kinds = {"bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC, "area": cv2.INTER_AREA}
    enlarges = interpolation == "area" and width >= image.shape[1] and height >= image.shape[0]
    kind = kinds["bilinear" if enlarges else interpolation]
    # Of other arrays OpenCV makes a copy itself, and crashes if there is no memory for it.
    resized: NDArray[Any] = cv2.resize(np.ascontiguousarray(image), (width, height), interpolation=kind)
    return resized if resized.ndim == image.ndim else resized[..., None]  # OpenCV leaves an axis of 1 out


def look_up(levels: NDArray[np.float32], source: NDArray[np.uint8], target: NDArray[np.float32]) -> None:
    """Write ``levels[source]`` to `target`, (h, w); numpy gives the same, in three times the time of OpenCV."""
    try:
        cv2 = opencv()
    except ImportError:  # an image that another library has resized
        np.take(levels, source, out=target, mode="clip")
    else:
        cv2.LUT(np.ascontiguousarray(source), levels[None], target)


def resize_mask(mask: NDArray[np.float32], width: int, height: int) -> NDArray[np.float32]:
    """Resize a mask (H, W) bilinearly; ValueError if it has no pixels."""
    if not mask.size:
        raise ValueError("the mask has no pixels where the image is")
    cv2 = opencv()
    resized: NDArray[np.float32] = cv2.resize(mask, (width, height), interpolation=cv2.INTER_LINEAR)
    return resized


def opencv() -> ModuleType:
    """Import OpenCV, or name the extra that installs it."""
    try:
        import cv2
    except ModuleNotFoundError:
        raise ImportError("mmort.predict needs OpenCV for images: pip install 'mmort[predict]'") from None
    return cv2


def _pillow(need: str) -> ModuleType:
    """Import Pillow's module for images, or name the extra that installs it and what needs it."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise ImportError(f"{need} with Pillow: pip install 'mmort[pillow]'") from None
    return Image

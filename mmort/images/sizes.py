"""How much memory OpenCV will take for an image file, from the width and height that its header states.

A header of some bytes can state a billion pixels, and OpenCV allocates them before it reads the first.  Where its
decoders differ from a format's specification, this follows the decoders; a header that they refuse may get a size.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

Size = tuple[int, int]
"""Width and height."""


@dataclass(frozen=True)
class Format:
    """A format that OpenCV decodes.

    Attributes
    ----------
    matches : callable
        Returns whether a file is of the format.
    sizes : callable
        Returns the sizes that a header states, of which the largest counts; struct.error, ValueError or no size if the
        header is damaged.
    bytes_per_pixel : int
        Peak of the memory that decoding took in OpenCV 5.0, of the most demanding of its kinds of pixels.
    """

    matches: Callable[[bytes], object]
    sizes: Callable[[bytes], list[Size]]
    bytes_per_pixel: int


@dataclass(frozen=True)
class Demand:
    """The sizes that an image file states, for which decoders allocate memory.

    Attributes
    ----------
    width, height : int
        As the header states them; those of a tile, if it is larger.
    bytes : int
        Memory that decoding takes at most.
    """

    width: int
    height: int
    bytes: int


def demand(data: bytes) -> Demand | None:
    """Return the sizes that an image file states; None if its format is not known here.

    Raises
    ------
    ValueError
        If the format is known and the header has no size.
    """
    format = next((format for format in FORMATS if format.matches(data)), None)
    if format is None:
        return None
    try:
        width, height = max(format.sizes(data), key=lambda size: size[0] * size[1])
    except (OverflowError, struct.error, ValueError):
        raise ValueError("the header states no size") from None
    return Demand(width, height, width * height * format.bytes_per_pixel)


def _at(layout: str, offset: int) -> Callable[[bytes], list[Size]]:
    """Return a reader of a width and a height that follow each other."""

    def read(data: bytes) -> list[Size]:
        width, height = struct.unpack_from(layout, data, offset)
        return [(width, height)]

    return read


def _bmp(data: bytes) -> list[Size]:
    (header,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if header == 12 else "<ii", data, 18)
    return [(abs(width), abs(height))]  # rows from the top have a negative height


def _jpeg(data: bytes) -> list[Size]:
    position = 2
    while True:
        position = data.index(b"\xff", position)
        while data[position : position + 1] == b"\xff":
            position += 1
        (marker,) = struct.unpack_from("B", data, position)
        position += 1
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, position + 3)
            return [(width, height)]
        if marker in (0xD9, 0xDA):  # the end, or the pixels
            return []
        if marker > 1 and not 0xD0 <= marker <= 0xD8:
            position += struct.unpack_from(">H", data, position)[0]


def _tiff(data: bytes) -> list[Size]:
    values = _tiff_tags(data)
    return [(values[256], values[257]), (values.get(322, 0), values.get(323, 0))] if {256, 257} <= {*values} else []


def _tiff_tags(data: bytes | mmap.mmap) -> dict[int, int]:
    """Return the numbers of an image's tags: its sides, its orientation, those of a tile, and its kind of opacity."""
    order = "<" if data[:2] == b"II" else ">"
    is_big = data[2:4] in (b"+\0", b"\0+")
    offset_type = "Q" if is_big else "I"
    (directory,) = struct.unpack_from(order + offset_type, data, 8 if is_big else 4)
    (count,) = struct.unpack_from(order + ("Q" if is_big else "H"), data, directory)
    first, length = (directory + 8, 20) if is_big else (directory + 2, 12)
    values: dict[int, int] = {}
    for entry in range(first, min(first + count * length, len(data)), length):
        tag, kind = struct.unpack_from(order + "HH", data, entry)
        if tag in (256, 257, 274, 322, 323, 338):
            layout = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 16: "Q", 17: "q"}.get(kind, "Q")
            position = entry + (12 if is_big else 8)
            if struct.calcsize(layout) > length - 8 - 4 * is_big:  # too long for the entry, which has its offset
                (position,) = struct.unpack_from(order + offset_type, data, position)
            (value,) = struct.unpack_from(order + layout, data, position)
            values[tag] = max(values.get(tag, 0), abs(value))
    return values


class TiffColours(NamedTuple):
    """The statements of a TIFF file about its pixels."""

    orientation: int
    """1 if its first row is the upper one, and its first column the left one."""
    has_opacity: bool
    """Whether there is an opacity that colours have not been multiplied with."""


def tiff_colours(path: str | os.PathLike[str]) -> TiffColours:
    """Return the statements of a TIFF file of any size about its pixels.

    Raises
    ------
    ValueError
        If its header is damaged.
    OSError
        If it cannot be opened.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            values = _tiff_tags(data)
        except (OverflowError, struct.error):
            raise ValueError(f"{path}: the header is damaged") from None
    return TiffColours(values.get(274, 1), values.get(338) == 2)


def _webp(data: bytes) -> list[Size]:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(data[start : start + 3], "little") + 1 for start in (24, 27))
        return [(width, height)]
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return [((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)]
    width, height = struct.unpack_from("<HH", data, 26)
    return [(width & 0x3FFF, height & 0x3FFF)]


_SKIPPED = rb"(?:\s|#[^\n\r]*[\n\r])*"
_PNM = re.compile(rb"P[1-6]" + _SKIPPED + rb"(\d+)[^\d]" + _SKIPPED + rb"(\d+)")
_PAM = re.compile(rb"(?<=\s)(WIDTH|HEIGHT)\s+(\d+)")
_PFM = re.compile(rb"P[Ff]\s+(\d+)\s+(\d+)")
_HDR = re.compile(rb"-Y\s*[+-]?(\d+)\s*\+X\s*[+-]?(\d+)")


def _number(digits: bytes) -> int:
    """Return a number, or another that is above all limits; Python converts no number of thousands of digits."""
    return int(digits.lstrip(b"0")[:20] or b"0")


def _written(pattern: re.Pattern[bytes]) -> Callable[[bytes], list[Size]]:
    """Return a reader of a width and a height in digits, the groups of a pattern."""

    def read(data: bytes) -> list[Size]:
        match = pattern.match(data)
        return [] if match is None else [(_number(match[1]), _number(match[2]))]

    return read


def _pam(data: bytes) -> list[Size]:
    header = data[: data.index(b"ENDHDR")]
    sizes = {name: _number(digits) for name, digits in _PAM.findall(header)}  # a second line is refused
    return [(sizes[b"WIDTH"], sizes[b"HEIGHT"])] if len(sizes) == 2 else []


def _hdr(data: bytes) -> list[Size]:
    return [(_number(width), _number(height)) for height, width in _HDR.findall(data)]


def _jpeg_2000(data: bytes) -> list[Size]:
    start = next((begin for kind, begin, _ in _boxes(data) if kind == b"jp2c"), 0)
    if not data.startswith(b"\xff\x4f\xff\x51", start):
        return []
    right, bottom, left, top = struct.unpack_from(">4I", data, start + 8)
    return [(max(0, right - left), max(0, bottom - top))]


def _avif(data: bytes) -> list[Size]:
    sizes = []
    for kind, begin, end in _boxes(data):
        position = begin
        while kind == b"meta" and (position := data.find(b"ispe", position, end)) >= 0:
            sizes.append(struct.unpack_from(">II", data, position + 8))
            position += 4
    return sizes


def _boxes(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the kind of each box of a file of ISO's format, where its content begins, and where it ends."""
    position = 0
    while position + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        begin = position + 8
        if length == 1:
            (length,) = struct.unpack_from(">Q", data, begin)
            begin += 8
        end = len(data) if length == 0 else position + length
        yield kind, begin, end
        position = max(end, begin)


def _begins(pattern: bytes) -> Callable[[bytes], object]:
    """Return whether a file begins with a pattern."""
    return re.compile(pattern, re.DOTALL).match


def _is_animated_png(data: bytes) -> bool:
    """Return whether a PNG file may have several images."""
    return data.startswith(_PNG) and b"acTL" in data


_PNG = b"\x89PNG\r\n\x1a\n"
FORMATS = (
    Format(_begins(rb"BM"), _bmp, 6),
    Format(_begins(rb"GIF8"), _at("<HH", 6), 13),
    Format(_is_animated_png, _at(">II", 16), 16),
    Format(_begins(_PNG), _at(">II", 16), 6),
    Format(_begins(rb"\xff\xd8\xff"), _jpeg, 12),
    Format(_begins(rb"RIFF....WEBP"), _webp, 12),
    Format(_begins(rb"II\*\0|MM\0\*|II\+\0|MM\0\+"), _tiff, 13),
    Format(_begins(rb"P[1-6]\s"), _written(_PNM), 6),
    Format(_begins(rb"P7\s"), _pam, 6),
    Format(_begins(rb"P[Ff]\s"), _written(_PFM), 26),
    Format(_begins(rb"#\?R"), _hdr, 16),
    Format(_begins(rb"\x59\xa6\x6a\x95"), _at(">II", 4), 6),
    Format(_begins(rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51"), _jpeg_2000, 20),
    Format(_begins(rb"....ftyp"), _avif, 36),
)

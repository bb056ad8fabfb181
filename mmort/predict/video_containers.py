"""The size that a video states: a file that is cut has less, and its frames would seem to end there."""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

from mmort.limits import MAX_BOXES

_ISO_BOXES = b"ftyp", b"moov", b"mdat", b"moof", b"styp", b"free", b"skip", b"wide"  # MP4 and QuickTime begin with one
_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"


def stated_size(file: BinaryIO) -> int | None:
    """Return how many bytes a video file has by its own headers, of AVI, MP4, QuickTime, Matroska and WebM.

    Parameters
    ----------
    file : binary file
        At its beginning.

    Returns
    -------
    int or None
        None of another format, and of a file that states no size, such as one that is recorded still.

    Examples
    --------
    >>> import io, struct
    >>> from mmort.predict.video_containers import stated_size
    >>> stated_size(io.BytesIO(b"RIFF" + struct.pack("<I", 5000) + b"AVI LIST"))
    5008
    """
    begin = file.read(12)
    if begin[:4] == b"RIFF" and begin[8:] == b"AVI ":
        size = struct.unpack("<I", begin[4:8])[0]
        return size + 8 if size else None
    file.seek(0)
    if begin[4:8] in _ISO_BOXES:
        return _end_of_boxes(file)
    return _end_of_segment(file) if begin[:4] == _EBML else None


def _end_of_boxes(file: BinaryIO) -> int | None:
    """Return where the last box of an MP4 or QuickTime file ends."""
    position, length = 0, file.seek(0, os.SEEK_END)
    for _ in range(MAX_BOXES):
        if position >= length:
            break
        file.seek(position)
        header = file.read(16).ljust(16, b"\0")
        size = struct.unpack(">I", header[:4])[0]
        if size == 1:
            size = struct.unpack(">Q", header[8:])[0]
        if size < 8:  # 0 is up to the end, whose place is not stated
            return None
        position += size
    return position


def _end_of_segment(file: BinaryIO) -> int | None:
    """Return where the segment of a Matroska file ends."""
    file.seek(4)
    size = _ebml_size(file)
    if size is None:
        return None
    file.seek(size, os.SEEK_CUR)
    size = _ebml_size(file) if file.read(4) == _SEGMENT else None
    return None if size is None else file.tell() + size


def _ebml_size(file: BinaryIO) -> int | None:
    """Read a size of Matroska's; None if it is unknown."""
    first = file.read(1)
    if not first or not first[0]:
        return None
    length = 9 - first[0].bit_length()
    bits = 7 * length
    size = int.from_bytes(first + file.read(length - 1), "big") & (2**bits - 1)
    return None if size == 2**bits - 1 else size

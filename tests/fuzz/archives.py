"""Archives of checkpoints that torch and zipfile may understand differently: what is checked is what is loaded.

python -m tests.fuzz.archives --seconds 60 [--seed N] [--count N]

Each archive is loaded twice: as today's torch reads it, whose own reader tells sizes, and as for torch 2.9, which gets
an archive of what zipfile has found.
"""

import io
import random
import struct
import sys
import warnings
import zipfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from mmort.detect import checkpoint
from mmort.detect.checkpoint import load_checkpoint
from tests.fuzz.children import Fuzzer, main

SIZES = (0, 1, 20, 200, 65535, 2**16, 2**31 - 1, 2**32 - 1)
ELEMENTS = 4096
NAMES = (
    "archive/data.pkl",
    "archive/data/0",
    "archive/version",
    "archive/byteorder",
    "archive/a",
    "data.pkl",
    "x" * 600,
)


class Record(NamedTuple):
    """A file of an archive: what its header and its entry in the list say, which need not be the same."""

    name: str
    listed_name: str
    content: bytes
    compressed: bool
    changes: dict[str, int]


FIELDS = {"version": 6, "flags": 8, "method": 10, "crc": 16, "packed": 20, "size": 24, "disk": 34, "offset": 42}
"""Where numbers stand in an entry of the list, of two or four bytes."""
LONG = {"crc", "packed", "size", "offset"}


@cache
def records(compressible: bool) -> dict[str, bytes]:
    """Return what torch.save writes into an archive."""
    saved = io.BytesIO()
    weight = torch.zeros(ELEMENTS) if compressible else torch.arange(ELEMENTS, dtype=torch.float32).sin()
    torch.save({"weight": weight}, saved)
    with zipfile.ZipFile(saved) as archive:
        return {f"archive/{name.partition('/')[2]}": archive.read(name) for name in archive.namelist()}


def draw_records(rng: random.Random) -> list[Record]:
    """Return records, some of which are changed, missing, doubled or renamed."""
    compressible, often, drawn = rng.random() < 0.5, rng.choice((0.01, 0.1)), []
    for name, content in records(compressible).items():
        for _ in range(rng.choice((1, 1, 1, 1, 1, 1, 2, 0)) if rng.random() < often else 1):
            changes = {}
            while rng.random() < often:
                changes[rng.choice(list(FIELDS))] = rng.choice(SIZES)
            other = rng.choice(NAMES)
            drawn.append(
                Record(
                    other if rng.random() < often / 3 else name,
                    other if rng.random() < often / 3 else name,
                    content
                    if rng.random() > often / 2
                    else rng.choice((b"", content[:-1], content * 2, content[::-1])),
                    compressible and rng.random() < 0.3,
                    changes,
                )
            )
    if rng.random() < 0.1:
        rng.shuffle(drawn)
    return drawn


def written(rng: random.Random, drawn: list[Record]) -> bytes:
    """Return the archive of records, sometimes with a second list, a comment, bytes before it, or ZIP64 entries."""
    content, entries = bytearray(rng.randbytes(rng.choice((0,) * 15 + (3,)))), []
    for record in drawn:
        packed = zlib.compress(record.content, 9)[2:-4] if record.compressed else record.content
        numbers = {
            "version": 20,
            "flags": 0x800 * (rng.random() < 0.5) | 8 * (rng.random() < 0.1),
            "method": 8 if record.compressed else 0,
            "crc": zlib.crc32(record.content),
            "packed": len(packed),
            "size": len(record.content),
            "disk": 0,
            "offset": len(content),
        }
        extra = b""
        if rng.random() < 0.05:
            extra = struct.pack("<HHQQ", 1, 16, rng.choice((len(record.content), *SIZES)), len(packed))
            numbers |= {"packed": 2**32 - 1, "size": 2**32 - 1}
        name = record.name.encode()
        shared = (numbers["version"], numbers["flags"], numbers["method"], 0, 0, numbers["crc"], numbers["packed"])
        content += struct.pack("<4s5H3I2H", b"PK\3\4", *shared, numbers["size"], len(name), len(extra))
        content += name + extra + packed
        name = record.listed_name.encode()
        entry = bytearray(
            struct.pack(
                "<4s6H3I5H2I",
                b"PK\1\2",
                20,
                *shared,
                numbers["size"],
                len(name),
                len(extra),
                0,
                0,
                0,
                0,
                numbers["offset"],
            )
        )
        for field, number in record.changes.items():
            form = "<I" if field in LONG else "<H"
            struct.pack_into(form, entry, FIELDS[field], number % 2 ** (8 * struct.calcsize(form)))
        entries.append(bytes(entry) + name + extra)
    lists = [b"".join(entries)]
    if rng.random() < 0.2:
        lists.append(b"".join(rng.sample(entries, rng.randrange(len(entries) + 1))))
    for listed in lists:
        content += end_of_list(rng, listed, len(content), len(entries))
    return bytes(content)


def end_of_list(rng: random.Random, listed: bytes, offset: int, count: int) -> bytes:
    """Return a list of records with what ends an archive."""
    size = len(listed) if rng.random() < 0.97 else rng.choice(SIZES) % 2**32
    offset = offset if rng.random() < 0.97 else rng.choice((0, offset + 22, offset - len(listed))) % 2**32
    count = count if rng.random() < 0.97 else rng.choice((0, 1, count + 1, 65535))
    comment = rng.choice((b"", b"", b"", b"PK\5\6" + bytes(18), rng.randbytes(3)))
    longer = b""
    if rng.random() < 0.1:
        longer = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 20, 20, 0, 0, count, count, size, offset)
        longer += struct.pack("<4sIQI", b"PK\6\7", 0, offset + len(listed), 1)
        if rng.random() < 0.5:
            count, size, offset = 65535, 2**32 - 1, 2**32 - 1
    count %= 2**16
    return (
        listed + longer + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, size, offset, len(comment)) + comment
    )


def make(rng: random.Random, folder: Path) -> Path:
    """Write an archive."""
    path = folder / "checkpoint.pth"
    path.write_bytes(written(rng, draw_records(rng)))
    return path


def loaded(path: Path, tells_sizes: bool) -> torch.Tensor | None:
    """Return the weight that a checkpoint holds, None if it is refused."""
    before = checkpoint._TELLS_SIZES
    checkpoint._TELLS_SIZES = tells_sizes
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weights, _ = load_checkpoint(path)
    except ValueError as error:
        if "\n" in str(error):
            raise AssertionError(str(error)) from error
        return None
    finally:
        checkpoint._TELLS_SIZES = before
    assert sum(value.untyped_storage().nbytes() for value in weights.values()) <= path.stat().st_size, weights
    return weights.get("weight")


def run(path: Path) -> None:
    """Load an archive by both readers; what zipfile lists is what torch 2.9 gets."""
    today, former = loaded(path, True), loaded(path, False)
    if former is not None:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith("data/0")]
            contents: list[Any] = [archive.read(name) for name in names]
        assert former.contiguous().numpy().tobytes() in contents
    if today is None and former is None:
        raise ValueError("refused")


if __name__ == "__main__":
    records(True), records(False)
    sys.exit(main(Fuzzer("archives", make, run, (ValueError,), 100)))

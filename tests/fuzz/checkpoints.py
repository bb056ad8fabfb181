"""Random checkpoints, damaged and hostile: each is loaded or refused within 2 seconds and 500 MB.

python -m tests.fuzz.checkpoints --seconds 60 [--seed N] [--count N]
"""

import io
import math
import random
import re
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from mmort.detect.checkpoint import load_checkpoint, load_weights
from tests.fuzz.children import Fuzzer, main

KEYS: tuple[Any, ...] = (
    "weight",
    "bias",
    "module.weight",
    "ema_weight",
    "",
    "a" * 10_000,
    3,
    None,
    b"weight",
    (1, 2),
    1.5,
)
SIZES = (0, 1, 2, 7, 2**20, 2**33, 2**60)


def tensor(rng: random.Random) -> torch.Tensor:
    """Return a tensor, which may look larger than it is."""
    dtype = rng.choice(
        (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64)
    )
    small = torch.ones(1).to(dtype)
    shape = [rng.choice(SIZES) for _ in range(rng.randrange(3))]
    if rng.random() < 0.4 and math.prod(shape) < 2**60:
        return small.as_strided(shape, [0] * len(shape))
    return rng.choice(
        (
            lambda: small.reshape(1, 1),
            lambda: torch.ones(1, 1).to_sparse(),
            lambda: torch.ones(1, 1, device="meta"),
            lambda: torch.ones(1, 1),
            lambda: torch.nn.Parameter(torch.ones(1, 1)),
        )
    )()


def value(rng: random.Random, depth: int) -> Any:
    """Return a value of the metadata."""
    if depth <= 0 or rng.random() < 0.3:
        return rng.choice((5, "x", None, 1.5, b"y", True, torch.ones(2), ("a", "b"), ["a"], {"a": 1}))
    inner = value(rng, depth - 1)
    for _ in range(rng.choice((1, 1, 12))):
        inner = rng.choice(([inner, inner], (inner, inner), {"classes": inner, "CLASSES": inner}))
    return inner


def write(rng: random.Random, folder: Path) -> Path:
    """Write a checkpoint."""
    weights: Any = {rng.choice(KEYS): tensor(rng) for _ in range(rng.randrange(5))}
    if rng.random() < 0.5:
        weights |= {"weight": torch.ones(1, 1), "bias": torch.ones(1).half()}
    content: Any = rng.choice(
        (
            weights,
            {"state_dict": weights, "meta": {"CLASSES": value(rng, 3)}},
            {"state_dict": weights, "meta": {"dataset_meta": value(rng, 3)}},
            {"state_dict": value(rng, 2), "meta": value(rng, 2)},
            value(rng, 3),
        )
    )
    path = folder / "checkpoint.pth"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.save(content, path, _use_new_zipfile_serialization=rng.random() < 0.6)
        except Exception:  # nor can torch save everything
            torch.save(weights and {}, path)
    damaged = bytearray(path.read_bytes() if rng.random() < 0.7 else compressed(rng, path))
    for _ in range(rng.choice((0, 0, 0, 1, 3, 30))):
        position = rng.randrange(len(damaged) + 1)
        damaged[position : position + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
    path.write_bytes(damaged[: rng.choice((*[len(damaged)] * 4, rng.randrange(len(damaged) + 1)))])
    return path


def compressed(rng: random.Random, path: Path) -> bytes:
    """Return a checkpoint whose records are compressed, with changes where they are listed."""
    torch.save({"weight": torch.zeros(2**18), "bias": torch.ones(1)}, path)
    packed = io.BytesIO()
    with zipfile.ZipFile(path) as stored, zipfile.ZipFile(packed, "w") as target:
        for name in stored.namelist():
            target.writestr(name, stored.read(name), rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)))
        target.comment = rng.randbytes(rng.choice((0, 0, 5)))
    content = packed.getvalue()
    begin, end = content.index(b"PK\1\2"), content.index(b"PK\5\6")
    listed = content[begin:end]
    # Two lists, of which readers take the one or the other.
    parts = [bytearray(listed) for _ in range(rng.choice((1, 1, 2)))]
    for part in parts:
        for _ in range(rng.choice((0, 1, 1, 3))):
            entry = rng.choice([match.start() for match in re.finditer(b"PK\1\2", part)] or [0])
            offset = entry + rng.choice((4, 6, 8, 10, 20, 24, 28, 30, 32, 42, rng.randrange(46)))
            part[offset : offset + 1] = bytes([rng.choice((0, 1, 8, 20, 100, 255))])
    return content[:begin] + b"".join(parts) + content[end:]


def read(path: Path) -> None:
    """Load a checkpoint into a small model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weights, _ = load_checkpoint(path)
        storages = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in weights.values()
        }
        assert sum(storages.values()) <= path.stat().st_size
        load_weights(torch.nn.Linear(1, 1), weights)


if __name__ == "__main__":
    sys.exit(main(Fuzzer("checkpoints", write, read)))

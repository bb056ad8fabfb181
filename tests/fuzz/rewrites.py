"""Random metadata and .npz files for commands that read, compare or rewrite a detector: a result, or one line.

python -m tests.fuzz.rewrites --seconds 60 [--seed N] [--count N]
"""

import io
import random
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np

from tests.fuzz import commands, hostile, metadata
from tests.fuzz.children import Fuzzer, main
from tests.predict import tiny_detector

COMMANDS = (
    ["quantize", "model.onnx", "-o", "out.onnx", "--calibrate", "images"],
    ["quantize", "model.onnx", "-o", "out.onnx", "--calibrate", "inputs.npz"],
    ["upgrade", "model.onnx", "--output", "out.onnx"],
    ["portable", "model.onnx", "--output", "out.onnx"],
    ["accelerate", "model.onnx", "-o", "out.onnx", "--input", "inputs.npz"],
    ["verify", "model.onnx", "--against", "model.onnx"],
    ["verify", "model.onnx", "--against", "model.onnx", "--image", "images/a.png"],
    ["verify", "model.onnx", "--against", "model.onnx", "--inputs", "inputs.npz"],
    ["verify", "model.onnx", "--against", "model.onnx", "--inputs", "inputs.npz", "--json"],
    ["triton-repository", "model.onnx", "repository"],
    ["info", "model.onnx"],
)
NAMES = "image", "image", "image", "img_shape", "x", "a\0b", "../x", "\x1b[2J", "a" * 300
SHAPES = (1, 3, 16, 32), (1, 3, 16, 32), (2, 3, 16, 32), (0, 3, 16, 32), (3, 16, 32), (), (1, 3, 2**20, 2**20)


def array(rng: random.Random) -> bytes:
    """Return the content of a .npy file, or something like one."""
    shape, dtype = rng.choice(SHAPES), rng.choice((*hostile.DTYPES, *["float32"] * 10, "object"))
    file = io.BytesIO()
    if np.prod(shape, dtype=float) < 10**6 and rng.random() < 0.8:
        np.save(file, hostile.converted(hostile.values(rng, shape), dtype))
    else:  # a header without its data
        header = repr({"descr": rng.choice(("<f4", "|O", "|V0", "<U9")), "fortran_order": False, "shape": shape})
        header = rng.choice((header, "(" * 10_000, header * 2, f"{header[:-2]}**9}}"))
        file.write(b"\x93NUMPY\x02\x00" + struct.pack("<I", rng.choice((len(header), 2**31))) + header.encode())
    return file.getvalue()


def arrays(rng: random.Random) -> bytes:
    """Return a .npz file, or something like one."""
    file = io.BytesIO()
    with zipfile.ZipFile(
        file, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
    ) as archive:
        for name in {rng.choice(NAMES) for _ in range(rng.choice((0, 1, 1, 2)))}:
            archive.writestr(f"{name}{rng.choice(('.npy', '.npy', '.npy', ''))}", array(rng))
        if rng.random() < 0.1:
            archive.writestr("image.npy", bytes(rng.choice((10**6, 10**8))))
    data = bytearray(file.getvalue())
    for _ in range(rng.choice((0, 0, 1, 3))):
        position = rng.randrange(len(data) + 1)
        data[position : position + rng.randrange(5)] = rng.randbytes(rng.randrange(5))
    return bytes(data)


def make(rng: random.Random, folder: Path) -> tuple[Path, list[str]]:
    """Write a detector with metadata, and arrays; return a folder and a command line."""
    commands.write_files(folder)
    arguments = list(rng.choice(COMMANDS))
    if "inputs.npz" in arguments and rng.random() < 0.9:
        (folder / "inputs.npz").write_bytes(arrays(rng))
    else:
        texts = metadata.make(rng, folder)[0]
        entries = {printed(name): printed(text) for name, text in texts.items()}
        tiny_detector.write(folder / "model.onnx", shape=(1, 3, 16, 32), metadata=entries)
    return folder, arguments


def printed(text: str) -> str:
    """Return a text that protobuf takes."""
    return text.encode("utf-8", "replace").decode()


def run(case: tuple[Path, list[str]]) -> None:
    """Run a command."""
    commands.run(*case)


if __name__ == "__main__":
    commands.prepare()
    sys.exit(main(Fuzzer("rewrites", make, run, (commands.RefusedError,), 20)))

"""Two files of a detector that takes texts, and the texts themselves: detections, or an error in one line.

python -m tests.fuzz.texts --seconds 60 [--seed N] [--count N]
"""

import copy
import json
import random
import sys
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

import mmort
from tests.fuzz import json_values
from tests.fuzz.children import Fuzzer, main
from tests.predict.tiny_open_vocabulary import save_detector, save_encoder

OF_ONNX_RUNTIME = Fail, InvalidArgument, RuntimeException
"""What a changed file may raise when it runs."""

NAMES = (
    "cat",
    "traffic lights",
    "a man with two dogs",
    "",
    " ",
    ".",
    " . ",
    "?",
    "[SEP]",
    "##s",
    "\u00e9\u0301",
    "\u4e2d\u6587",
    "\ud800",
    "\0",
    "\x1b[2J",
    "\u202e",
    "x" * 300,
    "(" * 100_000,
    "cat " * 3000,
    "cat . " * 1000,
    "caption: cat",
    "cat . " * 100_000,
    "x" * 2**22,
    ". " * 2**20,
    "\u0301" * 200_000,
    "\u4e2d" * 200_000,
    "a b" * 300_000,
)


@cache
def files(**limits: Any) -> tuple[bytes, bytes]:
    """Return a detector's file and its text encoder's."""
    with TemporaryDirectory() as folder:
        detector, encoder = Path(folder, "detector.onnx"), Path(folder, "detector.texts.onnx")
        save_detector(detector)
        save_encoder(encoder, **limits)
        return detector.read_bytes(), encoder.read_bytes()


def changed(rng: random.Random, data: bytes) -> bytes:
    """Return a file with other metadata, and sometimes with other bytes."""
    model = onnx.load_from_string(data)
    for entry in model.metadata_props:
        if rng.random() < 0.5 and entry.key != "digest":
            document = json_values.mutated(rng, json.loads(entry.value), rng.choice((0, 1, 1, 2)))
            entry.value = json_values.text(rng, document).encode("utf-8", "replace").decode()
    if rng.random() < 0.1:
        rng.choice(model.graph.input).type.tensor_type.elem_type = rng.choice((1, 6, 7, 11))
    if rng.random() < 0.1:
        del model.metadata_props[rng.randrange(len(model.metadata_props))]
    written = bytearray(model.SerializeToString())
    if rng.random() < 0.1:
        position = rng.randrange(len(written))
        written[position : position + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
    return bytes(written)


def make(rng: random.Random, folder: Path) -> tuple[Path, Any]:
    """Write two files; return the detector's, and texts."""
    detector, encoder = files(chunked_size=rng.choice((-1, -1, 1, 2)))
    if rng.random() < 0.3:
        detector = changed(rng, detector)
    if rng.random() < 0.5:
        encoder = changed(rng, encoder)
    (folder / "detector.onnx").write_bytes(detector)
    if rng.random() < 0.97:
        (folder / "detector.texts.onnx").write_bytes(encoder)
    if rng.random() < 0.05:
        names = [rng.choice(NAMES[:14]) for _ in range(7)]
        return folder / "detector.onnx", names * rng.choice((20, 2_000, 30_000))
    words = [rng.choice(NAMES[:3] if rng.random() < 0.8 else NAMES) for _ in range(rng.choice((0, 1, 1, 2, 5)))]
    texts: Any = rng.choice((words, " . ".join(words), words and words[0]))
    if rng.random() < 0.1:
        caption = {"text": rng.choice(NAMES), "tokens_positive": [[[0, 3]], [[4, 11]]]}
        texts = json_values.mutated(rng, caption, rng.choice((0, 1, 2)))
    return folder / "detector.onnx", copy.deepcopy(texts)


def run(case: tuple[Path, Any]) -> None:
    """Detect what the texts describe."""
    path, texts = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predict = mmort.Predictor(path, texts=texts, score_threshold=0)
        detections = predict(np.zeros((20, 30, 3), np.uint8))
        json.dumps(detections.to_dict(), allow_nan=False)
        assert len(detections.names) == len(detections)


if __name__ == "__main__":
    mmort.set_num_threads(1)
    onnxruntime.set_default_logger_severity(4)
    sys.exit(main(Fuzzer("texts", make, run, (ValueError, TypeError, OSError, *OF_ONNX_RUNTIME), 50)))

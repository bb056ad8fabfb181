"""Reads with the exported network; needs numpy and ONNX Runtime, no torch."""

import numpy as np
import onnxruntime

import mmort.ort

ALPHABET = "0123456789"
BLANK, HEIGHT, STEP = 0, 32, 32


def greedy(scores):
    """Decode CTC scores [T, N, 1 + characters] by the best class of each column, into N texts.

    Runs of one class become one character, and blanks are dropped; class c is ALPHABET[c - 1].
    """
    best = scores.argmax(axis=2).T
    kept = best != BLANK
    kept[:, 1:] &= best[:, 1:] != best[:, :-1]
    characters = np.array(["", *ALPHABET])[best[kept]]
    return ["".join(text) for text in np.split(characters, kept.sum(axis=1).cumsum())[:-1]]


class Predictor:
    """Reads lines of text, images [32, W] from 0 to 1.

    Lines are padded on the right to a multiple of 32 columns, so that there are few sizes.  Each size has its own
    memory, bound to the session once: a line is copied to where the session reads it, and the scores are decoded where
    the session wrote them.

    Parameters
    ----------
    path : path
        The file that export.py wrote.
    **options
        Passed to `mmort.ort.session`.  ``providers`` defaults to CUDA if this ONNX Runtime has it, then the CPU.
    """

    def __init__(self, path, **options):
        available = onnxruntime.get_available_providers()
        options.setdefault(
            "providers", [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in available]
        )
        self.session = mmort.ort.session(path, **options)
        self._bound = {}

    def __call__(self, line):
        """Return the text of a line."""
        if line.ndim != 2 or line.shape[0] != HEIGHT or line.shape[1] == 0:
            raise ValueError(f"a line must be [{HEIGHT}, W] with W > 0, got {list(line.shape)}")
        columns = line.shape[1]
        binding, image, scores = self._memory(-(-columns // STEP) * STEP)
        image[0, 0, :, :columns] = line
        image[0, 0, :, columns:] = np.median(line)
        binding.run()
        return greedy(scores)[0]

    def _memory(self, width):
        if width not in self._bound:
            image = np.empty((1, 1, HEIGHT, width), np.float32)
            scores = np.empty((width // 4 + 1, 1, 1 + len(ALPHABET)), np.float32)
            self._bound[width] = mmort.ort.Binding(self.session, {"image": image}, {"scores": scores}), image, scores
        return self._bound[width]

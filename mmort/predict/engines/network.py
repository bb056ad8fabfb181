"""The interface through which `Predictor` runs a detector: a `Network`; a `DetectorFile` is one in any engine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mmort.configs.captions import Prompt
from mmort.contract import DETECTION, Interface, MaskFormat, Task, read
from mmort.contract.tasks import IMG_SHAPE, ORI_SHAPE, TASKS
from mmort.limits import MAX_THREADS
from mmort.predict.engines.open_session import open_session
from mmort.predict.text_encoder import EncodedNames, TextEncoder, merged

ADVICE_WITH_CONFIG = "mmort adopt MODEL.onnx --config CONFIG.py --output FILE.onnx writes it into the file"
"""Advice for a file that does not state its preprocessing, as those of MMDetection and MMDeploy."""


class Network(Protocol):
    """A detector that `Predictor` runs on batches."""

    @property
    def input_shape(self) -> tuple[int | None, int | None, int | None]:
        """Number, height and width of the images in a batch; None where any is accepted."""
        ...

    @property
    def mask_format(self) -> MaskFormat | None:
        """The format of the masks.  If None, masks of the input's size cover the image, others cover their boxes."""
        ...

    def __call__(self, input: NDArray[np.float32], img_shape: NDArray[np.int64]) -> Sequence[NDArray[Any]]:
        """Return the detections in a batch.

        Parameters
        ----------
        input : ndarray of float32, (N, 3, H, W)
            Preprocessed images.
        img_shape : ndarray of int64, (N, 2)
            Height and width of each image in `input`, without its padding.

        Returns
        -------
        sequence of ndarray
            ``dets`` (N, K, 5): x1, y1, x2, y2 in pixels of `input`, score, or (N, K, 6) for rotated boxes: centre x, y,
            width, height, angle in radians, score; ``labels`` (N, K), -1 in unused rows; ``masks`` (N, K, h, w) of
            detectors that have any; and ``semantic`` (N, S, h, w) of those whose segments are made of instances and
            logits of stuff.  Detectors of poses have ``keypoints`` (N, K, 3 P) instead of masks: x, y in pixels of
            `input`, and score of each point.
        """
        ...


class DetectorFile:
    """A detector's file in an engine: what the file's metadata, inputs and outputs say.

    It can be pickled: the file is loaded again, from the same path.

    Attributes
    ----------
    path : str
        Absolute, so that another working directory makes no difference.
    contract : DetectorContract
    threads : int or None
        Threads for the operators; None is one for each core.
    parallel : int
        Callers at the same time.
    input_shape : tuple
        As for `Network`.
    classes : tuple of str or None
        The names of the classes in the file's metadata.
    preprocessing : Preprocessing or None
        The preprocessing in the file's metadata.
    mask_format : MaskFormat or None
    prompt : Prompt or None
        What `with_texts` was called with.
    """

    engine: str
    """The package that runs the file."""

    def __init__(
        self, path: str, interface: Interface, *, threads: int | None, parallel: int, **of_engine: Any
    ) -> None:
        self.path, self.threads, self.parallel = os.path.abspath(path), threads, parallel
        self.contract = read(path, interface)
        self._options = {"threads": threads, "parallel": parallel, **of_engine}
        if self.contract.takes_proposals:
            raise ValueError(
                f"{path}: this detector takes proposals (N, P, 4) besides the images, which nothing here makes; run it "
                "in ONNX Runtime with both, as docs/mmdetection.md shows, or export it with the rpn_head that made them"
            )
        metadata = self.contract.metadata
        self.classes, self.preprocessing, self.mask_format = (
            metadata.classes,
            metadata.preprocessing,
            metadata.mask_format,
        )
        self.input_shape = self.contract.input_shape
        self.prompt: Prompt | None = None
        self._words: tuple[EncodedNames, ...] = ()

    @property
    def computed_by(self) -> dict[str, Any]:
        """Settings that detections depend on beside the file and its inputs, by name."""
        return {name: value for name, value in self._options.items() if name in ("providers", "precision")} | {
            "engine": self.engine
        }

    @property
    def has_masks(self) -> bool:
        """Whether the file has masks."""
        return self.contract.has_masks

    @property
    def takes_texts(self) -> bool:
        """Whether the words that the detector looks for are chosen when it runs."""
        return self.contract.takes_texts

    def with_texts(self, prompt: Prompt) -> DetectorFile:
        """Return the same detector, which shares its memory with this one, for other words.

        The text encoder runs once, and is not kept.

        Raises
        ------
        ValueError
            If the file's words are not chosen when it runs, a name has no tokens, there are too many, or the text
            encoder is not that of the detector.
        OSError
            If there is no text encoder beside the detector's file.
        ImportError
            If tokenizers or onnxruntime is not installed.
        """
        encoder = self.contract.metadata.texts
        if encoder is None:
            raise ValueError(
                f"{self.path}: texts must not be set: what this detector finds was fixed by its export; "
                "mmort export --open-vocabulary makes files that take texts"
            )
        path = Path(self.path).with_name(encoder.encoder)
        if not path.is_file():
            raise FileNotFoundError(
                f"text encoder does not exist: {path}; mmort export --open-vocabulary writes it beside the detector"
            )
        session = open_session(os.fspath(path), ["CPUExecutionProvider"], None)
        network = object.__new__(type(self))
        network.__dict__.update(self.__dict__)
        network.prompt, network.classes = prompt, prompt.names
        network._set_words(TextEncoder(path, session, encoder.digest)(prompt))
        return network

    def require_texts(self) -> None:
        """Raise a ValueError if the detector does not know what to look for."""
        if self.takes_texts and not self._words:
            raise ValueError(
                f"{self.path}: texts must be set, as this detector finds what they describe: "
                "--texts 'cat . traffic light', or Predictor(..., texts=['cat', 'traffic light'])"
            )

    def __call__(
        self,
        input: NDArray[np.float32],
        img_shape: NDArray[np.int64],
        ori_shape: NDArray[np.int64] | None = None,
    ) -> list[NDArray[Any]]:
        """Run the file on a batch, for each chunk of the words if it takes any; see `Network`.

        `ori_shape` are the heights and widths of the original images, for a file that takes them.
        """
        feeds: dict[str, NDArray[Any]] = {self.contract.image.name: input}
        if self.contract.takes_img_shape:
            feeds[IMG_SHAPE.name] = img_shape
        if self.contract.takes_ori_shape and ori_shape is not None:
            feeds[ORI_SHAPE.name] = ori_shape
        if not self.takes_texts:
            return self._run(feeds)
        self.require_texts()
        outputs = self._run_words(feeds)
        return merged([(words.count, chunk) for words, chunk in zip(self._words, outputs, strict=True)])

    def _set_words(self, words: tuple[EncodedNames, ...]) -> None:
        """Let the detector look for the words of some chunks."""
        self._words = words

    def _run_words(self, feeds: dict[str, NDArray[Any]]) -> list[list[NDArray[Any]]]:
        """Return the outputs for each chunk of the words."""
        return [self._run({**feeds, **words.feeds}) for words in self._words]

    def _run(self, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the outputs for inputs by name."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        changed = {"_words": self._words, "classes": self.classes, "prompt": self.prompt}  # by `with_texts`
        return partial(type(self), self.path, **self._options), (), changed

    def __setstate__(self, changed: dict[str, Any]) -> None:
        self.__dict__.update(changed)
        self._set_words(self._words)


def require_counts(**counts: int | None) -> None:
    """Refuse numbers of threads that are no integers, not positive, or more than a machine can have."""
    for name, value in counts.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{name} must be an integer, got {value!r}")
        if value < 1:
            raise ValueError(f"{name} must be positive, got {value}")
        if value > MAX_THREADS:
            raise ValueError(f"{name} must be at most {MAX_THREADS}, got {value}")


def task_of(network: Network) -> Task:
    """Return the task of a network: of a file, the one that its metadata state; otherwise that of detectors."""
    return TASKS[network.contract.metadata.task] if isinstance(network, DetectorFile) else DETECTION

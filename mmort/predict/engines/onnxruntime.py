"""What runs a detector on a batch: the interface that `Predictor` calls, and ONNX Runtime behind it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import mmort.ort
from mmort._files.inputs import is_checkpoint, refuse_address
from mmort.configs.captions import Prompt
from mmort.contract import Interface, MaskFormat, read
from mmort.contract.tasks import IMG_SHAPE, ORI_SHAPE, TEXT_INPUTS
from mmort.limits import MAX_THREADS
from mmort.ops.threads import get_num_threads
from mmort.predict.engines.io_binding import BoundSession
from mmort.predict.engines.splitting import SplitSession, split_session
from mmort.predict.text_encoder import TextEncoder, Words, merged

ADVICE_WITH_CONFIG = "mmort adopt MODEL.onnx --config CONFIG.py --output FILE.onnx writes it into the file"
"""What helps with a file that does not state its preprocessing, as MMDetection's and MMDeploy's do not."""


class Network(Protocol):
    """What `Predictor` calls to run a detector on a batch."""

    @property
    def input_shape(self) -> tuple[int | None, int | None, int | None]:
        """Number, height and width of the images in a batch; None where any is accepted."""
        ...

    @property
    def mask_format(self) -> MaskFormat | None:
        """What the masks are.  If None, masks of the input's size cover the image, others cover their boxes."""
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

    Attributes
    ----------
    path : str
    contract : DetectorContract
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

    def __init__(self, path: str, interface: Interface, parallel: int) -> None:
        self.path, self.parallel, self.contract = path, parallel, read(path, interface)
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
        self._words: tuple[Words, ...] = ()

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
        session = _open(os.fspath(path), ["CPUExecutionProvider"], None)
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

    def _set_words(self, words: tuple[Words, ...]) -> None:
        """Let the detector look for the words of some chunks."""
        self._words = words

    def _run_words(self, feeds: dict[str, NDArray[Any]]) -> list[list[NDArray[Any]]]:
        """Return the outputs for each chunk of the words."""
        return [self._run({**feeds, **words.feeds}) for words in self._words]

    def _run(self, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the outputs for inputs by name."""
        raise NotImplementedError

    def _chosen(self) -> dict[str, Any]:
        """Return what `with_texts` has changed, for pickling."""
        return {"_words": self._words, "classes": self.classes, "prompt": self.prompt}


class OnnxNetwork(DetectorFile):
    """A detector's ONNX file in ONNX Runtime: of ``mmort export``, of MMDetection's own export tool, or of MMDeploy.

    It can be pickled: the session is created again, from the same path.

    Parameters
    ----------
    path : path
    providers : sequence, optional
        ONNX Runtime's execution providers, by preference: names, or pairs of a name and a dict of options.  By default
        the CPU.
    threads : int, optional
        Threads for the operators.  By default one for each core.
    io_binding : bool, default False
        Run by ONNX Runtime's IO binding: on a GPU, inputs of the same shape use the same memory there.
    parallel : int, default 1
        Callers at the same time that `threads` is shared by; each of them is one of the threads.

    Raises
    ------
    OSError
        If there is no such file, or mmort was built without its library.
    ValueError
        If ONNX Runtime cannot load the file, the file is not a detector's, or a provider is not available.
    ImportError
        If onnxruntime is not installed.
    """

    engine = "onnxruntime"

    def __init__(
        self,
        path: str | os.PathLike[str],
        providers: Sequence[Any] | None = None,
        threads: int | None = None,
        io_binding: bool = False,
        parallel: int = 1,
    ) -> None:
        self._arguments = os.fspath(path), providers, threads, io_binding, parallel
        if isinstance(providers, str):
            raise TypeError(f"providers must be a sequence, such as [{providers!r}], got {providers!r}")
        require_counts(threads=threads, parallel=parallel)
        if parallel > 1 and io_binding:
            raise ValueError(f"io_binding runs one batch at a time, parallel must be 1, got {parallel}")
        if parallel > 1:  # ONNX Runtime counts one caller among its threads
            threads = max(1, (get_num_threads() if threads is None else threads) + 1 - parallel)
        self._open = partial(_open, os.fspath(path), providers or ["CPUExecutionProvider"], threads)
        self.session = self._open()
        self._split: SplitSession | None = None
        super().__init__(os.fspath(path), Interface.of_session(self.session), parallel)
        self._bound = BoundSession(self.session, self.contract.outputs) if io_binding else None

    def __reduce__(self) -> tuple[Any, ...]:
        return OnnxNetwork, self._arguments, self._chosen()

    def __setstate__(self, chosen: dict[str, Any]) -> None:
        self.__dict__.update(chosen)
        self._set_words(self._words)

    def _set_words(self, words: tuple[Words, ...]) -> None:
        super()._set_words(words)
        if len(words) > 1 and self._split is None and self._bound is None:
            self._split = split_session(self.path, TEXT_INPUTS, self.contract.outputs, self._open)
            if self._split is not None:
                self.session = None  # its weights are in the two sessions

    def _run_words(self, feeds: dict[str, NDArray[Any]]) -> list[list[NDArray[Any]]]:
        if self._split is None:
            return super()._run_words(feeds)
        return self._split.run(feeds, [words.feeds for words in self._words])

    def _run(self, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        if self._bound is not None:
            return self._bound(feeds)
        try:
            outputs: list[NDArray[Any]] = self.session.run(self.contract.outputs, feeds)
        except Exception as error:  # ONNX Runtime's exceptions have no common class, and name neither file nor sizes
            shape = [*feeds[self.contract.image.name].shape]
            text = " ".join(str(error).split())
            raise ValueError(f"{self.path}: ONNX Runtime cannot run it on images of {shape}: {text}") from error
        return outputs


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


def require_model(path: str) -> None:
    """Refuse an address, a file that does not exist, a folder, an image, a checkpoint and a config."""
    refuse_address("model", path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"model file does not exist: {path}")
    required = "model must be an ONNX file, before images and data sets, got"
    if os.path.isdir(path):
        raise IsADirectoryError(f"{required} the folder {path}")
    if path.lower().endswith((".jpg", ".jpeg", ".png")):
        raise ValueError(f"{required} the image {path}")
    if is_checkpoint(path):
        raise ValueError(
            f"model must be an ONNX file, got the checkpoint {path}: mmort export makes one of it, "
            "mmort test --backend torch runs it"
        )
    if path.endswith(".py"):
        raise ValueError(
            f"model must be an ONNX file, got the config {path}: mmort export makes one of it and its checkpoint"
        )


def _open(path: str, providers: Sequence[Any], threads: int | None, part: bytes | None = None) -> Any:
    """Create a session with exactly these providers, of a file or of a part of it."""
    require_model(path)
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise ImportError("running a model needs ONNX Runtime: pip install 'mmort[predict]'") from None
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers]
    missing = set(names) - set(onnxruntime.get_available_providers())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # old exports list each weight as an input, which gives a warning for each
    options.intra_op_num_threads = threads or 0
    if not missing:
        try:
            session = mmort.ort.session(part or path, sess_options=options, providers=list(providers))
        except (OSError, ValueError):
            raise
        except Exception as error:  # ONNX Runtime's exceptions have no common class
            raise ValueError(f"{path}: ONNX Runtime cannot load this file: {error}") from error
        missing = set(names) - set(session.get_providers())
    if missing:  # ONNX Runtime would run on the CPU instead
        available = ", ".join(onnxruntime.get_available_providers())
        raise ValueError(f"provider {missing.pop()} is not available in this ONNX Runtime, which has: {available}")
    return session

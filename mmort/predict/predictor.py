"""`Predictor`: a detector and its preprocessing; images in, `Detections` out."""

from __future__ import annotations

import copy
import os
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from mmort._kernels import as_integer
from mmort.configs.captions import Prompt, Texts
from mmort.contract import (
    CLASSIFICATION,
    DETECTION,
    POSE,
    SEGMENTATION,
    TEXT_DETECTION,
    TEXT_RECOGNITION,
    Prepared,
    Preprocessing,
    SegmentationFormat,
    Task,
    TextDetectionFormat,
)
from mmort.contract.names import as_names
from mmort.contract.tasks import KERNELS
from mmort.detections.detections import Detections
from mmort.images import Image, decode_image
from mmort.predict.classification import ClassPostprocessing
from mmort.predict.engines.network import ADVICE_WITH_CONFIG, DetectorFile, Network, task_of
from mmort.predict.engines.onnxruntime import OnnxRuntime
from mmort.predict.engines.ray import Ray
from mmort.predict.fixed_size import FixedSizeWarning, effect, fit
from mmort.predict.image_files import is_pattern, list_images
from mmort.predict.postprocessing import Postprocessing
from mmort.predict.reading import Chunk, Reader
from mmort.predict.recognition import TextPostprocessing
from mmort.predict.segmentation import SegmentationPostprocessing, logits_of
from mmort.predict.text_detection import TextDetectionPostprocessing
from mmort.predict.text_kernels import TextKernelsPostprocessing
from mmort.predict.video import is_video

ImageSource: TypeAlias = Image | str | os.PathLike[str] | bytes
"""An image: an array (H, W, 3) of uint8 in blue, green, red, the path of a file, or the bytes of a file."""


Result: TypeAlias = Detections | Any
"""`Detections`; of files of another task, `Classes`, `SegmentationMap`, `RecognizedText` or `TextRegions`."""

_Batch: TypeAlias = tuple[list["Result | Exception"], bool, Exception | None]
"""The results of a batch, whether it is the last one, and the error that then came from the iterator of images."""


def _refuse_video(path: str | os.PathLike[str]) -> None:
    """Refuse a video where an image is wanted."""
    if is_video(path):
        raise ValueError(
            f"Predictor: {os.fspath(path)} is a video; mmort.predict.predict(predictor, VIDEO) takes its frames"
        )


_Postprocessing: TypeAlias = (
    Postprocessing
    | ClassPostprocessing
    | SegmentationPostprocessing
    | TextDetectionPostprocessing
    | TextKernelsPostprocessing
    | TextPostprocessing
)


def _postprocessing(network: Network, classes: tuple[str, ...], score_threshold: float) -> _Postprocessing:
    """Return the postprocessing of a network's outputs, by its task."""
    detections = Postprocessing(classes, score_threshold)  # which checks the threshold
    if not isinstance(network, DetectorFile) or task_of(network) in (DETECTION, POSE):
        return detections
    metadata = network.contract.metadata
    if task_of(network) is CLASSIFICATION:
        return ClassPostprocessing(classes, score_threshold)
    if task_of(network) is TEXT_RECOGNITION:
        if metadata.recognition is None:
            raise ValueError(f"Predictor: {network.path} has no recognition in its metadata, which has the characters")
        return TextPostprocessing(classes, score_threshold, metadata.recognition)
    if task_of(network) is TEXT_DETECTION:
        color_type = "color" if metadata.preprocessing is None else metadata.preprocessing.color_type
        if KERNELS.name not in network.contract.outputs:
            format_of_text = metadata.text_detection or TextDetectionFormat()
            return TextDetectionPostprocessing(classes, score_threshold, format_of_text, color_type)
        if metadata.text_kernels is None:
            raise ValueError(f"Predictor: {network.path} has no text_kernels in its metadata, by which texts grow")
        return TextKernelsPostprocessing(classes, score_threshold, metadata.text_kernels, color_type)
    assert task_of(network) is SEGMENTATION
    format = metadata.segmentation or SegmentationFormat()
    return SegmentationPostprocessing(classes, score_threshold, format, metadata.palette)


class Predictor:
    """A detector, a classifier, a semantic segmentation or a text recognition that is called with images.

    What it returns depends on the file: `Detections` as below, or `mmort.predict.Classes`, or
    `mmort.predict.SegmentationMap`, or `mmort.predict.RecognizedText`.

    Parameters
    ----------
    network : path, Network or Ray
        What runs the detector: `mmort.predict.OnnxRuntime` or `mmort.predict.OpenVino`, a file in an engine with its
        options, or anything else that is a `mmort.predict.Network`; `mmort.predict.Ray` spreads one over machines.
        A path means ``OnnxRuntime(path)``: a file of ``mmort export``, of MMDetection's own export tool or of MMDeploy,
        on the CPU.
    classes : sequence of str, optional
        The classes' names by label.  By default those in the file's metadata; without any, names are labels as text.
    texts : str, sequence of str or dict, optional
        What a detector with a text encoder beside its file (``mmort export --open-vocabulary``) looks for: names, a
        caption whose names end with ``". "``, or a dict of a ``text`` and its ``tokens_positive``.  They become the
        classes.
    preprocessing : Preprocessing, optional
        By default that in the file's metadata.
    score_threshold : float, default 0.3
        Leave out detections with a lower score, as ``mmort predict`` does.  With 0 all detections of the file are
        returned, which metrics count.  What the file itself leaves out (``score_thr`` in the config) is lost.

    Raises
    ------
    ValueError
        If the file is not a detector's, ONNX Runtime cannot load it, or there is no preprocessing in the file or the
        arguments; if texts are missing, not taken, empty or too long.
    TypeError
        If an argument is of another type.
    OSError
        If there is no such file.
    ImportError
        If ONNX Runtime is not installed.

    Warns
    -----
    FixedSizeWarning
        Once, when it runs: if the file takes inputs of one size only, and images are padded to it.

    Notes
    -----
    A predictor can be pickled; the file is then loaded again from its path.

    Ray Data takes the class itself: ``dataset.map_batches(Predictor, fn_constructor_args=("model.onnx",), ...)``.
    `__call__` describes the columns.

    Examples
    --------
    >>> from mmort import Predictor
    >>> from mmort.demo import IMAGES, MODEL
    >>> predict = Predictor(MODEL)
    >>> [len(detections.above(0.5)) for detections in predict.predict(IMAGES)]
    [6, 6, 4, 6]
    """

    _takes_boxes: ClassVar[bool] = False
    """Whether it runs files of poses, which look at boxes."""

    def __init__(
        self,
        network: str | os.PathLike[str] | Network | Ray,
        *,
        classes: Sequence[str] | None = None,
        texts: Texts | None = None,
        preprocessing: Preprocessing | None = None,
        score_threshold: float = 0.3,
    ) -> None:
        self.cluster = network if isinstance(network, Ray) else None
        if isinstance(network, Ray):
            network = network.network
        elif isinstance(network, (str, os.PathLike)):
            network = OnnxRuntime(network)
        elif not callable(network):
            raise TypeError(f"Predictor: network must be a path, a Network or Ray, got {type(network).__name__}")
        if task_of(network) is POSE and not self._takes_boxes:
            raise ValueError(
                f"Predictor: {getattr(network, 'path', 'network')} finds the keypoints of what is in boxes: "
                "PosePredictor(FILE, DETECTOR) of mmort.predict, and mmort predict FILE --detector DETECTOR, run it"
            )
        if isinstance(network, DetectorFile):
            network = network if texts is None else network.with_texts(Prompt.of(texts))
            network.require_texts()
            classes = network.classes if classes is None else classes
            preprocessing = preprocessing or network.preprocessing
        elif texts is not None:
            raise ValueError(f"Predictor: texts are for a detector's file, got a {type(network).__name__}")
        if preprocessing is None:
            raise ValueError(
                f"Predictor: {getattr(network, 'path', 'network')} has no preprocessing in its metadata; adopt the "
                f"file: {ADVICE_WITH_CONFIG}; or pass it as the config's test pipeline has it: "
                "preprocessing=Preprocessing(size=(1333, 800), mean=..., std=..., to_rgb=True, size_divisor=32), or "
                "Preprocessing.from_config(config)"
            )
        self.network: Network = network
        self.preprocessing = preprocessing
        self._warned_of_padding = False
        named = () if classes is None else as_names("Predictor", classes)
        self._postprocessing = _postprocessing(network, named, score_threshold)

    def with_texts(self, texts: Texts) -> Predictor:
        """Return a predictor that looks for something else, and shares the detector and its memory with this one.

        Parameters
        ----------
        texts : str, sequence of str or dict
            As for the constructor.  The text encoder is loaded and run once, and not kept.

        Raises
        ------
        ValueError
            If the file takes no texts, or they are empty or too long.

        Examples
        --------
        >>> predict = Predictor("detector.onnx", texts=["cat", "traffic light"])  # doctest: +SKIP
        >>> find_dogs = predict.with_texts("dog")  # doctest: +SKIP
        """
        if not isinstance(self.network, DetectorFile):
            raise ValueError(f"Predictor: texts are for a detector's file, got a {type(self.network).__name__}")
        predictor, prompt = copy.copy(self), Prompt.of(texts)
        predictor.network = self.network.with_texts(prompt)
        predictor._postprocessing = replace(self._postprocessing, classes=prompt.names)
        return predictor

    @property
    def task(self) -> Task:
        """The row of the table of tasks that the file is of; that of detectors for a model without a file."""
        return task_of(self.network)

    @property
    def _segmentation(self) -> SegmentationFormat | None:
        """The format of a semantic segmentation's logits; None of other tasks."""
        postprocessing = self._postprocessing
        return postprocessing.format if isinstance(postprocessing, SegmentationPostprocessing) else None

    @property
    def parallel(self) -> int:
        """Batches that `predict` runs at the same time."""
        return self.network.parallel if isinstance(self.network, DetectorFile) else 1

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes' names by label; empty if they have none."""
        return self._postprocessing.classes

    @property
    def score_threshold(self) -> float:
        """Detections with a lower score are left out."""
        return self._postprocessing.score_threshold

    def __repr__(self) -> str:
        model = getattr(self.network, "path", type(self.network).__name__)
        classes = f"{len(self.classes)} classes" if self.classes else "classes without names"
        return f"<Predictor: {model}, {classes}, score threshold {self.score_threshold:g}>"

    @overload
    def __call__(self, image: ImageSource) -> Result: ...
    @overload
    def __call__(self, image: list[ImageSource] | tuple[ImageSource, ...]) -> list[Result]: ...
    @overload
    def __call__(self, image: Mapping[str, Any]) -> dict[str, Any]: ...
    def __call__(
        self, image: ImageSource | list[ImageSource] | tuple[ImageSource, ...] | Mapping[str, Any]
    ) -> Result | list[Result] | dict[str, Any]:
        """Detect objects in an image, in a list of images as one batch, or in a batch of Ray Data.

        Parameters
        ----------
        image : ndarray of uint8, (H, W, 3), or path, or bytes, or list or tuple of these, or mapping
            Blue, green, red, or grey, (H, W), or with alpha, (H, W, 4); or an image file's path or content; or a list
            of these; or a batch of Ray Data: a mapping with a column ``bytes`` of files' contents (as
            ``ray.data.read_binary_files`` gives) or a column ``path``.

        Returns
        -------
        Detections, or list of Detections, or dict
            For a batch of Ray Data, its columns without ``bytes``, and two more: ``detections``, what
            `Detections.to_json` returns, and ``error``, the message for an image that could not be processed; the
            other one is empty.

        Raises
        ------
        ValueError
            If the image cannot be decoded, is no array of uint8, (H, W, 3), or does not fit a file of fixed size.
        TypeError
            If it is of another type.
        OSError
            If the file cannot be opened.
        """
        if isinstance(image, Mapping):
            return self._predict_columns(image)
        if isinstance(image, (list, tuple)):
            return self.run([self._prepare(item) for item in image])
        if isinstance(image, (str, os.PathLike)):
            if os.path.isdir(image):
                raise IsADirectoryError(f"Predictor: {os.fspath(image)} is a folder; .predict(FOLDER) takes its images")
            if is_pattern(image):
                raise ValueError(f"Predictor: {os.fspath(image)} is a pattern; .predict(PATTERN) takes what matches it")
            _refuse_video(image)
        (detections,) = self.run([self._prepare(image)])
        return detections

    @overload
    def predict(
        self,
        images: str | os.PathLike[str] | Iterable[ImageSource],
        batch_size: int = ...,
        *,
        return_exceptions: Literal[False] = ...,
    ) -> Iterator[Result]: ...
    @overload
    def predict(
        self, images: str | os.PathLike[str] | Iterable[ImageSource], batch_size: int = ..., *, return_exceptions: bool
    ) -> Iterator[Result | Exception]: ...
    def predict(
        self,
        images: str | os.PathLike[str] | Iterable[ImageSource],
        batch_size: int = 1,
        *,
        return_exceptions: bool = False,
    ) -> Iterator[Result | Exception]:
        """Detect objects in many images; the next ones are read and preprocessed while the detector runs.

        The detector runs in threads of its own, as many as its network's ``parallel``.

        Parameters
        ----------
        images : path or iterable
            A folder, a file, or a pattern such as ``"photos/**/*.jpg"``, see `list_images`; or images as `__call__`
            takes them.  An iterator is read ahead, by one batch more than run at the same time.
        batch_size : int, default 1
            Images that run together, padded to a common size as MMDetection does; with a file of ``mmort adopt``,
            only those of the same size.
        return_exceptions : bool, default False
            For an image that cannot be processed, yield the exception in its position, instead of raising it.

        Yields
        ------
        Detections
            For each image, in their order.

        Raises
        ------
        ValueError
            If `batch_size` is not positive, or a path leads to no images.  For an image: as `__call__`.
        TypeError
            If `batch_size` is not an integer.  For an image: as `__call__`.
        """
        if as_integer("predict", "batch_size", batch_size) < 1:
            raise ValueError(f"predict: batch_size must be positive, got {batch_size}")
        if isinstance(images, np.ndarray) and images.ndim < 4:  # whose rows would be images
            raise ValueError(f"predict: images must be several, got an array {list(images.shape)}; call the predictor")
        if isinstance(images, (str, os.PathLike)):
            _refuse_video(images)
            images = list_images(images)
        if isinstance(images, Sized):
            batch_size = min(batch_size, max(1, len(images)))
        if self.cluster is not None:
            worker = copy.copy(self)
            worker.cluster = None
            return self.cluster.outcomes(worker, images, batch_size, return_exceptions=return_exceptions)
        return self._outcomes(iter(images), batch_size, return_exceptions)

    def run(self, images: Sequence[Prepared]) -> list[Result]:
        """Detect objects in images that are preprocessed already, in one batch.

        With a file of ``mmort adopt``, images of different sizes run apart, as padding would change what is detected.

        Parameters
        ----------
        images : sequence of Prepared

        Returns
        -------
        list of Detections

        Raises
        ------
        ValueError
            If an image does not fit a file of fixed size, or the network's outputs are not detections.
        """
        found: dict[int, Result] = {}
        for indices in self.chunks_of(images):
            chunk = [images[index] for index in indices]
            input, img_shape = self.input_of(chunk)
            outputs = self.outputs_of(chunk, input, img_shape)
            found.update(zip(indices, self.detections_of(chunk, input, outputs), strict=True))
        return [found[index] for index in range(len(images))]

    def outputs_of(
        self, images: Sequence[Prepared], input: NDArray[np.float32], img_shape: NDArray[np.int64]
    ) -> Sequence[NDArray[Any]]:
        """Return the network's outputs for `input`, with the sizes of the original images if it takes them.

        This is the second stage of `run`.
        """
        if self._segmentation is not None:
            return [logits_of(self._window, input, self._segmentation)]
        if not isinstance(self.network, DetectorFile) or not self.network.contract.takes_ori_shape:
            return self.network(input, img_shape)
        ori_shape = np.zeros((len(input), 2), np.int64)
        ori_shape[: len(images)] = [image.ori_shape for image in images]
        return self.network(input, img_shape, ori_shape)

    def chunks_of(self, images: Sequence[Prepared]) -> Iterator[list[int]]:
        """Yield the indices of images that the network takes together."""
        number, *sides = self.network.input_shape
        separates = isinstance(self.network, DetectorFile) and self.network.contract.is_adopted and None in sides
        # Neither MMSegmentation nor MMOCR pads an image that is tested to the size of another.
        separates |= self.task in (SEGMENTATION, TEXT_DETECTION, TEXT_RECOGNITION)
        groups: dict[tuple[int, int] | None, list[int]] = {}
        for index, image in enumerate(images):
            groups.setdefault(image.pad_shape if separates else None, []).append(index)
        for indices in groups.values():
            size = number or len(indices)
            for start in range(0, len(indices), size):
                yield indices[start : start + size]

    def input_of(self, images: Sequence[Prepared]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the network's arguments for images that it takes in one batch: the first stage of `run`.

        Raises
        ------
        ValueError
            If an image does not fit a file of fixed size.
        """
        batch, img_shape = self.preprocessing.batch(images)
        if self._segmentation is not None and self._segmentation.window is not None:
            return batch, img_shape  # it is the windows that must fit
        input, img_shape = fit(batch, img_shape, self.network.input_shape)
        if input.shape[2:] != batch.shape[2:]:
            self._warn_of_padding(batch.shape[2:], input.shape[2:])
        return input, img_shape

    def detections_of(
        self, images: Sequence[Prepared], input: NDArray[np.float32], outputs: Sequence[NDArray[Any]]
    ) -> list[Result]:
        """Return the results for the images in `input` from the network's outputs: the last stage of `run`.

        Raises
        ------
        ValueError
            If the outputs are not detections.
        """
        self.task.check_arrays(outputs, len(input))
        return [
            self._postprocessing(
                image, input.shape[2:], [output[index] for output in outputs], self.network.mask_format
            )
            for index, image in enumerate(images)
        ]

    def _window(self, input: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits of a batch of windows, which are padded for a file of one size."""
        img_shape = np.array([input.shape[2:]] * len(input), np.int64)
        padded, shapes = fit(input, img_shape, self.network.input_shape)
        if padded.shape[2:] != input.shape[2:]:
            self._warn_of_padding(input.shape[2:], padded.shape[2:])
        outputs = self.network(padded, shapes)
        self.task.check_arrays(outputs, len(padded))
        logits: NDArray[np.float32] = outputs[0][: len(input), :, : input.shape[2], : input.shape[3]]
        return logits

    def _warn_of_padding(self, shape: tuple[int, ...], padded: tuple[int, ...]) -> None:
        """Warn, once, that the model takes inputs of one size only, and images have another."""
        if self._warned_of_padding:
            return
        self._warned_of_padding = True
        (height, width), (file_height, file_width) = shape, padded
        text = (
            f"images of {height} x {width} are padded to {file_height} x {file_width}, the only size that "
            f"{getattr(self.network, 'path', 'the model')} takes, which "
            f"{effect(file_height * file_width / (height * width))}; mmort export makes files that take all sizes"
        )
        warnings.warn(text, FixedSizeWarning, stacklevel=3)

    def _prepare(self, image: ImageSource) -> Prepared:
        """Read and preprocess an image."""
        if isinstance(image, bytes):
            image = decode_image(image, self.preprocessing.color_type)
        return self.preprocessing(image)

    def _outcomes(
        self, images: Iterator[ImageSource], batch_size: int, return_exceptions: bool
    ) -> Iterator[Result | Exception]:
        """Yield each image's detections, or its exception."""
        with ExitStack() as stack:

            def pool(stage: str) -> ThreadPoolExecutor:
                executor = ThreadPoolExecutor(self.parallel, f"mmort-{stage}")
                stack.callback(executor.shutdown, cancel_futures=True)  # also when the caller closes the iterator
                return executor

            preparing, running = pool("preparing"), pool("running")
            reader = Reader(images, lambda image: preparing.submit(self._prepare_item, image))
            stack.callback(reader.stop)  # first, as batches wait for what is read

            def submit() -> Future[_Batch]:
                return running.submit(self._batch, reader.request(batch_size))

            following = deque(submit() for _ in range(self.parallel + 1))
            is_last, error = False, None
            while not is_last:
                outcomes, is_last, error = following.popleft().result()
                if not is_last:
                    following.append(submit())
                for outcome in outcomes:
                    if isinstance(outcome, Exception) and not return_exceptions:
                        raise outcome
                    yield outcome
            if error is not None:
                raise error

    def _prepare_item(self, image: ImageSource) -> Prepared | Exception:
        """Preprocess an image; return why that failed."""
        try:
            return self._prepare(image)
        except ImportError:  # not the image's fault
            raise
        except Exception as error:
            return error

    def _batch(self, read: Future[Chunk[Future[Prepared | Exception]]]) -> _Batch:
        """Run a batch, up to the end of the images."""
        chunk = read.result()
        return list(self._run_batch([item.result() for item in chunk.items])), chunk.is_last, chunk.error

    def _run_batch(self, batch: Sequence[Prepared | Exception]) -> Iterator[Result | Exception]:
        """Run the images of a batch that could be preprocessed."""
        images = [image for image in batch if not isinstance(image, Exception)]
        try:
            results: Iterator[Result | Exception] = iter(self.run(images))
        except Exception as error:  # ONNX Runtime's exceptions have no common class
            # One image may have failed the whole batch: each runs alone, so that only that one is lost.
            alone = (self._run_batch([image]) for image in images)
            results = chain.from_iterable(alone) if len(images) > 1 else iter([error])
        for image in batch:
            yield image if isinstance(image, Exception) else next(results)

    def _predict_columns(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Detect objects in a batch of Ray Data; see `__call__`."""
        column = next((name for name in ("bytes", "path") if name in batch), None)
        if column is None:
            raise ValueError(f"Predictor: a batch needs a column bytes or path, got {', '.join(batch)}")
        outcomes = list(self.predict(list(batch[column]), max(1, len(batch[column])), return_exceptions=True))
        failed = [isinstance(outcome, Exception) for outcome in outcomes]
        texts = [str(outcome) if isinstance(outcome, Exception) else outcome.to_json() for outcome in outcomes]
        return {
            **{name: values for name, values in batch.items() if name != "bytes"},
            "detections": np.where(failed, "", np.array(texts, object)),
            "error": np.where(failed, np.array(texts, object), ""),
        }

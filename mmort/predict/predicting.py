"""Detection in many images or a video: the function behind ``mmort predict``, which skips what a record has already."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmort._files.inputs import open_regular
from mmort._files.outputs import inside, make_folder, require_folder
from mmort._kernels import as_integer
from mmort.contract import SEGMENTATION
from mmort.detections.detections import Detections
from mmort.images import Image
from mmort.predict.engines.network import DetectorFile
from mmort.predict.image_files import is_pattern, list_images
from mmort.predict.output import AnnotatedImages, LabelMaps, Record
from mmort.predict.poses import PosePredictor
from mmort.predict.predictor import Predictor
from mmort.predict.text_reading import TextReader
from mmort.predict.video import AnnotatedVideo, Frame, Video, is_video
from mmort.predict.windows import Windows, predict_windows

STREAMS = "rtmp", "rtp", "rtsp", "srt", "udp"
"""Addresses of cameras and broadcasts, which cannot be downloaded."""


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """The options of `predict`; ``mmort predict`` has an argument for each.

    Parameters
    ----------
    output : path, optional
        A directory for a `Record` of the detections, from which the same call resumes; of a semantic segmentation, also
        for its `LabelMaps`, in ``maps``.
    show_dir : path, optional
        Write annotated images, or an annotated video, to this directory.
    windows : Windows, optional
        Cut images into windows, and merge their detections.
    batch_size : int, default 1
        Images that run together.
    recursive : bool, default False
        Whether the folders below a folder are searched too.
    progress : bool, default True
        Show a progress bar, if stderr is a terminal.
    force : bool, default False
        Replace annotated images, or the annotated video, that exist.
    """

    output: str | os.PathLike[str] | None = None
    show_dir: str | os.PathLike[str] | None = None
    windows: Windows | None = None
    batch_size: int = 1
    recursive: bool = False
    progress: bool = True
    force: bool = False


@dataclass(frozen=True)
class Outcome:
    """The result for an image, or for a frame of a video.

    Attributes
    ----------
    image : str or Path
        The image's path, or the video's; ``camera 0`` of a camera.
    detections : Detections or None
        None if the image could not be processed.
    problem : Exception or None
        Why the image could not be processed, or not be drawn.
    frame : int or None
        The number of a video's frame, from 0.
    time : float or None
        Its seconds since the first.
    """

    image: str | Path
    detections: Detections | None
    problem: Exception | None = None
    frame: int | None = None
    time: float | None = None


@dataclass(frozen=True)
class PredictResult:
    """The work that `predict` has done.

    Attributes
    ----------
    written : dict of Path to str
        The files and folders that were written, with what is in them if their names do not say it.
    total : int or None
        How many images there are, or frames that the video states; None of a camera.
    processed : int
        How many of them are done, with those of the runs before.
    failures : int
        Images that could not be processed, or not be drawn.
    """

    written: dict[Path, str]
    total: int | None
    processed: int
    failures: int


def predict(
    predictor: Predictor,
    images: str | os.PathLike[str] | int | Iterable[str | os.PathLike[str]],
    options: PredictOptions | None = None,
    *,
    each: Callable[[Outcome], None] | None = None,
) -> PredictResult:
    """Detect objects in many images, or in a video; record the detections, and draw them.

    An image that cannot be processed is an outcome with a problem, and does not end the run.

    Parameters
    ----------
    predictor : Predictor
    images : path, iterable of paths, or int
        Image files, folders and patterns, as for `list_images`; or one video; or the number of a camera.
    options : PredictOptions, optional
        By default nothing is written.
    each : callable, optional
        Is called with each `Outcome`, in order, after it was recorded.  What an earlier run has done is left out.

    Returns
    -------
    PredictResult

    Raises
    ------
    ValueError
        If there is no image, a video is not the only source or has no frame, an option is not for it, or what is in
        `output` or `show_dir` is of another run or would be replaced.
    OSError
        If a source does not exist, a file cannot be written, or an annotated image or video exists and `force` is
        false.
    ImportError
        If tqdm or OpenCV is not installed.

    Examples
    --------
    >>> from mmort import Predictor
    >>> from mmort.demo import IMAGES, MODEL
    >>> from mmort.predict import predict
    >>> counts = []
    >>> detector = Predictor(MODEL, score_threshold=0.5)
    >>> result = predict(detector, IMAGES, each=lambda outcome: counts.append(len(outcome.detections)))
    >>> counts
    [6, 6, 4, 6]
    >>> result.processed, result.failures
    (4, 0)
    """
    if not isinstance(predictor, Predictor):
        raise TypeError(f"predict: predictor must be a Predictor, got {type(predictor).__name__}")
    options = PredictOptions() if options is None else options
    source: str | int | None
    if isinstance(images, (int, np.integer, np.bool_)):
        source = as_integer("predict", "the number of a camera", images)
    else:
        sources = [images] if isinstance(images, (str, os.PathLike)) else [*images]
        if not sources:
            raise ValueError("predict: images must name at least one image, got none")
        source = video_source(sources)
        if source is None:
            paths = list_images(*sources, recursive=options.recursive)
            if options.windows is not None and predictor.cluster is not None:
                raise ValueError("predict: windows run in this process only, got a predictor on Ray")
            return _predict_images(predictor, paths, options, each)
    if options.windows is not None or predictor.cluster is not None:
        raise ValueError(f"predict: windows and engine ray are for image files, got {_name(source)}")
    if isinstance(source, int) and options.output is not None:
        raise ValueError("predict: what a camera saw is gone, so that output cannot resume")
    return _predict_video(predictor, source, options, each)


def video_source(sources: Sequence[str | os.PathLike[str]]) -> str | int | None:
    """Return a video, or the number of a camera, which must be the only source; None if all are images.

    Raises
    ------
    ValueError
        If there are several sources, or one is an address or a pattern of videos.
    """
    for source in [os.fspath(source) for source in sources]:
        if "://" in source:
            is_stream = source.partition("://")[0] in STREAMS
            advice = (
                "pass frames that OpenCV has read to Predictor" if is_stream else "download it first, as curl -O does"
            )
            raise ValueError(f"{source} is an address, and nothing is fetched; {advice}")
        is_camera = source.isascii() and source.isdigit() and not os.path.lexists(source)
        if is_camera or is_video(source):
            if is_pattern(source):
                raise ValueError(f"predict: {source} is a pattern of videos; run one after another")
            if len(sources) > 1:
                raise ValueError(
                    f"predict: {source} must be the only source, got {len(sources)}; run one after another"
                )
            return int(source) if is_camera else source
    return None


def _predict_images(
    predictor: Predictor,
    paths: Sequence[Path],
    options: PredictOptions,
    each: Callable[[Outcome], None] | None,
) -> PredictResult:
    """Detect objects in the images that are not recorded, or not drawn."""
    from tqdm import tqdm

    annotated = None if options.show_dir is None else AnnotatedImages(options.show_dir, paths)
    maps = _maps(predictor, options, paths)
    with ExitStack() as stack:
        record = _record(stack, predictor, options)
        remaining = [
            path
            for path in paths
            if record is None
            or path not in record
            or (annotated is not None and (options.force or path not in annotated))
        ]
        if annotated is not None and not options.force:
            annotated.refuse_to_replace(path for path in remaining if record is None or path not in record)
        failures = 0
        done = len(paths) - len(remaining)
        disable = None if options.progress else True
        bar = stack.enter_context(tqdm(total=len(paths), initial=done, unit="image", disable=disable))
        if options.windows is None:
            outcomes = predictor.predict(remaining, options.batch_size, return_exceptions=True)
        else:
            outcomes = _in_windows(predictor, remaining, options)
        for path, outcome in zip(remaining, outcomes, strict=True):
            detections, problem = (None, outcome) if isinstance(outcome, Exception) else (outcome, None)
            if detections is not None and maps is not None:
                maps.write(path, detections)  # before the line, which says that the image is done
            if detections is not None and record is not None:
                record.add(path, detections)
            if detections is not None and annotated is not None:
                problem = annotated.try_to_write(path, detections)
            failures += problem is not None
            if each is not None:
                each(Outcome(path, detections, problem))
            bar.update()
        written = _written(record, maps)
        if annotated is not None and options.show_dir is not None:
            written[Path(options.show_dir)] = annotated.describe()
    return PredictResult(written, len(paths), len(paths) - failures, failures)


def _in_windows(
    predictor: Predictor, images: Iterable[Path], options: PredictOptions
) -> Iterator[Detections | Exception]:
    """Yield the detections in each image, or its exception, with a bar for the windows of each."""
    from tqdm import tqdm

    assert options.windows is not None
    for path in images:
        with tqdm(unit="window", leave=False, disable=None if options.progress else True, desc=path.name) as bar:

            def progress(done: int, total: int, bar: Any = bar) -> None:
                bar.total = total
                bar.update(done - bar.n)

            try:
                outcome: Detections | Exception = predict_windows(
                    predictor, path, options.windows, options.batch_size, progress
                )
            except ImportError:  # not the image's fault
                raise
            except Exception as error:
                outcome = error
        yield outcome


def _predict_video(
    predictor: Predictor, source: str | int, options: PredictOptions, each: Callable[[Outcome], None] | None
) -> PredictResult:
    """Detect objects in the frames of a video or camera that are not recorded, or all of them to draw it."""
    from tqdm import tqdm

    name = _name(source)
    with ExitStack() as stack:
        record = _record(stack, predictor, options)
        maps = _maps(predictor, options, ())
        target = None if options.show_dir is None else _target(options.show_dir, source)
        start = 0 if record is None else record.frames(name)
        if target is not None and (options.force or not target.exists()):
            start = 0  # a video is drawn from its beginning
        elif target is not None and start == 0:
            raise FileExistsError(f"annotated video exists: {target}; force=True replaces it")
        video = stack.enter_context(closing(Video(source)))
        drawn = None
        if target is not None and start == 0:
            make_folder(target.parent)
            drawn = stack.enter_context(closing(AnnotatedVideo(target, video.frames_per_second)))
        read = start
        disable = None if options.progress else True
        bar = stack.enter_context(tqdm(total=video.stated_frames, initial=start, unit="frame", disable=disable))
        pending: deque[Frame] = deque()

        def images() -> Iterator[Image]:
            for frame in video.frames(start):
                pending.append(frame)
                yield frame.image

        outcomes = stack.enter_context(closing(predictor.predict(images(), options.batch_size)))  # type: ignore[type-var]
        for detections in outcomes:
            frame = pending.popleft()
            if maps is not None:
                maps.write(frame.number, detections)
            if record is not None:
                record.add(name, detections, frame=frame.number, time=frame.time)
            if drawn is not None:
                drawn.add(detections.plot(frame.image))
            if each is not None:
                each(Outcome(name, detections, None, frame.number, frame.time))
            read += 1
            bar.update()
        if drawn is not None:
            drawn.finish()
        written = _written(record, maps)
    if not read:
        raise ValueError(f"{name}: no frame can be read")
    if target is not None:
        written[target] = "" if drawn is not None else "by an earlier run"
    return PredictResult(written, video.stated_frames, read, 0)


def _name(source: str | int) -> str:
    """Return the name of a video or camera in the record."""
    return f"camera {source}" if isinstance(source, int) else source


def _target(directory: str | os.PathLike[str], source: str | int) -> Path:
    """Return the file of the annotated video, in a directory that can be written to or created."""
    name = f"camera_{source}" if isinstance(source, int) else Path(source).stem
    require_folder(directory)
    target = inside(directory, f"{name}.mp4")
    if not isinstance(source, int) and os.path.realpath(target) == os.path.realpath(source):
        raise ValueError(f"the annotated video would replace {source}; do not write to {directory}")
    return target


def _record(stack: ExitStack, predictor: Predictor, options: PredictOptions) -> Record | None:
    """Open the record of the run, if there is one, which is closed with the stack."""
    if options.output is None:
        return None
    return stack.enter_context(Record(options.output, _settings(predictor, options)))


def _digest(path: str) -> str:
    """Return the identity of a file."""
    digest = hashlib.sha256()
    with open_regular("model", path) as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def _maps(predictor: Predictor, options: PredictOptions, paths: Sequence[Path]) -> LabelMaps | None:
    """Return where the maps of a semantic segmentation go, if they are recorded."""
    if options.output is None or predictor.task is not SEGMENTATION:
        return None
    return LabelMaps(inside(options.output, "maps"), paths)


def _written(record: Record | None, maps: LabelMaps | None) -> dict[Path, str]:
    """Describe the record of a run, and where it is."""
    written = {} if record is None else {record.path: record.describe()}
    return written | ({} if maps is None else {Path(maps.directory): "the label of each pixel"})


def _settings(predictor: Predictor, options: PredictOptions) -> dict[str, Any]:
    """Return the settings that the detections depend on."""
    network, windows = predictor.network, options.windows
    if not isinstance(network, DetectorFile):
        raise ValueError(f"predict: output is for the predictor of a file, got one of {type(network).__name__}")
    further: dict[str, Any] = {} if network.prompt is None else {"texts": asdict(network.prompt)}
    if isinstance(predictor, TextReader):
        further = {"recognizer": _settings(predictor.recognizer, options)}
    if isinstance(predictor, PosePredictor) and predictor.detector is not None:
        further = {"detector": _settings(predictor.detector, options), "pose classes": predictor.pose_classes}
    return {**further, **network.computed_by} | {
        "model": _digest(network.path),
        "batch size": options.batch_size,  # the images of a batch are padded to the largest
        "score threshold": predictor.score_threshold,
        "preprocessing": predictor.preprocessing.to_dict(),
        "classes": predictor.classes,
        "windows": None if windows is None else [windows.size, windows.overlap],
    }

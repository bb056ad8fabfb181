"""``mmort predict`` on what is not a list of image files: a video, a camera, or an image on standard input."""

from __future__ import annotations

import argparse
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from mmort.cli.outputs import image_count, print_written
from mmort.cli.terminal import one_line

if TYPE_CHECKING:
    from mmort.images import Image
    from mmort.predict import Detections, Predictor, Record
    from mmort.predict.video import Frame

STANDARD_INPUT = "-"


def single_source(sources: Sequence[str]) -> str | int | None:
    """Return a video, the number of a camera or ``-``, which must be the only source; None if all are images.

    Raises
    ------
    ValueError
        If there are several sources, or one is an address.
    """
    from mmort.predict.video import SUFFIXES

    for source in sources:
        if "://" in source:
            raise ValueError(f"{source} is an address, and nothing is fetched; download it first, as curl -O does")
        is_camera = source.isascii() and source.isdigit() and not os.path.lexists(source)
        is_video = os.path.splitext(source)[1].lower() in SUFFIXES and not os.path.isdir(source)
        if is_camera or is_video or source == STANDARD_INPUT:
            if len(sources) > 1:
                raise ValueError(
                    f"predict: {source} must be the only source, got {len(sources)}; run one after another"
                )
            return int(source) if is_camera else source
    return None


def predict_standard_input(arguments: argparse.Namespace, predictor: Predictor) -> None:
    """Detect objects in the image on standard input, and print them."""
    if arguments.output is not None or arguments.show_dir is not None:
        raise ValueError("predict: an image on standard input has no name, for --output and --show-dir; save it first")
    print(line(STANDARD_INPUT, predictor(sys.stdin.buffer.read()), as_json=arguments.json))


def predict_video(
    arguments: argparse.Namespace, predictor: Predictor, source: str | int, record: Record | None
) -> None:
    """Detect objects in the frames of a video or camera, and write or print them."""
    from tqdm import tqdm

    from mmort.predict import draw
    from mmort.predict.video import AnnotatedVideo, Video

    name = f"camera {source}" if isinstance(source, int) else source
    target = None if arguments.show_dir is None else _target(arguments.show_dir, source)
    start = 0 if record is None else record.frames(name)
    if target is not None and not target.exists():
        start = 0  # a video is drawn from its beginning
    with ExitStack() as stack:
        video = stack.enter_context(closing(Video(source)))
        drawn = None
        if target is not None and (start == 0 or not target.exists()):
            drawn = stack.enter_context(closing(AnnotatedVideo(target, video.frames_per_second)))
        read = start
        bar = stack.enter_context(
            tqdm(total=video.stated_frames, initial=start, unit="frame", disable=arguments.quiet or None)
        )
        pending: deque[Frame] = deque()

        def images() -> Iterator[Image]:
            for frame in video.frames(start):
                pending.append(frame)
                yield frame.image

        outcomes = stack.enter_context(closing(predictor.predict(images(), arguments.batch_size)))  # type: ignore[type-var]
        for detections in outcomes:
            frame = pending.popleft()
            if record is not None:
                record.add(name, detections, frame=frame.number, time=frame.time)
            if drawn is not None:
                drawn.add(draw(frame.image, detections))
            if arguments.json or (record is None and drawn is None):
                bar.write(line(name, detections, as_json=arguments.json, frame=frame.number, time=frame.time))
            read += 1
            bar.update()
        if drawn is not None:
            drawn.finish()
    if not read:
        raise ValueError(f"{name}: no frame can be read")
    if video.stated_frames is not None and read < video.stated_frames:
        print(f"note: {name} states {video.stated_frames} frames, of which {read} could be read", file=sys.stderr)
    if record is not None and not arguments.json:
        print_written(record.path, image_count(len(record)))
    if target is not None and not arguments.json:
        print_written(target)


def line(
    image: str | os.PathLike[str],
    detections: Detections,
    *,
    as_json: bool,
    frame: int | None = None,
    time: float | None = None,
) -> str:
    """Return what is printed for an image, or for a frame of a video and its time in seconds."""
    from mmort.predict import to_line

    if as_json:
        return to_line(image, detections, frame=frame, time=time)
    objects = (f"{name} {score:.2f}" for name, score in zip(detections.names, detections.scores, strict=True))
    moment = "" if time is None else f" {time:.2f} s"
    return one_line(f"{image}{moment}: {', '.join(objects) or 'nothing'}")


def _target(directory: str, source: str | int) -> Path:
    """Return the file of the annotated video, in a directory that is created."""
    from mmort._files.outputs import inside, require_folder

    name = f"camera_{source}" if isinstance(source, int) else Path(source).stem
    require_folder(directory)
    target = inside(directory, f"{name}.mp4")
    if not isinstance(source, int) and os.path.realpath(target) == os.path.realpath(source):
        raise ValueError(f"the annotated video would replace {source}; do not write to {directory}")
    Path(directory).mkdir(parents=True, exist_ok=True)
    return target

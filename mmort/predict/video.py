"""Videos and cameras: their frames in order, and annotated videos."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from mmort._files.drafts import draft_folder, replace_by
from mmort._files.outputs import require_output
from mmort.images import Image, opencv
from mmort.limits import MAX_CAMERA, MAX_FRAME_PIXELS, MAX_FRAME_RATE, MAX_SKIPPED_FRAMES
from mmort.predict.video_containers import stated_size

VIDEO_SUFFIXES = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm", ".wmv")
"""The suffixes of videos, whatever their case."""

_LISTS_OF_FILES = b"ffconcat", b"#EXTM3U", b"<"  # FFmpeg opens their files; "<" is XML, as DASH has it
_BLANKS = b"\xef\xbb\xbf \t\r\n"
MIN_ATTEMPTS = 100
"""Frames that are looked for behind one that cannot be read, as some files state too few."""

_HELD_BACK = 16
"""Frames that a decoder may hold back, of H.264 and H.265 most."""

_DECODER_OPTIONS = "OPENCV_FFMPEG_CAPTURE_OPTIONS"
_REPAIR = "a program such as ffmpeg may write a new one of what is left"

USUAL_FPS = 25.0  # of an annotated video whose source states no frame rate, such as some cameras


def is_video(path: str | os.PathLike[str]) -> bool:
    """Return whether a path's name is that of a video, and no folder's."""
    return Path(path).suffix.lower() in VIDEO_SUFFIXES and not os.path.isdir(path)


class Frame(NamedTuple):
    """A frame of a video."""

    number: int
    """From 0."""
    time: float
    """Seconds since the first frame."""
    image: Image


class Video:
    """The frames of a video file, or of a camera.

    Parameters
    ----------
    source : path or int
        A file in any format that OpenCV reads, or the number of a camera, from 0.

    Attributes
    ----------
    frames_per_second : float or None
        None if the file or camera states none.
    stated_frames : int or None
        How many frames the file states; some formats only estimate it, and cameras have none.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If OpenCV cannot read the file, it is cut, its frames are larger than 2**26 pixels, or there is no such camera.
    ImportError
        If OpenCV is not installed.
    """

    def __init__(self, source: str | os.PathLike[str] | int) -> None:
        cv2 = opencv()
        self._cv2, self._is_camera = cv2, isinstance(source, int)
        if isinstance(source, int):
            if not 0 <= source <= MAX_CAMERA:
                raise ValueError(f"the number of a camera must be from 0 to {MAX_CAMERA}, got {source}")
            self._name, opened = f"camera {source}", cv2.VideoCapture(source)
        else:
            self._name = os.fspath(source)
            if not os.path.isfile(source):
                raise FileNotFoundError(f"video does not exist, or is no regular file: {self._name}")
            with open(source, "rb") as file:
                if file.read(64).lstrip(_BLANKS).startswith(_LISTS_OF_FILES):
                    raise ValueError(f"{self._name}: a list of other files, not a video; run one after another")
                file.seek(0)
                stated, size = stated_size(file), os.fstat(file.fileno()).st_size
            if stated is not None and stated > size:
                raise ValueError(f"{self._name}: the file is cut: it states {stated} bytes, got {size}; {_REPAIR}")
            opened = cv2.VideoCapture(self._name)
        self._capture: Any = opened
        if not opened.isOpened():
            reason = "cannot be opened" if self._is_camera else "not a video in a format that OpenCV reads"
            raise ValueError(f"{self._name}: {reason}")
        width, height = (int(opened.get(name)) for name in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
        if width * height > MAX_FRAME_PIXELS:  # which a small file may state
            raise ValueError(
                f"{self._name}: frames may have {MAX_FRAME_PIXELS} pixels, got {width} x {height}; scale the video down"
            )
        rate, count = opened.get(cv2.CAP_PROP_FPS), int(opened.get(cv2.CAP_PROP_FRAME_COUNT))
        self.frames_per_second: float | None = rate if 0 < rate < MAX_FRAME_RATE else None
        self.stated_frames: int | None = count if count > 0 and not self._is_camera else None

    def frames(self, start: int = 0) -> Iterator[Frame]:
        """Yield the frames from number `start` on; a video can be read once.

        Raises
        ------
        ValueError
            If a frame cannot be read, but the file goes on behind it.
        """
        for number in range(start):
            if not self._capture.grab():
                self._require_end(number)
                return
        number, begin = start, time.monotonic()
        while True:
            is_read, image = self._capture.read()
            if not is_read:
                self._require_end(number)
                return
            position = self._capture.get(self._cv2.CAP_PROP_POS_MSEC) / 1e3
            yield Frame(number, time.monotonic() - begin if self._is_camera else position, image)
            number += 1

    def _require_end(self, number: int) -> None:
        """Raise ValueError if the frame of a number cannot be read, but the file goes on behind it."""
        if self._is_camera:
            return
        missing = (self.stated_frames or 0) - number
        if any(self._capture.grab() for _ in range(min(max(missing, MIN_ATTEMPTS), MAX_SKIPPED_FRAMES))):
            raise ValueError(
                f"{self._name}: frame {number} cannot be read, but later ones can: the file is damaged; {_REPAIR}"
            )
        if missing > 0 and self._goes_on():
            raise ValueError(
                f"{self._name}: frame {number} and the {missing - 1} after it cannot be read: "
                f"the file is damaged; {_REPAIR}"
            )

    def _goes_on(self) -> bool:
        """Return whether the file has data behind its last frame; what a file's list of edits leaves out is none."""
        options = os.environ.get(_DECODER_OPTIONS)
        os.environ[_DECODER_OPTIONS] = "|".join(filter(None, [options, "ignore_editlist;1"]))
        try:
            whole = self._cv2.VideoCapture(self._name)
            packets = self._cv2.VideoCapture(self._name, self._cv2.CAP_FFMPEG, [self._cv2.CAP_PROP_FORMAT, -1])
        finally:
            if options is None:
                del os.environ[_DECODER_OPTIONS]
            else:
                os.environ[_DECODER_OPTIONS] = options
        seconds = [self._last_time(capture) for capture in (whole, packets)]
        return seconds[1] > seconds[0] + _HELD_BACK / (self.frames_per_second or USUAL_FPS)

    def _last_time(self, capture: Any) -> float:
        """Return the latest time of a capture's frames, in seconds, and release it."""
        last = 0.0
        while capture.grab():
            last = max(last, capture.get(self._cv2.CAP_PROP_POS_MSEC) / 1e3)
        capture.release()
        return last

    def close(self) -> None:
        """Close the file or camera."""
        self._capture.release()


class AnnotatedVideo:
    """A video file that has its name only when it is finished.

    Parameters
    ----------
    path : path
        Ends in ``.mp4``; its directory must exist.
    frames_per_second : float or None
        None for the usual rate.

    Raises
    ------
    OSError
        If the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], frames_per_second: float | None) -> None:
        require_output(path)
        self._path, self._rate = Path(path), frames_per_second or USUAL_FPS
        self._draft, self._folder = Path(), ExitStack()
        self._writer: Any = None

    def add(self, image: Image) -> None:
        """Append a frame; all have the size of the first.

        Raises
        ------
        ValueError
            If OpenCV cannot write videos of this size.
        """
        cv2 = opencv()
        height, width = image.shape[:2]
        if self._writer is None:
            self._draft = self._folder.enter_context(draft_folder(self._path.parent)) / self._path.name
            self._writer = cv2.VideoWriter(
                os.fspath(self._draft), cv2.VideoWriter_fourcc(*"mp4v"), self._rate, (width, height)
            )
            if not self._writer.isOpened():
                raise ValueError(f"{self._path}: OpenCV cannot write videos of {width} x {height} pixels here")
        self._writer.write(image)

    def finish(self) -> None:
        """Give the file its name."""
        if self._writer is not None:
            self._writer.release()
            replace_by(self._draft, self._path)
            self._writer = None
            self._folder.close()

    def close(self) -> None:
        """Remove what is not finished."""
        if self._writer is not None:
            self._writer.release()
        self._folder.close()

"""Where the results of a run over many images go: a record from which the run resumes, maps, and annotated images."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmort._files.lines import LinesFile
from mmort._files.outputs import inside, make_folder, require_folder, write_output
from mmort._files.text import path_text
from mmort.detections.detections import Detections
from mmort.detections.drawing import draw_beside
from mmort.detections.text_regions import TextRegions
from mmort.images import ColorType, read_image, write_image
from mmort.predict.image_files import identity

_WRITABLE = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Formats that OpenCV writes in colours."""


class Record:
    """The results in a directory: a line of JSON for each image, or frame of a video, in ``detections.jsonl``.

    A run that was killed leaves whole lines, and perhaps half a line, which is dropped.  ``run.json`` holds the
    settings of the run, so that results of different runs are not mixed.  One run at a time can have the record.
    As a context manager, a record that is empty when an error ends the block is removed.

    Parameters
    ----------
    directory : path
        It is created if it does not exist.
    settings : mapping
        What the results depend on, ready for JSON.

    Raises
    ------
    ValueError
        If the directory has results of other settings, a line that is not a result, or a link or a device where the
        files should be; or another run is writing to it.
    OSError
        If the files cannot be read or written.
    """

    def __init__(self, directory: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        require_folder(directory)
        self._new_folders = [folder for folder in (Path(directory), *Path(directory).parents) if not folder.exists()]
        make_folder(directory)
        self.path = inside(directory, "detections.jsonl")
        self._file = LinesFile(self.path)
        try:
            images, end = _recorded(self._file)
            # Relative paths in the record are those of the run that began it, wherever this one was started.
            base = _check_settings(inside(directory, "run.json"), settings, is_empty=not images)
            self._base = os.path.realpath(Path(directory, base))
            self._images = {(_key(Path(self._base, image)), frame) for image, frame in images}
            self._earlier = len(self._images)
            self._file.cut(end)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        """Return the number of images and frames that have a line."""
        return len(self._images)

    def __contains__(self, image: object) -> bool:
        """Return whether an image has a line, by whatever path to its folder."""
        return isinstance(image, (str, os.PathLike)) and (_key(image), None) in self._images

    def frames(self, video: str | os.PathLike[str]) -> int:
        """Return how many frames of a video have a line, the first ones."""
        key, numbers = _key(video), {frame for image, frame in self._images if image == _key(video)}
        return next(number for number in range(len(numbers) + 1) if (key, number) not in self._images)

    def add(
        self,
        image: str | os.PathLike[str],
        detections: Detections,
        *,
        frame: int | None = None,
        time: float | None = None,
    ) -> None:
        """Write the line of an image, or of a video's frame and its time, which then counts as done.

        One that counts already is left as it is.
        """
        if (_key(image), frame) in self._images:
            return
        named = image if os.path.realpath(os.curdir) == self._base else os.path.abspath(image)
        line = f"{to_line(named, detections, frame=frame, time=time)}\n".encode()
        self._file.append(line)
        self._images.add((_key(image), frame))

    def describe(self) -> str:
        """Return how many images and frames have a line, as text, and how many of these an earlier run recorded."""
        frames = sum(frame is not None for _, frame in self._images)
        images = len(self._images) - frames
        counts = [count_text(images, "image")] if images or not frames else []
        counts += [count_text(frames, "frame")] if frames else []
        counts += [f"{self._earlier} of them by an earlier run"] if self._earlier else []
        return ", ".join(counts)

    def close(self) -> None:
        """Close the file, after its lines have reached the disk."""
        self._file.close()

    def __enter__(self) -> Record:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None and not self._file.end:
            self._file.remove("run.json", self._new_folders)
        self.close()


def count_text(number: int, thing: str) -> str:
    """Return how many things there are, as text.

    Examples
    --------
    >>> from mmort.predict.output import count_text
    >>> count_text(1200, "frame")
    '1,200 frames'
    """
    return f"{number:,} {thing}{'s' * (number != 1)}"


def to_line(
    image: str | os.PathLike[str], detections: Detections, *, frame: int | None = None, time: float | None = None
) -> str:
    """Return an image's results as JSON: its path as ``image``, and the entries of `Detections.to_dict`.

    Those of a video's frame have its number, from 0, as ``frame``, and the seconds since the first as ``time``.
    """
    moment = {} if frame is None else {"frame": frame, "time": None if time is None else round(time, 6)}
    return json.dumps({"image": path_text(image), **moment, **detections.to_dict()}, allow_nan=False)


class AnnotatedImages:
    """Annotated images in a directory, under the images' names.

    Parameters
    ----------
    directory : path
    images : sequence of path
        All images of the run.  If they are in several folders, so are the annotated ones, below the folder that they
        have in common.

    Raises
    ------
    ValueError
        If an annotated image would replace one of the images or another annotated one, or a link in the directory
        leads elsewhere.
    OSError
        If the directory is a file.
    """

    def __init__(self, directory: str | os.PathLike[str], images: Sequence[Path]) -> None:
        self._targets = _targets(directory, images, _annotated, "annotated image")
        self._directory = directory
        self._written = {path for path, target in self._targets.items() if target.exists()}
        self._earlier = set(self._written)

    def refuse_to_replace(self, images: Iterable[Path]) -> None:
        """Raise FileExistsError if one of the images has an annotated one."""
        for image in images:
            if image in self:
                raise FileExistsError(f"annotated image exists: {self.path(image)}; force=True replaces it")

    def __len__(self) -> int:
        """Return how many of the images have an annotated one, written now or by a run before."""
        return len(self._written)

    def __contains__(self, image: object) -> bool:
        """Return whether an image has an annotated one."""
        return image in self._written

    def describe(self) -> str:
        """Return how many images have an annotated one, as text, and for how many of these an earlier run wrote it."""
        count = count_text(len(self), "annotated image")
        return f"{count}, {len(self._earlier)} of them by an earlier run" if self._earlier else count

    def path(self, image: Path) -> Path:
        """Return the file of an image: of the same format, if OpenCV writes colours in it, and otherwise PNG."""
        return self._targets[image]

    def write(self, image: Path, *versions: Detections) -> None:
        """Draw detections on an image, and write it; several versions side by side."""
        color_type: ColorType = versions[0].color_type if isinstance(versions[0], TextRegions) else "color"
        drawn = draw_beside(read_image(image, color_type), versions)
        write_image(_ready(self._directory, self.path(image)), drawn)
        self._written.add(image)
        self._earlier.discard(image)

    def try_to_write(self, image: Path, *versions: Detections) -> Exception | None:
        """Do what `write` does; return why that failed, which shall not end a run over many images.

        Raises
        ------
        ImportError
            If a library is missing, which is not the image's fault.
        """
        try:
            self.write(image, *versions)
        except ImportError:
            raise
        except Exception as error:  # OpenCV's own, besides those documented
            return error
        return None


class LabelMaps:
    """The maps of semantic segmentations in a directory: grey PNG files under the names of the images.

    Parameters
    ----------
    directory : path
    images : sequence of path
        All images of the run, as for `AnnotatedImages`; none of a video, whose frames' numbers are the names.

    Raises
    ------
    ValueError, OSError
        As for `AnnotatedImages`.
    """

    def __init__(self, directory: str | os.PathLike[str], images: Sequence[Path] = ()) -> None:
        self._targets = _targets(directory, images, lambda image: image.with_suffix(".png"), "map")
        self.directory = directory

    def write(self, image: Path | int, segmentation: Any) -> None:
        """Write the map of an image, or of a video's frame: a `SegmentationMap`."""
        target = inside(self.directory, f"{image:06}.png") if isinstance(image, int) else self._targets[image]
        segmentation.to_png(_ready(self.directory, target))


def _targets(
    directory: str | os.PathLike[str], images: Sequence[Path], name_of: Callable[[Path], Path], thing: str
) -> dict[Path, Path]:
    """Return the file of each image in a directory, which must be another for each, and none of the images."""
    require_folder(directory)
    files = {path: Path(identity(path)) for path in images}
    base = os.path.commonpath([path.parent for path in files.values()]) if files else os.curdir
    targets: dict[Path, Path] = {}
    sources: dict[Path, Path] = {}
    for path, file in files.items():
        target = inside(directory, name_of(file.relative_to(base)))
        if sources.setdefault(target, file) != file:
            raise ValueError(f"the {thing}s of {sources[target]} and {file} would both be {target}")
        targets[path] = target
    replaced = set(files.values()) & {Path(identity(target)) for target in sources}
    if replaced:
        raise ValueError(f"the {thing} of {min(replaced)} would replace it; do not write to {directory}")
    return targets


def _ready(directory: str | os.PathLike[str], target: Path) -> Path:
    """Return a file in a directory, once its folder is made."""
    make_folder(target.parent)
    inside(directory, target.relative_to(directory))  # a link may have come since
    return target


def _key(image: str | os.PathLike[str]) -> str:
    """Return the text that stands for an image, whatever the path to its folder."""
    return path_text(identity(image))


def _annotated(image: Path) -> Path:
    """Return the name of an annotated image."""
    return image if image.suffix.lower() in _WRITABLE else image.with_name(f"{image.name}.png")


def _check_settings(file: Path, settings: Mapping[str, Any], *, is_empty: bool) -> str:
    """Compare the settings with those of the run that began the record, or write them if it is empty.

    Returns the directory that relative paths in the record are relative to, itself relative to that of the record.
    """
    wanted = json.loads(json.dumps(settings))
    if is_empty:
        directory = os.path.relpath(os.path.realpath(os.curdir), os.path.realpath(file.parent))
        write_output(file, json.dumps({**wanted, "directory": path_text(directory)}, indent=1) + "\n")
        return directory
    try:
        before = json.loads(file.read_bytes())
        if not isinstance(before, dict) or not isinstance(before.get("directory"), str):
            raise ValueError("not the settings of a run")
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{file} cannot be read, so that the settings behind {file.with_name('detections.jsonl')} are unknown; "
            f"delete both, or give another directory: {error}"
        ) from None
    directory = str(before.pop("directory"))
    changed = [name for name in {**wanted, **before} if before.get(name) != wanted.get(name)]
    if changed:
        raise ValueError(
            f"{file.with_name('detections.jsonl')} is of a run with another {' and '.join(changed)}; give another "
            "directory, or delete the file"
        )
    return directory


def _recorded(file: LinesFile) -> tuple[list[tuple[str, int | None]], int]:
    """Return the images of a record, those of videos with the frame, and where its last whole line ends."""
    images, end = [], 0
    with file.read() as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
                image, frame = entry["image"], entry.get("frame")
                if not isinstance(image, str) or not image or "\0" in image:
                    raise ValueError
                if frame is not None and (not isinstance(frame, int) or frame < 0):
                    raise ValueError
            except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
                raise ValueError(f"{file.path}, line {number}: not an image's results; delete the file") from None
            images.append((image, frame))
            end += len(line)
    return images, end

"""Find image files: folders and patterns."""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from mmort.predict.video import VIDEO_SUFFIXES

IMAGE_SUFFIXES = (
    *(".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpeg", ".jpg"),
    *(".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"),
)
"""The suffixes of images in a folder, whatever their case: MMDetection's list and four others."""

UNREADABLE_SUFFIXES = (
    *(".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".raf", ".rw2"),  # cameras' raw images
    *(".eps", ".exr", ".hdr", ".heic", ".heif", ".ico", ".jxl", ".psd", ".svg", ".tga"),
)
"""Images that OpenCV does not read, or not as it reads photographs."""

NAMED = 3
"""How many of the files that are left out a warning names."""


class LeftOutWarning(UserWarning):
    """A folder or a pattern has images that OpenCV does not read, videos, or folders of images, which are left out."""


def list_images(*sources: str | os.PathLike[str], recursive: bool = False) -> list[Path]:
    """List image files.

    Parameters
    ----------
    *sources : path
        Folders, whose image files are listed by name; patterns such as ``"photos/**/*.jpg"``; and files, which are
        listed whatever they are.
    recursive : bool, default False
        Whether the folders below a folder are searched too; links to folders are not followed.

    Returns
    -------
    list of Path
        In the order of `sources`, each file once, by the first path that leads to it.

    Raises
    ------
    ValueError
        If a folder has no image files, or none matches a pattern.
    FileNotFoundError
        If a source is empty text.

    Warns
    -----
    LeftOutWarning
        If a folder or a pattern has images in other formats, such as HEIC, or videos; or if a folder has folders of
        images, and `recursive` is false.

    Examples
    --------
    >>> from pathlib import Path
    >>> from mmort.demo import IMAGES
    >>> from mmort.predict import list_images
    >>> [path.name for path in list_images(Path(IMAGES[0]).parent)]
    ['digits_05.png', 'digits_27.png', 'digits_63.png', 'digits_75.png']
    """
    if any(os.fspath(source) == "" for source in sources):
        raise FileNotFoundError("no such file, folder or pattern: ''")
    images: dict[str, Path] = {}
    for source in sources:
        for path in _files(Path(source), recursive):
            images.setdefault(identity(path), path)
    return list(images.values())


def is_pattern(source: str | os.PathLike[str]) -> bool:
    """Return whether a source is a pattern such as ``photos/*.jpg``, and not a file whose name looks like one."""
    return glob.has_magic(os.fspath(source)) and not os.path.exists(source)


def identity(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a file whose directory is named without links; a link to a file stands for itself."""
    folder, name = os.path.split(os.fspath(path))
    return os.path.join(os.path.realpath(folder), name)


def _files(source: Path, recursive: bool) -> list[Path]:
    """List the image files of one source."""
    if source.is_dir():
        paths = sorted(source.rglob("*") if recursive else source.iterdir())
    elif is_pattern(source):
        paths = [Path(name) for name in sorted(glob.glob(str(source), recursive=True))]
    else:
        return [source]
    files = [path for path in paths if path.is_file()]
    images = [path for path in files if path.suffix.lower() in IMAGE_SUFFIXES]
    if not images:
        where = "no image in the folder" if source.is_dir() else "no image matches"
        below = ""
        if source.is_dir() and not recursive and any(path.is_dir() for path in paths):
            below = ", and the folders below it are searched with recursive=True (-r)"
        only = "".join(f"; {files} ({reason})" for files, reason in _left_out(files))
        raise ValueError(f"{where} {source}{only}; images are files that end in {', '.join(IMAGE_SUFFIXES)}{below}")
    for names, reason in _left_out(files):
        warnings.warn(LeftOutWarning(f"{source}: left out {names}; {reason}"), stacklevel=3)
    folders = [path for path in paths if source.is_dir() and not recursive and _has_images(path)]
    if folders:
        reason = "folders below it are searched with recursive=True (-r)"
        warnings.warn(LeftOutWarning(f"{source}: left out {_names(folders)}; {reason}"), stacklevel=3)
    return images


def _left_out(files: Sequence[Path]) -> list[tuple[str, str]]:
    """Return the names of files that look like images but are left out, and the reason, for each kind that is there."""
    kinds = {
        "OpenCV reads no images of this kind": UNREADABLE_SUFFIXES,
        "a video must be the only source": VIDEO_SUFFIXES,
    }
    of_kinds = {
        reason: [path for path in files if path.suffix.lower() in suffixes] for reason, suffixes in kinds.items()
    }
    return [(_names(paths), reason) for reason, paths in of_kinds.items() if paths]


def _has_images(path: Path) -> bool:
    """Return whether a path is a folder, neither hidden nor a link, with image files in it."""
    if path.name.startswith(".") or path.is_symlink() or not path.is_dir() or not os.access(path, os.R_OK | os.X_OK):
        return False
    return any(file.suffix.lower() in IMAGE_SUFFIXES for file in path.iterdir())


def _names(paths: Sequence[Path]) -> str:
    """Return the names of the first paths, and how many more there are."""
    more = len(paths) - NAMED
    return ", ".join(path.name for path in paths[:NAMED]) + (f" and {more} more" if more > 0 else "")

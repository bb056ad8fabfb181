"""Find image files: folders and patterns."""

from __future__ import annotations

import glob
import os
from pathlib import Path

SUFFIXES = (".avif", ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""What counts as an image in a folder, whatever its case: MMDetection's list and three newer formats."""


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


def identity(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a file whose directory is named without links; a link to a file stands for itself."""
    folder, name = os.path.split(os.fspath(path))
    return os.path.join(os.path.realpath(folder), name)


def _files(source: Path, recursive: bool) -> list[Path]:
    """List the image files of one source."""
    if source.is_dir():
        paths = sorted(source.rglob("*") if recursive else source.iterdir())
    elif glob.has_magic(str(source)) and not source.exists():
        paths = [Path(name) for name in sorted(glob.glob(str(source), recursive=True))]
    else:
        return [source]
    images = [path for path in paths if path.suffix.lower() in SUFFIXES and path.is_file()]
    if not images:
        where = "no image in the folder" if source.is_dir() else "no image matches"
        raise ValueError(f"{where} {source}; images are files that end in {', '.join(SUFFIXES)}")
    return images

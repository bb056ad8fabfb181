"""Pictures of a data set's annotations, the function behind ``mmort browse``."""

from __future__ import annotations

import os

from mmort.evaluate.dataset import Dataset
from mmort.images import image_size
from mmort.predict import AnnotatedImages


def browse(dataset: Dataset, output: str | os.PathLike[str], *, force: bool = False) -> tuple[str, ...]:
    """Draw the objects of a data set on copies of its images.

    Parameters
    ----------
    dataset : Dataset
    output : path
        The folder to write to.
    force : bool, default False
        Replace files that exist.

    Returns
    -------
    tuple of str
        The images that could not be drawn, with the reason.

    Raises
    ------
    ValueError
        If the data set has no objects with boxes, or would overwrite an image.
    OSError
        If a file exists and `force` is false.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from mmort.demo import ANNOTATIONS, IMAGES
    >>> from mmort.evaluate import CocoDataset, browse
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> browse(CocoDataset(ANNOTATIONS, IMAGES[0].parent), folder)
    ()
    >>> len(list(folder.iterdir()))
    4
    """
    objects = dataset.objects()
    if objects is None:
        raise ValueError(f"browse: this {type(dataset).__name__} has no objects with boxes")
    paths = [image.path for image in dataset.images]
    annotated = AnnotatedImages(output, paths)
    if not force:
        annotated.refuse_to_replace(paths)
    problems = []
    for path, of_image in zip(paths, objects, strict=True):
        try:
            problem = annotated.try_to_write(path, of_image.as_detections(dataset.classes, image_size(path)))
        except (OSError, ValueError) as error:
            problem = error
        if problem is not None:
            problems.append(f"{path}: {problem}")
    return tuple(problems)

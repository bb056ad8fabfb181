"""The table of tasks: the inputs and outputs that files have, with their names, dtypes, sizes and meanings.

No other module writes these names.  A task of another kind is another row of `TASKS`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shape = Sequence[int | str | None]
"""The sizes of a tensor; a name or None where any is possible."""


@dataclass(frozen=True)
class Tensor:
    """An input or output of files.

    Parameters
    ----------
    name : str
    dtype : str
        numpy's name.
    sizes : tuple of int, tuple of int, or str
        A number; numbers of which it is one; or a letter.  A capital stands for the same number in all tensors of a
        file, and with a factor, ``"3 P"``, for a multiple.
    meaning : str
    """

    name: str
    dtype: str
    sizes: tuple[int | tuple[int, ...] | str, ...]
    meaning: str

    def has_shape(self, shape: Shape, numbers: dict[str, int]) -> bool:
        """Return whether a shape is possible, and note the numbers of capitals in `numbers`."""
        return len(shape) == len(self.sizes) and all(
            not isinstance(actual, int) or _is_possible(size, actual, numbers)
            for size, actual in zip(self.sizes, shape, strict=True)
        )

    def text(self, numbers: dict[str, int] | None = None) -> str:
        """Return the sizes, with numbers for letters where these are known.

        Examples
        --------
        >>> from mmort.contract.tasks import DETS
        >>> DETS.text({"N": 2})
        '(2, K, 5 or 6)'
        """
        sizes = (
            " or ".join(map(str, size)) if isinstance(size, tuple) else str((numbers or {}).get(str(size), size))
            for size in self.sizes
        )
        return f"({', '.join(sizes)})"


def _is_possible(size: int | tuple[int, ...] | str, actual: int, numbers: dict[str, int]) -> bool:
    """Return whether a dimension may have a size, and note it if it is that of a capital."""
    if isinstance(size, int):
        return actual == size
    if isinstance(size, tuple):
        return actual in size
    factor, _, letter = size.rpartition(" ")
    if factor:
        return actual > 0 and actual % int(factor) == 0
    return not letter.isupper() or numbers.setdefault(letter, actual) == actual


INPUT = Tensor("input", "float32", ("N", "C", "H", "W"), "preprocessed images, padded on the right and at the bottom")
PROPOSALS = Tensor("proposals", "float32", ("N", "P", 4), "x1, y1, x2, y2 in pixels of input; rows of 0 are unused")
TEXT = Tensor("text", "float32", (1, "T", "D"), "the features of a caption's tokens")
TEXT_POSITIONS = Tensor("text_positions", "int64", (1, "T"), "the position of each token in its phrase")
TEXT_SHARES = Tensor("text_shares", "float32", ("s", "c"), "the share that each token has in each class")
IMG_SHAPE = Tensor("img_shape", "int64", ("N", 2), "height and width of each image without its padding; 0 means all")
ORI_SHAPE = Tensor("ori_shape", "int64", ("N", 2), "height and width of each original image; 0 means img_shape")
SIZES = IMG_SHAPE, ORI_SHAPE
"""The inputs that may be left out, and then have the default of a weight of that name."""

DETS = Tensor(
    *("dets", "float32", ("N", "K", (5, 6))),
    "x1, y1, x2, y2 in pixels of input, and the score; or x and y of the centre, width, height, angle, and the score",
)
LABELS = Tensor("labels", "int64", ("N", "K"), "the classes of dets; -1 in unused rows")
MASKS = Tensor("masks", "float32", ("N", "K", "h", "w"), "masks of dets, as the metadata describes them")
SEMANTIC = Tensor("semantic", "float32", ("N", "S", "h", "w"), "logits of each kind of stuff, and of all things last")
KEYPOINTS = Tensor("keypoints", "float32", ("N", "K", "3 P"), "x and y in pixels of input, and the score of each point")
PANOPTIC = Tensor("panoptic", "int32", ("N", "H", "W"), "the id of each pixel's segment")
SCORES = Tensor("scores", "float32", ("N", "K"), "the probability of each class")
HEATMAPS = Tensor("heatmaps", "float32", ("N", "P", "h", "w"), "the score of each keypoint at each position")
SIMCC_X = Tensor("simcc_x", "float32", ("N", "P", "x"), "the score of each keypoint in each column")
SIMCC_Y = Tensor("simcc_y", "float32", ("N", "P", "y"), "the score of each keypoint in each row")
POINTS = Tensor(
    *("points", "float32", ("N", "P", (2, 4))), "x and y of keypoints, as shares of input, and perhaps their deviations"
)
CHARACTERS = Tensor("characters", "float32", ("N", "T", "K"), "the probability of each character at each step")
PROBABILITY = Tensor("probability", "float32", ("N", "H", "W"), "how probable each pixel of input is one of a text")
KERNELS = Tensor(
    *("kernels", "float32", ("N", "M", "h", "w")),
    "logits of texts, and of kernels inside them; of PAN then the embedding of each pixel",
)
LOGITS = Tensor("logits", "float32", ("N", "K", "H", "W"), "logits of each class in each pixel of input")

TEXT_INPUTS = (TEXT.name, TEXT_POSITIONS.name, TEXT_SHARES.name)
"""The inputs that words become."""

BOXES = (DETS.name, LABELS.name)
WITH_MASKS = (*BOXES, MASKS.name)
WITH_SEMANTIC = (*WITH_MASKS, SEMANTIC.name)
WITH_KEYPOINTS = (*BOXES, KEYPOINTS.name)


@dataclass(frozen=True)
class Task:
    """The inputs and outputs of files of a task.

    Parameters
    ----------
    name : str
    inputs, outputs : tuple of Tensor
        Those that files may have, the required ones first.
    forms : tuple of tuple of str
        The outputs that a file has together, in the order in which networks return them.
    for_programs : tuple of str
        Outputs that a file may have besides, which mmort makes itself of the others.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    forms: tuple[tuple[str, ...], ...]
    for_programs: tuple[str, ...] = ()

    def tensors(self, names: Collection[str]) -> list[Tensor]:
        """Return the outputs of these names, in the order of the table."""
        return [tensor for tensor in self.outputs if tensor.name in names]

    def outputs_among(self, names: Collection[str]) -> tuple[str, ...] | None:
        """Return the names of a file's outputs that networks return, in their order; None if required ones are missing.

        Examples
        --------
        >>> from mmort.contract import DETECTION
        >>> DETECTION.outputs_among(["masks", "labels", "dets", "panoptic"])
        ('dets', 'labels', 'masks')
        >>> DETECTION.outputs_among(["dets"]) is None
        True
        """
        if not any(set(form) <= set(names) for form in self.forms):
            return None
        return tuple(tensor.name for tensor in self.tensors(names) if tensor.name not in self.for_programs)

    def check_arrays(self, arrays: Sequence[NDArray[Any]], number: int) -> None:
        """Refuse what a network returned for a number of images if it is not one of the task's forms.

        Raises
        ------
        ValueError
            If the number of arrays, of their dimensions, or a size does not match.
        """
        shapes, numbers = [np.shape(array) for array in arrays], {"N": number}
        ranks = [len(shape) for shape in shapes]
        for form in self.forms:
            tensors = self.tensors(form)
            if [len(tensor.sizes) for tensor in tensors] != ranks:
                continue
            for tensor, shape in zip(tensors, shapes, strict=True):
                required = tensor.text(numbers)
                if not tensor.has_shape(shape, numbers):
                    raise ValueError(f"the model's {tensor.name} must be {required}, got {shape}")
            return
        first, *others = self.forms
        text = self._text(first, numbers)
        for form in others:
            further = form[len(first) :] if form[: len(first)] == first else form
            text += f", or {'with ' * (further != form)}{self._text(further, numbers)}"
        raise ValueError(f"the model's outputs must be {text}, got {shapes}")

    def _text(self, names: Collection[str], numbers: dict[str, int]) -> str:
        """Return the names and sizes of outputs."""
        return ", ".join(f"{tensor.name} {tensor.text(numbers)}" for tensor in self.tensors(names))


DETECTION = Task(
    "detection",
    inputs=(INPUT, PROPOSALS, TEXT, TEXT_POSITIONS, TEXT_SHARES, IMG_SHAPE, ORI_SHAPE),
    outputs=(DETS, LABELS, MASKS, SEMANTIC, KEYPOINTS, PANOPTIC),
    forms=(BOXES, WITH_MASKS, WITH_SEMANTIC, WITH_KEYPOINTS),
    for_programs=(PANOPTIC.name,),
)

CLASSIFICATION = Task("classification", inputs=(INPUT,), outputs=(SCORES,), forms=((SCORES.name,),))

SEGMENTATION = Task("segmentation", inputs=(INPUT,), outputs=(LOGITS,), forms=((LOGITS.name,),))

POSE = Task(
    "keypoints",
    inputs=(INPUT,),
    outputs=(HEATMAPS, SIMCC_X, SIMCC_Y, POINTS),
    forms=((HEATMAPS.name,), (SIMCC_X.name, SIMCC_Y.name), (POINTS.name,)),
)

TEXT_RECOGNITION = Task("text recognition", inputs=(INPUT,), outputs=(CHARACTERS,), forms=((CHARACTERS.name,),))

TEXT_DETECTION = Task(
    "text detection",
    inputs=(INPUT,),
    outputs=(PROBABILITY, KERNELS),
    forms=((PROBABILITY.name,), (KERNELS.name,)),
)

TASKS = {task.name: task for task in (DETECTION, CLASSIFICATION, SEGMENTATION, POSE, TEXT_RECOGNITION, TEXT_DETECTION)}
"""All tasks by name."""

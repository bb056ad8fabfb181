"""The proof of a detector's file: which inputs show most of it, and which detections it has in common with torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mmort.contract.tasks import IMG_SHAPE
from mmort.onnx.artifact import Artifact
from mmort.onnx.verify import detections
from mmort.onnx.verify.proof import Noisy
from mmort.onnx.verify.sessions import feeds
from mmort.onnx.verify.values import Outputs, index_of_smallest, shapes_text
from mmort.tolerances import Tolerances

Arguments = tuple[Tensor, ...]

PADDING = 8
"""One in so many rows and columns of a padded image is padding."""


def noisy_views(inputs: Sequence[Arguments], seed: int = 0) -> list[Noisy]:
    """Return the smallest inputs once more, reversed and with noise in the images and in the outputs of heads.

    An image shows a few objects, of some sizes; with noise, each threshold and limit decides something.  In the second
    view it is strong, so that boxes leave the image and angles their range, and part of the image is padding.

    Parameters
    ----------
    inputs : sequence of tuple of Tensor
        Of which the first is the image, and the last ``img_shape``.
    seed : int, default 0
        That of the noise.
    """
    image, *more, img_shape = inputs[index_of_smallest(inputs)]
    mirrored = _with_noise(image.flip(-1), seed), *more, img_shape
    padded = _with_noise(image.flip(-2), seed + 1), *more, img_shape - img_shape // PADDING
    return [
        Noisy(mirrored, 1, "noise", "mirrored, noise in image and heads", seed),
        Noisy(padded, 8, "strong noise", "upside down, padded, strong noise in image and heads", seed + 1),
    ]


def _with_noise(image: Tensor, seed: int) -> Tensor:
    """Return an image with noise: some channels of a network answer to no part of a photo."""
    noise = torch.randn(image.shape, generator=torch.Generator().manual_seed(seed))
    return image + noise * image.std()


class Matches:
    """Detections of a file that torch has, too, from end to end: information, as rounding may decide them."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def __call__(
        self, args: Arguments, outputs: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]
    ) -> None:
        """Match the detections of a run."""
        actual, of_torch = list(outputs.values()), [expected[name] for name in outputs]
        compared = Outputs(shapes_text(args[:1]), list(outputs), actual, of_torch, Tolerances())
        rows = [row for row in detections.compare(compared) or () if isinstance(row, detections.DetectionRow)]
        if rows:
            matched, total = (sum(getattr(row, name) for row in rows) for name in ("matched", "detections"))
            self._texts.append(f"{matched} of {total} at {compared.inputs}")

    def __str__(self) -> str:
        """Return the line that says how many match; an empty one if there are no detections."""
        texts = ", ".join(self._texts)
        return f"detections that match from end to end, which rounding may decide: {texts}" if texts else ""


def check_optional(artifact: Artifact, args: Arguments) -> None:
    """Check that a file without ``img_shape``, the last argument, computes the same bits as with the input's size."""
    batch, _, height, width = args[0].shape
    session = artifact.session([value.name for value in artifact.model.graph.output])
    inputs = feeds(session, args[:-1])
    defaults = session.run(None, inputs)
    explicit = session.run(None, inputs | {IMG_SHAPE.name: np.array([[height, width]] * batch, np.int64)})
    if not all(np.array_equal(*pair, equal_nan=True) for pair in zip(defaults, explicit, strict=True)):
        raise ValueError(
            "export: without img_shape the file must detect the same as with the size of the input, got differences"
        )

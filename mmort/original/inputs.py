"""The inputs that a file is traced and proven with: an image at sizes that a network may meet."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mmort.contract import Preprocessing
from mmort.contract.tasks import INPUT
from mmort.images import Image
from mmort.original.adapters import Adapter
from mmort.original.known import UnknownReadError

EXAMPLE = 160, 224
CHECKS = (1, 128, 256), (3, 192, 96)
UNALIGNED = 1, 131, 197
"""Heights and widths, with the number of images; the last is no multiple of any stride, and some networks refuse it."""
FACTORS = range(1, 9)
"""How much larger inputs may be, for a network that cannot run with these: LR-ASPP pools over 49 x 49 features."""


class Inputs:
    """Makes the inputs of a file.

    Parameters
    ----------
    adapter : Adapter
    preprocessing : Preprocessing
    image : Image
    size : (int, int) or None
        Height and width of all inputs; None if they may have any.
    height : int, optional
        The height of inputs of any width.
    """

    def __init__(
        self,
        adapter: Adapter,
        preprocessing: Preprocessing,
        image: Image,
        size: tuple[int, int] | None,
        height: int | None = None,
    ) -> None:
        self.adapter, self.preprocessing, self.image = adapter, preprocessing, image
        self.size, self.height = size, height

    def __call__(self, batch: int, height: int, width: int) -> tuple[Tensor]:
        """Return a batch of one size: the image, its mirror image, upside down, and again.

        The height counts only if inputs may have any.
        """
        prepare = replace(
            self.preprocessing,
            size=(width, height if self.size is not None else self.height or height),
            keep_ratio=False,
            size_divisor=1,
            pad_or=0,
            padding=None,
            edge=None,
            crop=None,
            line=None,
        )
        views = self.image, self.image[:, ::-1], self.image[::-1]
        images = [prepare(np.ascontiguousarray(views[index % len(views)])) for index in range(batch)]
        return (torch.from_numpy(prepare.batch(images)[0]),)

    @property
    def dynamic_shapes(self) -> dict[str, dict[int, str]]:
        """The argument of `mmort.onnx.export`."""
        sides = {3: "width"} if self.height is not None else {2: "height", 3: "width"}
        return {INPUT.name: {0: "batch"} | (sides if self.size is None else {})}

    @cached_property
    def factor(self) -> int:
        """The smallest factor of the usual sizes with which the original runs; 0 if it never does."""
        batch, height, width = CHECKS[-1]
        runs = (factor for factor in FACTORS if self._runs(self(batch, factor * height, factor * width)))
        return next(runs, 0)

    def _runs(self, input: tuple[Tensor]) -> bool:
        """Return whether the original takes an input; an `UnknownReadError` is raised, before the trace."""
        try:
            with torch.no_grad():
                self.adapter(*input)
        except UnknownReadError:
            raise
        except Exception:  # of any code of the package
            return False
        return True

    def example(self) -> tuple[Tensor]:
        """Return the input to trace with."""
        height, width = self.size or ((self.factor or 1) * side for side in EXAMPLE)
        return self(2, height, width)

    def checks(self) -> list[tuple[Tensor]]:
        """Return the inputs to prove with."""
        if self.size is not None:
            return [self(1, *self.size), self(3, *self.size)]
        factor = self.factor or 1
        sizes = [(batch, factor * height, factor * width) for batch, height, width in (*CHECKS, UNALIGNED)]
        inputs = [self(*size) for size in sizes]
        return inputs if self._runs(inputs[-1]) else inputs[:-1]  # where the original fails, the file may, too

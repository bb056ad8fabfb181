"""A module that makes a file's choices between equal scores, so that rounding decides nothing in a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mmort.detect.export.head_outputs import run_tensors
from mmort.onnx.graph import files
from mmort.onnx.verify.operator_calls import Intercepted
from mmort.onnx.verify.replay import CHOICES, COMPARISONS, Choice, Replay


class ReplayingModule(nn.Module):
    """A module that chooses as a file does, where rounding decides."""

    def __init__(self, module: nn.Module, draft: Path) -> None:
        super().__init__()
        self.module, self.draft = module, draft
        graph = files.load(draft).graph
        probabilities = {node.output[0] for node in graph.node if node.op_type == "Sigmoid"}
        self.choices = [
            (node.op_type, [name for index, name in enumerate(node.output) if index in CHOICES[node.op_type]])
            for node in graph.node
            if node.op_type in CHOICES and (node.op_type not in COMPARISONS or node.input[0] in probabilities)
        ]
        self._last: tuple[list[NDArray[Any]], list[Choice]] | None = None
        self.outputs = [value.name for value in graph.output]  # kept, so that ONNX Runtime runs the same graph
        self.eval()

    def forward(self, *args: Tensor) -> tuple[Tensor, ...]:
        """Return the module's outputs, also in float64, for the choices that the file makes in float32."""
        replay = Replay(self._choices(args))
        with Intercepted(replay.call):
            outputs: tuple[Tensor, ...] = self.module(*args)
        return outputs

    def _choices(self, args: Sequence[Tensor]) -> list[Choice]:
        """Return what the file chooses for some arguments; those of the last call are remembered."""
        arrays = [tensor.numpy() for tensor in args]
        arrays = [array.astype(np.float32) if array.dtype == np.float64 else array for array in arrays]
        if self._last is None or not all(map(np.array_equal, self._last[0], arrays)):
            names = [name for _, outputs in self.choices for name in outputs]
            tensors = run_tensors(self.draft, [*names, *self.outputs], arrays)
            choices: list[Choice] = [
                (kind, [torch.from_numpy(tensors[name]) for name in outputs if name]) for kind, outputs in self.choices
            ]
            self._last = arrays, choices
        return self._last[1]

"""The results of a detector's heads, as tensors with names in its file.

Detections hide most of what a network computes, and in an image without objects nearly all.  So a detector is traced
with the outputs of its heads as further outputs, which gives the tensors names; the finished file has the names, but
not the outputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import onnx
from torch import Tensor, nn

from mmort.detect.detector import Detector
from mmort.onnx.verify.values import leaves
from mmort.predict.engines.splitting import needed_nodes

PREFIX = "heads/"
"""How the names begin that tensors of a file have as outputs of heads."""


class WithHeads(nn.Module):
    """A module with a detector in it; it returns the outputs of the detector's heads too, in the order of their calls.

    Parameters
    ----------
    module, detector : nn.Module
    """

    def __init__(self, module: nn.Module, detector: Detector) -> None:
        super().__init__()
        self.module = module
        self._layers = dict.fromkeys(head_layers(detector))
        self._raw_names, self._last_head = detector.raw_names, detector.heads[-1]

        def forward(*args: Tensor) -> tuple[Tensor, ...]:
            return self._outputs(*args)

        forward.__signature__ = inspect.signature(module.forward)  # type: ignore[attr-defined]  # names the inputs
        self.forward = forward
        self.eval()

    def _outputs(self, *args: Tensor) -> tuple[Tensor, ...]:
        """Return the module's outputs and those of the heads."""
        outputs: list[Tensor] = []

        def record(layer: nn.Module, arguments: Any, output: Any) -> None:
            outputs.extend(tensor.clone() for tensor in leaves(output))  # it may be changed in place later

        hooks = [layer.register_forward_hook(record) for layer in self._layers]
        try:
            results = self.module(*args)
        finally:
            for hook in hooks:
                hook.remove()
        return *results, *outputs

    def names(self, count: int) -> list[str]:
        """Return the names of `count` outputs of heads: those of `Detector.raw`, then numbers."""
        more = (f"{self._last_head}_{index}" for index in range(count - len(self._raw_names)))
        return [*self._raw_names, *more]


def head_layers(detector: Detector) -> Iterator[nn.Module]:
    """Yield the heads of a detector."""
    for name in detector.heads:
        head = detector.get_submodule(name)
        yield from head if isinstance(head, nn.ModuleList) else [head]


def among(names: Sequence[str]) -> list[str]:
    """Return those names of traced outputs that are of heads."""
    return [name for name in names if name.startswith(PREFIX)]


def hide(model: onnx.ModelProto) -> None:
    """Turn the outputs of heads into inner tensors of the graph, without the nodes that nothing else needs."""
    graph = model.graph
    outputs = [value for value in graph.output if not value.name.startswith(PREFIX)]
    nodes, needed = needed_nodes(graph.node, [value.name for value in outputs])
    initializers = [tensor for tensor in graph.initializer if tensor.name in needed]
    computed = {name for node in nodes for name in node.output}
    values = [value for value in graph.value_info if value.name in computed]
    for field, kept in (
        (graph.output, outputs),
        (graph.node, nodes),
        (graph.initializer, initializers),
        (graph.value_info, values),
    ):
        copies = [type(message).FromString(message.SerializeToString()) for message in kept]
        del field[:]
        field.extend(copies)

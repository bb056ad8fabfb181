"""A scene crowded with detections, whatever the image: the outputs of heads get noise, in torch and in a file.

An image shows a few objects, of some sizes.  With these alone, most of what follows the heads would be compared with
nothing to decide: the decoding of a level without objects, the choice of the best cells, suppression among many.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import onnx.numpy_helper
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from mmort.detect.detector import Detector
from mmort.detect.export.head_outputs import PREFIX, head_layers
from mmort.onnx.graph import files
from mmort.onnx.verify.inner_tensors import written_beside
from mmort.onnx.verify.operator_calls import Intercepted
from mmort.onnx.verify.values import leaves

SCENES = (
    *((math.inf, 0.25), (math.inf, 0.5), (math.inf, 1), (1, 0.5), (1, 1), (math.inf, 4), (math.inf, 16)),
    *((0.25, 0.5), (0.25, 1)),
)
"""How large outputs may stay, and how many times as large the noise is.

The first pair is taken with which half of the rows are detections.  Stronger noise saturates the scores, and then no
threshold decides; very large outputs clip all boxes to the image.
"""


class View(NamedTuple):
    """How an input is shown once more."""

    axis: int
    """That its images are reversed along."""
    padding: int
    """One in so many rows and columns of the input is padding; 0: none is."""
    scenes: Sequence[tuple[float, float]]


VIEWS = {
    ", mirrored, noise in image and heads": View(-1, 0, SCENES),
    ", upside down, padded, noise in image and heads": View(-2, 8, ((math.inf, 2), *SCENES)),
}
"""The views, by what the inputs of their rows end with.

Noise is drawn for each, as one draw may leave a limit unreached; each image shows the layers other numbers, too.  In
one of them it is strong, so that angles leave their range, and boxes the image.
"""

EXTREME, EXTREME_SHARE = 8.0, 1 / 8
"""How many times as large some of the noise is, and how much of it: only extreme outputs reach the limits of boxes."""

_Origin = tuple[int, int]
"""The number of an operator's call, and the position in its result."""

Change = tuple[Tensor, Tensor]
"""What an output is multiplied by, and what is added then."""

_OnCall = Callable[[int, Any, Any, Any], Any]
"""From the number of an operator's call, the operator, its arguments and its result to the result that others read."""

_CONVERSION = torch.ops.aten._to_copy.default
"""It is not counted: a run in float64 has more of them."""


class Crowded(nn.Module):
    """A module with a detector in it, whose heads' outputs get noise where they are computed.

    The noise is added to the result of an operator, not to what a head returns: a head that goes on with its own
    output then reads the same numbers as what follows the head, as it does in a file.

    Parameters
    ----------
    module, detector : nn.Module
    args : tuple of Tensor
        The arguments for which the noise is drawn; their shapes are the only ones that it suits.
    seed : int
        That of the noise.
    """

    def __init__(self, module: nn.Module, detector: Detector, args: tuple[Tensor, ...], seed: int) -> None:
        super().__init__()
        self.module, self._seed = module, seed
        self.eval()
        self._args = args
        self._outputs = self._origins(dict.fromkeys(head_layers(detector)))
        """Where each output of a head comes from, in the order of their calls, and its shape."""
        self.changes: list[Change | None] = []
        """What each output of a head is multiplied by and what is added; None for what stays."""

    def set_scene(self, limit: float, strength: float) -> tuple[Tensor, ...]:
        """Scale outputs down to a root mean square, add noise that is so many times as large, and return the outputs.

        How large a head's output is shows in this run only, as the head may read what the noise of others has made.
        """
        generator = torch.Generator().manual_seed(self._seed)
        noise = {
            origin: (index, _noise(shape, generator))
            for index, (origin, shape) in enumerate(self._outputs)
            if origin is not None
        }
        self.changes = [None] * len(self._outputs)

        def change(origin: _Origin, value: Tensor) -> Tensor:
            if origin not in noise:
                return value
            index, drawn = noise[origin]
            size = torch.where(value.isfinite(), value, 0).float().square().mean().sqrt()
            self.changes[index] = changed = (limit / size).clamp(max=1), drawn * size.clamp(max=limit) * strength
            return _changed(value, changed)

        with torch.no_grad():
            return self._run(_on_each(change), self._args)

    def _origins(self, layers: Iterable[nn.Module]) -> list[tuple[_Origin | None, torch.Size]]:
        """Return where each output of some layers comes from, and its shape."""
        origins: dict[Any, _Origin] = {}
        outputs: list[tuple[Tensor, _Origin | None]] = []

        def note(number: int, func: Any, args: Any, result: Any) -> Any:
            read = () if func._schema.is_mutable else [_memory(tensor) for tensor in leaves(args)]
            for position, tensor in enumerate(leaves(result)):
                if _memory(tensor) not in read:
                    origins[_memory(tensor)] = number, position
            return result

        def collect(layer: nn.Module, args: Any, output: Any) -> None:
            for tensor in leaves(output):
                origin = origins.get(_memory(tensor)) if tensor.is_floating_point() else None
                repeated = origin in [origin for _, origin in outputs]
                outputs.append((tensor, None if repeated else origin))

        hooks = [layer.register_forward_hook(collect) for layer in layers]
        try:
            with torch.no_grad():
                self._run(note, self._args)
        finally:
            for hook in hooks:
                hook.remove()
        return [(origin, tensor.shape) for tensor, origin in outputs]

    def forward(self, *args: Tensor) -> tuple[Tensor, ...]:
        """Return the module's outputs."""
        changes = {origin: change for (origin, _), change in zip(self._outputs, self.changes, strict=True)}

        def change(origin: _Origin, value: Tensor) -> Tensor:
            change_of_output = changes.get(origin)
            return value if change_of_output is None else _changed(value, change_of_output)

        return self._run(_on_each(change), args)

    def _run(self, change: _OnCall, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Run the module; `change` gets the number, operator, arguments and result of each call, and returns it."""
        numbers = itertools.count()

        def call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            result = func(*args, **kwargs)
            return result if func is _CONVERSION else change(next(numbers), func, args, result)

        with Intercepted(call):
            outputs: tuple[Tensor, ...] = self.module(*args)
        return outputs


def _on_each(change: Callable[[_Origin, Any], Any]) -> _OnCall:
    """Return what changes the values of results one by one."""

    def changed(number: int, func: Any, args: Any, result: Any) -> Any:
        if isinstance(result, Tensor):  # as most are
            return change((number, 0), result)
        values, structure = tree_flatten(result)
        return tree_unflatten([change((number, position), value) for position, value in enumerate(values)], structure)

    return changed


def _changed(value: Tensor, change: Change) -> Tensor:
    """Return an output with its noise."""
    factor, noise = (tensor.to(value.dtype) for tensor in change)
    return value * factor + noise


def _noise(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Draw normal numbers, some of them many times as large."""
    extreme = torch.rand(shape, generator=generator) < EXTREME_SHARE
    return torch.randn(shape, generator=generator) * torch.where(extreme, EXTREME, 1.0)


def _memory(tensor: Tensor) -> Any:
    """Return what two tensors have in common if and only if they are the same numbers in memory."""
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride()


def view(image: Tensor, axis: int, seed: int) -> Tensor:
    """Reverse images along an axis and add noise: some channels of a network answer to no part of a photo."""
    noise = torch.randn(image.shape, generator=torch.Generator().manual_seed(seed))
    return image.flip(axis) + noise * image.std()


def crowd(
    module: nn.Module,
    detector: Detector,
    args: tuple[Tensor, ...],
    seed: int,
    scenes: Sequence[tuple[float, float]] = SCENES,
) -> tuple[Crowded, float]:
    """Return a module with the first scene that fills half of the rows, or else with that which fills the most.

    Returns
    -------
    Crowded
    float
        How many of the rows are detections.
    """
    crowded = Crowded(module, detector, args, seed)
    shares: dict[tuple[float, float], float] = {}
    for scene in scenes:
        shares[scene] = float((crowded.set_scene(*scene)[1] >= 0).float().mean())
        if shares[scene] >= 0.5:
            break
    best = max(shares, key=lambda scene: shares[scene])
    if best != scene:  # which runs the module
        crowded.set_scene(*best)
    return crowded, shares[best]


@contextmanager
def with_noise(draft: Path, names: Sequence[str], changes: Sequence[Change | None]) -> Iterator[Path]:
    """Write a copy of a file in which heads' outputs with these names get noise, and remove it at the block's end."""
    model = files.load(draft)
    graph = model.graph
    changed = {PREFIX + name: change for name, change in zip(names, changes, strict=True) if change is not None}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        nodes.append(onnx.NodeProto.FromString(node.SerializeToString()))
        for index, name in enumerate(node.output):
            if name in changed:  # all that read it, inner graphs among them, read the result
                plain, scaled, factor, noise = (f"{name}, {word}" for word in ("plain", "scaled", "factor", "noise"))
                nodes[-1].output[index] = plain
                for tensor, of in zip(changed[name], (factor, noise), strict=True):
                    graph.initializer.append(onnx.numpy_helper.from_array(tensor.numpy(), of))
                nodes.append(onnx.helper.make_node("Mul", [plain, factor], [scaled]))
                nodes.append(onnx.helper.make_node("Add", [scaled, noise], [name]))
    del graph.node[:]
    graph.node.extend(nodes)
    with written_beside(draft, model, "crowded") as path:
        yield path

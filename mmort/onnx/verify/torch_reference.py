"""Running the torch model that a file is compared with.

Of a detector, what competes in its last ``mmort::multiclass_nms`` is recorded, from which `ties` are recognized.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_map

from mmort.onnx.verify.double_precision import in_float64, rounded_otherwise
from mmort.onnx.verify.operator_calls import Intercepted, arguments_by_name
from mmort.onnx.verify.ties import Candidates
from mmort.onnx.verify.values import Arrays, Exact, Reference, as_array, leaves

_SUPPRESSION = "mmort::multiclass_nms"


def run(function: Callable[..., Any], values: Sequence[Any], *, decides: bool = False) -> Reference:
    """Run a module or a function of tensors without gradients; `decides` says whether its float64 outputs do."""
    recorder = _SuppressionRecorder()
    outputs = _outputs(function, values, recorder.mode())

    def compute() -> Arrays:
        return _outputs(function, tree_map(_doubled, list(values)), in_float64())

    def round_otherwise(seed: int) -> Arrays:
        return _outputs(function, values, rounded_otherwise(seed))

    exact = Exact(compute, round_otherwise, decides=decides)
    candidates = recorder.candidates(outputs)
    if candidates is None:
        return Reference(outputs, exact=exact)

    def reselected(*results: NDArray[Any]) -> list[NDArray[Any]]:
        return _outputs(function, values, recorder.replaying(list(map(torch.from_numpy, results))).mode())

    return Reference(outputs, candidates, reselected, exact)


def _outputs(
    function: Callable[..., Any], values: Sequence[Any], *modes: AbstractContextManager[Any]
) -> list[NDArray[Any]]:
    """Return a function's outputs in modes that observe or change the calls of operators, the outermost first."""
    with torch.no_grad(), ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode)
        results = function(*values)
    return [as_array(value) for value in leaves(results)]


def _doubled(value: Any) -> Any:
    """Convert tensors of float32 to float64."""
    return value.double() if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else value


class _SuppressionRecorder:
    """Keeps the arguments and results of the last suppression that is called in the block.

    The call that has the number `replaced` returns `replacement` instead of its results.
    """

    def __init__(self, replaced: int = 0, replacement: Sequence[torch.Tensor] = ()) -> None:
        self._replaced, self._replacement = replaced, replacement
        self._calls = 0
        self._arguments: dict[str, Any] = {}
        self._results: Sequence[torch.Tensor] = ()

    def mode(self) -> Intercepted:
        """Return the context manager of the block."""
        return Intercepted(self._note)

    def replaying(self, results: Sequence[torch.Tensor]) -> _SuppressionRecorder:
        """Return a recorder that replaces the results of the suppression that this one has recorded."""
        return _SuppressionRecorder(self._calls, results)

    def _note(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an operator, and note it if it is a suppression."""
        result = func(*args, **kwargs)
        if func.name() == _SUPPRESSION:
            self._calls += 1
            if self._calls == self._replaced:
                result = tuple(self._replacement)
            self._arguments = arguments_by_name(func, args, kwargs)
            self._results = result
        return result

    def candidates(self, outputs: Sequence[NDArray[Any]]) -> list[Candidates] | None:
        """Return the candidates of each image; None if `outputs` (dets, labels, ...) are not a suppression's results.

        Nor are they known if scores change in the suppression, as in Soft-NMS.
        """
        arguments = self._arguments
        if not self._results or arguments["method"] != "nms" or arguments["nms_pre"] > 0:
            return None
        results = [as_array(result) for result in self._results[:2]]
        if len(outputs) < 2 or not all(map(np.array_equal, results, outputs[:2])):
            return None
        images = zip(as_array(arguments["boxes"]), as_array(arguments["scores"]), strict=True)
        return [Candidates(arguments, boxes, scores) for boxes, scores in images]

"""Running the torch model that a file is compared with.

Of a detector, what competes in its last ``mmort::multiclass_nms`` is recorded, from which `ties` are recognized.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from mmort.onnx.verify.ties import Candidates
from mmort.onnx.verify.values import Reference, as_array, leaves

_SUPPRESSION = "mmort::multiclass_nms"


def run(function: Callable[..., Any], values: Sequence[Any]) -> Reference:
    """Run a module or a function of tensors without gradients."""
    outputs, recorder = _outputs(function, values, _SuppressionRecorder())
    candidates = recorder.candidates(outputs)
    if candidates is None:
        return Reference(outputs)

    def reselected(*results: NDArray[Any]) -> list[NDArray[Any]]:
        return _outputs(function, values, recorder.replaying(list(map(torch.from_numpy, results))))[0]

    return Reference(outputs, candidates, reselected)


def _outputs(
    function: Callable[..., Any], values: Sequence[Any], recorder: _SuppressionRecorder
) -> tuple[list[NDArray[Any]], _SuppressionRecorder]:
    """Return a function's outputs, and the recorder that watched it."""
    with torch.no_grad(), recorder:
        results = function(*values)
    return [as_array(value) for value in leaves(results)], recorder


class _SuppressionRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the arguments and results of the last suppression that is called in the block.

    The call that has the number `replaced` returns `replacement` instead of its results.
    """

    def __init__(self, replaced: int = 0, replacement: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._replaced, self._replacement = replaced, replacement
        self._calls = 0
        self._arguments: dict[str, Any] = {}
        self._results: Sequence[torch.Tensor] = ()

    def replaying(self, results: Sequence[torch.Tensor]) -> _SuppressionRecorder:
        """Return a recorder that replaces the results of the suppression that this one has recorded."""
        return _SuppressionRecorder(self._calls, results)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operator, and note it if it is a suppression."""
        result = func(*args, **(kwargs or {}))
        if func.name() == _SUPPRESSION:
            self._calls += 1
            if self._calls == self._replaced:
                result = tuple(self._replacement)
            formals = func._schema.arguments
            self._arguments = {formal.name: formal.default_value for formal in formals}
            self._arguments |= {formal.name: value for formal, value in zip(formals, args, strict=False)}
            self._arguments |= kwargs or {}
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
        return [self._of_image(boxes, scores) for boxes, scores in images]

    def _of_image(self, boxes: NDArray[Any], scores: NDArray[Any]) -> Candidates:
        """Return the candidates among boxes [N, 4] or [N, C, 4] with scores [N, C]."""
        arguments = self._arguments
        rows, labels = np.nonzero(scores > arguments["score_threshold"])
        chosen = boxes[rows, labels] if boxes.ndim == 3 else boxes[rows]
        return Candidates(
            np.column_stack([chosen, scores[rows, labels]]),
            labels,
            arguments["iou_threshold"],
            arguments["max_per_image"],
            arguments["class_agnostic"],
            arguments["offset"],
            rows,
        )

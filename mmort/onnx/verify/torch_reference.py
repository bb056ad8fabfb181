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
    with torch.no_grad(), _SuppressionRecorder() as recorder:
        results = function(*values)
    outputs = [as_array(value) for value in leaves(results)]
    return Reference(outputs, recorder.candidates(outputs))


class _SuppressionRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the arguments and results of the last suppression that is called in the block."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._arguments: dict[str, Any] = {}
        self._results: Sequence[torch.Tensor] = ()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operator, and note it if it is a suppression."""
        result = func(*args, **(kwargs or {}))
        if func.name() == _SUPPRESSION:
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
        )

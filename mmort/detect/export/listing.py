"""The text that ``mmort export --show`` prints: the graph and the detections."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import torch
from torch import Tensor, nn

from mmort.detect.export.wrappers import Raw

MIN_SCORE = 0.3


def graph_text(model: onnx.ModelProto) -> str:
    """Return the graph as text, without weights and functions."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.initializer[:], bare.functions[:]
    return onnx.printer.to_text(bare)


def outputs_text(module: nn.Module, args: tuple[Tensor, ...], classes: Sequence[str]) -> str:
    """Return the detections in the first image, by descending score; of raw outputs, the shapes."""
    with torch.no_grad():
        outputs = module(*args)
    if isinstance(module, Raw):
        return "\n".join(f"output {index}: {[*output.shape]}" for index, output in enumerate(outputs))
    lines = ["score  class  x1, y1, x2, y2"]
    for (*box, score), label in zip(outputs[0][0].tolist(), outputs[1][0].tolist(), strict=True):
        if label >= 0 and score >= MIN_SCORE:
            name = classes[label] if label < len(classes) else str(label)
            lines.append(f"{score:.3f}  {name}  {', '.join(f'{edge:.1f}' for edge in box)}")
    return "\n".join(lines)

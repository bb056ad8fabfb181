"""Quantization: most layers of a detector's ONNX file compute with 8-bit integers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from mmort.onnx._extras import needed_by
from mmort.onnx.quantize.report import Quantization


def quantize(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    calibration: Iterable[Sequence[Any]],
    *,
    max_loss: float = 0.1,
    force: bool = False,
) -> Quantization:
    """Write a file whose convolutions, fully connected layers and matrix products compute with 8-bit integers.

    Weights are rounded to int8 for each output channel.  Feature maps are rounded to uint8, in the range that they have
    in the calibration, or, in networks with SiLUs, in the mean range of its sets: of the files that have detections,
    whichever moves them less.  Predictions are not quantized: the last
    layers of all branches, the decoding of boxes, suppression, and mmort's own operators compute as before.  Nodes of
    the quantized file are ONNX's QuantizeLinear and DequantizeLinear around the standard ones, by
    onnxruntime.quantization, which ONNX Runtime fuses, and MatMulInteger for the products with constant weights of
    transformers.

    Of files with the outputs ``dets`` and ``labels``, the loss is measured on some tens of the calibration's sets.  If
    it is above `max_loss`, layers stay in floating point, first those whose own results the rounding moves most, as
    few as are enough.  Only such files have matrix products in integers.

    Parameters
    ----------
    path : path
        The file; its opset must be 13 or higher.
    output : path
        The file to write, which must not exist unless `force` is true.
    calibration : iterable of sequences of arrays
        Sets of inputs, each in the order of the file's inputs: some tens of typical images.  They are used one at a
        time; only ranges are kept.
    max_loss : float, default 0.1
        How far detections may move, from 0 to 1: 1 less the mean product of the IoU and the ratio of scores, of each
        detection and the most similar one of its class, before and after, weighted by the squares of scores.
    force : bool, default False
        Whether to replace `output` if it exists.

    Returns
    -------
    Quantization

    Raises
    ------
    ValueError
        If the file is not an ONNX model, is larger than 2 GB, its opset is lower than 13, it has no layer to quantize
        or is quantized already; if there is no calibration, the file does not run on it, or a feature map has no
        elements or one that is not finite; if `max_loss` is not from 0 to 1, or integers in any layer lose more.
    ImportError
        If onnxruntime is not installed.
    OSError
        If a file cannot be read or written, or `output` exists and `force` is false.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, onnx, onnx.helper as oh
    >>> import mmort.onnx
    >>> weights = np.ones((4, 3, 1, 1), np.float32), np.ones((2, 4, 1, 1), np.float32)
    >>> nodes = [oh.make_node("Conv", ["x", "w0"], ["hidden"]), oh.make_node("Conv", ["hidden", "w1"], ["y"])]
    >>> x, y = oh.make_tensor_value_info("x", 1, [1, 3, 8, 8]), oh.make_tensor_value_info("y", 1, [1, 2, 8, 8])
    >>> tensors = [onnx.numpy_helper.from_array(array, f"w{index}") for index, array in enumerate(weights)]
    >>> model = oh.make_model(oh.make_graph(nodes, "example", [x], [y], tensors),
    ...                       opset_imports=[oh.make_opsetid("", 18)], ir_version=8)
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.onnx")
    >>> onnx.save(model, path)
    >>> print(mmort.onnx.quantize(path, path.with_name("int8.onnx"), [[np.ones((1, 3, 8, 8), np.float32)]]))
    quantized 1 of 2 layers, by 1 set of inputs
    left 1 (Conv_1): no further layer, so results are predictions
    """
    with needed_by("mmort.onnx.quantize"):
        from mmort.onnx.quantize.quantize_file import quantize_file
    return quantize_file(path, output, calibration, max_loss=max_loss, force=force)

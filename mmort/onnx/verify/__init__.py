"""Verification: run an ONNX file and its reference model on the same inputs, and compare the outputs.

Importing this package needs numpy only; ONNX Runtime and torch are imported when they are used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mmort.onnx.verify.comparators import compare, reference
from mmort.onnx.verify.detections import require_detections
from mmort.onnx.verify.report import Report, Row
from mmort.onnx.verify.sessions import open_session
from mmort.tolerances import Tolerances


def verify(
    path: str | os.PathLike[str],
    model: Callable[..., Any] | str | os.PathLike[str],
    inputs: Iterable[Sequence[Any]],
    *,
    rtol: float | None = None,
    atol: float | None = None,
    min_mask_overlap: float = Tolerances.min_mask_overlap,
    libraries: Sequence[str | os.PathLike[str]] = (),
) -> Report:
    """Run an ONNX file and a reference model on the same inputs, and compare all outputs.

    Parameters
    ----------
    path : path
        The ONNX file, which ONNX Runtime runs on the CPU with mmort's operators.
    model : callable or path
        The reference: a torch module or a function of tensors, run without gradients, or another ONNX file.
    inputs : iterable of sequences
        Sets of inputs, each a sequence of arrays or tensors in the order of the model's arguments.  Lists and dicts of
        tensors are several inputs.  Numbers, strings and None are passed to the model and are no inputs of the file.
    rtol, atol : float, optional
        The one tolerance, by default 1e-3 and 1e-4: a floating-point number ``a`` may differ from the model's ``b`` by
        ``atol * max(1, scale) + rtol * abs(b)``.
        Float32 sums of a deep network taken in another order differ by 1e-6 to 1e-4 of the magnitude of their terms,
        also where these cancel each other; wrong weights, thresholds or sizes differ by far more.  ``scale`` is the
        magnitude around the number: the smallest root mean square of a slice of the output that the number is in, such
        as its image, channel, row and column.  Large numbers elsewhere in the output so hide no error here.  Integers
        and bools must be equal, NaN and infinities at the same positions.  The outputs of detectors (``dets`` and
        ``labels``, and optionally ``masks``) are compared as sets within the same tolerance: see
        `mmort.onnx.verify.detections.compare_detections`.
    min_mask_overlap : float, default 0.99
        The smallest overlap of the masks of matching detections.
    libraries : sequence of paths, default ()
        Further libraries of custom operators that the files need.

    Returns
    -------
    Report
        A row for each set of inputs and each output or, of a detector, each image.  A different number of outputs,
        dtype or shape, and inputs that ONNX Runtime refuses, count as differences.  So do detectors that detect nothing
        in all inputs, or ties only, as that proves nothing.

    Raises
    ------
    ValueError
        If the number of inputs does not match, ONNX Runtime does not load a file, or a tolerance is negative.
    TypeError
        If `inputs` is one set, instead of several.
    ImportError
        If onnxruntime is not installed.
    Exception
        Any exception of the model.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, onnx, onnx.helper as oh
    >>> import mmort.onnx
    >>> x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy")
    >>> path = pathlib.Path(tempfile.mkdtemp(), "relu.onnx")
    >>> onnx.save(oh.make_model(oh.make_graph([oh.make_node("Relu", ["x"], ["y"])], "example", [x], [y]),
    ...           opset_imports=[oh.make_opsetid("", 18)], ir_version=8), path)
    >>> import torch
    >>> report = mmort.onnx.verify(path, torch.abs, [[np.ones(2, np.float32)], [-np.ones(3, np.float32)]])
    >>> report.ok
    False
    """
    tolerances = Tolerances.stated(rtol, atol, min_mask_overlap)
    session = open_session(path, libraries)
    expected = reference(model, libraries)
    rows: list[Row] = []
    for values in inputs:
        if hasattr(values, "ndim"):
            raise TypeError(
                f"verify: inputs must be sets of arrays, such as [(x,)], got {type(values).__name__} as one"
            )
        rows += compare(session, values, expected(values), tolerances)
    return Report(tuple(require_detections(rows)))

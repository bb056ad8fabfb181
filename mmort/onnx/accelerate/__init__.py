"""Acceleration: in anybody's ONNX file, slow operators of detectors are replaced by mmort's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from mmort.onnx._extras import needed_by
from mmort.onnx.accelerate.report import Acceleration


def accelerate(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    inputs: Sequence[Sequence[Any]] | None = None,
    *,
    force: bool = False,
) -> Acceleration:
    """Replace slow operators of a detector's ONNX file by mmort's, check the outputs, and measure the gain.

    - NonMaxSuppression, RoiAlign, GridSample and DeformConv become mmort's nodes if their attributes ask for what these
      compute.
    - The sampling of Deformable DETR and RT-DETR becomes one node.
    - Masks that are sampled at every pixel of an image, as MMDetection pastes them, are pasted by products of matrices.
    - Rows that several nodes write in turn, as torchvision and detectron2 join regions of several levels, are copied
      once.
    - Candidates among many scores, as detectron2 selects them, are looked for in the rows that have any.
    - A loop that appends to a tensor, as torchvision pastes masks, copies each mask once.
    - What torchvision's SSD selects for one class after the other is selected for all at once.
    - A softmax over an axis that is not the last, as YOLOs have it, is taken over the last one.
    - A product with a vector, as GFL and PicoDet have it, is computed at once for all rows.

    The file and its replacement take turns on the first of the inputs.  A kind of replacement that is not faster there
    is not made.  Then `mmort.onnx.verify` compares the outputs for all inputs.

    Parameters
    ----------
    path : path
        The file.  If its tensors are in other files, they become part of the new one.
    output : path
        The file to write, which must not exist unless `force` is true.  It is not written if the
        file cannot be made faster.
    inputs : sequence of sequences of arrays, optional
        Sets of inputs, each in the order of the file's inputs.  By default one set of normal random numbers, with
        one image of 640 x 640 where the file leaves the size open.  Real images are better: a detector may find
        nothing in noise, and what is not run is not replaced.
    force : bool, default False
        Whether to replace `output` if it exists.

    Returns
    -------
    Acceleration
        What was replaced, what was left and why, and the times.

    Raises
    ------
    ValueError
        If the file is not an ONNX model, is larger than 2 GB, does not run on the inputs, or the result does not pass
        onnx's checker.
    mmort.onnx.VerificationError
        If the outputs differ.  Nothing is written then.
    OSError
        If a file cannot be read or written, or `output` exists and `force` is false.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import onnx.helper as oh
    >>> import mmort.onnx
    >>> node = oh.make_node("Relu", ["x"], ["y"])
    >>> x, y = (oh.make_tensor_value_info(name, 1, [2, 3]) for name in "xy")
    >>> model = oh.make_model(oh.make_graph([node], "example", [x], [y]), opset_imports=[oh.make_opsetid("", 18)],
    ...                       ir_version=8)
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.onnx")
    >>> _ = path.write_bytes(model.SerializeToString())
    >>> print(mmort.onnx.accelerate(path, path.with_name("fast.onnx")))
    nothing to replace
    """
    with needed_by("mmort.onnx.accelerate"):
        from mmort.onnx.accelerate.accelerate_file import accelerate_file
    return accelerate_file(path, output, inputs, force=force)

"""Old models brought up to date: files of MMCV 1.x and MMDeploy rewritten as they would be exported today."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mmort.onnx._extras import needed_by

if TYPE_CHECKING:
    import onnx


def upgrade(
    model: str | os.PathLike[str] | onnx.ModelProto,
    output: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
) -> list[str]:
    """Bring an old model up to date without changing its outputs.

    - Nodes move to their operator's preferred domain (from mmdeploy to mmcv), as do nodes of MMCV's types without a
      domain.
    - Attributes get their current names; strides, paddings and dilations become pairs.
    - Weights are no longer listed as inputs of the graph.  An input with a default that may have other sizes stays.
    - Imports of mmort's domains are added and removed to match the nodes.
    - Opsets below 18 become 18, by ``onnx.version_converter``; a Resize or Upsample of an opset up to 10 keeps its
      coordinates.
    - The version of the file format is raised to what that needs, or lowered to 10 if nothing needs more.

    Parameters
    ----------
    model : path or onnx.ModelProto
        A file, or a model, which is changed in place.
    output : path, optional
        The file to write, which must not exist unless `force` is true.  By default the model's own file is replaced if
        there was anything to change.  Tensors in files beside the model stay there.
    force : bool, default False
        Whether to replace `output` if it exists.

    Returns
    -------
    list of str
        The changes, one per line.  Empty if there was nothing to do.

    Raises
    ------
    ValueError
        If an attribute is wrong, the opset cannot be converted, or the result does not pass onnx's checker or, where
        onnxruntime is installed, does not load.  Nothing is written then.
    OSError
        If a file cannot be read or written, or `output` exists and `force` is false.

    Examples
    --------
    >>> import onnx, onnx.helper as oh
    >>> import mmort.onnx
    >>> node = oh.make_node("MMCVRoiAlign", ["x", "rois"], ["y"], domain="mmcv", aligned_height=2, aligned_width=2)
    >>> tensors = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * rank)
    ...            for name, rank in (("x", 4), ("rois", 2), ("y", 4))]
    >>> graph = oh.make_graph([node], "example", tensors[:2], tensors[2:])
    >>> model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 11)], ir_version=7)
    >>> for line in mmort.onnx.upgrade(model):
    ...     print(line)
    mmcv::MMCVRoiAlign: attribute aligned_height is output_height now (1 node)
    mmcv::MMCVRoiAlign: attribute aligned_width is output_width now (1 node)
    domain mmcv: imported now
    opset 11: 18 now
    format version 7: 8 now
    """
    with needed_by("mmort.onnx.upgrade"):
        from mmort.onnx.upgrade.steps import upgrade_model
    return upgrade_model(model, output, force=force)

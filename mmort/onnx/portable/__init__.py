"""Portable models: mmort's operators get definitions in standard operators, for runtimes without the library.

Definitions are functions in the model, or stand in the graph instead of the nodes.  With functions ONNX Runtime uses
the kernel where the library is loaded; without it, it replaces the node by the definition.  Importing this
package needs numpy only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mmort.onnx._extras import needed_by
from mmort.onnx.portable.coverage import Coverage
from mmort.onnx.portable.forms import Form

if TYPE_CHECKING:
    import onnx


def make_portable(
    model: str | os.PathLike[str] | onnx.ModelProto,
    output: str | os.PathLike[str] | None = None,
    form: Form = "functions",
    *,
    force: bool = False,
) -> list[Coverage]:
    """Define mmort's operators in a model by standard operators, so that it also runs without the library.

    An input that may be left out becomes an initializer that may be overridden, as few runtimes know optional inputs.
    ``docs/portable.md`` lists what each definition covers, and which form a runtime needs.

    Parameters
    ----------
    model : path or onnx.ModelProto
        A file, or a model, which is changed in place.  Its opset must be 16 or higher.
    output : path, optional
        The file to write, which must not exist unless `force` is true.  By default the model's own file is replaced.
        Tensors in files beside the model stay there.
    form : {"functions", "inlined"}, default "functions"
        "functions": a definition is a function in the model, by which ONNX Runtime, `onnx.reference` and other runtimes
        replace a node whose operator they do not know; with the library loaded, ONNX Runtime uses the kernel.
        "inlined": definitions replace the nodes, and the model has neither functions nor operators of other domains,
        as OpenVINO requires.
    force : bool, default False
        Whether to replace `output` if it exists.

    Returns
    -------
    list of Coverage
        For each of mmort's operators in the model: its nodes, and why they still need the library, if they do.

    Raises
    ------
    ValueError
        If `form` is unknown, the model's opset is too low, an attribute is wrong, or the result does not pass onnx's
        checker or, where onnxruntime is installed, does not load.  Nothing is written then.
    OSError
        If a file cannot be read or written, or `output` exists and `force` is false.

    Examples
    --------
    >>> import onnx, onnx.helper as oh
    >>> import mmort.onnx
    >>> node = oh.make_node("MMCVCornerPool", ["x"], ["y"], domain="mmcv", mode=3)
    >>> x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, 1, 3]) for name in "xy")
    >>> model = oh.make_model(oh.make_graph([node], "example", [x], [y]),
    ...                       opset_imports=[oh.make_opsetid("", 18), oh.make_opsetid("mmcv", 1)], ir_version=8)
    >>> mmort.onnx.make_portable(model)
    [Coverage(operator='mmcv::MMCVCornerPool', nodes=('y',), missing=None)]
    >>> [(function.domain, function.name) for function in model.functions]
    [('mmcv', 'MMCVCornerPool')]
    """
    with needed_by("mmort.onnx.make_portable"):
        from mmort.onnx.portable.apply import define_operators
    return define_operators(model, output, form, force=force)

"""Export of torch models to ONNX files that are verified to compute the same, at other sizes too.

Importing this package needs neither torch nor onnx; its functions import them when they are called.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mmort import schemas
from mmort.onnx._extras import needed_by
from mmort.onnx.portable.forms import Form
from mmort.onnx.verify.report import Report

if TYPE_CHECKING:
    import torch


def export(
    model: torch.nn.Module | Callable[..., Any],
    args: Sequence[Any],
    path: str | os.PathLike[str],
    *,
    dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None,
    check_sizes: Sequence[Any] | None = None,
    opset_version: int | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    portable: bool | Form = False,
    simplify: bool = False,
    exporter: Literal["dynamo", "legacy"] = "dynamo",
    mmcv_nodes: Collection[str] = (),
    operators: Sequence[schemas.Operator] = (),
    libraries: Sequence[str | os.PathLike[str]] = (),
    rtol: float | None = None,
    atol: float | None = None,
    verify: bool = True,
) -> Report:
    """Export a model to an ONNX file, and verify that its outputs in ONNX Runtime are torch's.

    The file is written only if both agree on the example and on inputs of other sizes.  torch's exporters may silently
    freeze a size or a branch that the example took, so that a file is right for the example only.

    Parameters
    ----------
    model : torch.nn.Module or function
        In evaluation mode (``model.eval()``).
    args : sequence
        The example's arguments.  Tensors become inputs of the file, all else is constant.  Choose a batch of 2 or more,
        different height and width, and no multiples of a stride.
    path : path
        The file to write, or to replace; its directory must exist.  Models above 2 GB get a second file for weights.
    dynamic_shapes : mapping or sequence, optional
        For each argument, in order or by name, None or {axis: dimension}.  A dimension is a name, or torch.export's
        ``Dim.DYNAMIC``, ``Dim.AUTO`` or ``Dim(name, min=..., max=...)``.  By default all sizes are the example's.
    check_sizes : sequence, optional
        The inputs to check besides the example, one or more.  Each is a shape of the only input ``(2, 3, 64, 96)``,
        shapes by name ``{"image": (2, 3, 64, 96)}``, or a tuple of arguments.  Shapes are filled with values like the
        example's: maps (N, C, H, W) are random, of other tensors rows are repeated.  Each dynamic axis must get another
        size at least once.  Default: a larger set with images wider than high, and a smaller one with images higher
        than wide; without dynamic axes two sets of the example's shape.
    opset_version : int, optional
        Default: the exporter's own.  "dynamo" supports 18 and later reliably, "legacy" 11 to 20.
    input_names, output_names : sequence of str, optional
        Default: the names of the arguments, and the exporter's own.
    portable : bool or {"functions", "inlined"}, default False
        Add definitions of mmort's operators, so that the file also runs without the library: the form for
        `make_portable`, "functions" if True.  It is then checked without the library too, and refused if an operator
        has no definition.
    simplify : bool, default False
        Let onnxslim remove nodes.  This has not been seen to make models faster.
    exporter : {"dynamo", "legacy"}, default "dynamo"
        torch's exporter based on torch.export, or the one that traces (``dynamo=False``), which freezes every size that
        Python code looks at.
    mmcv_nodes : collection of str, default ()
        As for `translation_table`.
    operators : sequence of mmort.schemas.Operator, default ()
        Operators of other packages, as for `translation_table`; their library goes into `libraries`.
    libraries : sequence of paths, default ()
        Further libraries of custom operators that the check needs.
    rtol, atol : float, optional
        Compare the outputs within this tolerance, as `mmort.onnx.verify` does, instead of proving the file.
    verify : bool, default True
        Whether to compare the file with the model.  Otherwise the file is written without having been run, and
        has the metadata ``verified``: ``false``.

    Returns
    -------
    Report
        The rows of the check, all of which are ok; no rows, and so not ok, without `verify`.

    Raises
    ------
    VerificationError
        A ValueError: the file does not compute what the model computes.  The text has the table, and names the size or
        branch that was frozen if torch.export reports it; ``report`` has the rows.
    ValueError
        If an argument is invalid, or the model itself fails at a size to check.
    ImportError
        If torch, or onnxslim or ONNX Runtime where they are used, is not installed.
    Exception
        Any exception of torch.onnx for a model that it cannot export.

    Notes
    -----
    ``docs/export.md`` explains how a model must be written so that all sizes work.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import torch
    >>> import mmort.onnx
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pool.onnx")
    >>> report = mmort.onnx.export(lambda x: x.amax(), (torch.rand(2, 3, 5),), path, dynamic_shapes=({0: "n"},))
    >>> report.ok, path.exists()
    (True, True)
    """
    with needed_by("mmort.onnx.export"):
        from mmort.onnx.export.draft import export_model
        from mmort.onnx.export.options import Options
    options = Options(
        dynamic_shapes=dynamic_shapes,
        check_sizes=check_sizes,
        opset_version=opset_version,
        input_names=input_names,
        output_names=output_names,
        portable=portable,
        simplify=simplify,
        exporter=exporter,
        mmcv_nodes=mmcv_nodes,
        operators=operators,
        libraries=libraries,
        rtol=rtol,
        atol=atol,
        verify=verify,
    )
    return export_model(model, args, path, options)


def translation_table(
    *, mmcv_nodes: Collection[str] = (), operators: Iterable[schemas.Operator] = ()
) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the ``custom_translation_table`` with which ``torch.onnx.export`` exports mmort's operators.

    The table holds mmort's torch operators, the given ones, and those of torch's own that its exporter has no
    translation for, or a wrong one.  The latter become standard ONNX operators, which
    `mmort.onnx.export.translations` lists.

    Parameters
    ----------
    mmcv_nodes : collection of str, default ()
        Those of "cummax", "cummin" and "grid_sample", torch's own, that become nodes of domain ``mmcv``, as MMCV
        exported them.  By default none does: files then need the library for mmort's own operators only.
    operators : iterable of mmort.schemas.Operator, default ()
        Operators of other packages.  Each needs a torch operator ``torch.ops.<domain>.<kernel>``, whose tensors become
        the node's inputs, and whose other arguments, in order, the attributes.  One ``int[2]`` may fill two INT
        attributes.

    Returns
    -------
    dict
        From torch operators (overloads) to functions that add ONNX nodes.

    Raises
    ------
    ValueError
        If a name in `mmcv_nodes` is unknown, or one of `operators` has no torch operator.

    Examples
    --------
    >>> import torch
    >>> import mmort.onnx
    >>> table = mmort.onnx.translation_table()
    >>> torch.ops.aten.cummax.default in table
    True
    """
    with needed_by("mmort.onnx.translation_table"):
        from mmort.onnx.export import translations
    return translations.translation_table(mmcv_nodes, operators)


def register_symbolics(*, mmcv_nodes: Collection[str] = (), operators: Iterable[schemas.Operator] = ()) -> None:
    """Register mmort's torch operators with ``torch.onnx.export(..., dynamo=False)``, from opset 11 on.

    Parameters
    ----------
    mmcv_nodes : collection of str, default ()
        As for `translation_table`.  torch keeps them registered.
    operators : iterable of mmort.schemas.Operator, default ()
        Operators of other packages, as for `translation_table`.

    Raises
    ------
    ValueError
        As `translation_table`.

    Examples
    --------
    >>> import mmort.onnx
    >>> mmort.onnx.register_symbolics()
    """
    with needed_by("mmort.onnx.register_symbolics"):
        from mmort.onnx.export import symbolics
    symbolics.register_symbolics(mmcv_nodes, operators)

"""The function behind ``mmort verify``: compare a file with another file, or with a model that a script makes."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmort._files.inputs import is_checkpoint, require_regular
from mmort.onnx.input_files import read_inputs
from mmort.onnx.verify import verify
from mmort.onnx.verify.random_inputs import random_inputs
from mmort.onnx.verify.report import Report
from mmort.onnx.verify.sessions import open_session, required_inputs
from mmort.tolerances import Tolerances


def verify_against(
    path: str | os.PathLike[str],
    against: str,
    sizes: Sequence[Sequence[Sequence[int]]] | None = None,
    *,
    inputs: Sequence[Sequence[Any] | str | os.PathLike[str]] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    min_mask_overlap: float = Tolerances.min_mask_overlap,
    libraries: Sequence[str | os.PathLike[str]] = (),
    example_image: str | os.PathLike[str] | None = None,
) -> Report:
    """Compare an ONNX file with another file, or with a model that a Python script makes.

    Parameters
    ----------
    path : path
        The ONNX file.
    against : str
        Another ONNX file, or ``script.py:function``.  The script is run.  The function takes no arguments and returns a
        torch module, a function of tensors, or a pair of one of these and a list of inputs, as `verify` takes them.
    sizes : sequence of sequences of shapes, optional
        For each set of inputs the shape of each input, to be filled with normal random floating-point numbers or with
        integers 0 and 1.  Default: the script's inputs, or one set of the file's own sizes if none of them is dynamic.
    inputs : sequence of paths or sequences of arrays, optional
        Sets of inputs instead of random ones and of the script's; of files, what `mmort.onnx.read_inputs` reads.
    rtol, atol, min_mask_overlap, libraries
        As for `verify`.
    example_image : path, optional
        The input of two files that take images of any size, if neither `sizes` nor `inputs` are given.

    Returns
    -------
    Report

    Raises
    ------
    ValueError
        If `sizes` is missing for dynamic inputs or has another number of inputs, a file cannot be loaded or is a
        checkpoint, or the script has no such function.
    OSError
        If a file does not exist.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import onnx, onnx.helper as oh
    >>> from mmort.onnx.verify.command import verify_against
    >>> x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy")
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> onnx.save(oh.make_model(oh.make_graph([oh.make_node("Relu", ["x"], ["y"])], "example", [x], [y]),
    ...           opset_imports=[oh.make_opsetid("", 18)], ir_version=8), folder / "relu.onnx")
    >>> _ = (folder / "script.py").write_text("import torch; make = lambda: torch.relu")
    >>> verify_against(folder / "relu.onnx", f"{folder}/script.py:make", [[[3]], [[5]]]).ok
    True
    """
    for name, file, kind in (
        ("MODEL.onnx", os.fspath(path), "an ONNX file"),
        ("--against", against, "an ONNX file or script.py:function"),
    ):
        if is_checkpoint(file):
            raise ValueError(
                f"verify: {name} is {kind}, got the checkpoint {file}; mmort parity CONFIG CHECKPOINT compares one "
                "with its exported file"
            )
    is_file = against.endswith(".onnx")
    if is_file:
        require_regular("model", against)  # which is opened last
    if inputs is None and sizes is None and is_file and example_image is not None and _takes_images(path, libraries):
        inputs = [example_image]
    sets: Any = None if inputs is None else _read_sets(path, inputs, [against] if is_file else [], libraries)
    model, script_inputs = (against, None) if is_file else _run_script(against)
    if sets is None:
        sets = script_inputs if sizes is None and script_inputs is not None else random_inputs(path, sizes, libraries)
    return verify(path, model, sets, rtol=rtol, atol=atol, min_mask_overlap=min_mask_overlap, libraries=libraries)


def _takes_images(path: str | os.PathLike[str], libraries: Sequence[str | os.PathLike[str]]) -> bool:
    """Whether a file's inputs are images of any size, and its metadata say how they are preprocessed."""
    session = open_session(path, libraries)
    if all(isinstance(size, int) for tensor in required_inputs(session) for size in tensor.shape):
        return False
    return "preprocessing" in session.get_modelmeta().custom_metadata_map


def _read_sets(
    path: str | os.PathLike[str],
    inputs: Sequence[Sequence[Any] | str | os.PathLike[str]],
    against: Sequence[str],
    libraries: Sequence[str | os.PathLike[str]],
) -> list[Sequence[Any]]:
    """Return sets of inputs, after reading those that are files."""
    files = [values for values in inputs if isinstance(values, (str, os.PathLike))]
    sets = iter(read_inputs(path, files, against=against, libraries=libraries))
    return [next(sets) if isinstance(values, (str, os.PathLike)) else values for values in inputs]


def _run_script(against: str) -> tuple[Any, Any]:
    """Return the model that a script's function makes, and its inputs or None."""
    file, _, name = against.rpartition(":")
    if not file.endswith(".py"):
        raise ValueError(f"verify: against must be an .onnx file or script.py:function, got {against!r}")
    if not Path(file).exists():
        raise FileNotFoundError(f"verify: file does not exist: {file}")
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None  # .py files always have a loader
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    if not callable(getattr(script, name, None)):
        raise ValueError(f"verify: against must name a function of {file}, got {name!r}")
    made = getattr(script, name)()
    return made if isinstance(made, tuple) else (made, None)

"""What ``mmort verify`` does: compare a file with another one, or with the model that a script makes."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.onnx.verification import ATOL, RTOL, Report, open_session, verify

_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


def verify_against(
    path: str | os.PathLike[str],
    against: str,
    sizes: Sequence[Sequence[Sequence[int]]] | None = None,
    *,
    rtol: float = RTOL,
    atol: float = ATOL,
    libraries: Sequence[str | os.PathLike[str]] = (),
) -> Report:
    """Compare an ONNX file with another one, or with a model that a Python script makes.

    Parameters
    ----------
    path : path
        The ONNX file.
    against : str
        Another ONNX file, or ``script.py:function``.  The script is run; the function takes nothing and returns a torch
        module or function of tensors, or a pair of that and a list of inputs, as `verify` takes both.
    sizes : sequence of sequences of shapes, optional
        For each set of inputs the shape of each input: floating-point numbers are then normal random numbers, integers
        0 or 1.  By default the script's inputs, or one set of the file's own sizes if it has no dynamic ones.
    rtol, atol, libraries
        As for `verify`.

    Returns
    -------
    Report

    Raises
    ------
    ValueError
        If `sizes` is needed and missing or has another number of inputs, a file cannot be loaded, or there is no such
        function.
    OSError
        If a file is not there.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import onnx, onnx.helper as oh
    >>> import mmort.onnx.against
    >>> x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy")
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> onnx.save(oh.make_model(oh.make_graph([oh.make_node("Relu", ["x"], ["y"])], "example", [x], [y]),
    ...           opset_imports=[oh.make_opsetid("", 18)], ir_version=8), folder / "relu.onnx")
    >>> _ = (folder / "script.py").write_text("import torch; make = lambda: torch.relu")
    >>> mmort.onnx.against.verify_against(folder / "relu.onnx", f"{folder}/script.py:make", [[[3]], [[5]]]).ok
    True
    """
    model: Any = against
    inputs = None
    if not against.endswith(".onnx"):
        model, inputs = _run_script(against)
    if sizes is not None or inputs is None:
        inputs = random_inputs(path, sizes, libraries)
    return verify(path, model, inputs, rtol=rtol, atol=atol, libraries=libraries)


def random_inputs(
    path: str | os.PathLike[str],
    sizes: Sequence[Sequence[Sequence[int]]] | None,
    libraries: Sequence[str | os.PathLike[str]] = (),
) -> list[list[NDArray[Any]]]:
    """Make random inputs for a file, the same ones each time."""
    formal = open_session(path, libraries).get_inputs()
    names = ", ".join(one.name for one in formal)
    if sizes is None:
        shapes = [one.shape for one in formal]
        if not all(isinstance(size, int) for shape in shapes for size in shape):
            raise ValueError(f"verify: sizes must be given for inputs of dynamic sizes, {names}, got none")
        sizes = [shapes]
    generator = np.random.default_rng(0)
    inputs = []
    for one in sizes:
        if len(one) != len(formal):
            raise ValueError(f"verify: sizes must be {len(formal)} a set ({names}), got {len(one)}")
        inputs.append([_random(generator, place.type, shape) for place, shape in zip(formal, one, strict=True)])
    return inputs


def _random(generator: np.random.Generator, kind: str, shape: Sequence[int]) -> NDArray[Any]:
    if kind not in _DTYPES:
        raise ValueError(f"verify: inputs must be {', '.join(_DTYPES)}, got {kind}; have a script make them")
    dtype = np.dtype(_DTYPES[kind])
    numbers = generator.standard_normal(shape) if dtype.kind == "f" else generator.integers(0, 2, shape)
    return np.asarray(numbers).astype(dtype)


def _run_script(against: str) -> tuple[Any, Any]:
    """Return the model, and its inputs or None, that a script's function makes."""
    file, _, name = against.rpartition(":")
    if not file.endswith(".py"):
        raise ValueError(f"verify: against must be an .onnx file or script.py:function, got {against!r}")
    if not Path(file).exists():
        raise FileNotFoundError(f"verify: there is no file {file}")
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None  # for .py there is always a loader
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    if not callable(getattr(script, name, None)):
        raise ValueError(f"verify: against must name a function of {file}, got {name!r}")
    made = getattr(script, name)()
    return made if isinstance(made, tuple) else (made, None)

"""The ONNX Runtime door: where the custom-operator library is, what it holds, and sessions that have it.

The library needs no Python.  In another language, hand the path that `library_path` gives to ONNX Runtime's own call
for custom-operator libraries (``RegisterCustomOpsLibrary_V2`` in C).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import onnxruntime
    import torch

_NAME = "libmmort_ort" + {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


def library_path() -> str:
    """Return the path of the custom-operator library.

    Returns
    -------
    str
        An absolute path; the file exists.

    Raises
    ------
    FileNotFoundError
        If mmort was built without the library; the text names the command that builds it.

    Examples
    --------
    >>> import mmort.ort
    >>> mmort.ort.library_path()
    '...libmmort_ort.so'
    """
    path = Path(__file__).resolve().parent / _NAME
    if not path.exists():
        raise FileNotFoundError(
            f"mmort was built without its ONNX Runtime library ({_NAME}); build it with: "
            "WITH_ORT=1 pip install --force-reinstall --no-deps . (in mmort's source folder), or "
            "WITH_ORT=1 pip install --force-reinstall --no-deps --no-binary mmort mmort"
        )
    return str(path)


def describe(library: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return what a library says of itself.

    Parameters
    ----------
    library : path, optional
        A library built with `mmort.build`; by default mmort's own.

    Returns
    -------
    dict
        ``version`` (of the package it belongs to), ``abi`` (of this description), ``simd`` (the machine version of the
        hot loops that is in use) and ``operators``, as `operators` returns them.

    Raises
    ------
    FileNotFoundError
        If mmort was built without the library.
    OSError
        If `library` cannot be loaded.
    ValueError
        If it was not built with `mmort.build`.

    Examples
    --------
    >>> import mmort, mmort.ort
    >>> mmort.ort.describe()["version"] == mmort.__version__
    True
    """
    path = library_path() if library is None else os.fspath(library)
    try:
        function = ctypes.CDLL(path).mmort_describe
    except AttributeError:
        raise ValueError(f"mmort.ort.describe: library must be built with mmort.build, got {path}") from None
    function.restype, function.argtypes = ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t]
    text = ctypes.create_string_buffer(function(None, 0) + 1)
    function(text, len(text))
    description: dict[str, Any] = json.loads(text.value)
    del description["numpy_only"]
    for attribute in (attribute for operator in description["operators"] for attribute in operator["attributes"]):
        for key in ("argument", "words", "flag"):  # of the Python functions: `mmort.schemas` has them
            attribute.pop(key, None)
    return description


def operators(library: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """List the operators in a library.

    Parameters
    ----------
    library : path, optional
        As for `describe`.

    Returns
    -------
    list of dict
        One for each domain and operator type: ``domain``, ``type``, ``kernel`` (the name of the numpy function),
        ``inputs`` and ``outputs`` (each with ``name``, ``type``, ``shape``, ``optional``) and ``attributes`` (each with
        ``name``, ``type``, ``default``, None if it is required, and where there are such ``choices``, ``former_name``).

    Raises
    ------
    FileNotFoundError, OSError, ValueError
        As `describe` does.

    Examples
    --------
    >>> import mmort.ort
    >>> [(row["domain"], row["kernel"]) for row in mmort.ort.operators() if row["type"] == "MMCVCornerPool"]
    [('mmcv', 'corner_pool')]
    """
    rows: list[dict[str, Any]] = describe(library)["operators"]
    return rows


def register(session_options: onnxruntime.SessionOptions) -> None:
    """Make the operators known to sessions that are created with these options.

    Parameters
    ----------
    session_options : onnxruntime.SessionOptions
        Register once: ONNX Runtime takes each domain once, so neither a second call nor MMCV's or MMDeploy's own
        library goes with it.

    Raises
    ------
    FileNotFoundError
        If mmort was built without the library.

    Examples
    --------
    >>> import onnxruntime
    >>> import mmort.ort
    >>> options = onnxruntime.SessionOptions()
    >>> mmort.ort.register(options)
    """
    session_options.register_custom_ops_library(library_path())


def session(model: str | os.PathLike[str] | bytes, **kwargs: Any) -> onnxruntime.InferenceSession:
    """Create a session that knows the operators.

    Parameters
    ----------
    model : path or bytes
        The ONNX model, or the path of its file.
    **kwargs
        Passed on to ``onnxruntime.InferenceSession``; ``sess_options``, if given, gets the operators registered, and
        ``providers`` defaults to the CPU.

    Returns
    -------
    onnxruntime.InferenceSession

    Raises
    ------
    FileNotFoundError
        If mmort was built without the library.
    ImportError
        If onnxruntime is not installed.
    ValueError
        If ``sess_options`` has these operators already.
    onnxruntime's exceptions
        If the model cannot be loaded.

    Examples
    --------
    >>> import numpy as np, onnx, onnx.helper as oh
    >>> import mmort.ort
    >>> node = oh.make_node("MMCVCornerPool", ["x"], ["y"], domain="mmcv", mode=3)
    >>> x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, 1, 3]) for name in "xy")
    >>> model = oh.make_model(oh.make_graph([node], "example", [x], [y]), opset_imports=[oh.make_opsetid("mmcv", 1)],
    ...                       ir_version=8)
    >>> session = mmort.ort.session(model.SerializeToString())
    >>> session.run(None, {"x": np.array([[[[1, 0, 2]]]], np.float32)})
    [array([[[[1., 1., 2.]]]], dtype=float32)]
    """
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise ImportError("mmort.ort.session needs ONNX Runtime: pip install onnxruntime") from None
    options = kwargs.pop("sess_options", None) or onnxruntime.SessionOptions()
    register(options)
    kwargs.setdefault("providers", ["CPUExecutionProvider"])
    source = model if isinstance(model, bytes) else os.fspath(model)
    try:
        return onnxruntime.InferenceSession(source, options, **kwargs)
    except Exception as error:
        if "Domain already set in registry" not in str(error):
            raise
        raise ValueError(
            "mmort.ort.session: sess_options must not have a custom-operator library for the domains mmcv or mmdeploy "
            "yet (MMCV's, MMDeploy's or mmort's own, which this function registers), got ONNX Runtime's error: "
            f"{error}"
        ) from error


# ONNX Runtime's names of element types; a number where numpy has no such type, as in onnx.TensorProto.
_ELEMENT_TYPES: dict[str, tuple[str, Any]] = {
    "tensor(float)": ("float32", np.float32),
    "tensor(double)": ("float64", np.float64),
    "tensor(float16)": ("float16", np.float16),
    "tensor(bfloat16)": ("bfloat16", 16),
    "tensor(bool)": ("bool", np.bool_),
}
_ELEMENT_TYPES |= {
    f"tensor({name})": (name, np.dtype(name).type)
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
}


class Binding:
    """A session's inputs and outputs bound to memory of yours, which is read and written in place.

    Bind once, then change the arrays and `run` as often as wanted.  It pays where outputs are to land in memory that is
    there already, and for torch tensors on a GPU: ``session.run`` itself copies neither inputs nor outputs on the CPU.

    Parameters
    ----------
    session : onnxruntime.InferenceSession
    inputs, outputs : mapping of str to ndarray or torch.Tensor, optional
        By name, as for `bind_input` and `bind_output`.

    Raises
    ------
    ValueError, TypeError
        As `bind_input` and `bind_output` do.

    Notes
    -----
    The arrays are kept alive.  A binding serves one thread at a time.  GPU memory needs a session with the CUDA
    provider; a run then waits for what torch has queued, and returns when the outputs are there.

    Examples
    --------
    >>> import numpy as np, onnx, onnx.helper as oh
    >>> import mmort.ort
    >>> node = oh.make_node("cummax", ["x"], ["y", "i"], domain="mmcv", dim=0)
    >>> x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N"]) for name in "xy")
    >>> i = oh.make_tensor_value_info("i", onnx.TensorProto.INT64, ["N"])
    >>> graph = oh.make_graph([node], "example", [x], [y, i])
    >>> model = oh.make_model(graph, opset_imports=[oh.make_opsetid("mmcv", 1)], ir_version=8)
    >>> x, y = np.array([1, 3, 2], np.float32), np.empty(3, np.float32)
    >>> binding = mmort.ort.Binding(mmort.ort.session(model.SerializeToString()), {"x": x}, {"y": y})
    >>> results = binding.run()
    >>> y
    array([1., 3., 3.], dtype=float32)
    >>> results["y"] is y, results["i"].tolist()
    (True, [0, 1, 1])
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        inputs: Mapping[str, NDArray[Any] | torch.Tensor] | None = None,
        outputs: Mapping[str, NDArray[Any] | torch.Tensor] | None = None,
    ) -> None:
        self._session = session
        self._binding = session.io_binding()
        self._inputs = {one.name: one for one in session.get_inputs()}
        self._outputs = {one.name: one for one in session.get_outputs()}
        self._arrays: dict[str, Any] = {}  # the binding has their addresses only
        self._results: dict[str, Any] = dict.fromkeys(self._outputs)
        self._on_gpu = False
        for name in self._outputs:
            self._binding.bind_output(name)
        for name, array in (inputs or {}).items():
            self.bind_input(name, array)
        for name, array in (outputs or {}).items():
            self.bind_output(name, array)

    def bind_input(self, name: str, array: NDArray[Any] | torch.Tensor) -> None:
        """Let the session read an input from an array, at each run what then stands there.

        Parameters
        ----------
        name : str
            One of the session's inputs.
        array : ndarray or torch.Tensor
            Of the input's dtype, in C order, on the CPU or a CUDA device.  Instead of an array bound before.

        Raises
        ------
        ValueError
            If there is no such input, or dtype, shape or order of the array do not fit.
        TypeError
            If it is no array.
        """
        self._binding.bind_input(name, *self._place("input", self._inputs, name, array))
        self._arrays[name] = array

    def bind_output(self, name: str, array: NDArray[Any] | torch.Tensor) -> None:
        """Let the session write an output into an array.

        Parameters
        ----------
        name : str
            One of the session's outputs.
        array : ndarray or torch.Tensor
            As for `bind_input`, and writeable.

        Raises
        ------
        ValueError, TypeError
            As `bind_input` does; a size that the model leaves open is compared by ONNX Runtime in each run.
        """
        place = self._place("output", self._outputs, name, array)
        if isinstance(array, np.ndarray) and not array.flags.writeable:
            raise ValueError(f"mmort.ort.Binding: output {name} must be writeable, got a read-only array")
        self._binding.bind_output(name, *place)
        self._results[name] = array

    def run(self) -> dict[str, Any]:
        """Run the session.

        Returns
        -------
        dict
            Each output by name: the array bound to it, else a new numpy array.

        Raises
        ------
        onnxruntime's exceptions
            If an input is not bound, or a bound output has another shape than the model gives it.
        """
        free = [name for name, array in self._results.items() if array is None]
        for name in free:  # again: ONNX Runtime would write into what it gave last time, or refuse another shape
            self._binding.bind_output(name)
        if self._on_gpu:
            sys.modules["torch"].cuda.synchronize()
        self._session.run_with_iobinding(self._binding)
        if self._on_gpu:
            self._binding.synchronize_outputs()
        if not free:
            return dict(self._results)
        values = zip(self._results.items(), self._binding.get_outputs(), strict=True)
        return {name: value.numpy() if array is None else array for (name, array), value in values}

    def _place(self, what: str, known: dict[str, Any], name: str, array: Any) -> tuple[str, int, Any, list[int], int]:
        """Return device, its number, element type, shape and address of an array that fits."""
        if name not in known:
            raise ValueError(f"mmort.ort.Binding: {what} must be one of {', '.join(known)}, got {name}")
        is_tensor = hasattr(array, "data_ptr")  # torch need not be imported to know one
        if not is_tensor and not isinstance(array, np.ndarray):
            raise TypeError(
                f"mmort.ort.Binding: {what} {name} must be a numpy array or a torch tensor, got {type(array).__name__}"
            )
        wanted, shape = known[name].shape, list(array.shape)
        dtype, element_type = _ELEMENT_TYPES.get(known[name].type, (known[name].type, None))
        # A shape of no dimensions also stands for one that is not known.
        fits = not wanted or len(wanted) == len(shape)
        fits = fits and all(not isinstance(a, int) or a == b for a, b in zip(wanted, shape, strict=False))
        found = str(array.dtype).removeprefix("torch.")
        if not fits or found != dtype:
            sizes = [f"{dtype} [{', '.join(map(str, wanted))}]", f"{found} {shape}"]
            raise ValueError(f"mmort.ort.Binding: {what} {name} must be {sizes[0]}, got {sizes[1]}")
        if not (array.is_contiguous() if is_tensor else array.flags.c_contiguous):
            raise ValueError(
                f"mmort.ort.Binding: {what} {name} must be contiguous in C order, got another order in memory"
            )
        if not is_tensor:
            return "cpu", 0, element_type, shape, array.ctypes.data
        device = array.device
        if device.type == "cuda" and "CUDAExecutionProvider" in self._session.get_providers():
            self._on_gpu = True
        elif device.type != "cpu":
            raise ValueError(
                f"mmort.ort.Binding: {what} {name} must be on the CPU, or on a CUDA device if the session has the CUDA "
                f"provider, got a tensor on {device.type}"
            )
        address = array.data_ptr() or id(array)  # ONNX Runtime wants one also where there is no element
        return device.type, device.index or 0, element_type, shape, address

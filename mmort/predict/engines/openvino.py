"""A detector's file in OpenVINO, in float32 or bfloat16.

OpenVINO's own default is the processor's fastest type, bfloat16 where it can, in which detections differ.
"""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from mmort.contract import Argument, Interface
from mmort.contract.tasks import IMG_SHAPE
from mmort.ort.sessions import require_bounded_model
from mmort.predict.engines.network import DetectorFile, require_counts
from mmort.predict.engines.open_session import require_model

Precision: TypeAlias = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
_HINTS = dict(zip(PRECISIONS, ("f32", "bf16"), strict=True))
"""OpenVINO's names."""

_FLOAT32_RESHAPE = """
<net name="float32" version="11">
  <layers>
    <layer id="0" name="data" type="Parameter" version="opset1">
      <data shape="..." element_type="f32"/><output><port id="0" precision="FP32"/></output>
    </layer>
    <layer id="1" name="sizes" type="Parameter" version="opset1">
      <data shape="?" element_type="i64"/><output><port id="0" precision="I64"><dim>-1</dim></port></output>
    </layer>
    <layer id="2" name="reshape" type="Reshape" version="opset1">
      <data special_zero="{special_zero}"/>
      <rt_info><attribute name="precise" version="0"/></rt_info>
      <input><port id="0"/><port id="1"><dim>-1</dim></port></input><output><port id="2" precision="FP32"/></output>
    </layer>
    <layer id="3" name="result" type="Result" version="opset1"><input><port id="0"/></input></layer>
  </layers>
  <edges>
    <edge from-layer="0" from-port="0" to-layer="2" to-port="0"/>
    <edge from-layer="1" from-port="0" to-layer="2" to-port="1"/>
    <edge from-layer="2" from-port="2" to-layer="3" to-port="0"/>
  </edges>
</net>
"""
"""A Reshape with the mark "precise", for which OpenVINO's Python module has no function, in OpenVINO's own format."""

_first_run = threading.Lock()
"""OpenVINO's module fills tables in the first run of a process, and deadlocks if two threads do so at once."""


class OpenVino(DetectorFile):
    """A portable file of a detector (``mmort portable --portable=inlined``) in OpenVINO on the CPU.

    Parameters
    ----------
    path : path
    precision : {"float32", "bfloat16"}, default "float32"
        What OpenVINO computes in; bfloat16 is several times as fast on processors that have it, and detections differ.
    threads : int, optional
        Threads for the operators.  Default: one for each core.
    parallel : int, default 1
        Batches that run at the same time and share the threads, each with memory of its own.

    Raises
    ------
    OSError
        If there is no such file.
    ValueError
        If the file has other operators than ONNX's, OpenVINO cannot load it, it is not a detector's, or the
        processor has no bfloat16.
    ImportError
        If openvino or onnx is not installed.
    """

    engine = "openvino"
    _has_run = False  # any of the process

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        precision: Precision = "float32",
        threads: int | None = None,
        parallel: int = 1,
    ) -> None:
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be {' or '.join(map(repr, PRECISIONS))}, got {precision!r}")
        require_counts(threads=threads, parallel=parallel)
        model = _standard_model(os.fspath(path))
        compiled = _compile(os.fspath(path), threads, parallel, precision)
        interface = Interface.of_model(model)._replace(inputs=tuple(map(_argument, compiled.inputs)))
        super().__init__(os.fspath(path), interface, threads=threads, parallel=parallel, precision=precision)
        self._requests: SimpleQueue[Any] = SimpleQueue()  # those that no thread uses
        for _ in range(parallel):
            self._requests.put(compiled.create_infer_request())

    def _run(self, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        if OpenVino._has_run:
            return self._infer(feeds)
        with _first_run:
            outputs = self._infer(feeds)
            OpenVino._has_run = True
        return outputs

    def _infer(self, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        request = self._requests.get()
        try:
            request.infer(feeds)
            # Copies, as its memory is used again.
            return [np.array(request.get_tensor(name).data) for name in self.contract.outputs]
        finally:
            self._requests.put(request)


def _argument(port: Any) -> Argument:
    """Return an input of OpenVINO as an `Argument`."""
    sizes = (size.get_length() if size.is_static else None for size in port.get_partial_shape())
    kind = port.get_element_type().get_type_name()
    return Argument(port.get_any_name(), {"f32": "float32", "i64": "int64"}.get(kind, kind), tuple(sizes))


def _standard_model(path: str) -> Any:
    """Read a file; refuse one that OpenVINO would refuse in other words, or on which it would crash."""
    require_model(path)
    try:
        import onnx
    except ModuleNotFoundError:
        raise ImportError("engine openvino needs onnx: pip install 'mmort[openvino]'") from None
    require_bounded_model(path)
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's implementations raise different classes
        raise ValueError(f"{path} is not an ONNX model: {error}") from None
    domains = {opset.domain for opset in model.opset_import} - {"", "ai.onnx"}
    if domains or any(tensor.type.HasField("optional_type") for tensor in model.graph.input):
        reason = f"operators of {', '.join(sorted(domains))}" if domains else "inputs of an optional type"
        raise ValueError(
            f"{path}: OpenVINO needs a file with ONNX's operators only, but this one has {reason}; make one: mmort "
            "portable FILE --output OTHER --portable=inlined"
        )
    return model


def _compile(path: str, threads: int | None, parallel: int, precision: Precision) -> Any:
    """Load a file into OpenVINO, with ``img_shape``, if it has that, as an input."""
    try:
        import openvino
    except ModuleNotFoundError:
        raise ImportError("engine openvino needs openvino: pip install 'mmort[openvino]'") from None
    core = openvino.Core()
    if precision == "bfloat16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        raise ValueError(
            "this processor has no bfloat16, and OpenVINO would compute in float32; for that, set precision to float32"
        )
    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": _HINTS[precision], "NUM_STREAMS": parallel}
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    try:
        model = core.read_model(path)
        _add_img_shape(model)
        if precision == "bfloat16":
            _keep_loops_float32(core, model)
        return core.compile_model(model, "CPU", settings)
    except Exception as error:  # OpenVINO documents no classes of exceptions
        raise ValueError(f"{path}: OpenVINO cannot load this file: {' '.join(str(error).split())}") from error


def _add_img_shape(model: Any) -> None:
    """Turn the default of ``img_shape``, which OpenVINO reads as a constant, into an input."""
    from openvino import PartialShape, opset13

    for node in model.get_ops():
        if node.get_friendly_name() == IMG_SHAPE.name and node.get_type_name() == "Constant":
            parameter = opset13.parameter(PartialShape([-1, 2]), np.int64, IMG_SHAPE.name)
            parameter.output(0).set_names({IMG_SHAPE.name})
            node.output(0).replace(parameter.output(0))
            model.add_parameters([parameter])
            model.validate_nodes_and_infer_types()


def _keep_loops_float32(core: Any, model: Any) -> None:
    """Let results of loops be reshaped in float32, so that the next node converts them to bfloat16.

    A conversion right after a Loop, whose result has the same shape as before, reads the memory that this had in a
    smaller image's run (OpenVINO 2026.4): decoders of a DINO then compute with other numbers.
    """
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Reshape" or node.input_value(0).get_node().get_type_name() != "Loop":
            continue
        special_zero = str(node.get_attributes()["special_zero"]).lower()
        marked = core.read_model(_FLOAT32_RESHAPE.format(special_zero=special_zero).encode(), b"")
        reshape = next(each for each in marked.get_ops() if each.get_type_name() == "Reshape")
        for position in range(2):
            reshape.input(position).replace_source_output(node.input_value(position))
        reshape.set_friendly_name(node.get_friendly_name())
        node.output(0).replace(reshape.output(0))
    model.validate_nodes_and_infer_types()

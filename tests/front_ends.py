"""How a case is run by two front ends: the public numpy function, and a one-node model in ONNX Runtime."""

import inspect
from functools import cache

import numpy as np
import onnx
import onnx.helper
import onnxruntime

import mmort
import mmort.ort
from mmort import schemas
from tests.operators import cases

ROWS = mmort.ort.operators()

TYPES = {"float32": onnx.TensorProto.FLOAT, "int64": onnx.TensorProto.INT64}

# Numpy raises ValueError; these are what a refusal becomes in ONNX Runtime's Python API.
ORT_ERRORS = (
    onnxruntime.capi.onnxruntime_pybind11_state.Fail,
    onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument,
    onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph,
    onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException,  # while a session is created
)
CONVERT = {"INT": int, "FLOAT": float, "STRING": str, "INTS": lambda value: np.broadcast_to(value, 2).tolist()}


def row_of(operator):
    """The library's description of an operator in its preferred domain; None if ONNX has no such operator."""
    return next((row for row in ROWS if row["kernel"] == operator), None)


def argument_names(operator):
    """{an attribute of the node: the numpy function's argument}."""
    return {attribute.name: attribute.argument for attribute in schemas.kernels()[operator].attributes}


def onnx_attributes(operator, attributes):
    """The numpy function's arguments as the node's attributes."""
    converted = {}
    for name, value in attributes.items():
        fields = [attribute for attribute in schemas.kernels()[operator].attributes if attribute.argument == name]
        for attribute, part in zip(fields, value if len(fields) > 1 else [value], strict=True):
            is_index = attribute.type == "INT" and attribute.words
            converted[attribute.name] = CONVERT[attribute.type](attribute.words.index(part) if is_index else part)
    return converted


def numpy_attributes(operator, attributes):
    """The node's attributes as the numpy function's arguments; any that the operator does not have are ignored."""
    converted = {}
    for attribute in schemas.kernels()[operator].attributes:
        if attribute.name not in attributes:
            continue
        value = attributes[attribute.name]
        if attribute.type == "INT" and 0 <= value < len(attribute.words):
            value = attribute.words[value]
        converted.setdefault(attribute.argument, []).append(value)
    return {name: values[0] if len(values) == 1 else tuple(values) for name, values in converted.items()}


def flat(result):
    """A public function's result as a tuple of arrays."""
    return (result,) if isinstance(result, np.ndarray) else tuple(result)


def array_names(function, arrays, attributes):
    """The parameters that arrays go to: in order, those that the attributes leave and that numpy's function takes."""
    annotations = inspect.get_annotations(getattr(mmort, function.__name__))
    return [
        name
        for name in inspect.signature(function).parameters
        if name not in attributes and "ArrayLike" in annotations.get(name, "")
    ][: len(arrays)]


def apply(function, arrays, attributes):
    return function(**dict(zip(array_names(function, arrays, attributes), arrays, strict=True)), **attributes)


def run_numpy(operator, arrays, attributes):
    return flat(apply(getattr(mmort, operator), arrays, attributes))


def run_oracle(operator, arrays, attributes):
    return apply(cases.ORACLES[operator], arrays, attributes)


def node_outputs(operator, outputs):
    """Of the numpy function's outputs those that the node has too: the last ones."""
    return outputs[-len(row_of(operator)["outputs"]) :]


def make_model(row, attributes, inputs=None, shapes=None, outputs=None, domain=None, node_type=None):
    """A model of a single node; by default shapes are unknown and names those of the row."""
    shapes = shapes or [None] * len(row["inputs"])
    names = [tensor["name"] for tensor in row["inputs"]] if inputs is None else inputs
    node = onnx.helper.make_node(
        node_type or row["type"],
        names,
        [tensor["name"] for tensor in row["outputs"]] if outputs is None else outputs,
        name="the_node",
        domain=domain or row["domain"],
        **attributes,
    )
    graph = onnx.helper.make_graph(
        [node],
        "one_node",
        [
            onnx.helper.make_tensor_value_info(tensor["name"], TYPES[tensor["type"]], shape)
            for tensor, shape in zip(row["inputs"], shapes, strict=True)
            if tensor["name"] in names
        ],
        [onnx.helper.make_tensor_value_info(tensor["name"], TYPES[tensor["type"]], None) for tensor in row["outputs"]],
    )
    opset = onnx.helper.make_opsetid(domain or row["domain"], 1)
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)


def make_session(model, threads=1):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # the refusals under test are raised anyway
    options.intra_op_num_threads = threads
    return mmort.ort.session(model.SerializeToString(), sess_options=options)


@cache
def _session(operator, attributes, threads, count):
    row = row_of(operator)
    names = [tensor["name"] for tensor in row["inputs"]]
    return make_session(make_model(row, dict(attributes), names[:count]), threads)


def session_for(operator, attributes, threads=1, count=None):
    """A session of a single node for the numpy function's arguments; cached.

    It has the first `count` inputs, or all.
    """
    converted = onnx_attributes(operator, attributes).items()
    hashable = sorted((name, tuple(value) if isinstance(value, list) else value) for name, value in converted)
    return _session(operator, tuple(hashable), threads, count)


def run_session(session, arrays):
    """Outputs of a session for its inputs in order."""
    return tuple(session.run(None, dict(zip((tensor.name for tensor in session.get_inputs()), arrays, strict=True))))


def run_ort(operator, arrays, attributes, threads=1):
    return run_session(session_for(operator, attributes, threads, len(arrays)), arrays)


def signature(operator):
    return inspect.signature(getattr(mmort, operator), eval_str=True).parameters

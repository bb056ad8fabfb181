"""How a case goes through the two doors: the public numpy function, and a one-node model in ONNX Runtime."""

import inspect
from functools import cache

import numpy as np
import onnx
import onnx.helper
import onnxruntime

import mmort
import mmort.ort
from tests.operators import cases

ROWS = mmort.ort.operators()

# Where the two doors' words differ: numpy takes a word where ONNX takes its place in a list.
WORDS = {
    ("corner_pool", "mode"): ("top", "bottom", "left", "right"),
    ("soft_nms", "method"): ("naive", "linear", "gaussian"),
    ("grid_sample", "mode"): ("bilinear", "nearest", "bicubic"),
    ("grid_sample", "padding_mode"): ("zeros", "border", "reflection"),
}

# Outputs of the numpy function that the node gives, where that is not all of them.
OUTPUTS = {"nms": slice(1, 2), "nms_rotated": slice(1, 2)}

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
    """The bridge's description of an operator, None if it is not in the bridge; of several domains the first."""
    return next((row for row in ROWS if row["kernel"] == operator), None)


@cache
def argument_names(operator):
    """{an attribute of the node: the numpy function's argument}; both stand in the same order, and names may differ."""
    row = row_of(operator)
    inputs = {one["name"] for one in row["inputs"]}
    attributes = [one["name"] for one in row["attributes"]]
    arguments = [name for name in signature(operator) if name not in inputs]
    if "output_size" in arguments:  # two attributes
        arguments.insert(arguments.index("output_size"), "output_size")
    return dict(zip(attributes, arguments, strict=True))


def onnx_attributes(operator, attributes):
    """The numpy function's arguments as the node's attributes."""
    names = {argument: name for name, argument in argument_names(operator).items()}
    converted = {}
    for name, value in attributes.items():
        if name == "output_size":
            converted |= dict(zip(("output_height", "output_width"), value, strict=True))
        else:
            words = WORDS.get((operator, name))
            converted[names[name]] = words.index(value) if words else value
    types = {one["name"]: one["type"] for one in row_of(operator)["attributes"]}
    return {name: CONVERT[types[name]](value) for name, value in converted.items()}


def numpy_attributes(operator, attributes):
    """The node's attributes as the numpy function's arguments; others than the operator's are ignored, as in ONNX."""
    known = {one["name"] for one in row_of(operator)["attributes"]}
    attributes = {name: value for name, value in attributes.items() if name in known}
    converted = {}
    if "output_height" in attributes:
        converted["output_size"] = attributes.pop("output_height"), attributes.pop("output_width")
    for onnx_name, value in attributes.items():
        name = argument_names(operator)[onnx_name]
        words = WORDS.get((operator, name))
        converted[name] = words[value] if words and 0 <= value < len(words) else value
    return converted


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
    """Of the numpy function's outputs those that the node has too."""
    return outputs[OUTPUTS.get(operator, slice(None))]


def make_model(row, attributes, inputs=None, shapes=None, outputs=None, domain=None, node_type=None):
    """A model of one node; shapes are unknown unless given, input and output names the row's unless given."""
    shapes = shapes or [None] * len(row["inputs"])
    names = [formal["name"] for formal in row["inputs"]] if inputs is None else inputs
    node = onnx.helper.make_node(
        node_type or row["type"],
        names,
        [formal["name"] for formal in row["outputs"]] if outputs is None else outputs,
        name="the_node",
        domain=domain or row["domain"],
        **attributes,
    )
    graph = onnx.helper.make_graph(
        [node],
        "one_node",
        [
            onnx.helper.make_tensor_value_info(formal["name"], TYPES[formal["type"]], shape)
            for formal, shape in zip(row["inputs"], shapes, strict=True)
            if formal["name"] in names
        ],
        [onnx.helper.make_tensor_value_info(formal["name"], TYPES[formal["type"]], None) for formal in row["outputs"]],
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
    names = [formal["name"] for formal in row["inputs"]]
    return make_session(make_model(row, dict(attributes), names[:count]), threads)


def session_for(operator, attributes, threads=1, count=None):
    """A session of one node for the numpy function's arguments; the same one for the same arguments.

    It has the first `count` inputs, or all.
    """
    converted = onnx_attributes(operator, attributes).items()
    hashable = sorted((name, tuple(value) if isinstance(value, list) else value) for name, value in converted)
    return _session(operator, tuple(hashable), threads, count)


def run_session(session, arrays):
    """Outputs of a session for its inputs in order."""
    return tuple(session.run(None, dict(zip((one.name for one in session.get_inputs()), arrays, strict=True))))


def run_ort(operator, arrays, attributes, threads=1):
    return run_session(session_for(operator, attributes, threads, len(arrays)), arrays)


def signature(operator):
    return inspect.signature(getattr(mmort, operator), eval_str=True).parameters

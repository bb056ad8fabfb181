"""A model repository for NVIDIA's Triton Inference Server: the model, its configuration, and the library it needs.

The configuration is a message ``inference.ModelConfig`` of Triton's protocol in protobuf's text format.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import onnx

import mmort
import mmort.ort
from mmort._files.drafts import replacing_folder
from mmort._files.outputs import inside, make_folder, require_folder, write_output
from mmort.contract import TASKS, check
from mmort.contract.metadata import FOR_CLIENTS
from mmort.contract.tasks import IMG_SHAPE
from mmort.onnx.describe import describe
from mmort.onnx.graph import files, optional_inputs

MAX_BATCH_SIZE = 8
MAX_QUEUE_DELAY = 2000  # microseconds that a request waits for others to run with
_TYPES: dict[int, str] = {
    onnx.TensorProto.FLOAT: "TYPE_FP32",
    onnx.TensorProto.FLOAT16: "TYPE_FP16",
    onnx.TensorProto.DOUBLE: "TYPE_FP64",
    onnx.TensorProto.INT32: "TYPE_INT32",
    onnx.TensorProto.INT64: "TYPE_INT64",
    onnx.TensorProto.UINT8: "TYPE_UINT8",
    onnx.TensorProto.BOOL: "TYPE_BOOL",
}


def write_triton_repository(
    model: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    server_path: str | None = None,
    *,
    force: bool = False,
) -> Path:
    """Write the folder from which Triton's ONNX Runtime backend serves a model.

    Inputs that may be left out become required, so that all requests of a batch have the same inputs.  Requests are
    batched if the file is one that `Predictor` opens, and takes any number of images.  The library is copied and named
    in the configuration unless the model is portable.

    Parameters
    ----------
    model : path
        An ONNX file; its name without the suffix is the model's name in Triton.
    directory : path
        The model repository, which is created if it does not exist.  The model's folder in it must not exist, unless
        `force` is true.
    server_path : str, optional
        The path of `directory` on the server, which looks the library up there, such as ``/models`` in a container.
        By default that of `directory` on this machine.
    force : bool, default False
        Whether to replace the model's folder in the repository if it exists.  It must be one that has a config.pbtxt.

    Returns
    -------
    Path
        The model's folder.

    Raises
    ------
    ValueError
        If the file is not an ONNX model, needs another library, or has an input or output that Triton cannot serve.
    OSError
        If the folder exists and is not to be replaced, or cannot be written, or the library is needed and was not
        built.
    """
    require_folder(directory)
    directory, name = Path(directory), Path(model).stem
    folder = inside(directory, name)
    if os.path.lexists(folder):
        if not force:
            raise FileExistsError(f"the repository has a model of this name already: {folder}; force=True replaces it")
        if folder.is_symlink() or not (folder / "config.pbtxt").is_file():
            raise FileExistsError(f"only the folder of a model can be replaced, which has a config.pbtxt: {folder}")
    providers = {operator["provider"] for operator in describe(model)["operators"].values()}
    if None in providers:
        raise ValueError(f"{model}: some of its operators are of a library that mmort does not have; see mmort info")
    proto = files.load(model)
    _require_inputs(proto)
    library = Path(mmort.ort.library_path()) if "mmort" in providers else None
    at_server = Path(server_path or directory.absolute()) / name
    text = _config(name, proto, at_server / library.name if library else None)
    make_folder(directory)
    with replacing_folder(folder) as draft:
        make_folder(draft / "1")
        files.save(proto, draft / "1" / "model.onnx", model, library=library is not None)
        if library:
            write_output(draft / library.name, library.read_bytes())
        write_output(draft / "config.pbtxt", text)
    return folder


def _require_inputs(model: onnx.ModelProto) -> None:
    """Make ``img_shape``, which may be left out in mmort's files, required."""
    optional_inputs.replace(model)
    for value in [value for value in model.graph.initializer if value.name == IMG_SHAPE.name]:
        model.graph.initializer.remove(value)


def _config(name: str, model: onnx.ModelProto, library: Path | None) -> str:
    """Return the configuration; `library` is its path on the server."""
    constants = {value.name for value in model.graph.initializer}
    inputs = [_tensor(formal) for formal in model.graph.input if formal.name not in constants]
    outputs = [_tensor(formal) for formal in model.graph.output]
    batched = all(dims[0] < 0 for _, _, dims in (*inputs, *outputs)) and _has_rows_of_images(name, model)
    skipped = 1 if batched else 0  # with batches, Triton adds the first dimension
    lines = [
        f"# Written by mmort {mmort.__version__}, for Triton's ONNX Runtime backend.",
        f"name: {_quoted(name)}",
        'backend: "onnxruntime"',
        f"max_batch_size: {MAX_BATCH_SIZE if batched else 0}",
        *_list("input", inputs, skipped),
        *_list("output", outputs, skipped),
    ]
    if batched:
        lines.append(f"dynamic_batching {{ max_queue_delay_microseconds: {MAX_QUEUE_DELAY} }}")
    if library is not None:
        lines.append(f"model_operations {{ op_library_filename: {_quoted(library.as_posix())} }}")
    for entry in model.metadata_props:
        if entry.key in FOR_CLIENTS:
            value = f"{{ string_value: {_quoted(entry.value)} }}"
            lines.append(f"parameters {{ key: {_quoted(entry.key)} value {value} }}")
    return "\n".join([*lines, ""])


def _has_rows_of_images(name: str, model: onnx.ModelProto) -> bool:
    """Return whether the first dimension of all tensors is that of the images, which do not affect each other.

    Sizes alone do not show that: a graph that subtracts the mean of its points has the same.
    """
    try:
        task = TASKS[check(name, model).metadata.task]
    except ValueError:
        return False
    return {output.name for output in model.graph.output} <= {tensor.name for tensor in task.outputs}


def _tensor(formal: onnx.ValueInfoProto) -> tuple[str, str, list[int]]:
    """Return an input's or output's name, Triton's word for its type, and its dimensions, -1 where any is taken."""
    tensor = formal.type.tensor_type
    if tensor.elem_type not in _TYPES or not tensor.shape.dim:
        raise ValueError(f"Triton cannot serve {formal.name}: it is no tensor, its type is unknown, or its rank is")
    dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
    return formal.name, _TYPES[tensor.elem_type], dims


def _list(field: str, tensors: Iterable[tuple[str, str, list[int]]], skipped: int) -> list[str]:
    """Return the lines of the inputs or outputs, without the first `skipped` dimensions."""
    return [
        f"{field} {{ name: {_quoted(name)} data_type: {word} dims: {dims[skipped:]} }}" for name, word, dims in tensors
    ]


def _quoted(text: str) -> str:
    """Return a string of protobuf's text format, which has JSON's escapes."""
    return json.dumps(text, ensure_ascii=False)

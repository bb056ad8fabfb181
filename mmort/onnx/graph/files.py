"""ONNX files: load, and save without ever leaving half a file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.external_data_helper
import onnx.helper

from mmort._files.drafts import draft_beside, draft_folder, replace_by, write_draft
from mmort._files.inputs import is_checkpoint
from mmort._files.outputs import naming, require_directory, require_onnx_output
from mmort.onnx.graph import structure
from mmort.ort.sessions import require_model_name, silent_options

PathLike = str | os.PathLike[str]


@contextlib.contextmanager
def replacing(path: PathLike, *, keep_neighbours: bool = False) -> Iterator[Path]:
    """Replace a file by a draft at the end of the block, unless the block raises; yields the draft's path.

    The draft has the name of `path` in a directory of its own beside it, so that files written next to the draft, such
    as a large model's tensors, move with it.

    Parameters
    ----------
    path : path
        The file to write; its directory must exist.
    keep_neighbours : bool, default False
        Whether the draft refers to files that are beside `path` already.  It is then written beside them, under a
        hidden name.

    Raises
    ------
    FileNotFoundError
        If the directory of `path` does not exist.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from mmort.onnx.graph.files import replacing
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.onnx")
    >>> with replacing(path) as draft:
    ...     _ = draft.write_bytes(b"a model")
    ...     path.exists()
    False
    >>> path.read_bytes(), [file.name for file in path.parent.iterdir()]
    (b'a model', ['model.onnx'])
    """
    path = Path(path)
    require_directory(path)
    with naming(path):
        if keep_neighbours:
            with draft_beside(path) as draft:
                yield draft
                replace_by(draft, path)
        else:
            with draft_folder(path.parent) as directory:
                draft = directory / path.name
                yield draft
                companions = [file for file in directory.iterdir() if file != draft]
                for file in (*companions, draft):  # the model last, as it refers to the others
                    replace_by(file, path.parent / file.name)


def check_output(path: PathLike | None, *, force: bool) -> None:
    """Refuse a file that cannot be written, before the work whose result it is to hold.

    A file that exists is replaced only with `force`, and a directory never.

    Raises
    ------
    ValueError, FileExistsError, IsADirectoryError, FileNotFoundError, PermissionError
    """
    if path is None:
        return
    require_onnx_output(path)
    require_model_name(path)
    if not force and os.path.lexists(path):
        raise FileExistsError(f"output file exists: {path}; force=True replaces it")


def load(path: PathLike) -> onnx.ModelProto:
    """Read a model, without the tensors that are in other files, so that the model's size does not matter.

    Raises
    ------
    ValueError
        If the file is not an ONNX model.
    OSError
        If it cannot be read.
    """
    require_model_name(path)
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError:
        raise
    except Exception as error:  # protobuf's implementations raise different classes
        advice = "; mmort export makes one of a checkpoint" if is_checkpoint(path) else ""
        raise ValueError(f"{path} is not an ONNX model: {error}{advice}") from None
    if not model.HasField("graph"):
        raise ValueError(f"{path} is not an ONNX model: it has no graph")
    try:
        structure.check(model)
    except ValueError as error:
        raise ValueError(f"{path} is not an ONNX model that can be processed: {error}") from None
    return model


def load_whole(path: PathLike) -> onnx.ModelProto:
    """Read a model with all of its tensors, and give its nodes names.

    Raises
    ------
    ValueError
        If the file is not an ONNX model, has tensors of 2 GB or more, or lacks some.
    OSError
        If it cannot be read.
    """
    import onnx_ir as ir

    from mmort.onnx.graph.patterns import name_nodes

    model = load(path)
    try:
        onnx.external_data_helper.load_external_data_for_model(model, str(Path(path).parent))
    except (onnx.checker.ValidationError, ValueError) as error:  # a file is missing, elsewhere, or cut short
        raise ValueError(f"{path}: {error}") from None
    if model.ByteSize() >= onnx.checker.MAXIMUM_PROTOBUF:
        raise ValueError(f"{path}: the model must be smaller than 2 GB with all of its tensors")
    try:
        named = ir.from_proto(model)
        name_nodes(named)
        return ir.to_proto(named)
    except ir.serde.SerdeError as error:  # a node or function reads what none writes, or lacks what it needs
        cause = error.__cause__ or error
        raise ValueError(
            f"{path} is not an ONNX model that can be processed: {error}: {type(cause).__name__}: {cause}"
        ) from error


def save(model: onnx.ModelProto, path: PathLike, source: PathLike | None, library: bool = True) -> None:
    """Check a changed model and write it.

    Parameters
    ----------
    model : onnx.ModelProto
    path : path
        The file to write.  An existing file is replaced only after all checks.
    source : path or None
        The file that the model was read from.
    library : bool, default True
        Whether the model needs mmort's library in ONNX Runtime.

    Raises
    ------
    ValueError
        If onnx's checker or ONNX Runtime refuses the model, or if it has tensors in files of another directory.
    """
    path = Path(path)
    if source is not None and Path(source).resolve().parent != path.resolve().parent and tensors_in_files(model):
        raise ValueError(f"{source} has tensors in files beside it: the output must be in its directory, got {path}")
    try:
        content = model.SerializeToString()
    except Exception as error:  # above 2 GB; protobuf's implementations raise different classes
        raise ValueError(
            f"{path}: the model cannot be written ({error}); keep its tensors in files beside it"
        ) from None
    with replacing(path, keep_neighbours=True) as draft:
        write_draft(draft, content)
        _check(draft, path, source, library)


def _check(draft: Path, path: Path, source: PathLike | None, library: bool) -> None:
    """Raise ValueError if onnx's checker has a new objection to the model, or ONNX Runtime does not load it."""
    complaint = _complaint(draft)
    if complaint and (source is None or complaint != _complaint(source)):
        raise ValueError(f"the changed model is wrong, so it was not written: {complaint}")
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return
    from mmort import ort

    options = silent_options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        if library:
            ort.session(draft, sess_options=options)
        else:
            onnxruntime.InferenceSession(draft, options, providers=["CPUExecutionProvider"])
    except FileNotFoundError:  # mmort was built without the library
        return
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        text = " ".join(str(error).split()).replace(str(draft), str(path))
        raise ValueError(f"ONNX Runtime refuses the changed model, so it was not written: {text}") from None


def _complaint(path: PathLike) -> str | None:
    """Return the objection of onnx's checker, if there is one."""
    try:
        onnx.checker.check_model(os.fspath(path))
    except onnx.checker.ValidationError as error:
        return str(error)
    return None


def tensors_in_files(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return the tensors of a model that are in other files."""
    tensors = onnx.external_data_helper._get_all_tensors(model)
    return [tensor for tensor in tensors if onnx.external_data_helper.uses_external_data(tensor)]

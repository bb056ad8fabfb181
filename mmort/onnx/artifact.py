"""A file in the making as one object: the model, the tensors that are in files beside it, and sessions of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import onnx.external_data_helper
import onnx.helper
import onnx.numpy_helper
from numpy.typing import NDArray

from mmort._files.drafts import draft_beside, remove_draft, write_draft
from mmort.onnx.graph import structure
from mmort.onnx.graph.files import tensors_in_files
from mmort.onnx.verify.sessions import open_session

if TYPE_CHECKING:
    import onnxruntime

PathLike = str | os.PathLike[str]


class Artifact:
    """A model that has been read once, and is changed, run and compared in memory.

    Parameters
    ----------
    model : onnx.ModelProto
        Large tensors may be in files.
    directory : Path
        Where these files are.
    libraries : sequence of paths, optional
        Further libraries of custom operators that sessions need.
    """

    def __init__(self, model: onnx.ModelProto, directory: Path, libraries: Sequence[PathLike] = ()) -> None:
        self.model, self.directory, self.libraries = model, directory, libraries

    def tensors(self) -> Iterator[tuple[str, onnx.TensorProto]]:
        """Yield the constants of the graph as they are stored, initializers first, with their names."""
        for tensor in self.model.graph.initializer:
            yield tensor.name, tensor
        for node in structure.nested(self.model.graph.node):
            for attribute in node.attribute if node.op_type == "Constant" else ():
                if attribute.name == "value":
                    yield node.output[0], attribute.t

    def constants(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield the constants of the graph, initializers first, with their names."""
        for name, tensor in self.tensors():
            yield name, self.array(tensor)

    def array(self, tensor: onnx.TensorProto) -> NDArray[Any]:
        """Return the numbers of a tensor."""
        return onnx.numpy_helper.to_array(tensor, os.fspath(self.directory))

    def save(self, path: Path) -> None:
        """Write the model in the directory, which is its own: of the files there, it keeps those that it refers to.

        Tensors in files move into the model, unless it would have 2 GB or more.
        """
        size = self.model.ByteSize() + sum(file.stat().st_size for file in self.files())
        for tensor in tensors_in_files(self.model) if size < onnx.checker.MAXIMUM_PROTOBUF else ():
            onnx.external_data_helper.load_external_data_for_tensor(tensor, os.fspath(self.directory))
            tensor.ClearField("data_location")
        write_draft(path, self.model.SerializeToString())
        for file in set(self.directory.iterdir()) - self.files() - {path}:
            remove_draft(file)

    def files(self) -> set[Path]:
        """Return the files that have tensors of the model."""
        infos = map(onnx.external_data_helper.ExternalDataInfo, tensors_in_files(self.model))
        return {self.directory / info.location for info in infos}

    def with_constant(self, name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Artifact:
        """Return a copy with another value of a constant."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        changed = Artifact(model, self.directory, self.libraries)
        for constant, tensor in changed.tensors():
            if constant == name:
                tensor.CopyFrom(onnx.numpy_helper.from_array(change(self.array(tensor)), tensor.name))
        return changed

    def session(
        self, outputs: Sequence[str], inputs: Sequence[onnx.ValueInfoProto] = (), *, own_library: bool = True
    ) -> onnxruntime.InferenceSession:
        """Open the model with other outputs, and values of the graph as further inputs.

        Parameters
        ----------
        outputs : sequence of str
            The names of any values.
        inputs : sequence of ValueInfoProto, optional
            Values that are fed instead of computed.  Where such a one is an output, too, that is what was computed, and
            its name ends with `COMPUTED`.
        own_library : bool, default True
            Whether the session has mmort's library.

        Raises
        ------
        ValueError
            If ONNX Runtime does not load the model.
        """
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        graph, fed = model.graph, {value.name for value in inputs}
        for node in graph.node:
            node.output[:] = [name + COMPUTED if name in fed else name for name in node.output]
        del graph.output[:]
        graph.output.extend(onnx.ValueInfoProto(name=name + COMPUTED if name in fed else name) for name in outputs)
        kept = [value for value in graph.value_info if value.name not in fed]
        del graph.value_info[:]
        graph.value_info.extend(kept)
        graph.input.extend(inputs)
        if not tensors_in_files(self.model):
            return open_session(model, self.libraries, own_library)
        with draft_beside(self.directory / "values.onnx") as path:  # beside the tensors
            write_draft(path, model.SerializeToString())
            return open_session(path, self.libraries, own_library)


COMPUTED = "/computed"
"""How the name of a value ends that was computed, where another one of its name is fed."""

"""A file as two sessions: what some of its inputs do not reach runs once for many values of these inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    import onnx

Feeds = Mapping[str, NDArray[Any]]


class SplitSession:
    """A model in ONNX Runtime: a session of the nodes that its varied inputs do not reach, and one of the others.

    Parameters
    ----------
    model : onnx.ModelProto
        With all tensors.
    varied : sequence of str
        Names of inputs.
    outputs : sequence of str
        Names of the outputs to return.
    open_session : callable
        Creates a session from the bytes of a model.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        varied: Sequence[str],
        outputs: Sequence[str],
        open_session: Callable[[bytes], Any],
    ) -> None:
        import onnx.helper

        self._outputs = list(outputs)
        inputs = [formal.name for formal in model.graph.input if formal.name not in varied]
        shared = _reached(model, inputs) - _reached(model, varied)
        nodes = [node for node in model.graph.node if shared.isdisjoint(node.output)]
        nodes, names = needed_nodes(nodes, outputs)
        values = sorted(names & shared)
        self._shared, types = None, []
        if values:
            formals = [onnx.ValueInfoProto(name=name) for name in values]  # ONNX Runtime infers the types
            self._shared = open_session(_part(model, *needed_nodes(model.graph.node, values), (), formals))
            types = [_formal(argument) for argument in self._shared.get_outputs()]
        formals = [formal for formal in model.graph.output if formal.name in outputs]
        self._varied = open_session(_part(model, nodes, names | set(varied), types, formals))

    def run(self, feeds: Feeds, varied: Sequence[Feeds]) -> list[list[NDArray[Any]]]:
        """Return the outputs for each of several values of the varied inputs."""
        values = dict(feeds)
        if self._shared is not None:
            names = [argument.name for argument in self._shared.get_outputs()]
            values |= zip(names, self._shared.run(names, _taken(self._shared, feeds)), strict=True)
        values = _taken(self._varied, values)
        return [self._varied.run(self._outputs, {**values, **of_inputs}) for of_inputs in varied]


def split_session(
    path: str, varied: Sequence[str], outputs: Sequence[str], open_session: Callable[[bytes], Any]
) -> SplitSession | None:
    """Split a file; None without the package onnx, or if the file has tensors in files beside it."""
    try:
        import onnx
        from onnx.external_data_helper import uses_external_data
    except ModuleNotFoundError:
        return None
    model = onnx.load(path, load_external_data=False)
    if any(map(uses_external_data, model.graph.initializer)):
        return None
    return SplitSession(model, varied, outputs, open_session)


def needed_nodes(nodes: Iterable[onnx.NodeProto], names: Iterable[str]) -> tuple[list[onnx.NodeProto], set[str]]:
    """Return the nodes, of sorted ones, that values are computed by, and the names of all that these nodes take."""
    needed, kept = set(names), []
    for node in reversed(list(nodes)):
        if not needed.isdisjoint(node.output):
            needed.update(_inputs(node))
            kept.append(node)
    return kept[::-1], needed


def _reached(model: onnx.ModelProto, inputs: Iterable[str]) -> set[str]:
    """Return the names of the values that depend on inputs, without these."""
    sources, reached = set(inputs), set[str]()
    for node in model.graph.node:
        if not (sources | reached).isdisjoint(_inputs(node)):
            reached.update(filter(None, node.output))
    return reached


def _inputs(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of what a node takes, and the graphs in its attributes."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _inputs(inner)
            yield from (formal.name for formal in graph.output)


def _part(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    names: set[str],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
) -> bytes:
    """Return a model of some nodes, with the inputs and tensors of a model that are among `names`, and other inputs."""
    import onnx.helper

    graph = onnx.helper.make_graph(
        nodes,
        model.graph.name,
        [*(formal for formal in model.graph.input if formal.name in names), *inputs],
        outputs,
        [tensor for tensor in model.graph.initializer if tensor.name in names],
    )
    part = onnx.helper.make_model(
        graph, ir_version=model.ir_version, opset_imports=model.opset_import, functions=model.functions
    )
    content: bytes = part.SerializeToString()
    return content


def _formal(argument: Any) -> onnx.ValueInfoProto:
    """Return an input of the type of a session's output."""
    import onnx.helper

    element_type = onnx.TensorProto.DataType.Value(argument.type[len("tensor(") : -1].upper())
    return onnx.helper.make_tensor_value_info(argument.name, element_type, argument.shape or None)  # or no known rank


def _taken(session: Any, values: Feeds) -> dict[str, NDArray[Any]]:
    """Return those of some values that a session takes."""
    arguments = *session.get_inputs(), *session.get_overridable_initializers()
    return {argument.name: values[argument.name] for argument in arguments if argument.name in values}

"""The program that a file was made of, torch's exported graph, run so that it goes on from the file's values.

torch's exporter names a file's values as the nodes of the program, so both can be cut at the same values.  A run
compares the file's value at each cut with the program's, which it computes from the file's values at the cuts before:
in float32 as torch does, in float64, and in float32 rounded otherwise.  The last two show how far rounding alone may
move a number between two cuts.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map

from mmort.onnx.verify.double_precision import in_float64, rounded_otherwise

Value = Any
"""A tensor, a number, or a sequence of tensors."""

_aten = torch.ops.aten
_COPIES = _aten.clone, _aten.alias, _aten.detach, _aten.lift_fresh_copy
_VIEWS = _aten.view.default, _aten._unsafe_view.default
_DISCONTINUOUS = frozenset({
    *(_aten.atan2, _aten.ceil, _aten.fix, _aten.floor, _aten.floor_divide, _aten.fmod, _aten.frac, _aten.hardshrink),
    *(_aten.heaviside, _aten.remainder, _aten.round, _aten.sgn, _aten.sign, _aten.trunc),
})  # fmt: skip
"""torch's operators whose result, of floating-point numbers, jumps; others that choose give integers or bools."""


@dataclass(frozen=True)
class Source:
    """The value of the program that a value of the file is."""

    node: fx.Node
    item: int | None = None
    """The index in a result that is a sequence."""

    def of(self, value: Value) -> Value:
        """Return this part of the node's value."""
        return value if self.item is None else value[self.item]


@dataclass(frozen=True)
class Cut:
    """A value that a file and the program computed from the same values at the cuts before."""

    source: Source
    value: Tensor
    """The program's."""
    exact: Tensor
    """The same in float64, or in float32 rounded in a third way."""
    rounded: Tensor
    """The same in float32, rounded otherwise."""
    inputs: Sequence[Value]
    """The arguments of the node, from which `value` was computed."""
    given: Mapping[int | None, Tensor]
    """The file's results of the node, by their index."""


class Program:
    """An exported program, and the names that its values have in a file.

    Parameters
    ----------
    exported : torch.export.ExportedProgram
        Decomposed, as torch's exporter translated it.
    outputs : sequence of str
        The names of the file's outputs as they were traced, in the program's order.
    """

    def __init__(self, exported: torch.export.ExportedProgram, outputs: Sequence[str]) -> None:
        self.exported = exported
        self.nodes = list(exported.graph.nodes)
        self.same = _common_subexpressions(self.nodes)
        """For each node the first that computes the same, of which the file has one value."""
        self.last_readers = _last_readers(self.nodes, self.same)
        results = [leaf for leaf in tree_leaves(self.nodes[-1].args[0]) if leaf is not None]
        self.outputs = [
            (name, self.source_of(result) if isinstance(result, fx.Node) else None)
            for name, result in zip(outputs, results, strict=True)
        ]
        """The names and sources of the outputs; numbers that do not depend on the inputs have none."""
        self.sources = self._sources()

    def _sources(self) -> dict[str, Source]:
        """Return the source of each name that a value of a file may have."""
        sources: dict[str, Source] = {}
        for node in self.nodes[:-1]:
            value = node.meta.get("val")
            if isinstance(value, (list, tuple)):
                sources |= {f"{node.name}__{item}": Source(self.same[node], item) for item in range(len(value))}
            else:
                sources[node.name] = self.source_of(node)
        return sources | {name: source for name, source in self.outputs if source is not None}

    def source_of(self, node: fx.Node) -> Source:
        """Return the source of a node's value, which may be a part of another's."""
        node = self.same[node]
        if node.target is operator.getitem:
            return Source(self.same[node.args[0]], node.args[1])  # type: ignore[index, arg-type]
        return Source(node)

    def choices(self) -> Iterator[fx.Node]:
        """Yield the nodes whose result may jump where their inputs differ by rounding only."""
        for node in self.nodes:
            if node.op == "call_function" and self.same[node] is node and _chooses(node):
                yield node

    def floats_read(self, node: fx.Node) -> Iterator[Source]:
        """Yield the floating-point tensors that a node reads."""
        for argument in node.all_input_nodes:
            source = self.source_of(argument)
            if _is_floating(source.of(source.node.meta.get("val"))):
                yield source

    def constants(self) -> dict[str, Tensor]:
        """Return all tensors that do not depend on the inputs, by the names of their nodes or of the module's parts."""
        tensors = {name: tensor.detach() for name, tensor in self.exported.state_dict.items()}
        tensors |= {name: value for name, value in self.exported.constants.items() if isinstance(value, Tensor)}
        values: dict[fx.Node, Value] = {}
        users = {spec.arg.name for spec in self.exported.graph_signature.input_specs if spec.kind.name == "USER_INPUT"}
        with torch.no_grad():
            for node, value in self._placeholders(()):
                if node.name not in users:
                    values[node] = value
            for node in self.nodes:
                if node.op == "call_function" and all(argument in values for argument in node.all_input_nodes):
                    values[node] = _call(node, values)
        for node, value in values.items():
            for item, tensor in enumerate(value if isinstance(value, (list, tuple)) else [value]):
                if isinstance(tensor, Tensor) and node.op == "call_function":
                    name = node.name if tensor is value else f"{node.name}__{item}"
                    tensors[name] = tensor
        return tensors

    def _placeholders(self, args: Sequence[Any]) -> Iterator[tuple[fx.Node, Value]]:
        """Yield the nodes of the inputs and of the module's tensors, with their values."""
        exported = self.exported
        leaves = iter(tree_leaves(tuple(args)))
        placeholders = (node for node in self.nodes if node.op == "placeholder")
        for node, spec in zip(placeholders, exported.graph_signature.input_specs, strict=True):
            if spec.kind.name == "USER_INPUT":
                yield node, next(leaves, None)
            elif spec.target in exported.state_dict:
                yield node, exported.state_dict[spec.target]
            else:
                yield node, exported.constants[spec.target]

    def run(
        self,
        args: Sequence[Any],
        given: dict[fx.Node, dict[int | None, Tensor]],
        compare: Callable[[Cut], None],
        *,
        exact: bool = False,
        rounded: bool = True,
        plain: bool = False,
        seed: int = 0,
        only: Iterable[Source] | None = None,
    ) -> list[Value]:
        """Run the program from cut to cut.

        Parameters
        ----------
        args : sequence
            The arguments, as of the module.
        given : dict
            For each node that is a cut, the values to go on with, by their index.  A node's are removed when it is
            computed.
        compare : callable
            Is handed each cut.
        exact : bool, default False
            Whether to compute in float64; otherwise the numbers are rounded in a third way instead.
        rounded : bool, default True
            Whether to compute with other rounding at all; otherwise cuts have the program's value only.
        plain : bool, default False
            Whether to run the program from end to end beside.
        seed : int, default 0
            That of the rounding.
        only : iterable of Source, optional
            The cuts to compare, by default all.  Only what they are computed from is computed then, up to the cuts
            before them.

        Returns
        -------
        list
            The outputs from end to end; none if not `plain`.
        """
        run = _Run(self, given, compare, exact, rounded, plain, seed)
        with torch.no_grad():
            for node, value in self._placeholders(args):
                run.set(node, value)
            nodes = self.nodes if only is None else run.go_on_from_cuts(only)
            for node in nodes:
                run.step(node)
        return run.outputs


class _Streams:
    """The values of nodes in the runs that go side by side."""

    def __init__(self, plain: bool) -> None:
        self.plain: dict[fx.Node, Value] = {}
        """From end to end."""
        self.forced: dict[fx.Node, Value] = {}
        """Going on from the file's values at cuts."""
        self.exact: dict[fx.Node, Value] = {}
        self.rounded: dict[fx.Node, Value] = {}
        self.all = [self.forced, self.exact, self.rounded, *([self.plain] if plain else [])]

    def set(self, node: fx.Node, value: Value) -> None:
        """Set a value that all runs share."""
        for values in self.all:
            values[node] = value

    def drop(self, nodes: Iterable[fx.Node]) -> None:
        """Free values."""
        for node in nodes:
            for values in self.all:
                values.pop(node, None)


class _Run:
    """A run in progress."""

    def __init__(
        self,
        program: Program,
        given: dict[fx.Node, dict[int | None, Tensor]],
        compare: Callable[[Cut], None],
        exact: bool,
        rounded: bool,
        plain: bool,
        seed: int,
    ) -> None:
        self._program, self._given, self._compare = program, given, compare
        self._exact, self._rounded, self._plain = exact, rounded, plain
        self._otherwise, self._further = rounded_otherwise(2 * seed), rounded_otherwise(2 * seed + 1)
        self.streams = _Streams(plain)
        self.outputs: list[Value] = []

    def set(self, node: fx.Node, value: Value) -> None:
        """Set a value that all runs share, and compare it if a file has it as an output."""
        self.streams.set(node, value)
        given = self._given.pop(node, {})
        for item in given:
            tensor = _tensor(value)
            self._compare(Cut(Source(node, item), tensor, tensor, tensor, (), given))

    def go_on_from_cuts(self, only: Iterable[Source]) -> list[fx.Node]:
        """Set the values of cuts that others go on from; return the nodes that are left to compute for these others."""
        wanted = {source.node for source in only}
        needed: set[fx.Node] = set()
        climbing = list(wanted)
        while climbing:
            node = climbing.pop()
            if node in needed or node in self.streams.forced:
                continue
            if node not in wanted and None in (given := self._given.get(node, {})):
                self.streams.set(node, _replaced(node.meta["val"], None, given[None]))
                continue
            needed.add(node)
            same = self._program.same[node]
            climbing += node.all_input_nodes if same is node else [same]
        return [node for node in self._program.nodes if node in needed]

    def step(self, node: fx.Node) -> None:
        """Compute a node in all runs, compare it if it is a cut, and free what no later node reads."""
        streams, same = self.streams, self._program.same[node]
        if node.op == "output":
            results = [leaf for leaf in tree_leaves(node.args[0]) if leaf is not None]
            self.outputs = [
                streams.plain[result] if isinstance(result, fx.Node) else result for result in results if self._plain
            ]
        elif same is not node:
            for values in streams.all:
                values[node] = values[same]
        elif node.op == "get_attr":
            self.set(node, getattr(self._program.exported.graph_module, str(node.target)))
        elif node.op == "call_function":
            self._call(node)
        streams.drop(self._program.last_readers.get(node, ()))

    def _call(self, node: fx.Node) -> None:
        """Compute a node in all runs."""
        streams = self.streams
        forced = value = _call(node, streams.forced)
        if self._plain:
            changed = any(streams.plain[argument] is not streams.forced[argument] for argument in node.all_input_nodes)
            streams.plain[node] = _call(node, streams.plain) if changed else value
        exact = rounded = value
        if self._rounded and not _is_opaque(node) and any(map(_is_float32, tree_leaves(value))):
            with in_float64() if self._exact else self._further:
                exact = _with_choices_of(value, _call(node, streams.exact))
            with self._otherwise:
                rounded = _with_choices_of(value, _call(node, streams.rounded))
        if node in self._given:
            inputs = tree_map(
                lambda argument: streams.forced[argument] if isinstance(argument, fx.Node) else argument,
                [*node.args, *node.kwargs.values()],
            )
            given = self._given.pop(node)
            for item, replacement in given.items():
                source = Source(node, item)
                tensors = [_tensor(source.of(stream)) for stream in (value, exact, rounded)]
                self._compare(Cut(source, tensors[0], tensors[1], tensors[2], inputs, given))
                forced, exact, rounded = (_replaced(stream, item, replacement) for stream in (forced, exact, rounded))
        streams.forced[node], streams.exact[node], streams.rounded[node] = forced, exact, rounded


def _call(node: fx.Node, values: Mapping[fx.Node, Value]) -> Value:
    """Call a node's operator."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda argument: values[argument])
    # torch.export may have seen other strides.
    target: Any = _aten.reshape.default if node.target in _VIEWS else node.target
    return target(*args, **kwargs)


def _tensor(value: Value) -> Tensor:
    """Return a number as a tensor."""
    return value if isinstance(value, Tensor) else torch.tensor(value)


def _replaced(value: Value, item: int | None, replacement: Tensor) -> Value:
    """Return a value with another one in its place, or in that of an item."""
    if item is not None:
        return type(value)(replacement if index == item else part for index, part in enumerate(value))
    return replacement if isinstance(value, Tensor) else replacement.item()


def _with_choices_of(value: Value, other: Value) -> Value:
    """Return another run's value with the integers of the first, which it takes wholly if shapes differ."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_with_choices_of, value, other))
    if not _is_float32(value) or not isinstance(other, Tensor) or other.shape != value.shape:
        return value
    return other


def _is_float32(value: Value) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32


def _is_floating(value: Value) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


TORCH = "aten", "prims"
"""The namespaces of torch's own operators."""


def namespace_of(node: fx.Node) -> str | None:
    """Return the namespace of the operator that a node calls; None if it calls none, such as a loop."""
    return node.target.namespace if isinstance(node.target, torch._ops.OpOverload) else None


def is_not_of_torch(node: fx.Node) -> bool:
    """Return whether a node calls an operator of mmort, or of another package."""
    return namespace_of(node) not in (None, *TORCH)


def _is_opaque(node: fx.Node) -> bool:
    """Return whether a node is a loop, or another package's operator, which may take float32 only: it is one step."""
    is_foreign = is_not_of_torch(node) and namespace_of(node) != "mmort"
    return is_foreign or isinstance(node.target, torch._ops.HigherOrderOperator)


def _chooses(node: fx.Node) -> bool:
    """Return whether a node's result may jump: it is discontinuous, makes integers of numbers, or is an operator."""
    if is_not_of_torch(node) or isinstance(node.target, torch._ops.HigherOrderOperator):
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    reads = any(
        _is_floating(leaf) for argument in node.all_input_nodes for leaf in tree_leaves(argument.meta.get("val"))
    )
    results = [leaf for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, Tensor)]
    discrete = node.target.overloadpacket in _DISCONTINUOUS or node.kwargs.get("rounding_mode") is not None
    return reads and (discrete or not all(map(_is_floating, results)))


def _common_subexpressions(nodes: Sequence[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Return for each node the first that computes the same, of which the file has one value."""
    same: dict[fx.Node, fx.Node] = {}
    first: dict[Any, fx.Node] = {}
    for node in nodes:
        same[node] = node
        if node.op != "call_function" or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            continue
        if getattr(node.target, "overloadpacket", None) in _COPIES:
            same[node] = same[node.args[0]]  # type: ignore[index]
            continue
        arguments = fx.node.map_arg((node.args, node.kwargs), lambda argument: same[argument])
        same[node] = first.setdefault((node.target, repr(arguments)), node)
    return same


def _last_readers(nodes: Sequence[fx.Node], same: Mapping[fx.Node, fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """Return for each node the nodes whose values no later one reads."""
    last: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        for argument in (*node.all_input_nodes, same[node]):
            last[argument] = node
    readers: dict[fx.Node, list[fx.Node]] = {}
    for value, reader in last.items():
        readers.setdefault(reader, []).append(value)
    return readers

"""A program that runs from cut to cut: what a run of some cuts only computes, and what it leaves out."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mmort.onnx.verify.program import Program


class Chain(torch.nn.Module):
    """Four operators one after another, of which one has two results."""

    def forward(self, x):
        largest, indices = (x.exp() + 1).max(1)
        return largest.sin(), indices


class Calls(TorchDispatchMode):
    """Notes the operators that are called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


ARGS = (torch.tensor([[0.1, 0.7], [0.9, 0.2]]),)


def run(cuts, only):
    """Return the values at the wanted cuts, and the operators that were called for them."""
    program = Program(torch.export.export(Chain(), ARGS), ["largest", "indices"])
    nodes = {node.target.overloadpacket: node for node in program.nodes if hasattr(node.target, "overloadpacket")}
    nodes = {str(packet).removeprefix("aten."): node for packet, node in nodes.items()}
    given = {nodes[name]: dict(values) for name, values in cuts.items()}
    compared = {}

    def compare(cut):
        compared[cut.source.node.target.overloadpacket, cut.source.item] = cut.value

    with Calls() as calls:
        program.run(ARGS, given, compare, rounded=False, only=only and [program.source_of(nodes[only])])
    return {str(packet).removeprefix("aten."): value for (packet, _), value in compared.items()}, calls.names


def test_what_is_computed_for_one_cut():
    """It goes on from the value at the cut before, and not further than itself."""
    given = {"exp": {None: torch.ones(2, 2)}, "add": {None: torch.full((2, 2), 5.0)}, "sin": {None: torch.zeros(2)}}
    everything, _ = run(given, None)
    values, calls = run(given, "add")
    assert [name for name in calls if name in ("exp", "add", "max", "sin")] == ["add"]
    assert values["add"].tolist() == everything["add"].tolist() == [[2, 2], [2, 2]]
    assert list(values) == ["add"]


def test_a_result_of_several_is_computed_unless_all_are_given():
    """The file may have one of two results only."""
    given = {
        "add": {None: torch.tensor([[1.0, 2], [4, 3]])},
        "max": {0: torch.tensor([0.5, 1])},
        "sin": {None: torch.zeros(2)},
    }
    values, calls = run(given, "sin")
    assert "exp" not in calls
    assert values["sin"].tolist() == pytest.approx(torch.tensor([0.5, 1]).sin().tolist())

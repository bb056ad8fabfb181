"""The proof of a file: what it accepts although numbers differ, and what it refuses although they hardly do."""

import json

import numpy as np
import onnx
import onnx.external_data_helper
import onnx.helper as oh
import pytest
import torch

import mmort.torch
from mmort.onnx.export.draft import Draft
from mmort.onnx.export.options import Options
from mmort.onnx.verify import proof
from mmort.onnx.verify.proof import CONSTANTS, LIMIT, Noisy, ProofRow
from mmort.onnx.verify.report import LINE_WIDTH, Report


class Chooses(torch.nn.Module):
    """Logits of a layer, the best of them, and which are above a threshold: rounding decides both."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(16, 64)

    def forward(self, x):
        logits = self.layer(x)
        best, indices = logits.topk(8)
        return best.clamp(max=40.0), indices, logits > 0.25, logits.softmax(1)


def draft_of(module, args, path, change=lambda model: None, **options):
    """Return the draft of a module's file, changed."""
    with Draft(module, args, path, Options(**options)) as draft:
        draft.trace()
        onnx.external_data_helper.load_external_data_for_model(draft.artifact.model, str(draft.artifact.directory))
        change(draft.artifact.model)
        draft.accept(None)
    return draft


def insert(model, before, op_type, *inputs, **attributes):
    """Let the first node of a type read its first input through another node."""
    nodes = model.graph.node
    position = next(index for index, node in enumerate(nodes) if node.op_type == before)
    node = oh.make_node(op_type, [nodes[position].input[0], *inputs], ["inserted"], **attributes)
    nodes[position].input[0] = "inserted"
    nodes.insert(position, node)


def constant(model, name, *numbers):
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(numbers, np.float32), name))


def node_of(model, op_type):
    return next(node for node in model.graph.node if node.op_type == op_type)


ARGS = (torch.randn(4, 16, generator=torch.Generator().manual_seed(0)),)


def prove(tmp_path, change=lambda model: None, module=None, args=ARGS, **further):
    return draft_of((module or Chooses()).eval(), args, tmp_path / "x.onnx", change).prove(**further)


def test_a_right_file(tmp_path):
    report = prove(tmp_path)
    assert report.ok
    assert [row.compared for row in report.rows].count("torch's program with the model") == 3
    assert report.rows[-1].compared == CONSTANTS
    assert max(row.factor for row in report.rows if row.factor is not None) < LIMIT


def test_choices_that_rounding_flips_are_accepted(tmp_path):
    """The file's logits are off by a rounding, and on the other side of the threshold; so they are chosen rightly."""
    module = Chooses()
    with torch.no_grad():
        logits = module.layer(ARGS[0])
        module.layer.bias += 0.25 - logits[0, 0]  # so that the first logit is at the threshold, within rounding
        at_threshold = module.layer(ARGS[0])[0, 0]
    assert (at_threshold - 0.25).abs() < 1e-7

    def round_otherwise(model):
        constant(model, "rounding", 1 + (-(2**-21) if at_threshold > 0.25 else 2**-21))
        gemm = next(node for node in model.graph.node if node.op_type == "Gemm")
        gemm.output[0], name = "rounded", gemm.output[0]
        position = list(model.graph.node).index(gemm) + 1
        model.graph.node.insert(position, oh.make_node("Mul", ["rounded", "rounding"], [name]))

    draft = draft_of(module.eval(), ARGS, tmp_path / "x.onnx", round_otherwise)
    session = draft.artifact.session([value.name for value in draft.artifact.model.graph.output])
    above = session.run(None, {"x": ARGS[0].numpy()})[2]
    with torch.no_grad():
        assert (above != module(*ARGS)[2].numpy()).any()  # end to end they differ
    assert draft.prove().ok


def test_choices_must_be_the_same_given_the_same_numbers(tmp_path):
    def include_the_threshold(model):
        node_of(model, "Greater").op_type = "GreaterOrEqual"

    threshold = torch.full((4, 16), 0.25)
    comparison = torch.nn.Module()
    comparison.forward = lambda x: x > 0.25
    report = prove(tmp_path, include_the_threshold, comparison, (threshold,))
    assert not report.ok
    assert "64 of 64 differ" in str(report)
    assert prove(tmp_path, lambda model: None, comparison, (threshold,)).ok


def test_equal_numbers_may_be_taken_in_another_order(tmp_path):
    class Best(torch.nn.Module):
        def forward(self, x):
            numbers, indices = (x * 4).round().topk(6)
            return numbers, indices, x.round().argmax(1)

    def reverse(model):
        """Let the file look at the numbers from the end, and count from there."""
        insert(model, "TopK", "Gather", "backwards", axis=1)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(15, -1, -1), "backwards"))
        top = node_of(model, "TopK")
        name, top.output[1] = top.output[1], "from the end"
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(15), "last"))
        model.graph.node.append(oh.make_node("Sub", ["last", "from the end"], [name]))

    report = prove(tmp_path, reverse, Best(), (torch.randn(4, 16, generator=torch.Generator().manual_seed(1)),))
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("best", "off", "ok"),
    [
        (lambda x: x.argmax(1), 1, True),
        (lambda x: x.argmax(1), 2, False),
        (lambda x: x.argmax(1, keepdim=True), 1, True),
        (lambda x: x.argmax(), 1, True),
        (lambda x: x.argmax(), 2, False),
        (lambda x: x.max(1).indices, 1, True),
        (lambda x: x.argmax(1), 4, False),
    ],
    ids=["axis", "axis, less", "keepdim", "all", "all, less", "max", "no index"],
)
def test_the_best_of_equal_numbers(best, off, ok, tmp_path):
    """The file takes the one that many places after torch's: the next is as large, the one after it less."""

    def take_another(model):
        node = model.graph.node[-1]
        name, node.output[-1] = node.output[-1], "taken"
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(off), "off"))
        model.graph.node.append(oh.make_node("Add", ["taken", "off"], [name]))

    module = torch.nn.Module()
    module.forward = best
    args = (torch.tensor([[3.0, 3.0, 1.0, 1.0]]),)
    assert prove(tmp_path, take_another, module, args).ok == ok


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(lambda model: node_of(model, "TopK").attribute.append(oh.make_attribute("largest", 0)), "topk"),
        pytest.param(lambda model: setattr(node_of(model, "Softmax").attribute[0], "i", 0), "softmax"),
        pytest.param(
            lambda model: (constant(model, "more", 1 + 1e-4), insert(model, "Softmax", "Mul", "more")), "softmax"
        ),
        pytest.param(lambda model: insert(model, "Softmax", "Identity", "x"), "cannot load"),
    ],
    ids=["order", "axis", "numbers", "invalid"],
)
def test_wrong_files(change, problem, tmp_path):
    report = prove(tmp_path, change)
    assert not report.ok
    assert problem in str(report)


def test_a_limit_that_no_input_reaches(tmp_path):
    def raise_limit(model):
        clip = node_of(model, "Clip")
        constant(model, "limit", 40.0001)
        model.graph.initializer[-1].dims[:] = []
        clip.input[2] = "limit"

    report = prove(tmp_path, raise_limit)
    assert [row.compared for row in report.rows if row.problem] == [CONSTANTS]
    assert "limit, read by Clip, is not among the constants" in str(report)


@pytest.mark.parametrize(
    ("whole", "limits"),
    [
        (False, {"max": 1000}),
        (False, {"min": -1000.5, "max": 1e6}),
        (True, {"max": 1000}),
        (True, {"min": -1000, "max": 1000}),
    ],
)
def test_a_limit_that_is_not_there(whole, limits, tmp_path):
    """No input reaches it, neither among numbers nor among integers."""

    class Limited(torch.nn.Module):
        def forward(self, x):
            return ((10 * x).int() if whole else x).clamp(**limits)

    def drop(model):
        (node,) = (node for node in model.graph.node if node.op_type in ("Clip", "Min"))
        node.CopyFrom(oh.make_node("Identity", node.input[:1], node.output))

    assert prove(tmp_path, module=Limited()).ok
    report = prove(tmp_path, drop, module=Limited())
    assert [row.compared for row in report.rows if row.problem] == [CONSTANTS]
    assert "in torch's program, but not here" in str(report)


def test_attributes_that_no_input_shows(tmp_path):
    pool = torch.nn.MaxPool2d(3, 2, 1)  # the window at the edge is the same either way
    args = (torch.randn(1, 2, 7, 7),)

    def round_up(model):
        attributes = {attribute.name: attribute for attribute in node_of(model, "MaxPool").attribute}
        attributes["ceil_mode"].i = 1

    report = prove(tmp_path, round_up, pool, args)
    assert [row.compared for row in report.rows if row.problem] == [CONSTANTS]
    assert "another window" in str(report)


def test_constants_of_a_translation_are_shown_by_other_numbers(tmp_path):
    class Variance(torch.nn.Module):
        def forward(self, x):
            return x.var(1, correction=0), torch.log2(x.abs() + 1)

    assert prove(tmp_path, module=Variance()).ok


def test_weights_are_the_modules(tmp_path):
    """An error of one weight that is below rounding."""

    def change(model):
        (weight,) = (tensor for tensor in model.graph.initializer if tensor.name == "layer.weight")
        numbers = onnx.numpy_helper.to_array(weight).copy()
        numbers[3, 5] *= 1 + 1e-6
        weight.CopyFrom(onnx.numpy_helper.from_array(numbers, weight.name))

    report = prove(tmp_path, change)
    assert [row.compared for row in report.rows if row.problem] == [CONSTANTS]
    assert "layer.weight" in str(report)


def test_weights_that_two_calls_share_have_one_value(tmp_path):
    """One call has a constant of another name, whose error is below rounding; the other call has the right one."""

    class Shared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Conv2d(3, 4, 3)

        def forward(self, x):
            return self.layer(x), self.layer(x[..., ::2])

    def change(model):
        last = [node for node in model.graph.node if node.op_type == "Conv"][-1]
        bias = next(tensor for tensor in model.graph.initializer if tensor.name == last.input[2])
        constant(model, "other", *onnx.numpy_helper.to_array(bias) * np.float32(1 + 1e-6))
        last.input[2] = "other"

    args = (torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)
    assert prove(tmp_path, module=Shared(), args=args).ok
    report = prove(tmp_path, change, Shared(), args)
    assert [row.compared for row in report.rows if row.problem] == [CONSTANTS]
    assert "other, read by Conv, is not among the constants" in str(report)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_folded_normalizations(scale, tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    module[1].running_var.uniform_(0.5, 2)
    module[1].running_mean.normal_()

    def change(model):
        for tensor in model.graph.initializer:
            numbers = onnx.numpy_helper.to_array(tensor)
            if numbers.ndim == 1:
                changed = np.where(np.arange(4) == 2, numbers * np.float32(scale), numbers)
                tensor.CopyFrom(onnx.numpy_helper.from_array(changed, tensor.name))

    report = prove(tmp_path, change, module, (torch.randn(1, 3, 8, 8),))
    assert report.ok == (scale == 1)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("layers", [1, 2])
def test_biases_of_recurrences_are_joined(kind, layers, tmp_path):
    class Recurrence(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = getattr(torch.nn, kind)(16, 5, layers, bidirectional=True, batch_first=True)

        def forward(self, x):
            return self.layer(x)[0]

    def change(model):
        biases = node_of(model, kind).input[3]
        tensor = next(tensor for tensor in model.graph.initializer if tensor.name == biases)
        array = onnx.numpy_helper.to_array(tensor).copy()
        array[0, 0] += 1e-6
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, biases))

    args = (torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0)),)
    assert prove(tmp_path, module=Recurrence(), args=args).ok
    report = prove(tmp_path, change, Recurrence(), args)
    assert not report.ok
    assert f"read by {kind}, is not among the constants" in str(report)


@pytest.mark.parametrize("taken", ["max", "min"])
def test_largest_integers_are_no_indices(taken, tmp_path):
    """Even if the integers are such that the input has equal numbers there."""

    class Counts(torch.nn.Module):
        def forward(self, x):
            return (x > 0).long().max(1).values

    def change(model):
        if taken == "min":
            node_of(model, "ReduceMax").op_type = "ReduceMin"

    args = (torch.tensor([[-1.0, -1.0, 1.0, 1.0]]),)
    report = prove(tmp_path, change, Counts(), args)
    assert report.ok == (taken == "max"), report


def test_another_order_of_the_largest_numbers_has_their_indices(tmp_path):
    """As torch does not sort them, the file may; but each number stays beside its index."""

    class Largest(torch.nn.Module):
        def forward(self, x):
            return x.topk(4, sorted=False)

    def flipped(*positions):
        def change(model):
            for position in positions:
                node, name = node_of(model, "TopK"), model.graph.output[position].name
                node.output[position] = f"{name}_in_order"
                model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([3, 2, 1, 0]), f"order_{name}"))
                inputs = [f"{name}_in_order", f"order_{name}"]
                model.graph.node.append(oh.make_node("Gather", inputs, [name], axis=1))

        return change

    assert prove(tmp_path, flipped(), Largest(), ARGS).ok
    assert prove(tmp_path, flipped(0, 1), Largest(), ARGS).ok
    assert not prove(tmp_path, flipped(0), Largest(), ARGS).ok
    assert not prove(tmp_path, flipped(1), Largest(), ARGS).ok


def test_what_torch_froze_is_a_difference_of_program_and_model(tmp_path):
    class Frozen(torch.nn.Module):
        def forward(self, x):
            return x * (2 if x.shape[0] <= x.shape[1] else 3)

    names = {"x": {0: "n", 1: "m"}}
    draft = draft_of(Frozen().eval(), (torch.randn(5, 7),), tmp_path / "x.onnx", dynamic_shapes=names)
    report = draft.prove()
    assert {row.compared for row in report.rows if row.problem} == {"torch's program with the model"}


def test_a_number_of_outputs_that_torch_froze(tmp_path):
    class Returns(torch.nn.Module):
        def forward(self, x):
            return (x * 2, x * 3) if x.shape[0] > x.shape[1] else (x * 2,)

    names = {"x": {0: "n", 1: "m"}}
    draft = draft_of(Returns().eval(), (torch.randn(5, 7),), tmp_path / "x.onnx", dynamic_shapes=names)
    report = draft.prove([(torch.randn(9, 3),)])
    assert "1 outputs, not 2" in {row.problem for row in report.rows}


def test_a_choice_with_which_torch_cannot_go_on_is_a_difference(tmp_path):
    """ONNX Runtime takes indices that count from the end, with which the same elements are gathered."""

    class Gathers(torch.nn.Module):
        def forward(self, x):
            return x.gather(1, x.argmax(1, keepdim=True))

    def from_the_end(model):
        node = node_of(model, "ArgMax")
        name, node.output[0] = node.output[0], "from the start"
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(16), "length"))
        position = list(model.graph.node).index(node) + 1
        model.graph.node.insert(position, oh.make_node("Sub", ["from the start", "length"], [name]))

    assert prove(tmp_path, module=Gathers()).ok
    report = prove(tmp_path, from_the_end, Gathers())
    assert any("argmax" in row.at and row.problem == "4 of 4 differ" for row in report.rows), str(report)


def test_a_view_with_noise_that_onnx_runtime_refuses(tmp_path):
    draft = draft_of(Chooses().eval(), ARGS, tmp_path / "x.onnx")
    wider = Noisy((torch.randn(4, 17),), 1, "noise", "wider", 0)
    report = draft.prove(noisy=[wider])
    (problem,) = (row for row in report.rows if row.problem)
    assert problem.inputs == "4x17"
    assert "Expected: 16" in problem.problem


def test_a_portable_file_that_needs_the_library(tmp_path):
    class Suppresses(torch.nn.Module):
        def forward(self, boxes, scores):
            return mmort.torch.nms(boxes, scores, 0.5)[1]

    args = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2]]), torch.tensor([0.9, 0.8])
    draft = draft_of(Suppresses().eval(), args, tmp_path / "x.onnx")
    assert draft.prove().ok
    report = proof.prove(draft.artifact, draft.program, Suppresses().eval(), [args], portable=True)
    assert any("ONNX Runtime cannot load" in row.problem for row in report.rows), str(report)


def test_noise_shows_a_threshold_that_the_inputs_do_not_reach(tmp_path):
    class Head(torch.nn.Module):
        def forward(self, x):
            head = x * 1.5
            return (head > 100).float(), head

    def halve(model):
        node_of(model, "Greater").input[0], node_of(model, "Greater").input[1] = "doubled", "threshold"
        multiply = node_of(model, "Mul")
        constant(model, "two", 2.0)
        constant(model, "threshold", 100.0)
        model.graph.node.insert(1, oh.make_node("Mul", [multiply.output[0], "two"], ["doubled"]))

    draft = draft_of(Head().eval(), ARGS, tmp_path / "x.onnx", halve, output_names=["above", "head"])
    assert all(row.ok for row in draft.prove().rows if row.compared != CONSTANTS)
    noisy = Noisy(ARGS, 30, "noise", "noise in heads", 0)
    report = draft.prove(heads=["head"], noisy=[noisy])
    assert any(row.problem and row.view == "noise in heads" for row in report.rows), str(report)


def test_values_without_a_name_are_computed_from_those_before(tmp_path):
    """A file may lack values of the program: choices are then compared from the values before."""

    def rename(model):
        gemm = node_of(model, "Gemm")
        old = gemm.output[0]
        for node in model.graph.node:
            node.input[:] = ["renamed" if name == old else name for name in node.input]
            node.output[:] = ["renamed" if name == old else name for name in node.output]

    assert prove(tmp_path, rename).ok


def test_nan_and_infinities_are_compared_as_numbers(tmp_path):
    class Log(torch.nn.Module):
        def forward(self, x):
            return x.log(), x.log() > -1

    args = (torch.tensor([[-1.0, 0.0, 1.0, torch.inf, torch.nan]]),)
    assert prove(tmp_path, module=Log(), args=args).ok

    def absolute(model):
        insert(model, "Log", "Abs")

    assert not prove(tmp_path, absolute, Log(), args).ok


class Returns(torch.nn.Module):
    """Outputs that no operator computes: an input, a weight, and a number that is computed without inputs."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(3.0))

    def forward(self, x):
        return x, self.weight, torch.ones(2) * 3, x + 1


def test_outputs_that_no_operator_computes(tmp_path):
    args = (torch.randn(2),)
    draft = draft_of(Returns().eval(), args, tmp_path / "x.onnx", output_names=["same", "weight", "three", "more"])
    assert draft.prove().ok, str(draft.prove())
    numbers = {tensor.name: tensor for tensor in draft.artifact.model.graph.initializer}
    for name in ("weight", "three"):
        right = onnx.numpy_helper.to_array(numbers[name])
        numbers[name].CopyFrom(onnx.numpy_helper.from_array(right + np.float32(1), name))
        assert not draft.prove().ok, name
        numbers[name].CopyFrom(onnx.numpy_helper.from_array(right, name))


def test_an_output_of_the_file_only(tmp_path):
    def add_output(model):
        model.graph.node.append(oh.make_node("Identity", ["x"], ["other"]))
        model.graph.output.append(oh.make_tensor_value_info("other", onnx.TensorProto.FLOAT, None))

    report = prove(tmp_path, add_output)
    assert not report.ok
    assert "the output other is not a value of torch's program" in str(report)


def test_long_names_are_shortened_in_the_table_only():
    name = "heads/roi_head.bbox_head.a_long_name_of_a_layer (convolution)"
    right = ProofRow("1x3x1024x2048, 1x2", "torch's program with the model", 123_456, 1.5, name)
    report = Report((right,))
    assert max(map(len, str(report).splitlines())) == LINE_WIDTH
    assert name not in str(report)
    assert json.loads(report.to_json())["rows"][0]["at"] == name
    wrong = ProofRow("1x3x1024x2048, 1x2", "all values", 123_456, 50.0, name, "a problem")
    assert name in str(Report((right, wrong)))

"""What is written in plain torch keeps the promises of the operators: dtypes, shapes, layouts, traces."""

import copy

import numpy as np
import pytest
import torch

import mmort.torch
from mmort.torch.operators import OPERATORS
from mmort.torch.torch_only import aligned_iou_rotated, pairwise_iou_rotated
from tests.torch.calls import flat
from tests.torch.plain import plain

PLAIN = plain()
FIXED = [name for name, case in PLAIN.items() if case.fixed]


def call(case, dtype=torch.float64, change=lambda tensor: tensor, **other):
    """Call with tensors, the floating ones in a dtype; layers have their parameters in it, too."""
    function = case.function
    if isinstance(function, torch.nn.Module):
        function = copy.deepcopy(function).to(dtype)
    return flat_list(function(**tensors(case, dtype, change) | other))


def tensors(case, dtype=torch.float64, change=lambda tensor: tensor):
    """Return the arguments with tensors for arrays."""
    arguments = dict(case.arguments)
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            tensor = torch.tensor(value)
            arguments[name] = change(tensor.to(dtype) if name in case.floating else tensor)
    return arguments


def flat_list(results):
    return list(results) if isinstance(results, list) else list(flat(results))


def floating(results):
    return [tensor for tensor in results if tensor.is_floating_point()]


def test_all_that_is_no_bare_operator_is_listed():
    """Functions that `on_tensors` makes of an operator are tested as operators are."""
    made = {name for name in mmort.torch.__all__ if getattr(mmort.torch, name).__module__ == "mmort.torch"}
    assert made <= set(OPERATORS)
    assert {name.partition(" ")[0] for name in PLAIN} == set(mmort.torch.__all__) - made - {"define"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", PLAIN)
def test_values_are_the_definitions(name, dtype):
    case = PLAIN[name]
    arguments = {key: value for key, value in case.arguments.items() if value is not None}
    expected = case.expected(**arguments)
    expected = list(expected) if isinstance(expected, (list, tuple)) else [expected]
    results = call(case, dtype)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == (dtype if result.is_floating_point() else torch.int64)
        limit = 1e-10 if dtype == torch.float64 else 2e-5
        scale = max(1.0, float(np.abs(wanted).max(initial=0)))
        np.testing.assert_allclose(result.detach().numpy(), wanted, rtol=0, atol=limit * scale)


@pytest.mark.parametrize("name", PLAIN)
def test_float16_is_computed_in_float32(name):
    """Each number is one of float16's two around what float32 gives; layers of several layers round between them."""
    case = PLAIN[name]
    results, wide = call(case, torch.float16), call(case, torch.float32)
    for result, wanted in zip(results, wide, strict=True):
        assert result.dtype == (torch.float16 if wanted.is_floating_point() else wanted.dtype)
        assert result.shape == wanted.shape
        if not case.nearest:
            torch.testing.assert_close(result.float(), wanted, rtol=0.02, atol=0.02)
            continue
        rounded = wanted.to(result.dtype).detach().numpy()
        fits = np.isfinite(rounded)
        assert fits.all()
        spacing = np.spacing(np.abs(rounded)) if rounded.dtype == np.float16 else 0
        assert (np.abs(result.detach().numpy().astype(np.float64) - rounded) <= spacing).all()


@pytest.mark.parametrize("name", PLAIN)
def test_two_dtypes_give_the_wider(name):
    case = PLAIN[name]
    if len(case.floating) < 2 or isinstance(case.function, torch.nn.Module):
        pytest.skip("one tensor, or parameters that have the dtype of both")
    narrow, *_ = case.floating
    mixed = tensors(case, torch.float64)
    mixed[narrow] = mixed[narrow].half()
    results = flat_list(case.function(**mixed))
    for result, wanted in zip(results, call(case, torch.float64), strict=True):
        torch.testing.assert_close(result, wanted)


@pytest.mark.parametrize("name", PLAIN)
def test_strided_tensors(name):
    def strided(tensor):
        return torch.stack([tensor, torch.zeros_like(tensor)], tensor.dim())[..., 0]

    case = PLAIN[name]
    for result, wanted in zip(call(case, change=strided), call(case), strict=True):
        torch.testing.assert_close(result, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name, case in PLAIN.items() if case.empty])
def test_nothing_in_gives_nothing(name):
    case = PLAIN[name]
    arguments = tensors(case, torch.float32)
    for key in case.empty:
        arguments[key] = arguments[key][:0]
    results = flat_list(case.function(**arguments))
    if name == "sigmoid_focal_loss sum":
        assert results[0] == 0
    else:
        assert all(result.numel() == 0 for result in results)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("name", PLAIN)
def test_other_dtypes_are_refused_by_name(name, dtype):
    case = PLAIN[name]
    if isinstance(case.function, torch.nn.Module) and list(case.function.parameters()):
        pytest.skip("torch's own layers come first")
    for key in case.floating:
        arguments = tensors(case, torch.float32)
        with pytest.raises(TypeError, match=rf"^\w+: \w+ must be float16, float32 or float64, got {dtype}$"):
            case.function(**arguments | {key: arguments[key].to(dtype)})


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, case in PLAIN.items() for key in case.wrong])
def test_other_shapes_are_refused_by_name(name, key):
    case = PLAIN[name]
    arguments = tensors(case, torch.float32)
    wrong = torch.zeros(case.wrong[key], dtype=arguments[key].dtype)
    with pytest.raises(ValueError, match=r"^\w+: [\w ]+ must (be|have) .*, got "):
        case.function(**arguments | {key: wrong})


@pytest.mark.parametrize("name", PLAIN)
def test_autocast_computes_in_float32(name):
    case = PLAIN[name]
    if isinstance(case.function, torch.nn.Module) and list(case.function.parameters()):
        pytest.skip("torch's own layers compute in bfloat16")
    for dtype in (torch.bfloat16, torch.float16):
        low = tensors(case, dtype)
        wide = {key: value.float() if key in case.floating else value for key, value in low.items()}
        with torch.autocast("cpu", dtype=torch.bfloat16):
            results = flat_list(case.function(**low))
        for result, wanted in zip(results, flat_list(case.function(**wide)), strict=True):
            assert result.dtype == wanted.dtype
            assert torch.equal(result, wanted)


@pytest.mark.parametrize("name", FIXED)
def test_shapes_and_dtypes_without_numbers(name):
    case = PLAIN[name]
    for dtype in (torch.float16, torch.float32):
        results, wanted = call(case, dtype), tensors(case, dtype)
        function = case.function
        if isinstance(function, torch.nn.Module):
            function = copy.deepcopy(function).to(dtype).to("meta")
        metas = {key: value.to("meta") if torch.is_tensor(value) else value for key, value in wanted.items()}
        for meta, result in zip(flat_list(function(**metas)), results, strict=True):
            assert (meta.shape, meta.dtype) == (result.shape, result.dtype)


class Model(torch.nn.Module):
    """A function as a model, whose inputs are its tensors."""

    def __init__(self, case):
        super().__init__()
        self.function, self.arguments = case.function, case.arguments
        self.names = [name for name, value in case.arguments.items() if isinstance(value, np.ndarray)]

    def forward(self, *inputs):
        named = dict(zip(self.names, inputs, strict=True))
        return self.function(**{name: named.get(name, value) for name, value in self.arguments.items()})

    def inputs(self, case, dtype=torch.float32):
        return tuple(tensors(case, dtype)[name] for name in self.names)


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)  # not the default in torch 2.9
@pytest.mark.parametrize("name", [name for name, case in PLAIN.items() if case.compiled])
def test_compiled(name):
    case = PLAIN[name]
    torch._dynamo.reset()
    model = Model(case).eval()
    for dtype in (torch.float32,) if list(model.parameters()) else (torch.float32, torch.float16):
        inputs = model.inputs(case, dtype)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        for result, wanted in zip(flat_list(compiled(*inputs)), flat_list(model(*inputs)), strict=True):
            assert result.dtype == wanted.dtype
            torch.testing.assert_close(result, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [name for name, case in PLAIN.items() if case.exported])
def test_exported(name):
    """No node changes a dtype if all tensors are float32."""
    case = PLAIN[name]
    model = Model(case).eval()
    inputs = model.inputs(case)
    program = torch.export.export(model, inputs, strict=False)
    for result, wanted in zip(flat_list(program.module()(*inputs)), flat_list(model(*inputs)), strict=True):
        torch.testing.assert_close(result, wanted, rtol=1e-6, atol=1e-6)
    assert not [
        node
        for node in program.graph.nodes
        if node.target in (torch.ops.aten.to.dtype, torch.ops.aten._to_copy.default)
        and node.args[0].meta["val"].dtype == node.meta["val"].dtype == torch.float32
    ]


def test_operators_that_only_torch_has():
    boxes, scores, classes = (torch.tensor(PLAIN["batched_nms"].arguments[key]) for key in ("boxes", "scores", "idxs"))
    torch.library.opcheck(torch.ops.mmort.class_soft_nms, (boxes, scores, classes), {"iou_threshold": 0.3})
    turned = torch.tensor(PLAIN["box_iou_rotated aligned"].arguments["bboxes1"])
    for operator in (aligned_iou_rotated, pairwise_iou_rotated):
        torch.library.opcheck(operator, (turned, turned))


@pytest.mark.parametrize("name", ["batched_nms soft", "box_iou_rotated of pairs", "box_iou_rotated aligned"])
def test_gradients_that_are_missing_are_named(name):
    case = PLAIN[name]
    results = call(case, change=lambda tensor: tensor.requires_grad_() if tensor.is_floating_point() else tensor)
    with pytest.raises(RuntimeError, match=rf"^{case.function.__name__}: has no gradient"):
        floating(results)[0].sum().backward()


def test_batches_of_boxes_must_match():
    boxes = torch.rand(2, 3, 4)
    with pytest.raises(
        ValueError, match=r"^bbox_overlaps: bboxes2 must have the batches of bboxes1, \[2\], got \[3, 4\]$"
    ):
        mmort.torch.bbox_overlaps(boxes, boxes[0])
    with pytest.raises(ValueError, match=r"^bbox_overlaps: bboxes2 must be \[3, 4\], as bboxes1 is, got \[1, 4\]$"):
        mmort.torch.bbox_overlaps(boxes[0], boxes[0, :1], aligned=True)

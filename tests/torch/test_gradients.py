"""Gradients: finite differences, empty tensors, half precision, and operators that have none."""

import pytest
import torch

import mmort.torch
from mmort.torch.gradients import GRADIENTS
from mmort.torch.operators import OPERATORS
from tests.torch.calls import CASES, ROIS, arguments_of, flat, nonempty


def normal(rng, *shape):
    return torch.tensor(rng.standard_normal(shape)).requires_grad_()


def uniform(rng, *shape):
    return torch.tensor(rng.random(shape)).requires_grad_()


def assert_gradient(function, *inputs):
    assert torch.autograd.gradcheck(function, inputs)


@pytest.mark.parametrize("pool_mode", ["avg", "max"])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("sampling_ratio", [0, 2])
def test_gradient_of_roi_align(pool_mode, aligned, sampling_ratio, rng):
    attributes = {"pool_mode": pool_mode, "aligned": aligned, "sampling_ratio": sampling_ratio}
    assert_gradient(
        lambda input: mmort.torch.roi_align(input, ROIS, (3, 2), 0.5, **attributes), normal(rng, 2, 2, 6, 7)
    )


@pytest.mark.parametrize(
    ("sampling_ratio", "aligned", "clockwise"), [(0, True, False), (2, False, True), (0, False, True)]
)
def test_gradient_of_roi_align_rotated(sampling_ratio, aligned, clockwise, rng):
    """Regions inside, across the border, outside, of a pixel's size and of none."""
    rois = [[0, 5, 5, 6, 4, 0.3], [1, 0, 1, 9, 5, 1.2], [1, 90, 0, 4, 4, 0], [0, 7, 5, 0.2, 0.1, 2], [1, 3, 3, 0, 0, 1]]
    arguments = torch.tensor(rois, dtype=torch.float64), (2, 3), 0.5, sampling_ratio, aligned, clockwise
    assert_gradient(lambda input: mmort.torch.roi_align_rotated(input, *arguments), normal(rng, 2, 1, 4, 5))


@pytest.mark.parametrize("mode", ["top", "bottom", "left", "right"])
def test_gradient_of_corner_pool(mode, rng):
    assert_gradient(lambda input: mmort.torch.corner_pool(input, mode), normal(rng, 2, 3, 4, 5))


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_gradient_of_grid_sample(mode, padding_mode, align_corners, rng):
    grid = (uniform(rng, 2, 3, 2, 3) * 3 - 1.5).detach().requires_grad_()  # the third column is ignored
    assert_gradient(
        lambda *inputs: mmort.torch.grid_sample(*inputs, mode, padding_mode, align_corners),
        normal(rng, 2, 2, 4, 5),
        grid,
    )


CONVOLUTIONS = [
    (1, 1, 1, 1, 1),
    ((2, 1), (1, 2), (1, 2), 2, 1),
    (1, 0, 1, 2, 4),
    (1, (0, 1), 1, 1, 2),
]


@pytest.mark.parametrize("settings", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("inputs", [3, 4, 5], ids=["plain", "modulated", "bias"])
def test_gradient_of_deform_conv2d(inputs, settings, rng):
    *steps, groups, deform_groups = settings
    input, weight = normal(rng, 2, 4, 3, 4), normal(rng, 2, 4 // groups, 3, 2)
    size = torch.nn.functional.conv2d(input, weight, None, *steps, groups).shape[2:]
    offset = normal(rng, 2, deform_groups * 12, *size)
    if inputs == 3:
        function, tensors = mmort.torch.deform_conv2d, (input, offset, weight)
    else:
        function = mmort.torch.modulated_deform_conv2d
        mask = uniform(rng, 2, deform_groups * 6, *size)
        tensors = (input, offset, mask, weight, normal(rng, 2))[:inputs]
    attributes = dict(zip(("stride", "padding", "dilation"), steps, strict=True))
    attributes |= {"groups": groups, "deform_groups": deform_groups}
    assert_gradient(lambda *inputs: function(*inputs, **attributes), *tensors)


def test_gradient_of_group_norm(rng):
    inputs = normal(rng, 2, 6, 3), normal(rng, 6), normal(rng, 6)
    assert_gradient(lambda x, scale, bias: OPERATORS["group_norm"](x, 3, scale, bias), *inputs)


def test_gradient_of_multi_scale_deformable_attention(rng):
    shapes, starts = torch.tensor([[3, 4], [2, 2]]), torch.tensor([0, 12])
    locations = (uniform(rng, 2, 2, 3, 2, 2, 2) * 1.4 - 0.2).detach().requires_grad_()
    assert_gradient(
        lambda value, locations, weights: mmort.torch.multi_scale_deformable_attention(
            value, shapes, starts, locations, weights
        ),
        normal(rng, 2, 16, 3, 2),
        locations,
        normal(rng, 2, 2, 3, 2, 2),
    )


@pytest.mark.parametrize("operator", sorted(GRADIENTS))
def test_gradients_of_empty_outputs_are_zero(operator):
    for case in CASES:
        if case.operator != operator or all(array.size for array in case.arrays):
            continue
        arguments = arguments_of(case)
        leaves = [arguments[name].requires_grad_() for name in GRADIENTS[operator].inputs if name in arguments]
        result = OPERATORS[operator](**arguments)
        if not result.numel():
            result.sum().backward()
            assert not any(leaf.grad.any() for leaf in leaves), str(case)


def test_gradient_of_half_precision(rng):
    input = torch.tensor(rng.standard_normal((1, 2, 4, 4))).half()
    (gradient,) = torch.ops.mmort.corner_pool_backward(torch.ones_like(input), input, "top")
    assert gradient.dtype == torch.float16
    assert gradient.sum() == 32


def test_regions_have_no_gradient():
    rois = ROIS.clone().requires_grad_()
    mmort.torch.roi_align(torch.ones(2, 1, 6, 7, dtype=torch.float64, requires_grad=True), rois, 2).sum().backward()
    assert rois.grad is None


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("box_iou_rotated", lambda boxes: mmort.torch.box_iou_rotated(boxes, boxes.detach())),
        ("box_iou_rotated", lambda boxes: mmort.torch.box_iou_rotated(boxes.detach(), boxes)),
        (
            "batched_nms",
            lambda boxes: mmort.torch.batched_nms(boxes[:, :4], boxes[:, 4], boxes[:, 0], {"type": "soft_nms"})[0],
        ),
    ],
)
def test_missing_gradients_of_numpys_functions_are_errors(name, function):
    boxes = torch.tensor([[0.0, 0, 3, 4, 0.5], [1, 0, 5, 4, 0.25]], requires_grad=True)
    with pytest.raises(RuntimeError, match=rf"^{name}: has no gradient; call it under torch\.no_grad\(\)"):
        function(boxes).sum().backward()
    with torch.no_grad():
        assert not function(boxes).requires_grad
    assert not function(boxes.detach()).requires_grad


@pytest.mark.parametrize("operator", ["carafe", "rotated_feature_align", "soft_nms"])
def test_missing_gradients_are_errors(operator):
    assert operator not in GRADIENTS
    arguments = arguments_of(nonempty(operator))
    next(iter(arguments.values())).requires_grad_()
    result = flat(OPERATORS[operator](**arguments))[0]
    with pytest.raises(
        RuntimeError,
        match=rf"^{operator}: has no gradient; call it under torch\.no_grad\(\), or on tensors from which detach",
    ):
        result.sum().backward()

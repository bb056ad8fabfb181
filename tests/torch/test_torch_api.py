"""The torch door: the numpy functions' results, what torch knows beforehand, gradients, layers and refusals."""

import copy
import inspect
import warnings

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import mmort
import mmort.onnx
import mmort.ort
import mmort.torch
from mmort.torch.gradients import GRADIENTS
from mmort.torch.operators import OPERATORS
from tests import front_ends
from tests.compare import assert_close, assert_same
from tests.operators import cases


def is_float(array):
    return array.dtype.kind == "f"


def takes_integers_for_floats(case):
    """The numpy functions do, the torch door does not."""
    types = {formal["name"]: formal["type"] for formal in front_ends.row_of(case.operator)["inputs"]}
    names = front_ends.array_names(getattr(mmort, case.operator), case.arrays, case.attributes)
    return any(not is_float(array) and types[name] == "float32" for name, array in zip(names, case.arrays, strict=True))


CASES = [
    case for case in cases.CASES if front_ends.row_of(case.operator) is not None and not takes_integers_for_floats(case)
]


def tensors_of(arrays, dtype=None):
    return tuple(torch.tensor(array, dtype=dtype if is_float(array) else None) for array in map(np.array, arrays))


def arguments_of(case, dtype=None):
    names = front_ends.array_names(getattr(mmort, case.operator), case.arrays, case.attributes)
    return dict(zip(names, tensors_of(case.arrays, dtype), strict=True)) | case.attributes


def flat(results):
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)


def to_numpy(results):
    return tuple(one.numpy() for one in flat(results))


def test_every_row_is_an_operator():
    assert set(OPERATORS) == {row["kernel"] for row in front_ends.ROWS}
    assert len(CASES) > 500


@pytest.mark.parametrize("case", CASES, ids=str)
def test_same_bits_as_numpy_and_shapes_known_before(case):
    arguments = arguments_of(case)
    results = flat(OPERATORS[case.operator](**arguments))
    expected = front_ends.run_numpy(case.operator, case.arrays, case.attributes)
    assert_same(to_numpy(results), front_ends.node_outputs(case.operator, expected), str(case))
    with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True) as mode:
        faked = {
            name: mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value
            for name, value in arguments.items()
        }
        fakes = flat(OPERATORS[case.operator](**faked))
    for fake, real in zip(fakes, results, strict=True):
        assert fake.dtype == real.dtype
        assert fake.dim() == real.dim()
        sizes = zip(fake.shape, real.shape, strict=True)
        assert all(known == size for known, size in sizes if isinstance(known, int)), (fake.shape, real.shape)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_same_bits_as_numpy_in_other_dtypes(operator, dtype):
    case = next(case for case in CASES if case.operator == operator and all(array.size for array in case.arrays))
    results = to_numpy(OPERATORS[operator](**arguments_of(case, dtype)))
    expected = front_ends.run_numpy(operator, [one.numpy() for one in tensors_of(case.arrays, dtype)], case.attributes)
    assert_same(results, front_ends.node_outputs(operator, expected), str(case))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch 2.15's own check
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_opcheck(operator):
    case = next(case for case in CASES if case.operator == operator and all(array.size for array in case.arrays))
    arguments = arguments_of(case)
    for name in GRADIENTS[operator].inputs if operator in GRADIENTS else ():
        if name in arguments:
            arguments[name].requires_grad_()
    torch.library.opcheck(OPERATORS[operator], (), arguments)


# ---- functions ---------------------------------------------------------------------------------------------------

COMPOSED = ("batched_nms", "box_iou_rotated", "nms_match", "point_sample")
ALIKE = [case for name in COMPOSED for case in cases.of(name) if all(map(is_float, case.arrays[:2]))]
for name in sorted(set(mmort.torch.__all__) & set(OPERATORS)):
    ALIKE += [case for case in CASES if case.operator == name and case.arrays[0].size][::40]


@pytest.mark.parametrize("case", ALIKE, ids=str)
def test_functions_are_those_of_numpy(case):
    results = getattr(mmort.torch, case.operator)(**arguments_of(case))
    assert_same(to_numpy(results), front_ends.run_numpy(case.operator, case.arrays, case.attributes), str(case))


FINITE = [case for case in cases.of("box_iou") if all(is_float(one) and np.isfinite(one).all() for one in case.arrays)]


@pytest.mark.parametrize("case", FINITE, ids=str)
def test_bbox_overlaps_is_box_iou(case):
    result = mmort.torch.bbox_overlaps(*tensors_of(case.arrays), **case.attributes)
    assert_same([result.numpy()], front_ends.run_numpy("box_iou", case.arrays, case.attributes), str(case))


@pytest.mark.parametrize("name", sorted(set(mmort.torch.__all__) & set(mmort.__all__)))
def test_functions_have_the_arguments_of_numpy(name):
    """So a model can be moved from one door to the other."""
    found = inspect.signature(getattr(mmort.torch, name)).parameters
    wanted = inspect.signature(getattr(mmort, name)).parameters
    for (argument, one), (expected, other) in zip(found.items(), wanted.items(), strict=False):
        if argument != "kwargs":  # point_sample has MMCV's
            assert (argument, one.default) == (expected, other.default)


def detections(rng, n=40):
    corners = rng.random((n, 2)) * 20
    boxes = np.concatenate([corners, corners + 1 + rng.random((n, 2)) * 15], axis=1)
    return tensors_of((boxes.astype(np.float32), rng.random(n).astype(np.float32), rng.integers(0, 3, n)))


def test_batched_nms_of_rotated_boxes(rng):
    (_, scores, classes), boxes = detections(rng), torch.tensor(rng.random((40, 5)) * 9 + 1)
    for agnostic in (False, True):
        settings = {"type": "nms_rotated", "iou_threshold": 0.2}
        dets, keep = mmort.torch.batched_nms(boxes, scores, classes, settings, class_agnostic=agnostic)
        labels = None if agnostic else classes.numpy()
        assert_same((dets.numpy(), keep.numpy()), mmort.nms_rotated(boxes.numpy(), scores.numpy(), 0.2, labels))
        assert len(keep) < 40


def test_rel_roi_point_to_rel_img_point(rng):
    rois = torch.tensor([[1.0, 2, 4, 10, 12], [0, 0, 0, 16, 8]])
    points = torch.tensor(rng.random((2, 5, 2)).astype(np.float32))
    expected = (points * torch.tensor([[[8.0, 8]], [[16, 8]]]) + torch.tensor([[[2.0, 4]], [[0, 0]]])) / 4
    expected = expected / torch.tensor([20.0, 10])
    for boxes in (rois, rois[:, 1:]):
        for image in ((10, 20), torch.empty(3, 2, 10, 20)):
            found = mmort.torch.rel_roi_point_to_rel_img_point(boxes, points, image, 0.25)
            assert_close([found.numpy()], [expected.numpy()])


# ---- gradients ---------------------------------------------------------------------------------------------------


def normal(rng, *shape):
    return torch.tensor(rng.standard_normal(shape)).requires_grad_()


def uniform(rng, *shape):
    return torch.tensor(rng.random(shape)).requires_grad_()


def assert_gradient(function, *inputs):
    assert torch.autograd.gradcheck(function, inputs)


ROIS = torch.tensor(
    [[0, 1.3, 2.2, 12, 9], [1, -5, -3, 20, 30], [1, 3, 3, 1, 1], [0, 2.1, 2.2, 2.3, 2.4], [0, 90, 90, 99, 99]]
).double()


@pytest.mark.parametrize("pool_mode", ["avg", "max"])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("sampling_ratio", [0, 2])
def test_gradient_of_roi_align(pool_mode, aligned, sampling_ratio, rng):
    attributes = {"pool_mode": pool_mode, "aligned": aligned, "sampling_ratio": sampling_ratio}
    assert_gradient(
        lambda input: mmort.torch.roi_align(input, ROIS, (3, 2), 0.5, **attributes), normal(rng, 2, 2, 6, 7)
    )


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
    input, weight = normal(rng, 2, 4, 4, 5), normal(rng, 2, 4 // groups, 3, 2)
    size = torch.nn.functional.conv2d(input, weight, None, *steps, groups).shape[2:]
    offset = normal(rng, 2, deform_groups * 12, *size)
    if inputs == 3:
        function, others = mmort.torch.deform_conv2d, (input, offset, weight)
    else:
        function = mmort.torch.modulated_deform_conv2d
        others = (input, offset, uniform(rng, 2, deform_groups * 6, *size), weight, normal(rng, 2))[:inputs]
    given = dict(zip(("stride", "padding", "dilation"), steps, strict=True))
    given |= {"groups": groups, "deform_groups": deform_groups}
    assert_gradient(lambda *tensors: function(*tensors, **given), *others)


def test_gradient_of_group_norm(rng):
    inputs = normal(rng, 2, 6, 3), normal(rng, 6), normal(rng, 6)
    assert_gradient(lambda x, scale, bias: OPERATORS["group_norm"](x, 3, scale, bias), *inputs)


def test_gradient_of_multi_scale_deformable_attention(rng):
    shapes, starts = torch.tensor([[3, 4], [2, 2]]), torch.tensor([0, 12])
    places = (uniform(rng, 2, 2, 3, 2, 2, 2) * 1.4 - 0.2).detach().requires_grad_()
    assert_gradient(
        lambda value, places, weights: mmort.torch.multi_scale_deformable_attention(
            value, shapes, starts, places, weights
        ),
        normal(rng, 2, 16, 3, 2),
        places,
        normal(rng, 2, 2, 3, 2, 2),
    )


@pytest.mark.parametrize("operator", sorted(GRADIENTS))
def test_gradients_of_nothing_are_nothing(operator):
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


def test_gradients_stop_at_regions():
    rois = ROIS.clone().requires_grad_()
    mmort.torch.roi_align(torch.ones(2, 1, 6, 7, dtype=torch.float64, requires_grad=True), rois, 2).sum().backward()
    assert rois.grad is None


@pytest.mark.parametrize("operator", ["roi_align_rotated", "rotated_feature_align", "soft_nms"])
def test_operators_without_gradient_say_so(operator):
    assert operator not in GRADIENTS
    case = next(case for case in CASES if case.operator == operator and all(array.size for array in case.arrays))
    arguments = arguments_of(case)
    next(iter(arguments.values())).requires_grad_()
    result = flat(OPERATORS[operator](**arguments))[0]
    with pytest.raises(RuntimeError, match=f"mmort.{operator}.* no autograd formula"):
        result.sum().backward()


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)  # which torch 2.9 does not do unasked
def test_compile(rng):
    boxes, scores, classes = detections(rng)

    def detect(features, boxes, scores, classes):
        dets, _ = mmort.torch.batched_nms(boxes, scores, classes, {"iou_threshold": 0.4})
        rois = torch.cat([torch.zeros_like(dets[:, :1]), dets[:, :4]], dim=1)
        return mmort.torch.roi_align(mmort.torch.corner_pool(features, "left"), rois, 3).mean()

    compiled = torch.compile(detect, fullgraph=True, backend="aot_eager")
    results = []
    for function in (detect, compiled):
        features = torch.tensor(np.arange(2 * 8 * 9.0).reshape(1, 2, 8, 9) % 7).requires_grad_()
        value = function(features, boxes.double(), scores.double(), classes)
        value.backward()
        results.append((value.detach().numpy(), features.grad.numpy()))
    assert_same(results[0], results[1])


def test_export(rng, tmp_path):
    """Suppression in classes gives in ONNX Runtime what it gives here, equal scores included."""

    class Model(torch.nn.Module):
        def forward(self, boxes, scores, classes):
            results = ()
            rotated = torch.cat([boxes, scores[:, None]], dim=1)
            for given, agnostic, settings in (
                (boxes, False, {"iou_threshold": 0.3, "max_num": 20}),
                (boxes, True, {"type": "soft_nms", "max_num": 9}),
                (rotated, False, {"type": "nms_rotated", "iou_threshold": 0.3}),
                (boxes, False, None),
            ):
                results += mmort.torch.batched_nms(given, scores, classes, settings, class_agnostic=agnostic)
            return results

    model, path = Model().eval(), tmp_path / "model.onnx"
    shapes = [{0: torch.export.Dim.DYNAMIC}] * 3
    mmort.onnx.export(model, detections(rng), path, dynamic_shapes=shapes)
    session = mmort.ort.session(path)
    names = [one.name for one in session.get_inputs()]
    for n in (1, 7, 300):
        boxes, scores, classes = detections(rng, n)
        inputs = boxes, (scores * 20).round() / 20, classes
        results = session.run(None, {name: one.numpy() for name, one in zip(names, inputs, strict=True)})
        assert_same(results, to_numpy(model(*inputs)), str(n))


# ---- layers ------------------------------------------------------------------------------------------------------


def keys(module):
    return {name: list(value.shape) for name, value in module.state_dict().items()}


def test_layers_have_the_keys_of_mmcv():
    assert keys(mmort.torch.DeformConv2d(4, 6, 3, groups=2)) == {"weight": [6, 2, 3, 3]}
    assert keys(mmort.torch.DeformConv2dPack(4, 6, (3, 1), deform_groups=2)) == {
        "weight": [6, 4, 3, 1],
        "conv_offset.weight": [12, 4, 3, 1],
        "conv_offset.bias": [12],
    }
    assert keys(mmort.torch.ModulatedDeformConv2d(4, 6, 3)) == {"weight": [6, 4, 3, 3], "bias": [6]}
    assert keys(mmort.torch.ModulatedDeformConv2dPack(4, 6, 3, bias=False)) == {
        "weight": [6, 4, 3, 3],
        "conv_offset.weight": [27, 4, 3, 3],
        "conv_offset.bias": [27],
    }
    for layer in (
        mmort.torch.RoIAlign(7),
        mmort.torch.RoIAlignRotated(7, 1),
        mmort.torch.SimpleRoIAlign(7, 1),
        mmort.torch.CornerPool("top"),
    ):
        assert keys(layer) == {}


@pytest.mark.parametrize("steps", [(1, 1, 1), (2, 0, 1), ((1, 2), (2, 1), (2, 1))], ids=str)
def test_new_packs_are_plain_convolutions(steps, rng):
    """Offsets begin as zeros, and masks as one half."""
    input = torch.tensor(rng.standard_normal((2, 4, 9, 8)).astype(np.float32))
    plain = mmort.torch.DeformConv2dPack(4, 6, 3, *steps, groups=2)
    modulated = mmort.torch.ModulatedDeformConv2dPack(4, 6, 3, *steps, groups=2)
    for layer, factor in ((plain, 1), (modulated, 0.5)):
        assert 0 < layer.weight.abs().max() <= 1 / np.sqrt(2 * 9)
        expected = factor * torch.nn.functional.conv2d(input, layer.weight, None, *steps, groups=2)
        assert_close([layer(input).detach().numpy()], [expected.detach().numpy()])


def test_modulated_pack_takes_offsets_before_masks(rng):
    layer = mmort.torch.ModulatedDeformConv2dPack(2, 3, 3, padding=1, deform_groups=2)
    torch.nn.init.normal_(layer.conv_offset.weight)
    input = torch.tensor(rng.standard_normal((1, 2, 5, 6)).astype(np.float32))
    offset, mask = layer.conv_offset(input).split([36, 18], dim=1)
    expected = mmort.torch.modulated_deform_conv2d(
        input, offset, mask.sigmoid(), layer.weight, layer.bias, padding=1, deform_groups=2
    )
    assert torch.equal(layer(input), expected)


@pytest.mark.parametrize("output_size", [2, (3, 2)])
def test_region_layers_are_the_functions(output_size, rng):
    input = torch.tensor(rng.standard_normal((2, 3, 8, 9)).astype(np.float32))
    rois = ROIS.float()
    layer = mmort.torch.RoIAlign(output_size, 0.5, 2, "max", aligned=False)
    assert torch.equal(layer(input, rois), mmort.torch.roi_align(input, rois, output_size, 0.5, 2, "max", False))
    rotated = torch.cat([rois, rois[:, :1] + 0.3], dim=1).abs()
    turned = mmort.torch.RoIAlignRotated(output_size, 0.5, 2, aligned=False, clockwise=True)
    expected = mmort.torch.roi_align_rotated(input, rotated, output_size, 0.5, 2, aligned=False, clockwise=True)
    assert torch.equal(turned(input, rotated), expected)


@pytest.mark.parametrize("aligned", [False, True])
def test_simple_roi_align_image_by_image(aligned, rng):
    input = torch.tensor(rng.standard_normal((3, 2, 8, 9)).astype(np.float32))
    rois = torch.cat([torch.tensor([[2.0], [0], [2], [0], [1]]), ROIS[:, 1:].float()], dim=1)
    found = mmort.torch.SimpleRoIAlign((3, 2), 0.5, aligned)(input, rois)
    assert found.shape == (5, 2, 3, 2)
    for k, roi in enumerate(rois):
        x1, y1, x2, y2 = roi[1:] * 0.5
        y, x = y1 + (torch.arange(3) + 0.5) * (y2 - y1) / 3, x1 + (torch.arange(2) + 0.5) * (x2 - x1) / 2
        sides = [y / 8, x / 9]
        grid = torch.stack(torch.meshgrid(*sides, indexing="ij")[::-1], dim=2)[None] * 2 - 1
        image = input[int(roi[0])][None]
        expected = torch.nn.functional.grid_sample(image, grid, align_corners=not aligned)
        assert_close([found[k].numpy()], [expected[0].numpy()], str(k), 1e-5)


def test_corner_pool_layer(rng):
    input = torch.tensor(rng.standard_normal((1, 2, 3, 4)))
    assert torch.equal(mmort.torch.CornerPool("right")(input), input.cummax(3).values)


def test_layers_can_be_copied():
    layer = copy.deepcopy(mmort.torch.ModulatedDeformConv2dPack(4, 6, 3))
    assert torch.equal(layer.conv_offset.weight, torch.zeros(27, 4, 3, 3))


# ---- refusals ----------------------------------------------------------------------------------------------------

BOXES, SCORES = torch.zeros(3, 4), torch.zeros(3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool])
def test_dtypes_are_named(dtype):
    with pytest.raises(TypeError, match=rf"^nms: boxes must be float16, float32 or float64, got {dtype}$"):
        mmort.torch.nms(BOXES.to(dtype), SCORES, 0.5)


def test_only_the_cpu():
    with (
        FakeTensorMode(),
        pytest.raises(ValueError, match=r"^nms: scores must be on the CPU, got a tensor on cuda:0$"),
    ):
        OPERATORS["nms"](torch.empty(3, 4), torch.empty(3, device="cuda:0"), 0.5)


def test_shapes_are_refused_as_by_numpy_and_when_traced():
    text = r"nms: boxes must be \[N, 4\], got \[4\]"
    with pytest.raises(ValueError, match=text):
        OPERATORS["nms"](BOXES[0], SCORES, 0.5)
    with FakeTensorMode(shape_env=ShapeEnv()), pytest.raises(ValueError, match=text):
        OPERATORS["nms"](torch.empty(4), torch.empty(3), 0.5)


def test_words_are_refused():
    for call, text in (
        (lambda: mmort.torch.batched_nms(BOXES, SCORES, SCORES.long(), {"type": "fast"}), r"got 'fast'"),
        (lambda: mmort.torch.bbox_overlaps(BOXES, BOXES, "giou"), r"mode must be 'iou' or 'iof', got 'giou'"),
        (lambda: mmort.torch.CornerPool("up"), r"got 'up'"),
        (lambda: mmort.torch.DeformConv2d(4, 4, 3, bias=True), r"bias must be False"),
        (lambda: mmort.torch.DeformConv2d(4, 4, 3, groups=3), r"groups must divide"),
    ):
        with pytest.raises(ValueError, match=text):
            call()


@pytest.mark.parametrize(
    "function",
    [
        lambda boxes: mmort.torch.nms_match(boxes, 0.5)[0],
        lambda boxes: mmort.torch.box_iou_rotated(boxes, boxes),
        lambda boxes: mmort.torch.batched_nms(boxes[:, :4], boxes[:, 4], boxes[:, 0].long(), {"type": "soft_nms"})[0],
    ],
    ids=["nms_match", "box_iou_rotated", "batched soft_nms"],
)
def test_what_is_not_exported_says_so(function):
    class Model(torch.nn.Module):
        def forward(self, boxes):
            return function(boxes)

    with pytest.raises(Exception, match=r"cannot be exported"):
        torch.export.export(Model(), (torch.rand(4, 5),), strict=False)
    warnings.simplefilter("ignore")  # of torch, against tracing; how many depends on its version
    with pytest.raises(RuntimeError, match=r"cannot be exported"):
        torch.jit.trace(Model(), (torch.rand(4, 5),))

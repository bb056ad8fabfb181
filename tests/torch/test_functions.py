"""The functions on tensors: numpy's results and signatures, compiled, exported, and refused where they cannot be."""

import inspect
import typing
import warnings

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike

import mmort
import mmort.onnx
import mmort.ort
import mmort.torch
from mmort.torch.operators import OPERATORS
from tests import front_ends
from tests.compare import assert_close, assert_same
from tests.operators import cases
from tests.torch.calls import CASES, arguments_of, is_float, random_boxes, tensors_of, to_numpy

BOXES, SCORES = torch.zeros(3, 4), torch.zeros(3)

COMPOSED = ("batched_nms", "box_iou_rotated", "nms_match", "point_sample")
FUNCTION_CASES = [case for name in COMPOSED for case in cases.of(name) if all(map(is_float, case.arrays[:2]))]
for name in sorted(set(mmort.torch.__all__) & set(OPERATORS)):
    FUNCTION_CASES += [case for case in CASES if case.operator == name and case.arrays[0].size][::40]


@pytest.mark.parametrize("case", FUNCTION_CASES, ids=str)
def test_functions_return_what_numpy_returns(case):
    results = getattr(mmort.torch, case.operator)(**arguments_of(case))
    assert_same(to_numpy(results), front_ends.run_numpy(case.operator, case.arrays, case.attributes), str(case))


@pytest.mark.parametrize(
    ("name", "fields", "arguments"),
    [
        ("nms", ("dets", "indices"), (0.5,)),
        ("soft_nms", ("dets", "indices"), ()),
        ("batched_nms", ("dets", "indices"), (torch.zeros(3, dtype=torch.int64), 0.5)),
        ("nms_rotated", ("dets", "indices"), (0.5,)),
        ("multiclass_nms", ("dets", "labels", "indices"), ()),
    ],
)
def test_several_results_have_names(name, fields, arguments):
    boxes, scores = torch.rand(3, 5 if name == "nms_rotated" else 4), torch.rand(3)
    if name == "multiclass_nms":
        boxes, scores = boxes[None], scores[None, :, None]
    arrays = [to_numpy(tensor)[0] if torch.is_tensor(tensor) else tensor for tensor in (boxes, scores, *arguments)]
    for results in (
        getattr(mmort.torch, name)(boxes, scores, *arguments),
        getattr(mmort, name)(*arrays),
    ):
        assert results._fields == fields
        assert results.indices is results[-1]
    returned = inspect.signature(getattr(mmort.torch, name), eval_str=True).return_annotation
    assert returned._fields == fields


def test_a_model_that_returns_named_results_can_be_saved(tmp_path):
    class Model(torch.nn.Module):
        def forward(self, boxes, scores):
            return mmort.torch.soft_nms(boxes, scores)

    arguments = torch.rand(5, 4), torch.rand(5)
    torch.export.save(torch.export.export(Model(), arguments), tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()(*arguments)
    assert_same(to_numpy(loaded), to_numpy(Model()(*arguments)), "loaded")


FINITE = [
    case for case in cases.of("box_iou") if all(is_float(array) and np.isfinite(array).all() for array in case.arrays)
]


@pytest.mark.parametrize("case", FINITE, ids=str)
def test_bbox_overlaps_is_box_iou(case):
    result = mmort.torch.bbox_overlaps(*tensors_of(case.arrays), **case.attributes)
    assert_same([result.numpy()], front_ends.run_numpy("box_iou", case.arrays, case.attributes), str(case))


NAMESAKES = sorted(set(mmort.torch.__all__) & set(mmort.__all__))


@pytest.mark.parametrize("name", NAMESAKES)
def test_signatures_are_those_of_numpy(name):
    """Names and defaults of all parameters, types of all but the arrays: code moves from one API to the other."""
    parameters = dict(inspect.signature(getattr(mmort.torch, name), eval_str=True).parameters)
    expected = inspect.signature(getattr(mmort, name), eval_str=True).parameters
    if name == "point_sample":  # passes mode and padding_mode on, as MMCV does
        del parameters["kwargs"]
        expected = {parameter: expected[parameter] for parameter in ("input", "points", "align_corners")}
    assert list(parameters) == list(expected)
    tensors = {ArrayLike: torch.Tensor, ArrayLike | None: torch.Tensor | None}
    for parameter, numpy_parameter in zip(parameters.values(), expected.values(), strict=True):
        annotation = numpy_parameter.annotation
        assert parameter.default == numpy_parameter.default
        assert parameter.annotation == tensors.get(annotation, annotation)


@pytest.mark.parametrize("name", NAMESAKES)
def test_annotated_results_are_tensors(name):
    parameters, expected = (inspect.signature(getattr(api, name), eval_str=True) for api in (mmort.torch, mmort))
    fields = getattr(parameters.return_annotation, "_fields", None)
    assert fields == getattr(expected.return_annotation, "_fields", None)
    results = typing.get_type_hints(parameters.return_annotation) if fields else {"": parameters.return_annotation}
    assert set(results.values()) <= {torch.Tensor, list[torch.Tensor]}


@pytest.mark.parametrize("name", NAMESAKES)
def test_missing_arguments_are_type_errors(name):
    """As in any Python function; torch's operators raise RuntimeError."""
    with pytest.raises(TypeError, match="missing"):
        getattr(mmort.torch, name)()


def test_unknown_arguments_are_type_errors():
    for call in (
        lambda: mmort.torch.nms(BOXES, SCORES, 0.5, thresh=1),
        lambda: mmort.torch.soft_nms(BOXES, SCORES, thresh=1),
        lambda: mmort.torch.batched_nms(BOXES, SCORES, SCORES.long(), {"iou_threshold": 0.5, "thresh": 1}),
    ):
        with pytest.raises(
            TypeError, match=r"unexpected keyword argument 'thresh'|no entry thresh for nms; there are iou"
        ):
            call()


def test_batched_nms_of_rotated_boxes(rng):
    (_, scores, classes), boxes = random_boxes(rng), torch.tensor(rng.random((40, 5)) * 9 + 1)
    for agnostic in (False, True):
        settings = {"type": "nms_rotated", "iou_threshold": 0.2}
        dets, keep = mmort.torch.batched_nms(boxes, scores, classes, settings, class_agnostic=agnostic)
        labels = None if agnostic else classes.numpy()
        assert_same((dets.numpy(), keep.numpy()), mmort.nms_rotated(boxes.numpy(), scores.numpy(), 0.2, labels))
        assert len(keep) < 40


@pytest.mark.parametrize("settings", [{"type": "soft_nms"}, {"type": "nms", "iou_threshold": 0.5}])
def test_batched_nms_puts_nan_last(rng, settings):
    boxes, scores, classes = random_boxes(rng)
    scores[[3, 17]] = torch.nan
    kept = to_numpy(mmort.torch.batched_nms(boxes, scores, classes, settings, class_agnostic=True))
    assert_same(kept, mmort.batched_nms(*(tensor.numpy() for tensor in (boxes, scores, classes)), settings, True))


def test_rel_roi_point_to_rel_img_point(rng):
    rois = torch.tensor([[1.0, 2, 4, 10, 12], [0, 0, 0, 16, 8]])
    points = torch.tensor(rng.random((2, 5, 2)).astype(np.float32))
    expected = (points * torch.tensor([[[8.0, 8]], [[16, 8]]]) + torch.tensor([[[2.0, 4]], [[0, 0]]])) / 4
    expected = expected / torch.tensor([20.0, 10])
    for boxes in (rois, rois[:, 1:]):
        for image in ((10, 20), torch.empty(3, 2, 10, 20)):
            actual = mmort.torch.rel_roi_point_to_rel_img_point(boxes, points, image, 0.25)
            assert_close([actual.numpy()], [expected.numpy()])


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)  # not the default in torch 2.9
def test_compile(rng):
    boxes, scores, classes = random_boxes(rng)

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


def test_exported_batched_nms(rng, tmp_path):
    """ONNX Runtime returns what torch returns, for tied scores too."""

    class Model(torch.nn.Module):
        def forward(self, boxes, scores, classes):
            results = ()
            rotated = torch.cat([boxes, scores[:, None]], dim=1)
            for candidates, agnostic, settings in (
                (boxes, False, {"iou_threshold": 0.3, "max_num": 20}),
                (boxes, True, {"type": "soft_nms", "max_num": 9}),
                (rotated, False, {"type": "nms_rotated", "iou_threshold": 0.3}),
                (boxes, False, None),
            ):
                results += mmort.torch.batched_nms(candidates, scores, classes, settings, class_agnostic=agnostic)
            return results

    model, path = Model().eval(), tmp_path / "model.onnx"
    shapes = [{0: torch.export.Dim.DYNAMIC}] * 3
    mmort.onnx.export(model, random_boxes(rng), path, dynamic_shapes=shapes)
    session = mmort.ort.session(path)
    names = [tensor.name for tensor in session.get_inputs()]
    for n in (1, 7, 300):
        boxes, scores, classes = random_boxes(rng, n)
        inputs = boxes, (scores * 20).round() / 20, classes
        results = session.run(None, {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)})
        assert_same(results, to_numpy(model(*inputs)), str(n))


def test_lists_are_refused():
    settings = {"type": "soft_nms"}
    for call, text in (
        (lambda: mmort.torch.nms_match([[0, 0, 1, 1, 0.5]], 0.5), "nms_match: dets must be a tensor, got list"),
        (
            lambda: mmort.torch.point_sample(torch.zeros(1, 1, 2, 2), [[[0, 0]]]),
            "point_sample: points must be a tensor",
        ),
        (lambda: mmort.torch.box_iou_rotated(torch.zeros(1, 5), [0]), "box_iou_rotated: bboxes2 must be a tensor, got"),
        (
            lambda: mmort.torch.batched_nms(BOXES, SCORES, [0], settings),
            "batched_nms: idxs must be a tensor, got list",
        ),
    ):
        with pytest.raises(TypeError, match=f"^{text}"):
            call()


def test_arrays_are_refused_in_one_line():
    boxes, scores, image = np.zeros((500, 4)), np.zeros(500), np.zeros((1, 1, 64, 64))
    for call, text in (
        (
            lambda: mmort.torch.nms(boxes, scores, 0.5),
            "nms: boxes must be a tensor, got ndarray; mmort.nms takes arrays",
        ),
        (lambda: mmort.torch.nms(BOXES, SCORES, 0.5, idxs=[0]), "nms: idxs must be a tensor, got list"),
        (
            lambda: mmort.torch.RoIAlign(2)(image, np.zeros((1, 5))),
            "roi_align: input must be a tensor, got ndarray; mmort.roi_align takes arrays",
        ),
        (
            lambda: mmort.torch.batched_nms(boxes, scores, scores, 0.5),
            "batched_nms: boxes must be a tensor, got ndarray; mmort.batched_nms takes arrays",
        ),
        (lambda: mmort.torch.bbox_overlaps(boxes, boxes), "bbox_overlaps: bboxes1 must be a tensor, got ndarray"),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == text


def test_wrong_arguments_name_the_function_in_one_line():
    for call, text in (
        (lambda: mmort.torch.nms(BOXES), "nms: missing a required argument: 'scores'"),
        (lambda: mmort.torch.nms(BOXES, SCORES, 0.5, top=3), "nms: got an unexpected keyword argument 'top'"),
        (
            lambda: mmort.torch.deform_conv2d(*[torch.ones(1, 1, 8, 8)] * 3, None),
            "deform_conv2d: stride must be an integer, got NoneType",
        ),
        (lambda: mmort.torch.nms(BOXES, SCORES, "0.5"), "nms: iou_threshold must be a number, got str"),
        (lambda: mmort.torch.RoIAlign(out_size=7), "RoIAlign: out_size was renamed output_size in MMCV 1.x"),
        (
            lambda: mmort.torch.DeformConv2d(4, 4, 3, deformable_groups=2),
            "DeformConv2d: deformable_groups was renamed deform_groups in MMCV 1.x",
        ),
        (
            lambda: mmort.torch.roi_align(torch.ones(1, 1, 4, 4), torch.ones(1, 5), None),
            "roi_align: output_size must be an integer, got NoneType",
        ),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == text


def test_dir_has_what_is_public():
    assert dir(mmort.torch) == sorted(mmort.torch.__all__)


def test_calls_as_torchvision_has_them():
    image, offset, weight = torch.ones(1, 1, 8, 8), torch.zeros(1, 18, 6, 6), torch.ones(1, 1, 3, 3)
    for arguments, named in (((), {"bias": torch.ones(1)}), ((torch.ones(1),), {}), ((), {"mask": torch.ones(1)})):
        with pytest.raises(TypeError, match=r"^deform_conv2d: .*'s; modulated_deform_conv2d has both$"):
            mmort.torch.deform_conv2d(image, offset, weight, *arguments, **named)
    with pytest.raises(TypeError, match=r"^roi_align: rois must be one array \[K, 5\] of rows"):
        mmort.torch.roi_align(image, [torch.tensor([[0.0, 0, 4, 4]])], 2)


def test_values_are_refused():
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
def test_export_is_refused(function):
    class Model(torch.nn.Module):
        def forward(self, boxes):
            return function(boxes)

    with pytest.raises(Exception, match=r"cannot be exported"):
        torch.export.export(Model(), (torch.rand(4, 5),), strict=False)
    warnings.simplefilter("ignore")  # torch warns of tracing, how often depends on its version
    with pytest.raises(RuntimeError, match=r"cannot be exported"):
        torch.jit.trace(Model(), (torch.rand(4, 5),))


def test_batched_nms_takes_a_number_as_torchvision_does():
    kept, expected = (
        mmort.torch.batched_nms(BOXES, SCORES, SCORES.long(), cfg) for cfg in (0.5, {"iou_threshold": 0.5})
    )
    assert all(map(torch.equal, kept, expected))
    with pytest.raises(TypeError, match=r"iou_thr was renamed iou_threshold in MMCV 1\.x"):
        mmort.torch.batched_nms(BOXES, SCORES, SCORES.long(), {"iou_thr": 0.5})


def test_autocast_computes_in_float32():
    """A convolution under autocast returns bfloat16, which numpy does not have."""
    convolution, regions = torch.nn.Conv2d(1, 1, 1), torch.tensor([[0, 0.0, 0, 3, 3]])
    image = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = convolution(image)
        pooled = mmort.torch.roi_align(features, regions, 2)
    assert (features.dtype, pooled.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(pooled, mmort.torch.roi_align(features.float(), regions, 2))
    pooled.sum().backward()
    assert image.grad.abs().sum() > 0


def test_batched_nms_takes_whole_numbers_of_a_floating_dtype():
    """As MMCV's, which adds them to coordinates."""
    boxes, scores = torch.tensor([[0.0, 0, 4, 4]] * 3), torch.tensor([0.7, 0.9, 0.8])
    _, keep = mmort.torch.batched_nms(boxes, scores, torch.tensor([0.0, 1.0, 0.0]), {"iou_threshold": 0.5})
    assert keep.tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"^batched_nms: idxs must be whole numbers, got others$"):
        mmort.torch.batched_nms(boxes, scores, torch.tensor([0.0, 0.5, 0.0]), {"iou_threshold": 0.5})
    with pytest.raises(TypeError, match=r"^nms: iou_thr was renamed iou_threshold in MMCV 1.x$"):
        mmort.torch.nms(boxes, scores, iou_thr=0.5)

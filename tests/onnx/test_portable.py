"""Portable models: definitions in standard operators equal the kernels, and serve without the library only."""

import re
import time

import numpy as np
import onnx
import onnx.helper as oh
import onnx.reference
import onnxruntime
import pytest

import mmort.cli
import mmort.ort
from mmort import demo
from mmort.onnx import Coverage, make_portable, upgrade
from mmort.onnx.graph.inspection import every_node
from mmort.onnx.portable.definitions import DEFINITIONS, attention, roi_matrices
from tests import compare, front_ends, old_export
from tests.operators import cases
from tests.operators.families import multiclass, nms

OPSET = 18
INEXACT = {
    "grid_sample": (
        r"not_finite_\w+_reflection_\w+",  # coordinates beyond 10000
        r"not_finite_bicubic_\w+",  # coordinates whose pixel overflows float32
        r"(\w+_)?holes_bilinear_(border|reflection)_\w+",  # NaN and infinite pixels of weight 0
        r"no_pixels\w*",  # 0 instead of an error
    ),
    "nms_indices": ("strange_scores_above-inf",),  # NaN scores in another order
    "deform_conv2d": ("not_finite",),  # NaN offsets give 0, as in torch
    "modulated_deform_conv2d": ("not_finite", "border_holes"),  # and NaN and infinite pixels of weight 0
}
"""Cases whose result differs from the kernel's; docs/portable.md names them all."""


def portable_model(case, opset=OPSET, form="functions"):
    row = front_ends.row_of(case.operator)
    names = [tensor["name"] for tensor in row["inputs"]][: len(case.arrays)]
    model = front_ends.make_model(row, front_ends.onnx_attributes(case.operator, case.attributes), names)
    model.opset_import.append(oh.make_opsetid("", opset))
    return model, make_portable(model, form=form)


def stock_session(model):
    """Open a session that does not know mmort's operators."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def inlined_session(model):
    """Open a session for a portable model whose functions are inlined."""
    make_portable(model, form="inlined")
    return stock_session(model)


def same(actual, expected):
    try:
        compare.assert_close(actual, expected)
    except AssertionError:
        return False
    return True


def small(case):
    """Return whether all tensors are float32 or int64, and small enough for suppression in a loop to be quick."""
    return all(array.dtype in (np.float32, np.int64) for array in case.arrays) and (
        "nms" not in case.operator or max(case.arrays[0].shape) <= (100 if "rotated" in case.operator else 400)
    )


def defined(operator):
    return [case for case in cases.of(operator) if small(case)]


def differing(operator, selected, runner, opset=OPSET, form="functions"):
    """Return the names of the cases whose definition has another result than the kernel."""
    runners, names = {}, []
    for case in selected:
        key = str(case.attributes), len(case.arrays)
        if key not in runners:
            model, (coverage,) = portable_model(case, opset, form)
            assert coverage.missing is None, (case.name, coverage)
            runners[key] = runner(model)
        formals = [tensor["name"] for tensor in front_ends.row_of(operator)["inputs"]]
        outputs = runners[key].run(None, dict(zip(formals, case.arrays, strict=False)))
        expected = front_ends.run_ort(operator, case.arrays, case.attributes)
        if not same(outputs, expected):
            names.append(case.name)
    return names


@pytest.mark.parametrize("operator", DEFINITIONS)
def test_definition_equals_kernel(operator):
    selected = defined(operator)[:: 3 if "rotated" in operator else 1]  # whose cases are many and alike
    names = differing(operator, selected, stock_session)
    patterns = INEXACT.get(operator, ())
    assert [name for name in names if not any(re.fullmatch(pattern, name) for pattern in patterns)] == []
    assert len(names) <= len(selected) // 8


@pytest.mark.parametrize("operator", ["multi_scale_deformable_attention", "roi_align"])
def test_definition_of_inlined_files_equals_kernel(operator):
    """It is another one."""
    selected = [
        case
        for case in defined(operator)
        if not any(re.fullmatch(name, case.name) for name in INEXACT.get(operator, ()))
    ]
    assert differing(operator, selected, stock_session, form="inlined") == []


def test_attention_takes_queries_in_pieces(monkeypatch):
    """The last chunk of three takes the last query again."""
    monkeypatch.setattr(attention, "MAX_GATHERED", 1)
    monkeypatch.setattr(attention, "MAX_PIECES", 3)
    operator = "multi_scale_deformable_attention"
    assert differing(operator, defined(operator), stock_session) == []


def test_regions_as_windows(monkeypatch):
    """The maps and regions of large detectors are pooled so."""
    monkeypatch.setattr(roi_matrices, "REGION_COST", 0.0)
    selected = [case for case in defined("roi_align") if case.attributes.get("pool_mode") != "max"]
    assert differing("roi_align", selected, stock_session) == []
    (many,) = [case for case in selected if case.name == "many"]
    model, _ = portable_model(many)
    for node in every_node(model):
        if node.op_type == "RoiAlign":
            del node.attribute[:]  # its output would be of one bin
    feeds = dict(zip(("input", "rois"), many.arrays, strict=True))
    assert same(stock_session(model).run(None, feeds), front_ends.run_ort("roi_align", many.arrays, many.attributes))


def test_nms_takes_nan_scores_last():
    """They come after -inf."""
    boxes = np.arange(6, dtype=np.float32)[:, None] * 10 + np.array([0, 0, 5, 5], np.float32)
    scores = np.array([np.nan, -np.inf, 0.5, np.nan, -np.inf, np.inf], np.float32)
    case = cases.Case("nms", "nan_and_infinity", cases.given(boxes, scores), {"iou_threshold": 0.5})
    assert differing("nms", [case], stock_session) == []


SUPPRESSIONS = {
    "best": {"max_num": 7, "score_threshold": 0.3},
    "offset": {"offset": 1},
    "best_offset": {"offset": 2, "max_num": 7, "score_threshold": 0.3},
    "negative": {"iou_threshold": -1.0},
    "above_1": {"iou_threshold": 1.5},
}


@pytest.mark.parametrize("attributes", SUPPRESSIONS.values(), ids=SUPPRESSIONS)
@pytest.mark.parametrize("runner", [stock_session, onnx.reference.ReferenceEvaluator])
def test_nms_within_classes(attributes, runner):
    """There are equal scores, NaN, boxes without area, and no boxes at all."""
    selected = []
    for count in (0, 1, 40) if runner is stock_session else (40,):  # onnx.reference has no Loop of no steps

        def build(rng, count=count):
            boxes, scores, idxs = nms.classed(count, "clustered", 8)(rng)
            boxes[::7, 2] = boxes[::7, 0]
            boxes[3::9] = np.nan
            scores[::6] = np.nan
            return boxes, scores, -idxs

        selected.append(cases.Case("nms", f"n{count}", build, {"iou_threshold": 0.3} | attributes))
    assert [len(case.arrays) for case in selected] == [3] * len(selected)
    with np.errstate(all="ignore"):
        assert differing("nms", selected, runner) == []


@pytest.mark.parametrize(
    "attributes",
    [
        {"offset": 1},
        {"iou_threshold": -1.0},
        {"method": "soft_nms_linear"},
        {"method": "soft_nms_naive", "min_score": 2.0},  # which is above all
        {"method": "soft_nms_linear", "max_per_image": 7},
        {"method": "soft_nms_gaussian", "max_per_image": 1, "min_score": 0.5},
    ],
)
@pytest.mark.parametrize("agnostic", [False, True])
def test_multiclass_nms_in_a_loop(attributes, agnostic):
    """There are boxes for each class, classes and images without a candidate, and no boxes at all."""
    selected = [
        cases.Case(
            "multiclass_nms",
            f"{size}",
            multiclass.batch(*size, levels=9, each=True),
            {"score_threshold": threshold, "iou_threshold": 0.3, "class_agnostic": agnostic} | attributes,
        )
        for size in ((2, 30, 3), (2, 0, 3), (0, 4, 3), (2, 4, 0))
        for threshold in (0.3, 0.97)
    ]
    assert differing("multiclass_nms", selected, stock_session) == []


def test_soft_suppression_ends_early_but_not_between_equal_scores():
    """The first of three boxes moves behind the second of the same score, but is the one to return."""
    corners = 20 * np.arange(3, dtype=np.float32)[:, None] + np.array([0, 0, 9, 9], np.float32)
    scores = np.array([0.5, 0.5, 0.9], np.float32)
    arrays = cases.given(corners[None], scores[None, :, None])
    attributes = {"method": "soft_nms_linear", "max_per_image": 2}
    assert differing("multiclass_nms", [cases.Case("multiclass_nms", "ties", arrays, attributes)], stock_session) == []


@pytest.mark.parametrize("operator", DEFINITIONS)
def test_definition_equals_kernel_in_onnx_reference(operator):
    selected = [
        case
        for case in defined(operator)
        if sum(array.size for array in case.arrays) < 900
        and not any(re.fullmatch(pattern, case.name) for pattern in INEXACT.get(operator, ()))
        and case.attributes.get("mode") != "bicubic"  # onnx.reference's has other coefficients at the border
        and 0 not in {size for array in case.arrays for size in array.shape}  # it does not take all empty tensors
        and not (operator == "roi_align_rotated" and "edges" in case.name)  # a large region takes it seconds
    ]
    with np.errstate(all="ignore"):
        # Its GridSample knows only opset 20's words for modes.
        assert differing(operator, selected[:: max(len(selected) // 6, 1)], onnx.reference.ReferenceEvaluator, 20) == []
    assert selected


@pytest.mark.parametrize("operator", DEFINITIONS)
def test_the_library_is_preferred(operator):
    """A definition that cannot run does no harm where the library is loaded."""
    case = defined(operator)[0]
    model, _ = portable_model(case)
    expected = front_ends.run_ort(operator, case.arrays, case.attributes)
    (function,) = model.functions
    function.node.insert(0, oh.make_node("NoSuchOperator", list(function.input[:1]), ["unused"]))
    outputs = front_ends.run_session(front_ends.make_session(model), case.arrays)
    for output, expected_output in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(output, expected_output)
    with pytest.raises(Exception, match="NoSuchOperator"):
        stock_session(model)


def test_attributes_that_are_not_covered():
    for case in (case for case in cases.of("roi_align") if case.attributes.get("pool_mode") != "max"):
        attributes = case.attributes | {"spatial_scale": -0.5}
        model, (coverage,) = portable_model(cases.Case(case.operator, case.name, case.build, attributes))
        assert coverage.missing == "no definition of mmcv::MMCVRoiAlign node 'the_node': spatial_scale -0.5"
        assert not model.functions


@pytest.mark.parametrize("row", front_ends.ROWS, ids=lambda row: f"{row['domain']}.{row['type']}")
def test_operators_without_a_definition(row):
    attributes = front_ends.onnx_attributes(row["kernel"], cases.of(row["kernel"])[0].attributes)
    model = front_ends.make_model(row, attributes)
    (coverage,) = make_portable(model)
    assert coverage.operator == f"{row['domain']}::{row['type']}"
    assert coverage.nodes == ("the_node",)
    assert (coverage.missing is None) == (row["kernel"] in DEFINITIONS) == bool(model.functions)
    onnx.checker.check_model(give_shapes(model))


def give_shapes(model):
    """Set empty shapes where there are none, as the checker requires them."""
    for info in [*model.graph.input, *model.graph.output]:
        if not info.type.tensor_type.HasField("shape"):
            info.type.tensor_type.shape.SetInParent()
    return model


def corner_pools(*modes, opset=OPSET, **attributes):
    """Make a model of corner pools in a row, of 4 x 4 pixels."""
    names = [f"x{i}" for i in range(len(modes) + 1)]
    made = [
        oh.make_node("MMCVCornerPool", [names[i]], [names[i + 1]], f"pool{i}", domain="mmcv", mode=mode, **attributes)
        for i, mode in enumerate(modes)
    ]
    tensors = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, 4, 4]) for name in names]
    graph = oh.make_graph(made, "pools", tensors[:1], tensors[-1:])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset), oh.make_opsetid("mmcv", 1)], ir_version=8)


def grid_samplers(*modes):
    """Make a model that samples the same map and grid in several ways."""
    made = [
        oh.make_node("grid_sampler", ["x", "grid"], [f"y{i}"], f"sample{i}", domain="mmcv", padding_mode=mode)
        for i, mode in enumerate(modes)
    ]
    tensor = oh.make_tensor_value_info
    inputs = [tensor("x", onnx.TensorProto.FLOAT, [1, 1, 4, 4]), tensor("grid", onnx.TensorProto.FLOAT, [1, 2, 2, 2])]
    outputs = [tensor(f"y{i}", onnx.TensorProto.FLOAT, [1, 1, 2, 2]) for i in range(len(modes))]
    graph = oh.make_graph(made, "samplers", inputs, outputs)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", OPSET), oh.make_opsetid("mmcv", 1)], ir_version=8)


def test_nodes_of_other_attributes_share_a_definition(rng):
    model = corner_pools(0, 1, 2, 3)
    assert make_portable(model) == [Coverage("mmcv::MMCVCornerPool", ("pool0", "pool1", "pool2", "pool3"), None)]
    assert len(model.functions) == 1
    x = rng.standard_normal((1, 1, 4, 4)).astype(np.float32)
    (outputs,) = stock_session(model).run(None, {"x0": x})
    for mode in ("top", "bottom", "left", "right"):
        x = mmort.corner_pool(x, mode)
    np.testing.assert_array_equal(outputs, x)


@pytest.mark.parametrize("runner", [stock_session, inlined_session])
def test_nodes_that_need_different_definitions_share_a_function(rng, runner):
    """It chooses by the attribute that decides, and the library still has the operator."""
    model = grid_samplers(0, 1, 2, 1)
    assert make_portable(model) == [Coverage("mmcv::grid_sampler", ("sample0", "sample1", "sample2", "sample3"), None)]
    assert [list(function.attribute) for function in model.functions] == [["padding_mode"]]
    assert {node.op_type for node in model.graph.node} == {"grid_sampler"}
    x = rng.standard_normal((1, 1, 4, 4)).astype(np.float32)
    grid = rng.uniform(-2, 2, (1, 2, 2, 2)).astype(np.float32)
    outputs = runner(model).run(None, {"x": x, "grid": grid})
    for output, mode in zip(outputs, ("zeros", "border", "reflection", "border"), strict=True):
        expected = mmort.grid_sample(x, grid, padding_mode=mode, align_corners=False)
        np.testing.assert_allclose(output, expected, atol=1e-6)


def suppressions(*settings):
    """Make a model that suppresses the same boxes with several settings."""
    made = [
        oh.make_node("MultiClassNMS", ["boxes", "scores"], [f"{name}{i}" for name in "dli"], domain="mmort", **setting)
        for i, setting in enumerate(settings)
    ]
    tensor = oh.make_tensor_value_info
    inputs = [tensor(name, onnx.TensorProto.FLOAT, [2, 30, 4]) for name in ("boxes", "scores")]
    kinds = (
        (onnx.TensorProto.FLOAT, [2, None, 5]),
        (onnx.TensorProto.INT64, [2, None]),
        (onnx.TensorProto.INT64, [2, None]),
    )
    outputs = [tensor(name, *kind) for node in made for name, kind in zip(node.output, kinds, strict=True)]
    graph = oh.make_graph(made, "suppressions", inputs, outputs)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", OPSET), oh.make_opsetid("mmort", 1)], ir_version=8)


@pytest.mark.parametrize("runner", [stock_session, inlined_session, onnx.reference.ReferenceEvaluator])
def test_a_definition_in_a_branch_reads_the_node_s_own_numbers(rng, runner):
    """Attributes that decide nothing differ too, or are left out; two attributes decide."""
    common = {"score_threshold": 0.05, "iou_threshold": 0.5}
    settings = [
        {**common, "max_per_image": 9},
        {**common, "class_agnostic": 1, "max_per_image": 12},
        {"score_threshold": 0.4, "iou_threshold": 0.3, "class_agnostic": 1},
    ]
    model = suppressions(*settings)
    assert make_portable(model)[0].missing is None
    assert "max_per_image" in model.functions[0].attribute
    boxes = rng.uniform(0, 50, (2, 30, 4)).astype(np.float32)
    boxes[..., 2:] += boxes[..., :2]
    scores = rng.random((2, 30, 4)).astype(np.float32)
    outputs = runner(model).run(None, {"boxes": boxes, "scores": scores})
    for index, setting in enumerate(settings):
        expected = mmort.multiclass_nms(boxes, scores, **setting)
        for output, wanted in zip(outputs[3 * index : 3 * index + 3], expected, strict=True):
            np.testing.assert_array_equal(output, wanted)


def test_nodes_whose_definitions_differ_by_text_need_the_library():
    """Equal compares no text before opset 19."""
    model = suppressions({"method": "nms"}, {"method": "soft_nms_linear"})
    assert "need different ones" in make_portable(model)[0].missing
    assert not model.functions


def test_suppression_with_classes_and_without():
    """Their definitions differ in the number of inputs."""
    inputs = [oh.make_tensor_value_info("boxes", onnx.TensorProto.FLOAT, [9, 4])]
    inputs += [oh.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, [9])]
    inputs += [oh.make_tensor_value_info("idxs", onnx.TensorProto.INT64, [9])]
    names = [info.name for info in inputs]
    made = [
        oh.make_node("NonMaxSuppression", names[:2], ["y0"], "all", domain="mmcv", iou_threshold=0.5),
        oh.make_node("NonMaxSuppression", names, ["y1"], "within", domain="mmcv", iou_threshold=0.5),
    ]
    outputs = [oh.make_tensor_value_info(f"y{i}", onnx.TensorProto.INT64, [None]) for i in range(2)]
    graph = oh.make_graph(made, "suppressions", inputs, outputs)
    imports = [oh.make_opsetid("", OPSET), oh.make_opsetid("mmcv", 1)]
    (coverage,) = make_portable(oh.make_model(graph, opset_imports=imports, ir_version=8))
    assert "'all' and mmcv::NonMaxSuppression node 'within' need different ones" in coverage.missing


@pytest.mark.parametrize("operator", ["nms", "soft_nms", "multiclass_nms", "roi_align"])
def test_sessions_start_without_a_warning(operator, capfd):
    """ONNX Runtime warns of values that are computed and not used."""
    models = {}
    for case in defined(operator):
        model, _ = portable_model(case)
        models.setdefault(model.functions[0].SerializeToString(), model)
    for model in models.values():
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert len(models) > 1
    assert capfd.readouterr().err == ""


def test_twice_is_once():
    model = corner_pools(0)
    make_portable(model)
    before = model.SerializeToString(deterministic=True)
    assert make_portable(model) == [Coverage("mmcv::MMCVCornerPool", ("pool0",), None)]
    assert model.SerializeToString(deterministic=True) == before


def test_nodes_within_graphs_and_functions(rng):
    """There is a node in a branch, and one in a function of the model's own."""
    x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, 4, 4]) for name in ("x", "y"))
    inner = oh.make_node("MMCVCornerPool", ["x"], ["y"], "inner", domain="mmcv", mode=1)
    branch = oh.make_graph([inner], "branch", [], [y])
    other = oh.make_graph([oh.make_node("Wrapped", ["x"], ["y"], domain="own")], "other", [], [y])
    node = oh.make_node("If", ["condition"], ["y"], then_branch=branch, else_branch=other)
    imports = [oh.make_opsetid(domain, version) for domain, version in (("", OPSET), ("mmcv", 1), ("own", 1))]
    wrapped = oh.make_node("MMCVCornerPool", ["a"], ["b"], "wrapped", domain="mmcv", mode=0)
    function = oh.make_function("own", "Wrapped", ["a"], ["b"], [wrapped], imports[:2])
    condition = oh.make_tensor_value_info("condition", onnx.TensorProto.BOOL, [])
    graph = oh.make_graph([node], "graph", [condition, x], [y])
    model = oh.make_model(graph, functions=[function], opset_imports=imports, ir_version=8)
    assert make_portable(model) == [Coverage("mmcv::MMCVCornerPool", ("inner", "wrapped"), None)]
    session = stock_session(model)
    x = rng.standard_normal((1, 1, 4, 4)).astype(np.float32)
    for value, mode in ((True, "bottom"), (False, "top")):
        (outputs,) = session.run(None, {"condition": np.array(value), "x": x})
        np.testing.assert_array_equal(outputs, mmort.corner_pool(x, mode))


def test_attributes_left_out_or_of_old_names_are_written():
    """Definitions refer to them by their current names."""
    row = front_ends.row_of("roi_align")
    model = front_ends.make_model(row, {"aligned_height": 2, "aligned_width": 3})
    make_portable(model)
    arrays = np.ones((1, 2, 8, 9), np.float32), np.array([[0, 1, 1, 5, 6]], np.float32)
    outputs = stock_session(model).run(None, dict(zip(("input", "rois"), arrays, strict=True)))
    np.testing.assert_array_equal(outputs[0], mmort.roi_align(*arrays, (2, 3)))
    np.testing.assert_array_equal(front_ends.run_session(front_ends.make_session(model), arrays)[0], outputs[0])


@pytest.mark.parametrize(
    ("operator", "attributes", "text"),
    [
        ("corner_pool", {"mode": 4}, "mmcv::MMCVCornerPool node 'the_node': mode must be 0, 1, 2 or 3, got 4"),
        ("corner_pool", {}, "attribute mode (INT) is missing"),
        ("corner_pool", {"mode": 1.0}, "attribute mode must be of type INT"),
        ("soft_nms", {"method": 3}, "method must be 0, 1 or 2, got 3"),
        ("grid_sample", {"padding_mode": 3}, "padding_mode must be 0, 1 or 2, got 3"),
        ("group_norm", {"num_groups": 0}, "num_groups must be at least 1, got 0"),
        ("nms", {"iou_threshold": float("nan")}, "iou_threshold must be a number, got nan"),
        ("roi_align", {"output_height": 1, "output_width": 1, "mode": "sum"}, "mode must be avg or max, got sum"),
        ("deform_conv2d", {"stride": [1, 2, 3]}, "stride must be 1, 2 or 4 integers (each twice), got [1, 2, 3]"),
    ],
)
def test_wrong_attributes_are_refused(operator, attributes, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        make_portable(front_ends.make_model(front_ends.row_of(operator), attributes))


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([], "mmcv::MMCVRoiAlign node 'the_node': input input is missing"),
        (["", "rois"], "input input is missing"),
        (["input"], "input rois is missing"),
        (["input", "rois", "rois"], "there must be at most 2 inputs, got 3"),
    ],
)
def test_wrong_inputs_are_refused(inputs, text):
    model = front_ends.make_model(front_ends.row_of("roi_align"), {"output_height": 2, "output_width": 2})
    (node,) = model.graph.node
    node.input[:] = inputs
    with pytest.raises(ValueError, match=re.escape(text)):
        make_portable(model)


@pytest.mark.parametrize(("opset", "text"), [(11, "must be 16 or higher, got 11; mmort upgrade raises it"), (15, "15")])
def test_old_opsets_are_refused(opset, text):
    with pytest.raises(ValueError, match=text):
        make_portable(corner_pools(0, opset=opset))


def test_new_opsets_have_no_roi_align():
    """ONNX Runtime 1.31 has no RoiAlign of opset 22."""
    case = defined("roi_align")[0]
    _, (coverage,) = portable_model(case, opset=22)
    assert coverage.missing.endswith("ONNX Runtime has RoiAlign up to opset 21, the model has 22")


@pytest.mark.parametrize("opset", [16, 17, 19, 20, 21])
def test_opsets(opset):
    for operator in DEFINITIONS:
        case = next(case for case in defined(operator) if min(min(array.shape) for array in case.arrays) > 0)
        model, (coverage,) = portable_model(case, opset)
        assert coverage.missing is None
        formals = [tensor["name"] for tensor in front_ends.row_of(operator)["inputs"]]
        outputs = stock_session(model).run(None, dict(zip(formals, case.arrays, strict=False)))
        compare.assert_close(outputs, front_ends.run_ort(operator, case.arrays, case.attributes), operator)


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [("filter_scores", {"nms_pre": 7}), ("roi_align", {"pool_mode": "max", "sampling_ratio": 0})],
)
def test_reductions_along_an_axis_before_opset_18(operator, attributes):
    case = next(case for case in defined(operator) if min(min(array.shape) for array in case.arrays) > 0)
    case = cases.Case(operator, case.name, case.build, case.attributes | attributes)
    assert differing(operator, [case], stock_session, 17) == []


# ---- files -----------------------------------------------------------------------------------------------------


def test_files(tmp_path):
    source, target = tmp_path / "model.onnx", tmp_path / "portable.onnx"
    onnx.save(corner_pools(0), source)
    before = source.read_bytes()
    make_portable(source, target)
    assert source.read_bytes() == before
    assert len(onnx.load(target).functions) == 1
    make_portable(source)
    assert source.read_bytes() == target.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "portable.onnx"]


@pytest.mark.parametrize("function", [make_portable, upgrade])
def test_no_file_is_overwritten(function, tmp_path):
    path, other = tmp_path / "model.onnx", tmp_path / "keep.onnx"
    onnx.save(corner_pools(0), path)
    other.write_bytes(b"keep")
    before = path.read_bytes()
    for output in (path, other):
        with pytest.raises(FileExistsError, match=re.escape(f"output file exists: {output}")):
            function(path, output)
    with pytest.raises(FileNotFoundError, match="output directory does not exist"):
        function(tmp_path / "not_even_read.onnx", tmp_path / "nowhere" / "x.onnx")
    assert (path.read_bytes(), other.read_bytes()) == (before, b"keep")


def test_own_function_of_the_same_name_is_not_ours():
    """The model's own function is what the node calls; only definitions that mmort wrote are counted as such."""
    model = corner_pools(0)
    make_portable(model)
    model.functions[0].doc_string = "someone else's"
    assert make_portable(model) == []
    assert [function.doc_string for function in model.functions] == ["someone else's"]


@pytest.mark.parametrize("size", [65, 10**5 + 1, 2, 0])
def test_kernel_size_of_carafe(size):
    """Each weight takes nodes: no attribute makes a definition of millions."""
    node = oh.make_node("CARAFE", ["x", "m"], ["y"], domain="mmort", kernel_size=size, group_size=1, scale_factor=2)
    model = oh.make_model(oh.make_graph([node], "g", [], []), opset_imports=[oh.make_opsetid("", 18)], ir_version=8)
    with pytest.raises(ValueError, match=f"CARAFE node 'y': kernel_size must be odd and from 1 to 63, got {size}$"):
        make_portable(model)


@pytest.mark.parametrize("inputs", [[], [""], ["", ""], ["x", ""], ["x", "", "x"]])
def test_malformed_nodes(inputs):
    node = oh.make_node("MMCVRoiAlign", inputs, ["y"], "pool", domain="mmcv", output_height=2, output_width=2)
    for change in (make_portable, upgrade):
        model = oh.make_model(oh.make_graph([node], "g", [], []), opset_imports=[oh.make_opsetid("", 18)], ir_version=8)
        if change is upgrade:
            upgrade(model)  # inputs are none of its business
        else:
            with pytest.raises(ValueError, match=r"node 'pool': (input \w+ is missing|there must be at most 2 inputs)"):
                make_portable(model)


def test_attributes_that_refer_to_a_function():
    node = oh.make_node("MMCVCornerPool", ["x"], ["y"], "pool", domain="mmcv")
    node.attribute.add(name="mode", ref_attr_name="which", type=onnx.AttributeProto.INT)
    function = oh.make_function("own", "F", ["x"], ["y"], [node], [oh.make_opsetid("mmcv", 1)], attributes=["which"])
    call = oh.make_node("F", ["x"], ["y"], domain="own", which=1)
    model = oh.make_model(
        oh.make_graph([call], "g", [], []), functions=[function], opset_imports=[oh.make_opsetid("", 18)], ir_version=8
    )
    upgrade(model)
    message = "node 'pool': attribute mode must be a value, got attribute which of the function around it"
    with pytest.raises(ValueError, match=message) as error:
        make_portable(model)
    assert "\n" not in str(error.value)


def test_attribute_that_is_not_text():
    node = oh.make_node("MMCVRoiAlign", ["x", "r"], ["y"], domain="mmcv", output_height=2, output_width=2, mode=b"\xff")
    model = oh.make_model(oh.make_graph([node], "g", [], []), opset_imports=[oh.make_opsetid("", 18)], ir_version=8)
    for change in (make_portable, upgrade):
        with pytest.raises(ValueError, match="MMCVRoiAlign node 'y': attribute mode must be UTF-8 text, got"):
            change(model)


def test_many_nodes(tmp_path):
    """ONNX Runtime is not asked to inline hundreds of definitions."""
    model = corner_pools(*[0] * 200)
    onnx.save(model, tmp_path / "model.onnx")
    start = time.process_time()
    make_portable(tmp_path / "model.onnx", tmp_path / "portable.onnx")
    assert time.process_time() - start < 2


def test_more_nodes_than_functions_may_become(tmp_path):
    """The form that works is named, and ONNX Runtime, which refused nothing, is not."""
    nodes = [
        oh.make_node("MMCVRoiAlign", ["x", "rois"], [f"y{i}"], domain="mmcv", output_height=7, output_width=7)
        for i in range(100)
    ]
    inputs = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "rois")]
    outputs = [oh.make_tensor_value_info(f"y{i}", onnx.TensorProto.FLOAT, None) for i in range(100)]
    opsets = [oh.make_opsetid("", 18), oh.make_opsetid("mmcv", 1)]
    onnx.save(
        oh.make_model(oh.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets, ir_version=8),
        tmp_path / "model.onnx",
    )
    text = r"^make_portable: too many nodes .* more than 20000 nodes; .*form=\"inlined\" \(--portable=inlined\)$"
    with pytest.raises(ValueError, match=text):
        make_portable(tmp_path / "model.onnx", tmp_path / "functions.onnx")
    assert not (tmp_path / "functions.onnx").exists()
    make_portable(tmp_path / "model.onnx", tmp_path / "inlined.onnx", "inlined")
    session = onnxruntime.InferenceSession(tmp_path / "inlined.onnx", providers=["CPUExecutionProvider"])
    assert len(session.get_outputs()) == 100


def test_tensors_beside_the_model_stay_there(tmp_path, rng):
    weight = rng.standard_normal((1, 1, 4, 4)).astype(np.float32)
    model = corner_pools(0)
    model.graph.node.append(oh.make_node("Add", ["x1", "weight"], ["sum"]))
    model.graph.output[0].name = "sum"
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    source = tmp_path / "model.onnx"
    onnx.save(model, source, save_as_external_data=True, location="weights", size_threshold=0)
    make_portable(source, tmp_path / "portable.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "portable.onnx", providers=["CPUExecutionProvider"])
    zeros = np.zeros((1, 1, 4, 4), np.float32)
    np.testing.assert_array_equal(session.run(None, {"x0": zeros})[0], weight)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ValueError, match="has tensors in files beside it: the output must be in its directory"):
        make_portable(source, other / "portable.onnx")
    assert not list(other.iterdir())


def test_a_model_that_does_not_load_is_not_written(tmp_path):
    model = corner_pools(0)
    model.graph.node.append(oh.make_node("Unknown", ["x1"], ["z"], domain="somewhere"))
    model.opset_import.append(oh.make_opsetid("somewhere", 1))
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match=r"ONNX Runtime refuses the changed model, so it was not written: .*Unknown"):
        make_portable(tmp_path / "model.onnx", tmp_path / "portable.onnx")
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(ValueError, match=r"text\.onnx is not an ONNX model"):
        make_portable(tmp_path / "text.onnx")
    with pytest.raises(FileNotFoundError):
        make_portable(tmp_path / "missing.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "text.onnx"]


def test_what_onnx_runtime_says_is_on_one_line(tmp_path):
    inputs = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None]) for name in ("a", "b")]
    output = oh.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    node = oh.make_node("grid_sampler", ["a", "b"], ["y"], domain="mmcv")  # takes four dimensions
    opsets = [oh.make_opsetid("", 17), oh.make_opsetid("mmcv", 1)]
    graph = oh.make_graph([node], "g", inputs, [output])
    onnx.save(oh.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "model.onnx")
    with pytest.raises(
        ValueError, match=r"refuses the changed model, so it was not written: .*grid_sampler"
    ) as refused:
        make_portable(tmp_path / "model.onnx", tmp_path / "portable.onnx")
    assert "\n" not in str(refused.value)


# ---- a detector, and the command line --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def detector_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("portable") / "mask_rcnn.onnx"
    upgrade(old_export.MODEL, path)
    return path


def test_a_detector_without_the_library(detector_file, tmp_path, capsys):
    target = tmp_path / "portable.onnx"
    assert mmort.cli.main(["portable", str(detector_file), "--output", str(target)]) == 0
    rows = "mmcv::MMCVRoiAlign  8  defined\nmmcv::grid_sampler  1  defined\n"
    assert capsys.readouterr().out == f"{rows}wrote {target}\n"
    stock = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    with_library = mmort.ort.session(target)
    for image in demo.IMAGES[:2]:
        pixels = old_export.network_input(image)
        dets, labels, masks = stock.run(None, {"input": pixels})
        expected_dets, expected_labels, expected_masks = with_library.run(None, {"input": pixels})
        np.testing.assert_array_equal(labels, expected_labels)
        np.testing.assert_allclose(dets, expected_dets, rtol=0, atol=1e-3)
        assert ((masks > 0.5) != (expected_masks > 0.5)).mean() < 1e-4


def test_command_line_errors(tmp_path, capsys):
    path = tmp_path / "model.onnx"
    onnx.save(suppressions({"method": "nms"}, {"method": "soft_nms_linear"}), path)
    before = path.read_bytes()
    with pytest.raises(SystemExit):
        mmort.cli.main(["portable", str(path)])
    assert "one of the arguments -o/--output --in-place is required" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert mmort.cli.main(["portable", str(path), "--in-place", "--json"]) == 1
    out, err = capsys.readouterr()
    assert '"operator": "mmort::MultiClassNMS"' in out
    assert err == "mmort: error: 2 nodes still need the library\n"
    onnx.save(corner_pools(0, opset=11), path)
    assert mmort.cli.main(["portable", str(path), "--in-place"]) == 1
    assert re.fullmatch("mmort: error: make_portable: the model's opset must be .*\n", capsys.readouterr().err)

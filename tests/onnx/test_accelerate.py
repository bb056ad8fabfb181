"""Files of other exporters with mmort's nodes: what is replaced, what is left, and that the outputs stay the same."""

import json
from functools import partial

import numpy as np
import onnx
import onnx.helper as oh
import onnx_ir as ir
import pytest

import mmort.onnx
from mmort.onnx.accelerate import accelerate_file, measuring, single_nodes
from mmort.onnx.accelerate.measuring import is_faster, measure, run_once
from mmort.onnx.accelerate.report import Left
from mmort.onnx.accelerate.row_order import are_reordered
from mmort.onnx.graph import files
from tests.cli.running import refused, run
from tests.front_ends import make_session
from tests.onnx import foreign
from tests.onnx.fixed_times import set_seconds
from tests.ort import test_mmdeploy

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
node = oh.make_node


def model_of(nodes, inputs, outputs=("y",), constants=None, opset=17, output_type=FLOAT):
    """Make a model; `inputs` are names with ranks."""
    graph = oh.make_graph(
        nodes,
        "other",
        [oh.make_tensor_value_info(name, FLOAT, [None] * rank) for name, rank in inputs.items()],
        [oh.make_tensor_value_info(name, output_type, None) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    domains = sorted({made.domain for made in nodes} - {""})
    opsets = [oh.make_opsetid("", opset), *(oh.make_opsetid(domain, 1) for domain in domains)]
    return oh.make_model(graph, opset_imports=opsets, ir_version=8)


def floats(arrays):
    return [np.asarray(array, np.float32) for array in arrays]


def edited(tmp_path, model, *arrays, rtol=0, atol=0):
    """Replace all that can be, and check that the outputs have the same bits, or are near."""
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    named = files.load_whole(path)
    runs = run_once(named, arrays)
    result = accelerate_file.edit(named, runs, accelerate_file.RULES)
    assert [info.name for info in result.model.graph.output] == [info.name for info in model.graph.output]
    feeds = dict(zip([info.name for info in model.graph.input], arrays, strict=True))
    for before, after in zip(*(make_session(file).run(None, feeds) for file in (model, result.model)), strict=True):
        np.testing.assert_allclose(after, before, rtol, atol)
    return result


def op_types(result):
    return [node.op_type for node in result.model.graph.node]


def reasons(result):
    return [reason for _, reason in result.left]


# ---- NonMaxSuppression -----------------------------------------------------------------------------------------------


def boxes_and_scores(rng, images=2, count=40, classes=3):
    corner = rng.uniform(0, 50, (images, count, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(2, 20, (images, count, 2))], axis=2)
    return boxes.astype(np.float32), rng.random((images, classes, count)).astype(np.float32)


def suppression(limits, outputs=("y",), **attributes):
    names = [name if name in limits else "" for name in ("max", "iou", "score")]
    constants = {name: np.asarray(value, np.int64 if name == "max" else np.float32) for name, value in limits.items()}
    made = node("NonMaxSuppression", ["b", "s", *names], ["y"], **attributes)
    return model_of([made], {"b": 3, "s": 3}, outputs, constants, output_type=INT64)


@pytest.mark.parametrize("limits", [{"max": [5], "iou": [0.3], "score": [0.2]}, {"max": 2**60, "iou": 0.5}, {"max": 1}])
@pytest.mark.parametrize("center_point_box", [0, 1])
def test_suppression_is_replaced(tmp_path, rng, limits, center_point_box):
    model = suppression(limits, center_point_box=center_point_box)
    assert op_types(edited(tmp_path, model, *boxes_and_scores(rng))) == ["NMSIndices"]


@pytest.mark.parametrize(("limits", "reason"), [({}, "it keeps nothing"), ({"max": 0, "iou": 0.5}, "it keeps nothing")])
def test_suppression_that_is_something_else_is_left(tmp_path, rng, limits, reason):
    result = edited(tmp_path, suppression(limits), *boxes_and_scores(rng))
    assert reasons(result) == [reason]
    assert op_types(result) == ["NonMaxSuppression"]


def test_suppression_with_a_computed_limit_is_left(tmp_path, rng):
    nodes = [node("ReduceMax", ["s"], ["t"], keepdims=0), node("NonMaxSuppression", ["b", "s", "max", "t"], ["y"])]
    model = model_of(nodes, {"b": 3, "s": 3}, constants={"max": np.array([5])}, output_type=INT64)
    assert reasons(edited(tmp_path, model, *boxes_and_scores(rng))) == ["input 3 is computed by the model"]


# ---- RoiAlign and GridSample -----------------------------------------------------------------------------------------


def regions(opset=16, **attributes):
    attributes = {"output_height": 2, "output_width": 3, "spatial_scale": 0.5} | attributes
    made = node("RoiAlign", ["x", "r", "images"], ["y"], **attributes)
    return model_of([made], {"x": 4, "r": 2}, constants={"images": np.array([1, 0, 1])}, opset=opset)


def maps_and_regions(rng):
    return floats((rng.normal(size=(2, 3, 12, 9)), [[1, 2, 9, 14], [0, 0, 0.5, 0.5], [2, 2, 60, 30]]))


@pytest.mark.parametrize(
    "attributes",
    [
        {"opset": 10},
        {"opset": 16},
        {"coordinate_transformation_mode": "output_half_pixel", "sampling_ratio": 2},
        {"opset": 20, "coordinate_transformation_mode": "half_pixel", "mode": "avg"},
    ],
)
def test_regions_are_replaced(tmp_path, rng, attributes):
    result = edited(tmp_path, regions(**attributes), *maps_and_regions(rng))
    assert op_types(result)[-1] == "MMCVRoiAlign"
    assert "RoiAlign" not in op_types(result)


def test_maxima_of_regions_are_left(tmp_path, rng):
    result = edited(tmp_path, regions(mode="max"), *maps_and_regions(rng))
    assert [reason[:31] for reason in reasons(result)] == ["ONNX Runtime's maximum is that "]


@pytest.mark.parametrize(
    ("opset", "attributes", "replaced"),
    [
        (16, {}, True),
        (16, {"mode": "nearest", "padding_mode": "border", "align_corners": 1}, True),
        (20, {"mode": "linear"}, True),
        (20, {"mode": "nearest"}, True),
        (20, {"mode": "nearest", "padding_mode": "reflection"}, False),
    ],
)
def test_samples_are_replaced(tmp_path, rng, opset, attributes, replaced):
    made = node("GridSample", ["x", "g"], ["y"], **attributes)
    arrays = rng.normal(size=(1, 2, 7, 5)), rng.uniform(-1.3, 1.3, (1, 4, 6, 2))
    result = edited(tmp_path, model_of([made], {"x": 4, "g": 4}, opset=opset), *floats(arrays))
    assert op_types(result) == ["grid_sampler" if replaced else "GridSample"]


def test_samples_in_volumes_are_left(tmp_path, rng):
    made = node("GridSample", ["x", "g"], ["y"])
    arrays = rng.normal(size=(1, 2, 3, 7, 5)), rng.uniform(-1, 1, (1, 2, 4, 6, 3))
    result = edited(tmp_path, model_of([made], {"x": 5, "g": 5}, opset=20), *floats(arrays))
    assert reasons(result) == ["its input has 5 dimensions, mmort's 4"]


# ---- mask pasting ----------------------------------------------------------------------------------------------------


def pasted(sampler="GridSample", domain="", axes=(1, 2), **attributes):
    """Each mask at every pixel, as MMDetection and detectron2 do it: the grid is an image of x and one of y."""
    nodes, constants = [], {"last": np.array([3]), "size": np.array([4, 7, 9]), "two": np.float32(2)}
    for name, axis in zip("xy", axes, strict=True):
        constants[f"axis_{name}"] = np.array([axis])
        nodes += [
            node("Unsqueeze", [name, f"axis_{name}"], [f"{name}1"]),
            node("Expand", [f"{name}1", "size"], [f"{name}2"]),
            node("Unsqueeze", [f"{name}2", "last"], [f"{name}3"]),
        ]
    nodes += [
        node("Concat", ["x3", "y3"], ["grid"], axis=3),
        node(sampler, ["m", "grid"], ["z"], domain=domain, **attributes),
    ]
    nodes += [node("Mul", ["z", "two"], ["y0"])]
    return model_of(nodes, {"m": 4, "x": 2, "y": 2}, ("y0",), constants)


def masks_and_coordinates(rng, count=4):
    x, y = rng.uniform(-1.6, 1.6, (count, 9)), rng.uniform(-1.6, 1.6, (count, 7))
    x[0, :2], y[1, :2] = [-1, 1], [-1, 1]
    return floats((rng.random((count, 2, 5, 6)), x, y))


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize(
    ("sampler", "domain"), [("GridSample", ""), ("grid_sampler", "mmcv"), ("grid_sampler", "mmdeploy")]
)
def test_pasting_is_two_products(tmp_path, rng, sampler, domain, corners):
    arrays = masks_and_coordinates(rng)
    if sampler == "grid_sampler":  # of ONNX Runtime's GridSample these are not defined
        arrays[1][2, :3], arrays[2][3, :3] = [np.nan, np.inf, 1e30], [np.nan, -np.inf, -1e30]
    result = edited(tmp_path, pasted(sampler, domain, align_corners=corners), *arrays, rtol=1e-5, atol=1e-6)
    assert op_types(result).count("MatMul") == 2
    assert not {"GridSample", "grid_sampler", "Concat", "Expand"} & set(op_types(result))


@pytest.mark.parametrize("change", [{"axes": (2, 1)}, {"padding_mode": "border"}, {"mode": "nearest"}])
def test_other_grids_are_sampled(tmp_path, rng, change):
    m, x, y = masks_and_coordinates(rng)
    arrays = (m, y[:, :7], x[:, :9]) if "axes" in change else (m, x, y)
    assert "grid_sampler" in op_types(edited(tmp_path, pasted(**change), *arrays, rtol=1e-5, atol=1e-6))


# ---- rows and loops --------------------------------------------------------------------------------------------------


def scattering(target=(-1, 1, 1), **attributes):
    nodes = [
        node("Reshape", ["rows", "column"], ["r"]),
        node("Shape", ["u"], ["size"]),
        node("Expand", ["r", "size"], ["indices"]),
        node("ScatterElements", ["x", "indices", "u"], ["y"], **attributes),
    ]
    constants = {"rows": np.array([4, 0, -2]), "column": np.array(target)}
    return model_of(nodes, {"x": 3, "u": 3}, constants=constants, opset=18)


def test_scattered_rows_are_replaced(tmp_path, rng):
    arrays = floats((rng.normal(size=(5, 2, 4)), rng.normal(size=(3, 2, 4))))
    assert "ScatterND" in op_types(edited(tmp_path, scattering(), *arrays))


@pytest.mark.parametrize("columns", [3, 4])
def test_scattered_elements_are_left(tmp_path, rng, columns):
    """They are sums, or only parts of rows."""
    attributes = {"reduction": "add"} if columns == 4 else {}
    arrays = floats((rng.normal(size=(5, 2, 4)), rng.normal(size=(3, 2, columns))))
    assert "ScatterND" not in op_types(edited(tmp_path, scattering(**attributes), *arrays))


def pooled(kind="ScatterND", levels=((0, 3), (4, -2, 1)), start="ConstantOfShape", watched=False):
    """Rows that two nodes write into a constant tensor; their numbers of columns are read from the tensors."""
    constants = {"sizes": np.array([5, 2, 3]), "column": np.array([-1, 1] if kind == "ScatterND" else [-1, 1, 1])}
    constants |= {"from": np.array([1]), "to": np.array([3]), "rest": np.array([-1])}
    value = oh.make_tensor("value", FLOAT, [1], [0.5])
    nodes = [node("ConstantOfShape", ["sizes"], ["z0"], value=value)]
    if start == "Neg":
        nodes = [node("ConstantOfShape", ["sizes"], ["z"], value=value), node("Neg", ["z"], ["z0"])]
    for level, rows in enumerate(levels):
        constants[f"rows{level}"] = np.array(rows, np.int64)
        nodes += [
            node("Shape", [f"z{level}"], [f"all{level}"]),
            node("Slice", [f"all{level}", "from", "to"], [f"row{level}"]),
            node("Concat", ["rest", f"row{level}"], [f"size{level}"], axis=0),
            node("Reshape", [f"x{level}", f"size{level}"], [f"u{level}"]),
            node("Reshape", [f"rows{level}", "column"], [f"r{level}"]),
        ]
        if kind == "ScatterElements":
            nodes += [
                node("Shape", [f"u{level}"], [f"us{level}"]),
                node("Expand", [f"r{level}", f"us{level}"], [f"e{level}"]),
            ]
        indices = f"{'e' if kind == 'ScatterElements' else 'r'}{level}"
        nodes.append(node(kind, [f"z{level}", indices, f"u{level}"], [f"z{level + 1}"]))
    outputs = [f"z{len(levels)}", *(["z1"] if watched else [])]
    return model_of(nodes, {f"x{level}": 2 for level in range(len(levels))}, outputs, constants, opset=11)


@pytest.mark.parametrize("kind", ["ScatterND", "ScatterElements"])
@pytest.mark.parametrize("levels", [((0, 3), (4, -2, 1)), ((0, 3), (), (2,))])
def test_rows_written_in_turn_are_gathered(tmp_path, rng, kind, levels):
    """The later row wins, rows that are not written stay 0.5, and negative numbers count from the end."""
    arrays = floats(rng.normal(size=(len(rows), 6)) for rows in levels)
    result = edited(tmp_path, pooled(kind, levels), *arrays)
    assert result.replaced.keys() == {"rows written in turn -> Gather"}
    written = [made for made in result.model.graph.node if made.op_type == "ScatterND"]
    assert len(written) == len(levels)
    assert all(made.name.startswith("mmort/") for made in written)
    assert op_types(result).count("ConstantOfShape") == 2


@pytest.mark.parametrize("change", [{"levels": ((0, 3),)}, {"start": "Neg"}, {"watched": True}])
def test_rows_are_written_one_by_one_where_the_tensors_between_are_needed(tmp_path, rng, change):
    """Or where one node is enough, or the tensor is none that one value fills."""
    model = pooled(**change)
    arrays = floats(rng.normal(size=(count, 6)) for count in (2, 3)[: len(model.graph.input)])
    assert edited(tmp_path, model, *arrays).replaced == {}


@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize("limit", [0.999, 0.5, 2])
def test_candidates_are_looked_for_in_rows_that_have_any(tmp_path, rng, opset, limit):
    """Two nodes ask for the same: they get the indices, sorted by rows, from one search."""
    nodes = [node("Greater", ["x", "limit"], ["above"])]
    nodes += [node("NonZero", ["above"], [name]) for name in "yz"]
    model = model_of(nodes, {"x": 2}, "yz", {"limit": np.float32(limit)}, opset, INT64)
    scores = rng.random((2000, 64))
    scores[3, 2] = np.nan
    result = edited(tmp_path, model, *floats([scores]))
    assert op_types(result).count("NonZero") == 2  # of rows, and within them
    assert "ReduceMax" in op_types(result)


@pytest.mark.parametrize("shape", [(120_000,), (400, 50, 6), (1000, 80)])
def test_candidates_of_other_shapes_are_left(tmp_path, rng, shape):
    nodes = [node("Greater", ["x", "limit"], ["above"]), node("NonZero", ["above"], ["y"])]
    model = model_of(nodes, {"x": len(shape)}, "y", {"limit": np.float32(0.5)}, output_type=INT64)
    assert edited(tmp_path, model, *floats([rng.random(shape)])).replaced == {}


def appending(trips):
    """Append i * x to z for each i, and count in another tensor."""
    body = oh.make_graph(
        [
            node("Cast", ["i"], ["f"], to=FLOAT),
            node("Mul", ["f", "x"], ["product"]),
            node("Unsqueeze", ["product", "axis"], ["slice"]),
            node("Concat", ["before", "slice"], ["after"], axis=0),
            node("Add", ["count", "f"], ["more"]),
            node("Identity", ["going"], ["goes_on"]),
        ],
        "body",
        [
            oh.make_tensor_value_info("i", INT64, []),
            oh.make_tensor_value_info("going", onnx.TensorProto.BOOL, []),
            oh.make_tensor_value_info("count", FLOAT, []),
            oh.make_tensor_value_info("before", FLOAT, None),
        ],
        [
            oh.make_tensor_value_info("goes_on", onnx.TensorProto.BOOL, []),
            oh.make_tensor_value_info("more", FLOAT, []),
            oh.make_tensor_value_info("after", FLOAT, None),
        ],
    )
    loop = node("Loop", ["trips", "", "zero", "z"], ["total", "y"], body=body)
    constants = {"trips": np.array(trips), "zero": np.float32(0), "axis": np.array([0])}
    return model_of([loop], {"x": 2, "z": 3}, ("y", "total"), constants)


@pytest.mark.parametrize("trips", [0, 1, 4])
@pytest.mark.parametrize("initial", [0, 2])
def test_appending_loops_collect(tmp_path, rng, trips, initial):
    arrays = floats((rng.normal(size=(2, 3)), rng.normal(size=(initial, 2, 3))))
    result = edited(tmp_path, appending(trips), *arrays)
    assert op_types(result)[-1] == "If"
    (loop,) = (made for made in result.model.graph.node if made.op_type == "Loop")
    assert "Concat" not in [made.op_type for made in loop.attribute[0].g.node]


# ---- deformable attention --------------------------------------------------------------------------------------------

SIZES = ((4, 5), (2, 3))
IMAGES, HEADS, CHANNELS, QUERIES, POINTS = 2, 3, 4, 7, 2


def computed_sizes():
    """The levels as MMDeploy takes them from the values: nodes compute the sizes from a table."""
    constants = {"sizes": np.array(SIZES), "first": np.array([0]), "axis": np.array([1])}
    constants |= {"heads_of": np.array([HEADS]), "channels": np.array([CHANNELS])}
    nodes = [
        node("Shape", ["value"], ["shape"]),
        node("Gather", ["shape", "first"], ["images"], axis=0),
        node("Mul", ["images", "heads_of"], ["groups"]),
        node("Split", ["sizes"], ["size0", "size1"], axis=0),
    ]
    for level, start in enumerate(["first", "end0"]):
        nodes += [
            node("Squeeze", [f"size{level}", "first"], [f"sides{level}"]),
            node("Split", [f"sides{level}"], [f"height{level}", f"width{level}"], axis=0),
            node("Mul", [f"height{level}", f"width{level}"], [f"area{level}"]),
            node("Add", [start, f"area{level}"], [f"end{level}"]),
            node("Slice", ["value", start, f"end{level}", "axis"], [f"part{level}"]),
            node("Concat", ["groups", "channels", f"height{level}", f"width{level}"], [f"map{level}"], axis=0),
        ]
    return nodes, constants


def sizes_of_inputs(values, axis):
    """The levels as files for all sizes take them from values: heights and widths are those of further inputs."""
    constants = {"axis_of_parts": np.array([axis]), "rows_axis": np.array([2]), "columns_axis": np.array([3])}
    constants |= {"groups": np.array([IMAGES * HEADS]), "channels": np.array([CHANNELS]), "end": np.array([0])}
    constants |= {f"rows{level}": np.array([0, -1, HEADS * CHANNELS]) for level in range(2)}
    nodes, start = [], "end"
    for level in range(2):
        nodes += [
            node("Shape", [f"like{level}"], [f"shape{level}"]),
            node("Gather", [f"shape{level}", "rows_axis"], [f"height{level}"]),
            node("Gather", [f"shape{level}", "columns_axis"], [f"width{level}"]),
            node("Mul", [f"height{level}", f"width{level}"], [f"area{level}"]),
            node("Add", [start, f"area{level}"], [f"end{level}"]),
            node("Slice", [values, start, f"end{level}", "axis_of_parts"], [f"part{level}"]),
            node("Concat", ["groups", "channels", f"height{level}", f"width{level}"], [f"map{level}"], axis=0),
        ]
        start = f"end{level}"
    return nodes, constants


def for_all_sizes(model, values, axis):
    """Return a model of attention with computed sizes, and two sets of inputs of different sizes."""
    nodes, constants = sizes_of_inputs(values, axis)
    graph = model.graph
    kept = [node for node in graph.node if not {"part0", "part1"} & set(node.output)]
    split = next(index for index, node in enumerate(kept) if {"part0", "part1"} & set(node.input))
    del graph.node[:]
    graph.node.extend([*kept[:split], *nodes, *kept[split:]])
    for name, array in constants.items():
        for tensor in [tensor for tensor in graph.initializer if tensor.name == name]:
            graph.initializer.remove(tensor)
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for tensor in [tensor for tensor in graph.initializer if tensor.name in ("map0", "map1")]:
        graph.initializer.remove(tensor)
    for level in range(2):
        graph.input.append(oh.make_tensor_value_info(f"like{level}", 1, [None] * 4))
    return model


@pytest.mark.parametrize("kind", ["Deformable DETR", "RT-DETR", "RT-DETR with a gap"])
def test_attention_whose_sizes_are_computed_is_one_node(tmp_path, rng, kind):
    if kind == "Deformable DETR":
        model, points = for_all_sizes(attention()[0], "value", 1), (len(SIZES), POINTS)
    else:
        model, points = for_all_sizes(rt_detr_attention(slices=True)[0], "values", -1), (len(SIZES) * POINTS,)
    for tensor in model.graph.initializer:
        if tensor.name == "flat_values":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array([IMAGES * HEADS, CHANNELS, -1]), tensor.name))
    if kind.endswith("gap"):  # the second level does not begin where the first one ends
        (second,) = (node for node in model.graph.node if "part1" in node.output)
        second.input[1:3] = ["gap", "end_of_gap"]
        model.graph.node.insert(list(model.graph.node).index(second), node("Add", ["end1", "one_more"], ["end_of_gap"]))
        model.graph.node.insert(list(model.graph.node).index(second), node("Add", ["end0", "one_more"], ["gap"]))
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "one_more"))

    def arrays(sizes):
        total = sum(height * width for height, width in sizes) + 1
        return floats(
            (
                rng.normal(size=(IMAGES, total, HEADS, CHANNELS)),
                rng.uniform(-0.1, 1.1, (IMAGES, QUERIES, HEADS, *points, 2)),
                rng.random((IMAGES, QUERIES, HEADS, *points)),
                *(np.zeros((1, 1, *size)) for size in sizes),
            )
        )

    onnx.save(model, tmp_path / "model.onnx")
    named, first = files.load_whole(tmp_path / "model.onnx"), arrays(SIZES)
    result = accelerate_file.edit(named, run_once(named, first), accelerate_file.RULES)
    assert ("MultiScaleDeformableAttention" in op_types(result)) is not kind.endswith("gap")
    onnx.save(result.model, tmp_path / "fast.onnx")
    report = mmort.onnx.verify(tmp_path / "fast.onnx", tmp_path / "model.onnx", [first, arrays([(2, 9), (5, 3)])])
    assert report.ok, report


def attention(scale=2.0, perm=(0, 2, 1), deployed=False):
    """The sampling as transformers exports it with fixed sizes, or MMDeploy."""
    total, groups = sum(height * width for height, width in SIZES), IMAGES * HEADS
    constants = {"parts": np.array([height * width for height, width in SIZES]), "scale": np.float32(scale)}
    constants |= {"one": np.float32(1), "stacked": np.array([-2]), "last": np.array([-1])}
    sampler, domain = ("grid_sampler", "mmdeploy") if deployed else ("GridSample", "")
    nodes = [
        node("Split", ["value", "parts"], ["part0", "part1"], axis=1),
        node("Mul", ["locations", "scale"], ["scaled"]),
        node("Sub", ["scaled", "one"], ["grids"]),
    ]
    for level, (height, width) in enumerate(SIZES):
        constants |= {
            f"rows{level}": np.array([IMAGES, height * width, HEADS * CHANNELS]),
            f"map{level}": np.array([groups, CHANNELS, height, width]),
            f"grid{level}": np.array([groups, QUERIES, POINTS, 2]),
            f"level{level}": np.array(level),
        }
        nodes += [
            node("Reshape", [f"part{level}", f"rows{level}"], [f"a{level}"]),
            node("Transpose", [f"a{level}"], [f"b{level}"], perm=[0, 2, 1]),
            node("Reshape", [f"b{level}", f"map{level}"], [f"c{level}"]),
            node("Gather", ["grids", f"level{level}"], [f"d{level}"], axis=3),
            node("Transpose", [f"d{level}"], [f"e{level}"], perm=[0, 2, 1, 3, 4]),
            node("Reshape", [f"e{level}", f"grid{level}"], [f"f{level}"]),
            node(sampler, [f"c{level}", f"f{level}"], [f"g{level}"], domain=domain),
            node("Unsqueeze", [f"g{level}", "stacked"], [f"h{level}"]),
        ]
    constants |= {
        "flat": np.array([groups, CHANNELS, QUERIES, len(SIZES) * POINTS]),
        "weighting": np.array([groups, 1, QUERIES, len(SIZES) * POINTS]),
        "heads": np.array([IMAGES, HEADS * CHANNELS, QUERIES]),
    }
    nodes += [
        node("Concat", ["h0", "h1"], ["stack"], axis=-2),
        node("Reshape", ["stack", "flat"], ["samples"]),
        node("Transpose", ["weights"], ["w"], perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["w", "weighting"], ["weights_of"]),
        node("Mul", ["samples", "weights_of"], ["weighted"]),
        node("ReduceSum", ["weighted", "last"], ["sum"], keepdims=0),
        node("Reshape", ["sum", "heads"], ["joined"]),
        node("Transpose", ["joined"], ["y"], perm=perm),
    ]
    if deployed:
        computed, tables = computed_sizes()
        nodes = [*computed, *nodes[1:]]
        constants = {name: value for name, value in constants.items() if not name.startswith("map")} | tables
    return model_of(nodes, {"value": 4, "locations": 6, "weights": 5}, constants=constants), total


def rt_detr_attention(slices):
    """The sampling as ultralytics and RT-DETR's own code export it: values and locations are transposed first."""
    total, groups = sum(height * width for height, width in SIZES), IMAGES * HEADS
    bounds = np.concatenate([[0], np.cumsum([height * width for height, width in SIZES])])
    constants = {"parts": np.diff(bounds), "points": np.array([POINTS] * len(SIZES)), "axis": np.array([-1])}
    constants |= {f"bound{index}": np.array([bound]) for index, bound in enumerate(bounds)}
    constants |= {"one": np.float32(1), "two": np.float32(2), "flat_values": np.array([groups, CHANNELS, total])}
    constants |= {"flat_grids": np.array([groups, QUERIES, len(SIZES) * POINTS, 2])}
    nodes = [
        node("Transpose", ["value"], ["turned"], perm=[0, 2, 3, 1]),
        node("Reshape", ["turned", "flat_values"], ["values"]),
        node("Mul", ["locations", "two"], ["scaled"]),
        node("Sub", ["scaled", "one"], ["grids"]),
        node("Transpose", ["grids"], ["turned_grids"], perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["turned_grids", "flat_grids"], ["all_grids"]),
        node("Split", ["all_grids", "points"], ["grid0", "grid1"], axis=-2),
    ]
    if slices:
        for level in range(2):
            nodes.append(node("Slice", ["values", f"bound{level}", f"bound{level + 1}", "axis"], [f"part{level}"]))
    else:
        nodes.append(node("Split", ["values", "parts"], ["part0", "part1"], axis=-1))
    for level, (height, width) in enumerate(SIZES):
        constants |= {f"map{level}": np.array([groups, CHANNELS, height, width])}
        nodes += [
            node("Reshape", [f"part{level}", f"map{level}"], [f"c{level}"]),
            node("GridSample", [f"c{level}", f"grid{level}"], [f"g{level}"]),
        ]
    constants |= {
        "weighting": np.array([groups, 1, QUERIES, len(SIZES) * POINTS]),
        "heads": np.array([IMAGES, HEADS * CHANNELS, QUERIES]),
    }
    nodes += [
        node("Concat", ["g0", "g1"], ["samples"], axis=-1),
        node("Transpose", ["weights"], ["w"], perm=[0, 2, 1, 3]),
        node("Reshape", ["w", "weighting"], ["weights_of"]),
        node("Mul", ["samples", "weights_of"], ["weighted"]),
        node("ReduceSum", ["weighted", "axis"], ["sum"], keepdims=0),
        node("Reshape", ["sum", "heads"], ["joined"]),
        node("Transpose", ["joined"], ["y"], perm=[0, 2, 1]),
    ]
    return model_of(nodes, {"value": 4, "locations": 5, "weights": 4}, constants=constants), total


@pytest.mark.parametrize("slices", [False, True])
def test_attention_of_rt_detr_is_one_node(tmp_path, rng, slices):
    model, total = rt_detr_attention(slices)
    arrays = floats(
        (
            rng.normal(size=(IMAGES, total, HEADS, CHANNELS)),
            rng.uniform(-0.1, 1.1, (IMAGES, QUERIES, HEADS, len(SIZES) * POINTS, 2)),
            rng.random((IMAGES, QUERIES, HEADS, len(SIZES) * POINTS)),
        )
    )
    result = edited(tmp_path, model, *arrays, rtol=1e-5, atol=1e-5)
    assert op_types(result)[-1] == "MultiScaleDeformableAttention"
    assert not {"GridSample", "grid_sampler", "ReduceSum", "Split", "Slice"} & set(op_types(result))


@pytest.mark.parametrize(("scale", "deployed"), [(2.0, False), (3.0, False), (2.0, True)])
def test_deformable_attention_is_one_node(tmp_path, rng, scale, deployed):
    model, total = attention(scale, deployed=deployed)
    arrays = floats(
        (
            rng.normal(size=(IMAGES, total, HEADS, CHANNELS)),
            rng.uniform(-0.1, 1.1, (IMAGES, QUERIES, HEADS, len(SIZES), POINTS, 2)),
            rng.random((IMAGES, QUERIES, HEADS, len(SIZES), POINTS)),
        )
    )
    onnx.save(model, tmp_path / "model.onnx")
    named = files.load_whole(tmp_path / "model.onnx")
    runs = run_once(named, arrays)
    result = accelerate_file.edit(named, runs, accelerate_file.RULES)
    assert op_types(result)[-1] == "MultiScaleDeformableAttention"
    assert not {"GridSample", "grid_sampler", "ReduceSum"} & set(op_types(result))
    onnx.save(result.model, tmp_path / "fast.onnx")
    report = mmort.onnx.verify(tmp_path / "fast.onnx", tmp_path / "model.onnx", [arrays])
    assert report.ok, report


def test_another_order_of_the_sum_is_no_attention(tmp_path, rng):
    model, total = attention(perm=(0, 1, 2))
    arrays = floats(
        (
            rng.normal(size=(IMAGES, total, HEADS, CHANNELS)),
            rng.uniform(0, 1, (IMAGES, QUERIES, HEADS, len(SIZES), POINTS, 2)),
            rng.random((IMAGES, QUERIES, HEADS, len(SIZES), POINTS)),
        )
    )
    assert op_types(edited(tmp_path, model, *arrays)).count("grid_sampler") == 2


def made(model, name):
    """Return the node that makes a value."""
    return next(node for node in model.graph.node if name in node.output)


def passed_on(name):
    """Return a change that puts a node between a value and those that read it."""

    def change(model):
        maker = made(model, name)
        maker.output[list(maker.output).index(name)] = f"{name}_before"
        model.graph.node.insert(list(model.graph.node).index(maker) + 1, node("Identity", [f"{name}_before"], [name]))

    return change


def other_inputs(name, *inputs):
    """Return a change by which the node that makes a value reads others."""

    def change(model):
        made(model, name).input[:] = inputs

    return change


def other_attribute(name, key, value):
    """Return a change of an attribute of the node that makes a value."""

    def change(model):
        maker = made(model, name)
        kept = [attribute for attribute in maker.attribute if attribute.name != key]
        del maker.attribute[:]
        maker.attribute.extend([*kept, oh.make_attribute(key, value)])

    return change


def other_constant(name, numbers):
    """Return a change of a constant."""

    def change(model):
        tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
        tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(numbers), name))

    return change


OTHER_SUMS = {
    "levels in another order": other_inputs("stack", "h1", "h0"),
    "stacked in another axis": other_attribute("stack", "axis", 4),
    "a new axis elsewhere": lambda model: (
        other_constant("stacked", [4])(model),
        other_attribute("stack", "axis", 3)(model),
    ),
    "corners aligned": other_attribute("g1", "align_corners", 1),
    "points for levels": other_attribute("d0", "axis", 4),
    "x and y exchanged": other_attribute("e1", "perm", [0, 2, 1, 4, 3]),
    "weights of other levels": other_attribute("w", "perm", [0, 2, 1, 4, 3]),
    "one level twice": other_constant("level1", 0),
    "no weights": other_inputs("sum", "samples", "last"),
    "a size that is computed from the rest": other_constant("map0", [IMAGES * HEADS, CHANNELS, 4, -1]),
    "maps passed on": passed_on("b0"),
    "locations passed on": passed_on("e0"),
    "parts passed on": passed_on("part0"),
    "levels passed on": passed_on("h0"),
    "samples passed on": passed_on("stack"),
    "weights passed on": passed_on("w"),
    "a sum passed on": passed_on("joined"),
}
OTHER_SUMS_OF_RT_DETR = {
    "levels in another order": other_inputs("samples", "g1", "g0"),
    "levels that do not follow": other_inputs("g1", "c1", "grid0"),
    "more points on one level": lambda model: (
        other_constant("points", [1, 3])(model),
        other_inputs("samples", "g0", "g1")(model),
    ),
    "corners aligned": other_attribute("g1", "align_corners", 1),
    "maps passed on": passed_on("turned"),
    "locations passed on": passed_on("turned_grids"),
    "parts passed on": passed_on("part1"),
    "grids passed on": passed_on("grid1"),
    "weights passed on": passed_on("w"),
}


@pytest.mark.parametrize(
    ("build", "points", "change"),
    [
        *(pytest.param(attention, (len(SIZES), POINTS), change, id=name) for name, change in OTHER_SUMS.items()),
        *(
            pytest.param(partial(rt_detr_attention, False), (len(SIZES) * POINTS,), change, id=f"RT-DETR, {name}")
            for name, change in OTHER_SUMS_OF_RT_DETR.items()
        ),
    ],
)
def test_what_is_nearly_attention_stays(build, points, change, tmp_path, rng):
    model, total = build()
    change(model)
    arrays = floats(
        (
            rng.normal(size=(IMAGES, total, HEADS, CHANNELS)),
            rng.uniform(0, 1, (IMAGES, QUERIES, HEADS, *points, 2)),
            rng.random((IMAGES, QUERIES, HEADS, *points)),
        )
    )
    assert "MultiScaleDeformableAttention" not in op_types(edited(tmp_path, model, *arrays, rtol=1e-5, atol=1e-5))


# ---- a detector's file -----------------------------------------------------------------------------------------------


def test_a_mask_rcnn_of_mmdeploy(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "SECONDS", 0)  # the times are not looked at
    with np.load(test_mmdeploy.MASK_RCNN) as file:
        model = onnx.load_from_string(file["model"].tobytes())
    result = edited(tmp_path, model, test_mmdeploy.images()["traced"])
    count = {kind: len(names) for kind, names in result.replaced.items()}
    assert count == {
        "NonMaxSuppression -> NMSIndices": 2,
        "RoiAlign -> MMCVRoiAlign": 4,
        "mask pasting -> MatMul": 1,
    }


@pytest.mark.parametrize("precision", ["half", "single"])
def test_float16_is_left(precision, tmp_path, rng):
    """ONNX Runtime has no GridSample in float16, and its profile shows the float32 that it computes in."""
    types = [onnx.TensorProto.FLOAT16, FLOAT][:: 1 if precision == "half" else -1]
    nodes = [
        node("Cast", ["x"], ["m"], to=types[0]),
        node("Cast", ["g"], ["p"], to=types[0]),
        node("Relu", ["m"], ["r"]),
        node("GridSample", ["r", "p"], ["s"]),
        node("Cast", ["s"], ["y"], to=types[1]),
    ]
    arrays = floats([rng.normal(size=(1, 2, 6, 7)), rng.uniform(-1, 1, (1, 5, 4, 2))])
    result = edited(tmp_path, model_of(nodes, {"x": 4, "g": 4}, output_type=types[1]), *arrays, rtol=1e-2, atol=1e-2)
    assert ("GridSample" in op_types(result)) == (precision == "half")
    assert reasons(result) == ["its numbers are float16, mmort's float"] * (precision == "half")


# ---- DeformConv ------------------------------------------------------------------------------------------------------


def deformed(rng, mask=True, bias=True, opset=19, **attributes):
    """Convolve 4 channels in 2 groups, whose offsets leave the map, and return the model and its inputs."""
    attributes = {
        "group": 2,
        "offset_group": 2,
        "pads": [1, 2, 1, 2],
        "strides": [2, 1],
        "dilations": [1, 2],
    } | attributes
    height, width = (3 + sum(attributes["pads"][::2])) // 2 + 1, 4 + sum(attributes["pads"][1::2])
    weights = {"w": rng.normal(size=(6, 2, 3, 2)), "b": rng.normal(size=6)}
    constants = {name: np.float32(weights[name]) for name in ["w", "b"][: 1 + bias]}
    names = ["x", "w", "o", "b" * bias, "m" * mask]
    inputs = {"x": rng.normal(size=(2, 4, 6, 6)), "o": rng.normal(0, 3, (2, 24, height, width))}
    if mask:
        inputs["m"] = rng.random((2, 12, height, width))
    ranks = dict.fromkeys(inputs, 4)
    return model_of([node("DeformConv", names, ["y"], **attributes)], ranks, constants=constants, opset=opset), floats(
        inputs.values()
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("opset", "mask", "op_type"), [(19, True, "MMCVModulated"), (22, False, "MMCV")])
def test_deformable_convolutions_are_replaced(tmp_path, rng, opset, mask, bias, op_type):
    model, arrays = deformed(rng, mask, bias, opset)
    result = edited(tmp_path, model, *arrays, rtol=1e-5, atol=1e-5)
    assert f"{op_type}DeformConv2d" in op_types(result)
    assert "DeformConv" not in op_types(result)


def test_deformable_convolutions_with_another_padding_are_left(tmp_path, rng):
    model, arrays = deformed(rng, pads=[1, 2, 1, 1])
    result = edited(tmp_path, model, *arrays)
    assert reasons(result) == ["its pads are [1, 2, 1, 1], mmort's the same on both sides"]
    assert op_types(result) == ["DeformConv"]


# ---- Softmax ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "axis"), [((2, 5, 3, 4), 1), ((3, 4, 2), -2), ((4, 3), 0)])
def test_softmax_moves_its_axis(tmp_path, rng, shape, axis):
    model = model_of([node("Softmax", ["x"], ["y"], axis=axis)], {"x": len(shape)})
    assert op_types(edited(tmp_path, model, *floats([rng.normal(size=shape)]))) == ["Transpose", "Softmax", "Transpose"]


@pytest.mark.parametrize(
    ("attributes", "opset"), [({"axis": 3}, 17), ({}, 17), ({"axis": 1}, 12)], ids=["last", "default", "flattened"]
)
def test_softmax_of_the_last_axes_is_left(tmp_path, rng, attributes, opset):
    model = model_of([node("Softmax", ["x"], ["y"], **attributes)], {"x": 4}, opset=opset)
    assert op_types(edited(tmp_path, model, *floats([rng.normal(size=(2, 5, 3, 4))]))) == ["Softmax"]


# ---- products with a vector ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 8), (2, 5, 3, 8), (0, 8), (2, 0, 8)])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("opset", [11, 17])
def test_a_product_with_a_vector_becomes_one_with_a_column(tmp_path, rng, shape, constant, opset):
    arrays = floats([rng.normal(size=shape), rng.normal(size=8)])
    inputs, constants = {"x": len(shape), "v": 1}, {}
    if constant:
        inputs, constants = {"x": len(shape)}, {"v": arrays.pop()}
    model = model_of([node("MatMul", ["x", "v"], ["y"])], inputs, constants=constants, opset=opset)
    result = edited(tmp_path, model, *arrays, rtol=1e-5, atol=1e-5)
    assert list(result.replaced) == ["MatMul by a vector -> MatMul"]
    (product,) = (index for index, kind in enumerate(op_types(result)) if kind == "MatMul")
    assert op_types(result)[product + 1] == "Reshape"


def test_a_product_with_constant_weights_is_left(tmp_path, rng):
    """ONNX Runtime packs them, and its profile does not tell their shape."""
    (weights,) = floats([rng.normal(size=(8, 3))])
    model = model_of([node("MatMul", ["x", "w"], ["y"])], {"x": 2}, constants={"w": weights})
    assert op_types(edited(tmp_path, model, *floats([rng.normal(size=(4, 8))]))) == ["MatMul"]


@pytest.mark.parametrize(("left", "right"), [((8,), (8,)), ((8,), (8, 3)), ((4, 8), (8, 1)), ((2, 4, 8), (2, 8, 3))])
def test_other_products_are_left(tmp_path, rng, left, right):
    model = model_of([node("MatMul", ["x", "v"], ["y"])], {"x": len(left), "v": len(right)})
    assert op_types(edited(tmp_path, model, *floats([rng.normal(size=left), rng.normal(size=right)]))) == ["MatMul"]


# ---- classes in turn -------------------------------------------------------------------------------------------------


def selected_in_turn(max_count=4, thresholds=(0.5, 0.5, 0.5)):
    """Select the best boxes of three of four classes, as torchvision's exporter writes SSD's loop."""
    nodes = []
    for label, threshold in enumerate(thresholds, start=1):
        steps = [
            node("Constant", [], ["column"], value=oh.make_tensor("", INT64, [], [label])),
            node("Constant", [], ["threshold"], value=oh.make_tensor("", FLOAT, [], [threshold])),
            node("Gather", ["s", "column"], ["scores"], axis=1),
            node("Greater", ["scores", "threshold"], ["above"]),
            node("NonZero", ["above"], ["row"]),
            node("Transpose", ["row"], ["indices"], perm=[1, 0]),
            node("GatherND", ["scores", "indices"], ["passing"]),
            node("NonZero", ["above"], ["row_again"]),
            node("Transpose", ["row_again"], ["indices_again"], perm=[1, 0]),
            node("GatherND", ["b", "indices_again"], ["passing_boxes"]),
            node("Shape", ["passing"], ["shape"]),
            node("Gather", ["shape", "first"], ["size"]),
            node("Unsqueeze", ["size", "axes"], ["sizes"]),
            node("Concat", ["max_count", "sizes"], ["counts"], axis=0),
            node("ReduceMin", ["counts"], ["count"], keepdims=0),
            node("Reshape", ["count", "one"], ["k"]),
            node("TopK", ["passing", "k"], ["best", "order"]),
            node("Gather", ["passing_boxes", "order"], ["best_boxes"]),
            node("Shape", ["best"], ["best_shape"]),
            node("ConstantOfShape", ["best_shape"], ["label"], value=oh.make_tensor("", INT64, [1], [label])),
        ]
        shared = ("s", "b", "first", "axes", "max_count", "one")
        for made in steps:
            for names in (made.input, made.output):
                names[:] = [name if name in shared else f"{name}_{label}" for name in names]
        nodes += steps
    for name, output in (("best_boxes", "y"), ("best", "z"), ("label", "w")):
        nodes.append(node("Concat", [f"{name}_{label}" for label in (1, 2, 3)], [output], axis=0))
    constants = {"first": np.array(0), "axes": np.array([0]), "max_count": np.array([max_count]), "one": np.array([1])}
    model = model_of(nodes, {"s": 2, "b": 2}, ("y", "z", "w"), constants)
    model.graph.output[2].type.tensor_type.elem_type = INT64
    return model


@pytest.mark.parametrize(("max_count", "highest"), [(4, 1.0), (100, 1.0), (4, 0.4)])
def test_classes_are_selected_at_once(tmp_path, rng, max_count, highest):
    scores = np.round(rng.uniform(0, highest, (30, 4)), 1)  # some are equal, and some are at the threshold
    scores[3, 1], scores[:, 3] = np.nan, 0.1
    result = edited(tmp_path, selected_in_turn(max_count), *floats([scores, rng.random((30, 4))]))
    assert op_types(result).count("TopK") == 1


def test_classes_with_other_thresholds_are_selected_in_turn(tmp_path, rng):
    arrays = floats([rng.random((30, 4)), rng.random((30, 4))])
    assert op_types(edited(tmp_path, selected_in_turn(thresholds=(0.5, 0.4, 0.5)), *arrays)).count("TopK") == 3


# ---- the whole -------------------------------------------------------------------------------------------------------


@pytest.fixture
def slow(tmp_path, rng):
    """A file with a suppression that takes long, and its inputs."""
    path = tmp_path / "slow.onnx"
    onnx.save(suppression({"max": 2**60, "iou": 0.5}), path)
    boxes, scores = boxes_and_scores(rng, images=1, count=1500, classes=1)
    np.savez(tmp_path / "inputs.npz", b=10 * boxes, s=scores)
    return path


def test_the_command_accelerates(tmp_path, slow, monkeypatch):
    set_seconds(monkeypatch, before=1.0, after=0.5)
    output = tmp_path / "fast.onnx"
    code, out, _ = run("accelerate", slow, "-o", output, "--input", tmp_path / "inputs.npz", "--threads", 1, "--json")
    result = json.loads(out)
    assert code == 0
    assert [row["kind"] for row in result["replaced"]] == ["NonMaxSuppression -> NMSIndices"]
    assert [result["replaced"][0][name] for name in ("before", "after")] == [1.0, 0.5]
    graph = onnx.load(output).graph
    assert [made.op_type for made in graph.node] == ["NMSIndices"]
    assert not graph.initializer  # those of the limits


def test_what_is_not_faster_is_left(tmp_path, slow, monkeypatch):
    """So nothing is written."""
    set_seconds(monkeypatch, before=0.5, after=1.0)
    with np.load(tmp_path / "inputs.npz") as arrays:
        result = mmort.onnx.accelerate(slow, tmp_path / "fast.onnx", [[arrays["b"], arrays["s"]]])
    assert result.replaced == ()
    reason = "not faster on these inputs: 500 ms before, 1e+03 ms after"
    assert result.left == (Left("NonMaxSuppression -> NMSIndices", ("NonMaxSuppression_0",), reason),)
    assert str(result).splitlines()[0] == "nothing replaced, measured on the given inputs"
    assert not (tmp_path / "fast.onnx").exists()


def test_the_command_takes_folders(tmp_path, slow, monkeypatch):
    set_seconds(monkeypatch, before=1.0, after=0.5)
    folder = tmp_path / "inputs"
    folder.mkdir()
    (tmp_path / "inputs.npz").rename(folder / "0.npz")
    assert run("accelerate", slow, "-o", tmp_path / "fast.onnx", "--input", folder)[0] == 0
    np.savez(folder / "1.npz", b=0)  # which shows that all are read
    text = refused("accelerate", slow, "-o", tmp_path / "other.onnx", "--input", folder)
    assert f"{folder}/1.npz must have arrays b, s, got b" in text


def test_nothing_is_written_if_the_whole_file_is_not_faster(tmp_path, slow, monkeypatch):
    set_seconds(monkeypatch, before=1.0, after=0.5, elsewhere=2.0)
    code, out, err = run("accelerate", slow, "-o", tmp_path / "fast.onnx", "--input", tmp_path / "inputs.npz")
    assert (code, err) == (0, "")
    assert (
        "left NonMaxSuppression -> NMSIndices (NonMaxSuppression_0): not worth it, as the whole file is hardly faster"
        in out
    )
    assert out.endswith(f"nothing to do: {slow} stays as it is, and {tmp_path}/fast.onnx was not written\n")
    assert not (tmp_path / "fast.onnx").exists()


def test_times_are_of_the_fastest_run(tmp_path, slow):
    """Whole runs and nodes are counted in the same runs, without the first."""
    with np.load(tmp_path / "inputs.npz") as arrays:
        ((seconds, runs),) = measure([files.load_whole(slow)], [arrays["b"], arrays["s"]])
    assert 0 < runs["NonMaxSuppression_0"].seconds < min(seconds)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([0.5, 0.5, 0.5, 0.5], True),
        ([0.5, 0.5, 0.5, 9.0], True),
        ([0.5, 0.5, 9.0, 9.0], False),  # in half of the turns
        ([0.985, 0.985, 0.985, 0.985], False),  # by 1.5 %
    ],
)
def test_what_is_less_than_noise_is_no_gain(after, expected):
    assert is_faster([1.0, 1.1, 1.0, 1.2], after) is expected


@pytest.fixture
def rows():
    """Return boxes, scores and labels of 40 detections in each of two images, and an output of another kind."""
    rng = np.random.default_rng(3)
    boxes, scores = rng.uniform(0, 600, (2, 40, 4)).astype(np.float32), rng.uniform(0, 1, (2, 40)).astype(np.float32)
    return [boxes, scores, rng.integers(0, 9, (2, 40)), rng.uniform(0, 1, (2, 7, 3)).astype(np.float32)]


def test_rows_in_another_order(rows):
    order = np.arange(40)
    order[[3, 4, 5]] = 5, 3, 4
    moved = [output[:, order] if output.shape[1] == 40 else output for output in rows]
    assert are_reordered(moved, rows)
    assert are_reordered([output[0] for output in moved[:3]], [output[0] for output in rows[:3]])
    moved[0] = moved[0] * np.float32(1.00001)
    assert are_reordered(moved, rows)


@pytest.mark.parametrize(
    "changed", ["box", "label", "other output", "one output", "other image", "copy", "count", "nan"]
)
def test_rows_that_are_others(rows, changed):
    order = np.arange(40)
    order[[3, 4]] = 4, 3
    moved = [output[:, order] if output.shape[1] == 40 else output.copy() for output in rows]
    if changed == "box":
        moved[0][1, 7, 2] += 3
    elif changed == "label":
        moved[2][0, 3] += 1
    elif changed == "other output":
        moved[3] = moved[3][:, ::-1]
    elif changed == "one output":
        moved[1] = rows[1]
    elif changed == "other image":
        moved = [output[::-1] for output in moved]
    elif changed == "copy":
        for output in moved[:3]:
            output[:, 5] = output[:, 6]
    elif changed == "count":  # two of one and one of another become one and two
        for expected, output in zip(rows[:3], moved[:3], strict=True):
            expected[:, 4], output[:, 3:6] = expected[:, 3], expected[:, [5, 5, 3]]
    else:
        moved[0][0, 0, 0] = np.nan
    assert not are_reordered(moved, rows)


def test_files_whose_outputs_differ_in_order(tmp_path):
    rows = np.random.default_rng(3).uniform(0, 600, (30, 6))
    paths = [foreign.write(tmp_path / f"{step}.onnx", {"output0": rows[::step]}) for step in (1, -1)]
    image = np.zeros((1, 3, foreign.HEIGHT, foreign.WIDTH), np.float32)
    assert accelerate_file._differs_in_order(*paths, [[image]])
    other = foreign.write(tmp_path / "other.onnx", {"output0": rows + 1})
    assert not accelerate_file._differs_in_order(other, paths[0], [[image]])


def test_other_outputs_are_an_error(tmp_path, slow, monkeypatch):
    set_seconds(monkeypatch, before=1.0, after=0.5)

    def wrong(node, runs):
        replacement = single_nodes.nms_indices(node, runs)
        if replacement is not None:
            replacement.nodes[-1].attributes["iou_threshold"] = ir.AttrFloat32("iou_threshold", 0.1)
        return replacement

    monkeypatch.setattr(accelerate_file, "RULES", {"NonMaxSuppression -> NMSIndices": wrong})
    text = refused("accelerate", slow, "-o", tmp_path / "fast.onnx", "--input", tmp_path / "inputs.npz")
    assert "the outputs differ, so nothing was written" in text
    assert not (tmp_path / "fast.onnx").exists()


def test_nothing_to_replace(tmp_path):
    model = model_of([node("Relu", ["x"], ["y"])], {"x": 4})
    onnx.save(model, tmp_path / "model.onnx")
    code, out, err = run("accelerate", tmp_path / "model.onnx", "-o", tmp_path / "fast.onnx")
    reason = f"{tmp_path}/model.onnx stays as it is, and {tmp_path}/fast.onnx was not written"
    assert (code, out, err) == (0, f"nothing to replace\nnothing to do: {reason}\n", "")
    assert not (tmp_path / "fast.onnx").exists()


@pytest.mark.parametrize(("content", "reason"), [(None, "should be stored in"), (b"short", "exceeds available data")])
def test_tensors_that_are_not_there(tmp_path, content, reason):
    model = model_of([node("Add", ["x", "w"], ["y"])], {"x": 1}, constants={"w": np.ones(9, np.float32)})
    path, weights = tmp_path / "model.onnx", tmp_path / "weights"
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    weights.unlink()
    if content is not None:
        weights.write_bytes(content)
    error = refused("accelerate", path, "-o", tmp_path / "fast.onnx")
    assert error.startswith(f"mmort: error: {path}: ")
    assert reason in error

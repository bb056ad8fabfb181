"""Quantized files: which layers compute with integers, and how far the results are from the others."""

import json
import tempfile
import time

import numpy as np
import onnx
import onnx.helper as oh
import onnx_ir as ir
import onnxruntime
import pytest

import mmort.onnx
from mmort.contract import SEGMENTATION, Metadata, write_entries
from mmort.onnx.graph.patterns import name_nodes, name_of
from mmort.onnx.quantize.calibration import Sample, ranges
from mmort.onnx.quantize.choice import layers_to_leave, quantized_nodes, silu_inputs
from mmort.onnx.quantize.costs import detection_loss, layer_errors
from mmort.onnx.quantize.folding import fold_normalizations
from mmort.onnx.quantize.measures import label_loss, measure_of, overlap_loss
from mmort.predict import Preprocessing
from tests.cli.running import misused, refused, run
from tests.front_ends import make_session
from tests.onnx.tiny_transformer import scenes, transformer
from tests.predict import tiny_detector, tiny_tasks

node = oh.make_node
SIZES = {"stem": (8, 3), "deep": (8, 8), "side": (8, 8), "tower": (8, 8), "score": (2, 8), "box": (4, 8)}


def detector(rng, opset=18):
    """A backbone with a residual and a pooled map, a tower and two predictions, decoded; each layer has its weight."""
    nodes = [
        node("Conv", ["x", "stem"], ["a0"], "stem", pads=[1] * 4),
        node("Sigmoid", ["a0"], ["a1"], "gate"),
        node("Mul", ["a0", "a1"], ["a"], "silu"),
        node("Conv", ["a", "deep"], ["b0"], "deep", pads=[1] * 4),
        node("Relu", ["b0"], ["b"], "relu"),
        node("Add", ["a", "b"], ["c"], "residual"),
        node("MaxPool", ["c"], ["d"], "pool", kernel_shape=[3, 3], pads=[1] * 4),
        node("Conv", ["d", "side"], ["e0"], "side", pads=[1] * 4),
        node("GroupNorm", ["e0", "scale", "shift"], ["e"], "norm", domain="mmort", num_groups=2),
        node("Conv", ["e", "tower"], ["f0"], "tower", pads=[1] * 4),
        node("Relu", ["f0"], ["f"], "tower_relu"),
        node("Conv", ["f", "score"], ["scores0"], "score"),
        node("Sigmoid", ["scores0"], ["scores"], "probability"),
        node("Conv", ["f", "box"], ["boxes0"], "box"),
        node("Mul", ["boxes0", "stride"], ["boxes"], "decode"),
    ]
    weights = {}
    for name, (channels, inputs) in SIZES.items():
        side = 1 if name in ("score", "box") else 3
        weights[name] = rng.normal(0, 0.3, (channels, inputs, side, side)).astype(np.float32)
    weights |= {"scale": np.ones(8, np.float32), "shift": np.zeros(8, np.float32), "stride": np.float32(8)}
    names = {"x": ["N", 3, "H", "W"], "scores": None, "boxes": None}
    infos = {name: oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in names.items()}
    tensors = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = oh.make_graph(nodes, "detector", [infos["x"]], [infos["scores"], infos["boxes"]], tensors)
    imports = [oh.make_opsetid("", opset), oh.make_opsetid("mmort", 1)]
    return oh.make_model(graph, opset_imports=imports, ir_version=8)


def integers_saturate():
    """Return whether ONNX Runtime's sums of integer products do on this processor, as without VNNI on x86."""
    nodes = [node("MatMulInteger", ["x", "y"], ["z"])]
    infos = [
        oh.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (
            ("x", onnx.TensorProto.UINT8, [8, 64]),
            ("y", onnx.TensorProto.INT8, [64, 8]),
            ("z", onnx.TensorProto.INT32, [8, 8]),
        )
    ]
    model = oh.make_model(
        oh.make_graph(nodes, "sums", infos[:2], infos[2:]), opset_imports=[oh.make_opsetid("", 18)], ir_version=8
    )
    x, y = np.full((8, 64), 255, np.uint8), np.full((64, 8), 127, np.int8)
    return (make_session(model).run(None, {"x": x, "y": y})[0] != 64 * 255 * 127).any()


exact_sums = pytest.mark.skipif(integers_saturate(), reason="integer sums saturate on processors without VNNI")


def images(rng, count=3):
    return [[rng.normal(size=(1, 3, 24, 32)).astype(np.float32)] for _ in range(count)]


def test_predictions_and_normalizations_are_left(rng):
    model = ir.from_proto(detector(rng))
    name_nodes(model)
    chosen = [name_of(node) for node in quantized_nodes(model.graph)]
    assert chosen == ["stem", "gate", "silu", "deep", "relu", "residual", "pool", "side", "tower", "tower_relu"]


def test_groups_of_channels_are_a_normalization():
    nodes = [
        node("Conv", ["x", "w"], ["a"], "first"),
        node("Reshape", ["a", "groups"], ["b"], "split"),
        node("InstanceNormalization", ["b", "ones", "zeros"], ["c"], "norm"),
        node("Reshape", ["c", "channels"], ["d"], "join"),
        node("Conv", ["d", "w"], ["e"], "second"),
        node("Reshape", ["e", "channels"], ["f"], "rows"),
        node("Conv", ["f", "w"], ["y"], "last"),
    ]
    arrays = {"w": np.ones((3, 3, 1, 1), np.float32), "ones": np.ones(1, np.float32), "zeros": np.zeros(1, np.float32)}
    arrays |= {"groups": np.array([0, 1, -1]), "channels": np.array([-1, 3, 4, 4])}
    infos = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy"]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    model = oh.make_model(oh.make_graph(nodes, "groups", infos[:1], infos[1:], tensors))
    assert [name_of(node) for node in quantized_nodes(ir.from_proto(model).graph)] == ["first"]


@exact_sums
@pytest.mark.parametrize(
    ("kind", "inputs", "outputs"),
    [
        ("Split", ["b", "sizes"], ["c", "c2"]),
        ("Div", ["b", "six"], ["c"]),
        ("HardSwish", ["b"], ["c"]),
        ("HardSigmoid", ["b"], ["c"]),
        ("GlobalAveragePool", ["b"], ["c"]),
    ],
)
def test_nodes_between_layers(tmp_path, rng, kind, inputs, outputs):
    """Layers before them compute with integers, and results stay near."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], "first"),
        node("Relu", ["a"], ["b"], "relu"),
        node(kind, inputs, outputs, "between", **({"axis": 1} if kind == "Split" else {})),
        node("Conv", ["c", "w" if kind != "Split" else "half"], ["d"], "second"),
        node("Conv", ["d", "w"], ["y"], "last"),
    ]
    arrays = {"w": rng.normal(size=(4, 4, 1, 1)) / 2, "half": rng.normal(size=(4, 2, 1, 1)), "six": np.float32(6)}
    tensors = [onnx.numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in arrays.items()]
    tensors.append(onnx.numpy_helper.from_array(np.array([2, 2]), "sizes"))
    infos = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4, None, None]) for name in "xy"]
    graph = oh.make_graph(nodes, "between", infos[:1], infos[1:], tensors)
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx")
    sets = [[rng.normal(size=(1, 4, 12, 16)).astype(np.float32)] for _ in range(3)]
    result = mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", sets)
    assert (result.quantized, result.left) == (("first", "second"), ("last",))
    before, after = (
        make_session(onnx.load(tmp_path / name)).run(None, {"x": sets[0][0]})[0] for name in ("model.onnx", "int8.onnx")
    )
    assert np.abs(after - before).max() < 0.06 * np.abs(before).max()


@exact_sums
@pytest.mark.parametrize(
    ("other_use", "expected"), [(None, ("first", "second", "third")), ("Softmax", ("first",)), ("output", ("first",))]
)
def test_feature_maps_that_become_rows_of_products(tmp_path, rng, other_use, expected):
    """As RT-DETR's levels: products round the rows anyway, so their maps may be, unless something else takes them."""
    nodes = [
        node("Conv", ["x", "w"], ["a0"], "first"),
        node("Relu", ["a0"], ["a"], "relu"),
        node("Conv", ["a", "w"], ["b0"], "second"),
        node("Sigmoid", ["b0"], ["b1"], "gate"),
        node("Mul", ["b0", "b1"], ["b"], "silu"),
        node("Conv", ["a", "w"], ["c"], "third"),
        node("Shape", ["c"], ["size"], "size"),
        node("Reshape", ["b", "form"], ["d"], "flat_second"),
        node("Reshape", ["c", "form"], ["e"], "flat_third"),
        node("Concat", ["d", "e"], ["f"], "levels", axis=2),
        node("Transpose", ["f"], ["g"], "rows", perm=[0, 2, 1]),
        node("Mul", ["g", "mask"], ["h"], "masked"),
        node("MatMul", ["h", "v"], ["i"], "product"),
        node("Relu", ["i"], ["j"], "hidden"),
        node("MatMul", ["j", "v"], ["y"], "last"),
        node("Softmax", ["g"], ["s"], "softmax"),
    ]
    outputs = {None: "y", "Softmax": "ys", "output": "yg"}[other_use]
    nodes = nodes if "s" in outputs else nodes[:-1]
    arrays = {"w": rng.normal(size=(32, 32, 1, 1)) / 6, "v": rng.normal(size=(32, 32)) / 6, "mask": np.ones((1, 32, 1))}
    tensors = [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    tensors.append(onnx.numpy_helper.from_array(np.array([1, 32, -1]), "form"))
    infos = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs]
    map_info = oh.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 32, 4, 4])
    graph = oh.make_graph(nodes, "levels", [map_info], infos, tensors)
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx")
    sets = [[rng.normal(size=(1, 32, 4, 4)).astype(np.float32)] for _ in range(3)]
    result = mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", sets)
    assert result.quantized == expected
    before, after = (
        make_session(onnx.load(tmp_path / name)).run(["y"], {"x": sets[0][0]})[0]
        for name in ("model.onnx", "int8.onnx")
    )
    assert np.abs(after - before).max() < 0.06 * np.abs(before).max()


def test_hidden_layers_of_a_second_stage(rng):
    """Regions are not quantized, nor what they are computed from."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], "backbone"),
        node("Conv", ["a", "w"], ["b"], "proposals"),
        node("Mul", ["b", "stride"], ["c"], "decode"),
        node("Reshape", ["c", "rows"], ["regions"], "rows"),
        node("MMCVRoiAlign", ["a", "regions"], ["d"], "regions", domain="mmcv", output_height=1, output_width=1),
        node("Flatten", ["d"], ["e"], "flatten"),
        node("Gemm", ["e", "v"], ["f0"], "hidden"),
        node("Relu", ["f0"], ["f"], "relu"),
        node("Gemm", ["f", "v"], ["y"], "last"),
    ]
    arrays = {"w": np.ones((3, 3, 1, 1), np.float32), "v": np.eye(3, dtype=np.float32), "stride": np.float32(8)}
    arrays["rows"] = np.array([-1, 5])
    infos = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy"]
    tensors = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    model = oh.make_model(oh.make_graph(nodes, "two_stages", infos[:1], infos[1:], tensors))
    chosen = [name_of(node) for node in quantized_nodes(ir.from_proto(model).graph)]
    assert chosen == ["backbone", "hidden", "relu"]


@pytest.mark.parametrize("biased", [False, True])
def test_normalizations_are_folded(rng, biased):
    nodes = [
        node("Conv", ["x", "w", *["bias"] * biased], ["a"], "conv", strides=[2, 2]),
        node("BatchNormalization", ["a", "scale", "shift", "mean", "variance"], ["b"], "norm", epsilon=0.1),
        node("Relu", ["b"], ["y"], "relu"),
    ]
    arrays = {"w": rng.normal(size=(4, 3, 2, 2))} | {name: rng.normal(size=4) for name in ("scale", "shift", "mean")}
    arrays |= {"variance": rng.random(4), "bias": rng.normal(size=4)}
    infos = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, None, None, None]) for name in "xy"]
    tensors = [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    graph = oh.make_graph(nodes, "normalized", infos[:1], infos[1:], tensors)
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    folded = ir.from_proto(model)
    fold_normalizations(folded)
    assert [made.op_type for made in folded.graph] == ["Conv", "Relu"]
    feeds = {"x": rng.normal(size=(1, 3, 6, 8)).astype(np.float32)}
    (expected,), (got,) = (make_session(file).run(None, feeds) for file in (model, ir.to_proto(folded)))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_ranges_are_those_of_all_inputs(rng):
    model = detector(rng)
    sets = images(rng)
    feature_ranges, count = ranges(model, ["x", "b"], sets)
    assert count == 3
    stacked = np.stack([array for (array,) in sets])
    np.testing.assert_array_equal(feature_ranges.extremes[0], [stacked.min(), stacked.max()])
    assert feature_ranges.extremes[1, 0] == 0 < feature_ranges.extremes[1, 1]


def test_means_of_ranges():
    """One input with an extreme number does not set the steps of all, and one without elements does not count."""
    infos = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N"]) for name in "xy"]
    graph = oh.make_graph([node("Neg", ["x"], ["y"])], "numbers", infos[:1], infos[1:])
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8)
    sets = [[np.array(values, np.float32)] for values in ([-1, 2], [], [-3, 100])]
    feature_ranges, count = ranges(model, ["x", "y"], sets)
    assert count == 3
    np.testing.assert_array_equal(feature_ranges.means, [[-2, 51], [-51, 2]])
    np.testing.assert_array_equal(feature_ranges.extremes, [[-3, 100], [-100, 3]])


def test_a_network_with_silus(tmp_path, rng):
    """It has the mean ranges, and the input of a SiLU ends where the sigmoid is 0."""
    model, sets = detector(rng), [[10 * image] for (image,) in images(rng)]
    names = ["a0", "a", "e0"]
    extreme, mean = ranges(model, names, sets)[0]
    assert mean[0, 0] < -12
    assert (extreme[:, 1] > mean[:, 1]).all()
    onnx.save(model, tmp_path / "model.onnx")
    mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", sets)
    file = onnx.load(tmp_path / "int8.onnx")
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in file.graph.initializer}
    widths = [255 * tensors[f"{name}_scale"] for name in names]
    np.testing.assert_allclose(widths, [6 + mean[0, 1], *np.ptp(mean[1:], axis=1)], rtol=1e-5)


@pytest.mark.parametrize(("weight", "bias", "highest"), [(1, -5, 10), (-40, 20, 17 / 8)], ids=["extremes", "means"])
def test_the_ranges_that_move_detections_less(tmp_path, rng, weight, bias, highest):
    """One image of eight is bright: either it has the only objects, or the other images need small steps."""
    nodes = [
        node("Conv", ["x", "one"], ["a0"], "first"),
        node("Sigmoid", ["a0"], ["a1"]),
        node("Mul", ["a0", "a1"], ["a"]),
        node("Conv", ["a", "one"], ["b0"], "second"),
        node("Relu", ["b0"], ["b"]),
        node("Conv", ["b", "weight", "bias"], ["c"], "last"),
        node("Sigmoid", ["c"], ["d"]),
        node("Reshape", ["d", "rows"], ["scores"]),
        node("Concat", ["boxes", "scores"], ["dets"], axis=2),
        node("Identity", ["zeros"], ["labels"]),
    ]
    boxes = np.arange(64, dtype=np.float32)[None, :, None] + np.array([0, 0, 1, 1], np.float32)
    arrays = {"one": [[[[1]]]], "weight": [[[[weight]]]], "bias": [bias], "boxes": boxes}
    arrays = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    arrays |= {"rows": np.array([1, 64, 1]), "zeros": np.zeros((1, 64), np.int64)}
    infos = [
        oh.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (
            ("x", onnx.TensorProto.FLOAT, [1, 1, 8, 8]),
            ("dets", onnx.TensorProto.FLOAT, [1, 64, 5]),
            ("labels", onnx.TensorProto.INT64, [1, 64]),
        )
    ]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = oh.make_graph(nodes, "brightness", infos[:1], infos[1:], tensors)
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8), tmp_path / "model.onnx")
    sets = [[rng.random((1, 1, 8, 8)).astype(np.float32)] for _ in range(8)]
    for index, (image,) in enumerate(sets):
        image[0, 0, 0, 0] = 1 if index else 10
    mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", sets)
    file = onnx.load(tmp_path / "int8.onnx")
    (scale,) = (onnx.numpy_helper.to_array(tensor) for tensor in file.graph.initializer if tensor.name == "x_scale")
    assert 255 * scale == pytest.approx(highest, rel=1e-5)


@pytest.mark.parametrize(
    ("ends", "outputs", "expected"),
    [
        ([("Mul", ["x", "gate"])], ["y"], {"x"}),
        ([("Mul", ["gate", "x"])], ["y"], {"x"}),
        ([("Mul", ["z", "gate"])], ["y"], set()),
        ([("Mul", ["x", "gate"]), ("Relu", ["x"])], ["y"], set()),
        ([("Mul", ["x", "gate"])], ["x", "y"], set()),
    ],
    ids=["silu", "turned", "gate", "another user", "output"],
)
def test_what_is_a_silu(ends, outputs, expected):
    nodes = [node("Relu", ["z"], ["x"]), node("Sigmoid", ["x"], ["gate"])]
    nodes += [node(kind, inputs, [f"y{index or ''}"]) for index, (kind, inputs) in enumerate(ends)]
    infos = {name: oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in "xyz"}
    graph = oh.make_graph(nodes, "gates", [infos["z"]], [infos[name] for name in outputs])
    assert silu_inputs(ir.from_proto(oh.make_model(graph)).graph) == expected


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ([1, np.nan], "x must be finite, got numbers from nan to nan"),
        ([1, np.inf], "x must be finite, got numbers from 1.0 to inf"),
        ([-np.inf, 1], "x must be finite, got numbers from -inf to 1.0"),
        ([], "x has no elements for any set of inputs"),
    ],
)
def test_ranges_that_give_no_scale(values, refusal):
    infos = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N"]) for name in "xy"]
    graph = oh.make_graph([node("Relu", ["x"], ["y"])], "numbers", infos[:1], infos[1:])
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8)
    strange, usual = [np.array(values, np.float32)], [np.array([0, 1], np.float32)]
    with pytest.raises(ValueError, match=refusal):
        ranges(model, ["x"], [strange])
    if values:
        with pytest.raises(ValueError, match="x must be finite"):
            ranges(model, ["x"], [strange, usual])
    else:
        for bounds in ranges(model, ["x"], [strange, usual])[0]:
            np.testing.assert_array_equal(bounds, [[0, 1]])


@exact_sums
def test_results_are_near(tmp_path, rng):
    detector_file, sets = detector(rng), images(rng, 1) * 3  # one image, of which the mean range clips nothing
    onnx.save(detector_file, tmp_path / "model.onnx")
    result = mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", iter(sets))
    assert result.quantized == ("stem", "deep", "side", "tower")
    assert result.left == ("score", "box")
    assert str(result).splitlines()[0] == "quantized 4 of 6 layers, by 3 sets of inputs"
    file = onnx.load(tmp_path / "int8.onnx")
    weights = {tensor.name: tensor.data_type for tensor in file.graph.initializer}
    assert weights["stem_quantized"] == onnx.TensorProto.INT8
    assert weights["score"] == onnx.TensorProto.FLOAT
    outputs = (make_session(model).run(None, {"x": sets[0][0]}) for model in (detector_file, file))
    for expected, got in zip(*outputs, strict=True):
        assert 0 < np.abs(expected - got).max() < 0.06 * np.abs(expected).max()


def test_no_temporary_files_are_needed(tmp_path, rng, monkeypatch):
    """ONNX Runtime's quantizer writes the model to some, which a killed process would leave."""
    onnx.save(detector(rng), tmp_path / "model.onnx")
    monkeypatch.setattr(tempfile, "tempdir", "/none")
    samples = [[rng.normal(0, 1, (1, 3, 32, 32)).astype(np.float32)]]
    assert mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", samples).quantized


def test_weights_of_nodes(tmp_path, rng):
    """As exporters that fold no constants write them."""
    model, sets = detector(rng), images(rng)
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == "deep")
    model.graph.node.insert(0, node("Constant", [], ["deep"], value=weight))
    model.graph.initializer.remove(weight)
    onnx.save(model, tmp_path / "model.onnx")
    result = mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", sets)
    assert result.quantized == ("stem", "deep", "side", "tower")


@pytest.mark.parametrize(
    ("type_", "listed", "advice"),
    [(np.float16, False, ""), (np.float32, True, "; its weights are listed as inputs, and mmort upgrade makes them")],
)
def test_weights_that_are_not_quantized(tmp_path, type_, listed, advice):
    kind = oh.np_dtype_to_tensor_dtype(np.dtype(type_))
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Conv", ["a", "w"], ["y"])]
    weight = onnx.numpy_helper.from_array(np.ones((3, 3, 1, 1), type_), "w")
    inputs = [oh.make_tensor_value_info("x", kind, [1, 3, 4, 4])]
    inputs += [oh.make_tensor_value_info("w", kind, [3, 3, 1, 1])] * listed
    graph = oh.make_graph(nodes, "kept", inputs, [oh.make_tensor_value_info("y", kind, None)], [weight])
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8), tmp_path / "model.onnx")
    refusal = f"with constant float32 weights before another one{advice}"
    with pytest.raises(ValueError, match=refusal):
        mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", [[np.ones((1, 3, 4, 4), type_)]])


@pytest.fixture
def photos(tmp_path, rng):
    import cv2

    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(2):
        cv2.imwrite(str(folder / f"{number}.png"), rng.integers(0, 255, (20, 30, 3), np.uint8))
    return folder


def test_the_command_prepares_pictures(tmp_path, rng, photos, monkeypatch):
    """As the metadata of the file says."""
    prepared = Preprocessing(size=(32, 16), size_divisor=16)
    seen = []

    def quantize(path, output, calibration, *, max_loss, force):
        seen.extend(calibration)
        return "quantized"

    monkeypatch.setattr(mmort.onnx, "quantize", quantize)
    model = tiny_detector.write(tmp_path / "model.onnx")
    code, out, _ = run("quantize", model, "--calibrate", photos, "-o", tmp_path / "int8.onnx")
    assert (code, out) == (0, f"calibrating with 2 files\nquantized\nwrote {tmp_path}/int8.onnx\n")
    assert [array.shape for (array,) in seen] == [prepared.batch([prepared(photos / "0.png")])[0].shape] * 2


def test_the_command_takes_files_and_patterns(tmp_path, photos, monkeypatch):
    seen = []
    monkeypatch.setattr(mmort.onnx, "read_inputs", lambda path, files: files)
    monkeypatch.setattr(mmort.onnx, "quantize", lambda path, output, files, **_: seen.extend(files))
    (tmp_path / "arrays.npz").touch()
    sources = tmp_path / "arrays.npz", photos / "1.png", photos / "*.png", photos
    code, out, _ = run("quantize", "x.onnx", "-o", tmp_path / "int8.onnx", "--calibrate", *sources)
    assert (code, out.splitlines()[0]) == (0, "calibrating with 6 files")
    assert seen == [tmp_path / "arrays.npz", photos / "1.png", *[photos / "0.png", photos / "1.png"] * 2]


def test_a_long_calibration_prints_signs_of_life(tmp_path, photos, monkeypatch):
    monkeypatch.setattr("mmort.detect.export.progress.HEARTBEAT", 0.01)
    monkeypatch.setattr(mmort.onnx, "quantize", lambda *_, **__: time.sleep(0.5))
    model = tiny_detector.write(tmp_path / "model.onnx")
    _, out, _ = run("quantize", model, "--calibrate", photos, "-o", tmp_path / "int8.onnx")
    assert out.splitlines()[1] == "  ... 0 s"


def test_the_command_takes_arrays(tmp_path, rng):
    folder = tmp_path / "arrays"
    folder.mkdir()
    onnx.save(detector(rng), tmp_path / "model.onnx")
    np.savez(folder / "0.npz", x=images(rng, 1)[0][0])
    code, out, _ = run("quantize", tmp_path / "model.onnx", "--calibrate", folder, "-o", tmp_path / "int8.onnx")
    lines = [line for line in out.splitlines() if not line.startswith("  ")]  # how long it took
    assert (code, lines) == (
        0,
        [
            "calibrating with 1 file",
            "quantized 4 of 6 layers, by 1 set of inputs",
            "left 2 (score, box): no further layer, so results are predictions",
            f"wrote {tmp_path}/int8.onnx",
        ],
    )


def test_reasons_why_layers_are_left(tmp_path, rng):
    """Behind a node that is not quantized, with computed weights, and predictions."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], "first"),
        node("Conv", ["a", "w"], ["b"], "before"),
        node("Softmax", ["b"], ["c"], "softmax", axis=1),
        node("Conv", ["c", "w"], ["d"], "behind"),
        node("Neg", ["w"], ["v"], "negated"),
        node("Conv", ["d", "v"], ["e"], "computed"),
        node("Conv", ["e", "w"], ["y"], "last"),
    ]
    weights = [onnx.numpy_helper.from_array(rng.normal(size=(4, 4, 1, 1)).astype(np.float32), "w")]
    infos = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4, 8, 8]) for name in "xy"]
    graph = oh.make_graph(nodes, "reasons", infos[:1], infos[1:], weights)
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx")
    sets = [[rng.normal(size=(1, 4, 8, 8)).astype(np.float32)]]
    result = mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", sets)
    assert result.reasons == {
        "what follows is not computed with integers: Softmax": ("before",),
        "what follows is not computed with integers: Conv": ("behind",),
        "weights are computed, or not float32": ("computed",),
        "no further layer, so results are predictions": ("last",),
    }
    assert set(result.left) == {"before", "behind", "computed", "last"}


def test_the_command_takes_one_kind_of_files(tmp_path, photos):
    np.savez(photos / "0.npz", x=0)
    error = refused("quantize", "model.onnx", "--calibrate", photos, "-o", tmp_path / "int8.onnx")
    assert f"--calibrate must have either images or .npz files, got both: {photos}" in error


def test_refusals(tmp_path, rng):
    model, output = tmp_path / "model.onnx", tmp_path / "int8.onnx"
    onnx.save(detector(rng, opset=12), model)
    with pytest.raises(ValueError, match="the opset must be 13 or higher, got 12; mmort upgrade raises it"):
        mmort.onnx.quantize(model, output, images(rng))
    onnx.save(detector(rng), model)
    with pytest.raises(ValueError, match="calibration must have at least one set of inputs, got none"):
        mmort.onnx.quantize(model, output, [])
    with pytest.raises(ValueError, match=r"quantize: the model does not run on these inputs: .*expected: "):
        mmort.onnx.quantize(model, output, [[np.ones((1, 3, 24, 32))]])
    mmort.onnx.quantize(model, output, images(rng))
    with pytest.raises(ValueError, match="is quantized already"):
        mmort.onnx.quantize(output, tmp_path / "again.onnx", images(rng))
    with pytest.raises(FileExistsError, match="output file exists"):
        mmort.onnx.quantize(model, output, images(rng))
    error = refused("quantize", model, "--calibrate", "nothing", "-o", "x.onnx")
    assert error == "mmort: error: nothing: no such file or directory\n"
    error = refused("quantize", model, "--calibrate", "", "-o", "x.onnx")
    assert error == "mmort: error: no such file, folder or pattern: ''\n"


@exact_sums
@pytest.mark.parametrize("form", ["MatMul", "Gemm"])
def test_products_of_transformers(tmp_path, rng, form):
    """They take integers and give floating-point numbers; the residual stays as it was."""
    model, sets = transformer(rng, form), scenes(rng)
    onnx.save(model, tmp_path / "model.onnx")
    result = mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", sets)
    assert result.quantized == ("first", "second")
    assert result.reasons == {
        "what follows is not computed with integers: Reshape": ("patch",),
        "no further layer, so results are predictions": ("head",),
    }
    assert 0 < result.loss < 0.1
    assert str(result).splitlines()[0] == (
        f"quantized 2 of 4 layers, by 4 sets of inputs; detections change by {result.loss:.1%}"
    )
    file = onnx.load(tmp_path / "int8.onnx")
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in file.graph.initializer}
    assert {"first", "second", "first, turned", "second, turned"}.isdisjoint(weights)
    assert sorted(array.shape for array in weights.values() if array.dtype == np.int8 and array.ndim == 2) == (
        [(64, 96), (96, 64)] if form == "MatMul" else [(96, 64), (96, 64)]
    )
    residual = next(made for made in file.graph.node if made.name == "residual")
    assert residual.input[0] == "a"
    outputs = [make_session(made).run(None, {"x": sets[0][0]}) for made in (model, file)]
    assert 0 < np.abs(outputs[0][0] - outputs[1][0]).max() < 0.3  # of boxes up to 20 pixels
    optimized = tmp_path / "optimized.onnx"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(optimized)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(tmp_path / "int8.onnx", options)
    kinds = [made.op_type for made in onnx.load(optimized).graph.node]
    assert kinds.count("MatMulInteger") + kinds.count("QGemm") == 2, kinds
    assert kinds.count("MatMul") + kinds.count("Gemm") == 1  # the head


@pytest.mark.parametrize("form", ["MatMul", "Gemm"])
def test_layers_that_cost_too_much(tmp_path, rng, form):
    """The one whose feature map has an outlier stays as it was, and the others do not."""
    model, sets = transformer(rng, form, outlier=2000.0), scenes(rng)
    onnx.save(model, tmp_path / "model.onnx")
    result = mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", sets)
    assert result.quantized == ("second",)
    assert result.reasons["integers change the results too much"] == ("first",)
    assert 0 < result.loss < 0.1
    anything = mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "all.onnx", sets, max_loss=1.0)
    assert anything.quantized == ("first", "second")
    assert anything.loss > 0.1
    with pytest.raises(ValueError, match=r"quantize: integers in any layer change the results by more than 0; "):
        mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "no.onnx", sets, max_loss=0.0)
    assert not (tmp_path / "no.onnx").exists()
    with pytest.raises(ValueError, match=r"quantize: max_loss must be from 0 to 1, got 1.5"):
        mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "no.onnx", sets, max_loss=1.5)


def test_products_without_detections(tmp_path, rng):
    model = transformer(rng)
    model.graph.output.pop()
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="matrix products are chosen by detections, which mmort adopt adds"):
        mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", scenes(rng))


@pytest.mark.parametrize("limit", [0.0, 0.1, 0.35, 0.6, 1.0])
def test_the_fewest_layers_are_left(limit):
    costs = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}
    tried = []

    def loss(left):
        tried.append(tuple(left))
        return sum(cost for name, cost in costs.items() if name not in left)

    left, cost = layers_to_leave(lambda: costs, loss, limit)
    expected = {0.0: "abcd", 0.1: "abc", 0.35: "ab", 0.6: "a", 1.0: ""}[limit]
    assert left == set(expected)
    assert cost == pytest.approx(loss(left))
    assert len(tried) <= 5


def test_how_much_of_detections_is_lost():
    dets = np.array([[[0, 0, 10, 10, 0.8], [20, 0, 30, 10, 0.6], [0, 0, 9, 9, 0.9]]], np.float32)
    labels = np.array([[0, 1, -1]])
    shifted = dets.copy()
    shifted[0, 0, 2] = 5  # half of the box
    shifted[0, 1, 4] = 0.3  # half of the score
    assert detection_loss([(dets, labels)], [(dets, labels)]) == 0
    assert detection_loss([(dets, labels)], [(dets[:, ::-1], labels[:, ::-1])]) == 0
    weights = np.array([0.8**2, 0.6**2, 0.8**2, 0.3**2])
    assert detection_loss([(dets, labels)], [(shifted, labels)]) == pytest.approx(weights.sum() / 2 / weights.sum())
    assert detection_loss([(dets, labels)], [(dets, 1 - labels)]) == 1
    assert detection_loss([(dets, labels)], [(dets, np.full_like(labels, -1))]) == 1
    filled = np.array([[[0, 0, 10, 10, 0.8], [0, 0, 0, 0, 0.1]]], np.float32)
    assert detection_loss([(filled, labels[:, :2])], [(filled, labels[:, :2])]) == 0
    rotated = np.array([[[5, 5, 10, 4, 0.1, 0.8]]], np.float32)
    turned = np.array([[[5, 5, 4, 10, 0.1 + np.pi / 2, 0.8]]], np.float32)
    assert detection_loss([(rotated, labels[:, :1])], [(turned, labels[:, :1])]) == pytest.approx(0, abs=1e-5)


def test_how_much_of_other_results_is_lost():
    before, after = np.array([[0.5, 0.25, 0.25]], np.float32), np.array([[0.25, 0.25, 0.5]], np.float32)
    assert overlap_loss([[before]], [[before]]) == 0
    assert overlap_loss([[before]], [[after]]) == pytest.approx(1 - 0.75 / 1.25)
    assert overlap_loss([[before, before]], [[before, after]]) == pytest.approx(1 - 1.75 / 2.25)
    assert overlap_loss([[-before]], [[before]]) == 1  # what is below 0 is no part of a heatmap
    assert overlap_loss([[-before]], [[-after]]) == 0
    logits = np.array([[[[0, 1, 2, 3]], [[3, 2, 1, 0]]]], np.float32)
    assert label_loss([[logits]], [[logits[:, ::-1]]]) == 1
    assert label_loss([[logits]], [[logits + np.array([0, 0.5], np.float32).reshape(1, 2, 1, 1)]]) == 0
    assert label_loss([[logits]], [[logits + np.array([0, 1.5], np.float32).reshape(1, 2, 1, 1)]]) == 0.25
    one = np.array([[[[-1, 1, 2, -3]]]], np.float32)
    assert label_loss([[one]], [[one + 2]]) == 0.25


@pytest.mark.parametrize(
    ("task", "outputs", "unit"),
    [
        ("detection", ("dets", "labels"), None),  # a float output is not labels
        ("classification", ("scores",), "probabilities"),
        ("classification", ("logits",), None),
        ("segmentation", ("logits",), "pixels"),
        ("keypoints", ("simcc_x", "simcc_y"), "scores of keypoints"),
        ("keypoints", ("heatmaps",), "scores of keypoints"),
        ("keypoints", ("points",), None),
        ("text recognition", ("characters",), "probabilities"),
        ("text detection", ("probability",), "probabilities"),
        ("text detection", ("kernels",), None),
    ],
)
def test_what_is_measured(task, outputs, unit):
    values = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs]
    model = oh.make_model(oh.make_graph([], "x", [], values))
    oh.set_model_props(model, write_entries(Metadata(task=task)))
    measure = measure_of(model)
    assert (measure and measure.unit) == unit
    del model.metadata_props[:]
    assert measure_of(model) is None  # a file of others may have outputs of these names


def test_a_classifier_with_products(tmp_path, rng):
    """They are chosen by the probabilities."""
    model = transformer(rng)
    names = [made.name for made in model.graph.node]
    del model.graph.node[names.index("rows_of_image") + 1 :], model.graph.output[:]
    model.graph.node.append(node("ReduceMean", ["i"], ["mean"], "mean", axes=[1], keepdims=0))
    model.graph.node.append(node("Softmax", ["mean"], ["scores"], "softmax", axis=1))
    model.graph.output.append(oh.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, None))
    oh.set_model_props(model, write_entries(Metadata(task="classification")))
    onnx.save(model, tmp_path / "model.onnx")
    result = mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", scenes(rng))
    assert result.quantized == ("first", "second")
    assert str(result).splitlines()[0].endswith(f"; probabilities change by {result.loss:.1%}")
    assert 0 < result.loss < 0.1


@pytest.mark.parametrize("count", [0, 3, 4, 5, 40, 63])
def test_some_sets_of_many(count):
    sample = Sample(4)
    assert list(sample.passing(range(count))) == list(range(count))
    assert len(sample.sets) == count if count <= 4 else 2 <= len(sample.sets) <= 4
    assert len(set(np.diff(sample.sets))) <= 1
    assert not sample.sets or count - sample.sets[-1] <= sample.step


def test_errors_of_layers(rng):
    """Of convolutions, alone: the rounding, or more where a range is too narrow."""
    model, sets = detector(rng), images(rng)
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    bounds = dict(zip("xa", ranges(model, ["x", "a"], sets)[0].extremes, strict=True))
    layers = {name: (weights[name], 0) for name in ("stem", "deep")}
    errors = layer_errors(model, layers, bounds, sets)
    assert list(errors) == ["stem", "deep"]
    assert all(0 < error < 1e-3 for error in errors.values())
    narrow = layer_errors(model, layers, bounds | {"a": bounds["a"] / 4}, sets)
    assert narrow["stem"] == errors["stem"]
    assert narrow["deep"] > 100 * errors["deep"]


def test_the_command_measures_both_files(tmp_path, rng, photos):
    """On a data set: the figures before and after."""
    model = transformer(rng)
    prepare = Preprocessing(size=(32, 32), keep_ratio=False, mean=(127.0,) * 3, std=(64.0,) * 3)
    metadata = {"classes": ["thing"], "preprocessing": prepare.to_dict()}
    oh.set_model_props(model, {key: json.dumps(value) for key, value in metadata.items()})
    onnx.save(model, tmp_path / "model.onnx")
    files = [{"id": number, "file_name": f"{number}.png", "height": 20, "width": 30} for number in range(2)]
    boxes = []
    predict = mmort.Predictor(tmp_path / "model.onnx", score_threshold=0)
    for number in range(2):
        for x1, y1, x2, y2 in predict(photos / f"{number}.png").boxes[:20:2].round().tolist():
            boxes.append({"id": 1 + len(boxes), "image_id": number, "bbox": [x1, y1, x2 - x1, y2 - y1]})
    common = {"category_id": 1, "area": 81, "iscrowd": 0}
    data = {"images": files, "annotations": [box | common for box in boxes]}
    (tmp_path / "ann.json").write_text(json.dumps(data | {"categories": [{"id": 1, "name": "thing"}]}))
    arguments = ["quantize", tmp_path / "model.onnx", "--calibrate", photos, "-o", tmp_path / "int8.onnx"]
    measured = [*arguments, "--ann", tmp_path / "ann.json", "--img-dir", photos]
    code, out, error = run(*measured, "--max-loss", "0.5")
    assert code == 0, error
    rows = [line.split() for line in out.splitlines()[-7:]]
    assert rows[0] == ["before", "after", "difference"]
    assert rows[1][0] == "bbox_mAP"
    evaluated = {}
    for column, name in ((1, "model.onnx"), (2, "int8.onnx")):
        figures = tmp_path / "figures.json"
        test = ["test", tmp_path / name, *measured[6:], "--eval", "bbox", "--metrics-json", figures, "--force"]
        assert run(*test)[0] == 0
        evaluated[column] = json.loads(figures.read_text())
        for row in rows[1:3]:
            assert float(row[column]) == pytest.approx(evaluated[column][row[0]], abs=5e-5)
    assert evaluated[1] != evaluated[2]
    assert "--img-dir and --data-root are for a data set, which --ann names" in misused(
        *arguments, "--force", "--img-dir", photos
    )


def test_data_sets_are_for_detectors(tmp_path, photos):
    file = tmp_path / "x.onnx"
    tiny_tasks.write(file, SEGMENTATION)
    command = "quantize", file, "--calibrate", photos, "--output", tmp_path / "int8.onnx"
    message = misused(*command, "--ann", tmp_path / "x.json", "--img-dir", photos)
    assert f"--ann is for detectors, got a file of segmentation: mmort parity {file} " in message


@pytest.mark.parametrize(("kind", "is_refused"), [("float labels", False), ("a row for each class", True)])
def test_outputs_with_the_names_of_detections(tmp_path, rng, kind, is_refused):
    """RF-DETR's own files have outputs of these names, which are others."""
    model = transformer(rng)
    labels = model.graph.node[-1]
    if is_refused:
        model.graph.node.insert(len(model.graph.node) - 1, node("Unsqueeze", ["nothing", "one"], ["apart"], "apart"))
        labels.input[0] = "apart"
    else:
        labels.attribute[0].i = onnx.TensorProto.FLOAT
        model.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    model.graph.output[1].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "model.onnx")
    refusal = (
        r"dets and labels must be \(N, K, 5 or 6\) and \(N, K\)" if is_refused else "products are chosen by detections"
    )
    with pytest.raises(ValueError, match=refusal):
        mmort.onnx.quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", scenes(rng))

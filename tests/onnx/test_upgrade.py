"""Old models brought up to date: each rule, and that the outputs stay the same."""

import itertools
import re

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import mmort.cli
import mmort.ort
from mmort.demo import IMAGES
from mmort.onnx import make_portable, upgrade
from tests import front_ends, old_export

FLOAT = onnx.TensorProto.FLOAT


def old_model(*made, inputs, outputs=("y",), initializers=(), opset=11, imports=(("mmcv", 1),), ir_version=7):
    """Make a model as torch 1.x wrote it; `inputs` are names with shapes."""
    graph = oh.make_graph(
        list(made),
        "old",
        [oh.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [oh.make_tensor_value_info(name, FLOAT, [None] * 4) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in dict(initializers).items()],
    )
    opsets = [oh.make_opsetid(domain, version) for domain, version in (("", opset), *imports)]
    return oh.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def corner_pool(domain="mmcv", **attributes):
    return oh.make_node("MMCVCornerPool", ["x"], ["y"], "pool", domain=domain, **({"mode": 0} | attributes))


MAP = {"x": [1, 1, 4, 5]}
CURRENT = {"opset": 18, "ir_version": 8}


def attribute_values(model, node=0):
    return {attribute.name: oh.get_attribute_value(attribute) for attribute in model.graph.node[node].attribute}


def assert_same_outputs(before, after, rng):
    feeds = {
        info.name: rng.uniform(0, 3, [dim.dim_value for dim in info.type.tensor_type.shape.dim]).astype(np.float32)
        for info in before.graph.input
        if info.name not in {tensor.name for tensor in before.graph.initializer}
    }
    results = [front_ends.make_session(model).run(None, feeds) for model in (before, after)]
    for output, output_after in zip(*results, strict=True):
        np.testing.assert_array_equal(output, output_after)


def copied(model):
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def test_clean_models_are_left_alone(tmp_path):
    model = old_model(corner_pool(), inputs=MAP, **CURRENT)
    before = copied(model)
    assert upgrade(model) == []
    assert model == before
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    written = path.stat().st_mtime_ns, path.stat().st_ino
    assert upgrade(path) == []
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == written
    assert upgrade(path, tmp_path / "copy.onnx") == []
    assert onnx.load(tmp_path / "copy.onnx") == before


@pytest.mark.parametrize("opset", [9, 18])
def test_weights_are_constants(rng, opset):
    weight = rng.standard_normal((1, 1, 4, 5)).astype(np.float32)
    model = old_model(
        oh.make_node("MMCVCornerPool", ["x"], ["z"], domain="mmcv", mode=0),
        oh.make_node("Add", ["z", "weight"], ["y"]),
        inputs=MAP | {"weight": [1, 1, 4, 5]},
        initializers={"weight": weight},
        opset=opset,
        ir_version=3,  # where that was a rule
    )
    before = copied(model)
    converted = [] if opset == 18 else [f"opset {opset}: 18 now"]
    assert upgrade(model) == ["1 weight listed as input: constant now", *converted, "format version 3: 8 now"]
    assert [tensor.name for tensor in model.graph.input] == ["x"]
    assert_same_outputs(before, model, rng)


def test_inputs_with_defaults_stay():
    add = oh.make_node("Add", ["x", "shift"], ["y"])
    model = old_model(
        add, inputs=MAP | {"shift": ["n"]}, initializers={"shift": np.ones(1, np.float32)}, imports=[], **CURRENT
    )
    assert upgrade(model) == []
    assert [formal.name for formal in model.graph.input] == ["x", "shift"]


def test_domains(rng):
    model = old_model(corner_pool("mmcv"), inputs=MAP, imports=[], **CURRENT)
    assert upgrade(model) == ["domain mmcv: imported now"]
    model = old_model(corner_pool("mmcv"), inputs=MAP, imports=[("mmcv", 2), ("mmdeploy", 1), ("other", 3)], **CURRENT)
    assert upgrade(model) == [
        "domain mmdeploy: no longer imported, there are no nodes of it",
        "domain mmcv: version 2 is 1 now",
    ]
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 18), ("mmcv", 1), ("other", 3)]

    roi_align = oh.make_node("MMCVRoiAlign", ["x", "rois"], ["y"], domain="mmdeploy", output_height=2, output_width=2)
    model = old_model(roi_align, inputs=MAP | {"rois": [0, 5]}, imports=[("mmdeploy", 1)], **CURRENT)
    before = copied(model)
    assert upgrade(model) == [
        "mmdeploy::MMCVRoiAlign: mmcv::MMCVRoiAlign now (1 node)",
        "domain mmdeploy: no longer imported, there are no nodes of it",
        "domain mmcv: imported now",
    ]
    assert_same_outputs(before, model, rng)

    only_mmdeploy = oh.make_node(
        "NMSRotated", ["b", "s"], ["y"], domain="mmdeploy", iou_threshold=0.5, score_threshold=0.0
    )
    model = old_model(only_mmdeploy, inputs={"b": [1, 1, 5], "s": [1, 1, 1]}, imports=[("mmdeploy", 1)], **CURRENT)
    assert upgrade(model) == []


def test_nodes_without_a_domain():
    """They get one only if ONNX itself has no such type."""
    nms = oh.make_node("NonMaxSuppression", ["b", "s"], ["i"])
    model = old_model(corner_pool(""), corner_pool(""), nms, inputs=MAP | {"b": [1, 2, 4], "s": [1, 1, 2]}, **CURRENT)
    assert upgrade(model) == ["(no domain)::MMCVCornerPool: mmcv::MMCVCornerPool now (2 nodes)"]
    assert [node.domain for node in model.graph.node] == ["mmcv", "mmcv", ""]


def test_attribute_names(rng):
    roi_align = oh.make_node("MMCVRoiAlign", ["x", "rois"], ["y"], domain="mmcv", aligned_height=2, aligned_width=3,
                             pool_mode="max", sampling_ratio=2, extra=1)  # fmt: skip
    model = old_model(roi_align, inputs=MAP | {"rois": [2, 5]}, **CURRENT)
    before = copied(model)
    assert upgrade(model) == [
        f"mmcv::MMCVRoiAlign: attribute {old} is {new} now (1 node)"
        for old, new in (("aligned_height", "output_height"), ("aligned_width", "output_width"), ("pool_mode", "mode"))
    ]
    expected = {"output_height": 2, "output_width": 3, "mode": b"max", "sampling_ratio": 2, "extra": 1}
    assert attribute_values(model) == expected
    before.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 2
    session, other = front_ends.make_session(before), front_ends.make_session(model)
    feeds = {
        "x": rng.random((1, 1, 4, 5), np.float32),
        "rois": np.array([[0, 0, 0, 3, 3], [0, 1, 1, 4, 2]], np.float32),
    }
    np.testing.assert_array_equal(session.run(None, feeds)[0], other.run(None, feeds)[0])


@pytest.mark.parametrize(
    ("domain", "attributes", "pairs"),
    [
        ("mmcv", {"stride": 2, "padding": 1, "dilation": 1}, {"stride": [2, 2], "padding": [1, 1], "dilation": [1, 1]}),
        ("mmcv", {"stride": [1, 2], "padding": [1]}, {"stride": [1, 2], "padding": [1, 1]}),
        ("mmdeploy", {"padding": [1, 1, 2, 2]}, {"padding": [1, 2]}),
    ],
)
def test_pairs(domain, attributes, pairs, rng):
    stride, padding = (
        np.array(pairs.get(name, default)) for name, default in (("stride", [1, 1]), ("padding", [0, 0]))
    )
    height, width = ((np.array([6, 7]) + 2 * padding - 3) // stride + 1).tolist()
    node = oh.make_node("MMCVDeformConv2d", ["x", "offset", "weight"], ["y"], domain=domain, **attributes)
    weight = rng.standard_normal((3, 2, 3, 3)).astype(np.float32)
    model = old_model(
        node,
        inputs={"x": [1, 2, 6, 7], "offset": [1, 18, height, width]},
        initializers={"weight": weight},
        imports=[(domain, 1)],
        **CURRENT,
    )
    before = copied(model)
    changed = [name for name in attributes if attributes[name] != pairs[name]]
    changes = upgrade(model)
    for name in changed:
        assert f"mmcv::MMCVDeformConv2d: attribute {name} is a pair now (1 node)" in changes
    assert len(changes) == len(changed) + (3 if domain == "mmdeploy" else 0)
    assert attribute_values(model) == pairs
    assert_same_outputs(before, model, rng)


def test_opset(rng):
    """It is converted in graphs within the graph, too."""
    squeeze = oh.make_node("Squeeze", ["x"], ["s"], axes=[0])
    branch = oh.make_graph(
        [
            oh.make_node("MMCVCornerPool", ["x"], ["p"], domain="mmcv", mode=1),
            oh.make_node("ReduceMax", ["p"], ["m"], axes=[1], keepdims=1),
        ],
        "then",
        [],
        [oh.make_tensor_value_info("m", FLOAT, [1, 1, 4, 5])],
    )
    other = oh.make_graph(
        [oh.make_node("Relu", ["x"], ["r"])], "else", [], [oh.make_tensor_value_info("r", FLOAT, None)]
    )
    made = [
        squeeze,
        oh.make_node("ReduceMax", ["s"], ["largest"], keepdims=0),
        oh.make_node("Greater", ["largest", "zero"], ["condition"]),
        oh.make_node("If", ["condition"], ["y"], then_branch=branch, else_branch=other),
    ]
    model = old_model(*made, inputs=MAP, initializers={"zero": np.float32(0)})
    before = copied(model)
    assert upgrade(model) == ["opset 11: 18 now", "format version 7: 8 now"]
    assert_same_outputs(before, model, rng)
    assert make_portable(model)[0].missing is None


ENLARGED, REDUCED = ((2, 2), (1.5, 1.3), (3, 1)), ((0.5, 0.6), (0.3, 0.45), (1, 0.7))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(
    ("opset", "scales"),  # Upsample only enlarges
    [*itertools.product([7, 9, 10], ENLARGED), *itertools.product([10], REDUCED)],
)
def test_old_resizes_keep_their_coordinates(opset, mode, scales, rng):
    """Upsample and Resize up to opset 10 align the corners of pixels, newer ones centres."""
    numbers = np.array([1, 1, *scales], np.float32)
    kind, inputs, attributes = "Upsample" if opset < 10 else "Resize", ["x", "scales"], {"mode": mode}
    if opset == 7:
        inputs, attributes = ["x"], attributes | {"scales": numbers.tolist()}
    model = old_model(
        oh.make_node(kind, inputs, ["y"], **attributes),
        inputs={"x": [1, 2, 7, 11]},
        initializers={"scales": numbers} if len(inputs) > 1 else {},
        opset=opset,
        imports=(),
    )
    before = copied(model)
    upgrade(model)
    assert_same_outputs(before, model, rng)


def test_resizes_without_a_newer_equivalent():
    """To the nearest pixel, one that enlarges rounds down, and one that reduces rounds up."""
    resize = oh.make_node("Resize", ["x", "scales"], ["y"], "resize", mode="nearest")
    for scales, given in (
        (np.array([1, 1, 2, 0.5], np.float32), re.escape("[1.0, 1.0, 2.0, 0.5]")),
        (None, "computed"),
    ):
        made = [resize] if scales is not None else [oh.make_node("Abs", ["s"], ["scales"]), resize]
        inputs = MAP if scales is not None else MAP | {"s": [4]}
        constants = {} if scales is None else {"scales": scales}
        model = old_model(*made, inputs=inputs, initializers=constants, opset=10, imports=())
        with pytest.raises(ValueError, match=f"opset 10 cannot be converted.*Resize node 'resize'.*got {given}"):
            upgrade(model)


@pytest.mark.parametrize(("axis", "is_kept"), [(-1, True), (3, False), (1, False), (None, False)])
def test_old_hardmax_has_the_axes_from_one_on(axis, is_kept, rng):
    node = oh.make_node("Hardmax", ["x"], ["y"], "hardmax", **({} if axis is None else {"axis": axis}))
    model = old_model(node, inputs=MAP, opset=12, imports=())
    before = copied(model)
    if is_kept:
        upgrade(model)
        assert_same_outputs(before, model, rng)
    else:
        with pytest.raises(ValueError, match=f"Hardmax node 'hardmax'.*got axis {1 if axis is None else axis}"):
            upgrade(model)


def test_format_version():
    for opset, before, after in ((18, 12, 10), (18, 10, 10), (18, 9, 9), (18, 5, 8), (21, 12, 10), (23, 12, 11)):
        model = old_model(corner_pool(), inputs=MAP, opset=opset, ir_version=before)
        assert upgrade(model) == ([f"format version {before}: {after} now"] if before != after else [])
        assert model.ir_version == after


def test_models_that_cannot_be_upgraded(tmp_path):
    function = oh.make_function("own", "Twice", ["a"], ["b"], [oh.make_node("Add", ["a", "a"], ["b"])],
                                [oh.make_opsetid("", 11)])  # fmt: skip
    model = old_model(corner_pool(), inputs=MAP)
    model.functions.append(function)
    with pytest.raises(ValueError, match="opset, 11, cannot be converted while it has functions of its own"):
        upgrade(model)
    model = old_model(oh.make_node("Experimental", ["x"], ["y"]), inputs=MAP)
    with pytest.raises(ValueError, match="opset 11 cannot be converted to 18: "):
        upgrade(model)
    node = oh.make_node("MMCVDeformConv2d", ["x", "o", "w"], ["y"], "conv", domain="mmcv", padding=[1, 2, 3, 4])
    path = tmp_path / "model.onnx"
    onnx.save(old_model(node, inputs=MAP | {"o": [1, 18, 4, 5], "w": [1, 1, 3, 3]}), path)
    before = path.read_bytes()
    text = "mmcv::MMCVDeformConv2d node 'conv': padding must be 1, 2 or 4 integers (each twice), got [1, 2, 3, 4]"
    with pytest.raises(ValueError, match=re.escape(text)):
        upgrade(path)
    assert path.read_bytes() == before


def test_tensors_beside_the_model_stay_there(tmp_path, rng):
    weight = rng.standard_normal((1, 1, 4, 5)).astype(np.float32)
    made = (
        oh.make_node("Add", ["x", "weight"], ["z"]),
        oh.make_node("MMCVCornerPool", ["z"], ["y"], domain="mmcv", mode=2),
    )
    path = tmp_path / "model.onnx"
    model = old_model(*made, inputs=MAP | {"weight": [1, 1, 4, 5]}, initializers={"weight": weight})
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    assert len(upgrade(path)) == 3
    (outputs,) = mmort.ort.session(path).run(None, {"x": np.zeros((1, 1, 4, 5), np.float32)})
    np.testing.assert_array_equal(outputs, mmort.corner_pool(weight, "left"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "weights"]


# ---- a detector exported by MMDetection -------------------------------------------------------------------------


def test_a_detector_of_mmdetection(tmp_path, capsys):
    """The new opset changes no bit; constant weights do, as ONNX Runtime prepares them, so both models have them."""
    path = tmp_path / "mask_rcnn.onnx"
    assert mmort.cli.main(["upgrade", str(old_export.MODEL), "--output", str(path)]) == 0
    lines = ["310 weights listed as inputs: constant now", "opset 11: 18 now", "format version 7: 8 now"]
    assert capsys.readouterr().out.splitlines() == [*lines, f"wrote {path}"]
    old = onnx.load(old_export.MODEL)
    weights = {tensor.name for tensor in old.graph.initializer}
    inputs = [info for info in old.graph.input if info.name not in weights]
    del old.graph.input[:]
    old.graph.input.extend(inputs)
    pixels = old_export.network_input(IMAGES[0])
    outputs, expected = (
        mmort.ort.session(model).run(None, {"input": pixels}) for model in (path, old.SerializeToString())
    )
    assert expected[0].size > 0
    for output, expected_output in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(output, expected_output)
    assert mmort.cli.main(["upgrade", str(path), "--in-place", "--json"]) == 0
    assert capsys.readouterr().out == '{\n  "changes": []\n}\n'
    assert mmort.cli.main(["upgrade", str(path), "--in-place"]) == 0
    assert capsys.readouterr().out == "nothing to do: the model is up to date\n"
    copy = path.with_name("copy.onnx")
    assert mmort.cli.main(["upgrade", str(path), "--output", str(copy)]) == 0
    assert capsys.readouterr().out == f"nothing to do: the model is up to date\nwrote {copy} (a copy)\n"
    assert onnx.load(copy) == onnx.load(path)


def test_command_line_errors(tmp_path, capsys):
    assert mmort.cli.main(["upgrade", str(tmp_path / "none.onnx"), "--in-place"]) == 1
    assert re.fullmatch(r"mmort: error: .*none\.onnx.*\n", capsys.readouterr().err)

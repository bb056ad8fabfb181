"""Verification: it finds every kind of difference, and the command reports it."""

import json
import os
import pickle
import zipfile

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

import mmort
import mmort.cli
import mmort.demo
import mmort.onnx
from mmort.onnx.graph import optional_inputs
from mmort.onnx.verify import numbers
from mmort.onnx.verify.values import Outputs
from mmort.tolerances import Tolerances
from tests import front_ends
from tests.cli.running import refused, run
from tests.predict import tiny_detector

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def write(path, nodes, inputs, outputs, weights=()):
    """Write an ONNX file; inputs and outputs are {name: (type, shape)}."""
    infos = [
        [onnx.helper.make_tensor_value_info(name, *kind) for name, kind in tensors.items()]
        for tensors in (inputs, outputs)
    ]
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in dict(weights).items()]
    graph = onnx.helper.make_graph(nodes, "test", *infos, initializers)
    imports = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("mmcv", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def linear(path, weight, shape=("n", 4)):
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])]
    return write(path, nodes, {"x": (FLOAT, shape)}, {"y": (FLOAT, None)}, {"w": weight})


def cast(path, kind):
    nodes = [onnx.helper.make_node("Cast", ["x"], ["y"], to=kind)]
    return write(path, nodes, {"x": (FLOAT, ["n"])}, {"y": (kind, None)})


@pytest.fixture
def weight(rng):
    return rng.standard_normal((4, 3)).astype(np.float32)


@pytest.fixture
def batches(rng):
    return [[rng.standard_normal((n, 4)).astype(np.float32)] for n in (2, 1, 5)]


def own_function(path, *more):
    """Write a file whose own function, which negates, has the name of an operator of mmort."""
    nodes = [onnx.helper.make_node("MMCVCornerPool", ["x"], ["y"], domain="mmcv", mode=0), *more]
    write(path, nodes, {"x": (FLOAT, [1, 1, 2, 2])}, {"y": (FLOAT, None)})
    model = onnx.load(path)
    negate = [onnx.helper.make_node("Neg", ["x"], ["y"])]
    opsets = [onnx.helper.make_opsetid("", 18)]
    model.functions.append(
        onnx.helper.make_function("mmcv", "MMCVCornerPool", ["x"], ["y"], negate, opsets, attributes=["mode"])
    )
    onnx.save(model, path)
    return path


def test_own_function_of_the_name_of_an_operator(tmp_path):
    """It is what other runtimes run, so it is what is compared, and not mmort's kernel of that name."""
    path = own_function(tmp_path / "own.onnx")
    x = np.array([[[[1, 2], [3, -4]]]], np.float32)
    assert mmort.onnx.verify(path, lambda x: -x, [[x]]).ok
    both = own_function(
        tmp_path / "both.onnx", onnx.helper.make_node("cummax", ["y"], ["v", "i"], domain="mmcv", dim=0)
    )
    message = r"both.onnx has its own function mmcv::MMCVCornerPool, which .* would replace, and mmcv::cummax of"
    with pytest.raises(ValueError, match=message):
        mmort.onnx.verify(both, lambda x: -x, [[x]])


def test_same(tmp_path, weight, batches):
    path = linear(tmp_path / "a.onnx", weight)
    report = mmort.onnx.verify(path, path, batches)
    assert report.ok
    assert [(row.inputs, row.output, row.shape, row.max_abs_diff) for row in report.rows] == [
        ("2x4", "y", "2x3", 0),
        ("1x4", "y", "1x3", 0),
        ("5x4", "y", "5x3", 0),
    ]


def test_altered_weight(tmp_path, weight, batches):
    altered = weight.copy()
    altered[1, 2] *= 1.01
    report = mmort.onnx.verify(linear(tmp_path / "a.onnx", altered), linear(tmp_path / "b.onnx", weight), batches)
    assert not report.ok
    assert "DIFFERS: 2 of 6 numbers" in str(report)
    assert report.rows[0].max_abs_diff == pytest.approx(
        0.01 * np.abs(batches[0][0][:, 1] * weight[1, 2]).max(), rel=1e-3
    )


def test_tolerances(tmp_path, weight, batches):
    paths = (
        linear(tmp_path / "a.onnx", weight * np.float32(1 + Tolerances.rtol / 2)),
        linear(tmp_path / "b.onnx", weight),
    )
    assert mmort.onnx.verify(*paths, batches).ok
    assert not mmort.onnx.verify(*paths, batches, rtol=1e-5, atol=1e-6).ok
    assert mmort.onnx.verify(*paths, batches, rtol=1e-5, atol=1).ok


def test_frozen_batch(tmp_path, weight, batches):
    paths = linear(tmp_path / "a.onnx", weight, (2, 4)), linear(tmp_path / "b.onnx", weight)
    report = mmort.onnx.verify(*paths, batches)
    assert [row.ok for row in report.rows] == [True, False, False]
    assert "ONNX Runtime refuses the inputs" in report.rows[1].problem
    assert "Got: 1 Expected: 2" in report.rows[1].problem


def test_altered_threshold(tmp_path):
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 6], [50, 50, 60, 60]], np.float32)
    scores = np.array([0.9, 0.8, 0.7], np.float32)
    paths = []
    for threshold in (0.5, 0.7):
        model = front_ends.make_model(front_ends.row_of("nms"), {"iou_threshold": threshold}, ["boxes", "scores"])
        paths.append(tmp_path / f"{threshold}.onnx")
        onnx.save(model, paths[-1])
    report = mmort.onnx.verify(*paths, [[boxes, scores]])
    assert report.rows[0].problem == "shape 2, the model gives 3"
    assert mmort.onnx.verify(paths[0], lambda *x: mmort_nms(*x, 0.5), [[boxes, scores]]).ok
    report = mmort.onnx.verify(paths[0], lambda *x: mmort_nms(*x, 0.5).flip(0), [[boxes, scores]])
    assert report.rows[0].problem == "2 of 2 numbers"
    assert report.rows[0].tolerance == "exact"


def mmort_nms(boxes, scores, threshold):
    import torch

    return torch.from_numpy(mmort.nms(boxes.numpy(), scores.numpy(), threshold)[1])


NAN, INF = np.nan, np.inf
PAIRS = [
    ([1, NAN, INF, -INF], [1, NAN, INF, -INF], True),
    ([1, NAN], [1, 1], False),
    ([1, 1], [1, NAN], False),
    ([1, INF], [1, 1], False),
    ([1, 1], [1, INF], False),
    ([1, INF], [1, -INF], False),
    ([0.0], [-0.0], True),
    ([1e-5], [0.0], True),
    ([1e-3], [0.0], False),
    ([1e6], [1e6 + 500], True),
    ([1e6], [1e6 + 5000], False),
    ([], [], True),
]


@pytest.mark.parametrize(("actual", "expected", "ok"), PAIRS)
def test_special_numbers(actual, expected, ok, tmp_path):
    path = cast(tmp_path / "a.onnx", FLOAT)
    report = mmort.onnx.verify(path, lambda x: [np.float32(expected)], [[np.float32(actual)]])
    assert report.ok == ok
    assert json.loads(report.to_json())["ok"] == ok  # NaN is not valid JSON
    assert "Infinity" not in report.to_json()


def identity(path):
    nodes = [onnx.helper.make_node("Identity", ["x"], ["y"])]
    return write(path, nodes, {"x": (FLOAT, None)}, {"y": (FLOAT, None)})


def test_tolerance_follows_the_magnitude_around_a_number(tmp_path, rng):
    """Sums of large terms that cancel are as wrong as the terms; large numbers elsewhere are no excuse."""
    path = identity(tmp_path / "a.onnx")
    logits = (20 * rng.standard_normal((1, 6, 30, 40))).astype(np.float32)
    logits[0, 2, 5, 5] = 0

    def differs(array, index, error):
        wrong = array.copy()
        wrong[index] += np.float32(error)
        (row,) = mmort.onnx.verify(path, lambda x: array, [[wrong]]).rows
        return row.problem

    assert not differs(logits, (0, 2, 5, 5), 2.8e-4)
    assert differs(logits, (0, 2, 5, 5), 5e-3) == "1 of 7200 numbers"
    logits[0, 2, 5, 6] = 1e9  # the same image, channel and row, but another column
    assert differs(logits, (0, 2, 5, 5), 5e-3)
    logits[0, 2, 5, 6] = np.inf
    assert not differs(logits, (0, 2, 5, 6), 0)
    assert differs(logits, (0, 2, 5, 5), 5e-3)
    logits[0, 2, 5, 6] = 0
    logits[0, 3] *= np.float32(1e6)  # another channel
    assert differs(logits, (0, 2, 5, 5), 5e-3)
    dets = np.concatenate([rng.uniform(0, 1000, (2, 50, 4)), rng.uniform(0, 1, (2, 50, 1))], 2).astype(np.float32)
    assert differs(dets, (1, 7, 4), 2e-3)  # a score beside boxes


def test_squares_of_float16_do_not_overflow():
    array = np.full((4, 4), 1000, np.float16)
    row = numbers.compare_by_tolerance(Outputs("-", (), (), (), Tolerances()), "y", array, array)
    assert (row.tolerance, row.ok) == ("1e-01 + 0.1 %", True)


def test_numbers_are_compared_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(numbers, "CHUNK", 5)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    wrong = x.copy()
    wrong[0, 1], wrong[2, 3] = 9, np.nan
    (row,) = mmort.onnx.verify(identity(tmp_path / "a.onnx"), lambda _: x, [[wrong]]).rows
    assert row.problem == "2 of 12 numbers"
    assert np.isnan(row.max_abs_diff)


def test_differing_types_shapes_and_numbers_of_outputs(tmp_path):
    path, x = cast(tmp_path / "a.onnx", INT64), np.float32([1, 2, 3])
    for outputs, problem in [
        (np.int64([1, 2, 3]), ""),
        (np.int64([1, 2, 4]), "1 of 3 numbers"),
        (np.int32([1, 2, 3]), "int64, the model gives int32"),
        (np.int64([[1, 2, 3]]), "shape 3, the model gives 1x3"),
        ([np.int64([1, 2, 3])] * 2, "the file has 1 outputs, the model 2"),
        ([], "the file has 1 outputs, the model 0"),
    ]:
        report = mmort.onnx.verify(path, lambda x, outputs=outputs: outputs, [[x]])
        assert report.rows[-1].problem == problem
        assert report.ok == (not problem)
        assert json.loads(report.to_json())["rows"][-1]["problem"] == problem


def test_bools_are_exact(tmp_path):
    path = cast(tmp_path / "a.onnx", onnx.TensorProto.BOOL)
    report = mmort.onnx.verify(path, lambda x: np.array([True, True]), [[np.float32([1, 0])]])
    assert report.rows[0].problem == "1 of 2 numbers"


def test_strings(tmp_path):
    path = cast(tmp_path / "a.onnx", onnx.TensorProto.STRING)
    assert mmort.onnx.verify(path, path, [[np.float32([1, 0])]]).ok
    report = mmort.onnx.verify(path, lambda x: np.array(["1", "one"], object), [[np.float32([1, 0])]])
    assert report.rows[0].problem == "1 of 2 values"


def test_nothing_compared_is_not_ok(tmp_path, weight):
    path = linear(tmp_path / "a.onnx", weight)
    assert not mmort.onnx.verify(path, path, []).ok


def test_errors_survive_pickling(tmp_path, weight, batches):
    """As they must to leave a worker process."""
    path = linear(tmp_path / "a.onnx", weight)
    report = mmort.onnx.verify(path, lambda x: x, batches)
    error = pickle.loads(pickle.dumps(mmort.onnx.VerificationError("the text", report)))
    assert (type(error), str(error), error.report) == (mmort.onnx.VerificationError, "the text", report)


def test_wrong_number_of_inputs(tmp_path, weight, batches):
    path = linear(tmp_path / "a.onnx", weight)
    two = [[*batches[0], *batches[0]]]
    with pytest.raises(ValueError, match=r"^verify: inputs must have length 1 \(x\), got 2$"):
        mmort.onnx.verify(path, path, two)
    with pytest.raises(ValueError, match=r"^verify: inputs must have length 1 \(x\), got 2$"):
        mmort.onnx.verify(path, lambda *x: x, two)


def test_one_set_of_inputs_is_not_several(tmp_path, weight):
    path = linear(tmp_path / "a.onnx", weight)
    with pytest.raises(TypeError, match=r"^verify: inputs must be sets of arrays, such as .*, got ndarray as one$"):
        mmort.onnx.verify(path, path, [np.ones((3, 4), np.float32)])


def test_files_that_do_not_load(tmp_path, weight):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model")
    with pytest.raises(ValueError, match=r"^verify: ONNX Runtime cannot load .*broken\.onnx: "):
        mmort.onnx.verify(broken, broken, [])
    with pytest.raises(FileNotFoundError, match=r"missing\.onnx"):
        mmort.onnx.verify(tmp_path / "missing.onnx", broken, [])
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(ValueError, match=r"pipe\.onnx is not an ONNX model: it is a pipe or a device$"):
        mmort.onnx.verify(tmp_path / "pipe.onnx", broken, [])
    path = linear(tmp_path / "a.onnx", weight)
    with pytest.raises(ValueError, match=r"verify: ONNX Runtime cannot load .*: .*no_library"):
        mmort.onnx.verify(path, path, [], libraries=[tmp_path / "no_library.so"])


def test_table_is_aligned(tmp_path, weight, batches):
    path = linear(tmp_path / "a.onnx", weight)
    lines = str(mmort.onnx.verify(path, path, batches)).splitlines()
    assert lines[0].split() == [
        "inputs",
        "output",
        "shape",
        *("max", "abs", "diff"),
        *("max", "rel", "diff"),
        "tolerance",
    ]
    assert {line.index("y") for line in lines[1:]} == {lines[0].index("output")}


# ---- the command --------------------------------------------------------------------------------------------------

SCRIPT = """
import numpy as np
import torch

WEIGHT = torch.tensor({weight})

def model():
    return lambda x: x @ WEIGHT

def pair():
    return model(), [[np.ones((3, 4), np.float32)]]

number = 1
"""


@pytest.fixture
def script(tmp_path, weight):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(weight=weight.tolist()))
    return path


def test_command_with_two_files(tmp_path, weight):
    path, other = linear(tmp_path / "a.onnx", weight), linear(tmp_path / "b.onnx", weight + np.float32(0.1))
    code, out, err = run("verify", path, "--against", path, "--sizes", "2x4,7x4")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["inputs", "2x4", "7x4"]
    code, out, err = run("verify", path, "--against", other, "--sizes", "2x4,7x4")
    assert (code, err) == (1, f"mmort: error: the outputs of {path} differ from those of {other}\n")
    assert out.count("DIFFERS") == 2
    code, out, _ = run("verify", path, "--against", other, "--sizes", "2x4", "--json")
    report = json.loads(out)
    assert code == 1
    assert not report["ok"]
    assert report["rows"][0]["inputs"] == "2x4"
    assert run("verify", path, "--against", other, "--sizes", "2x4", "--atol", "1")[0] == 0


def test_command_with_given_inputs(tmp_path, weight):
    path, other = linear(tmp_path / "a.onnx", weight), linear(tmp_path / "b.onnx", weight * 2)
    for name, array in (("zeros", np.zeros((3, 4), np.float32)), ("ones", np.ones((2, 4), np.float32))):
        np.savez(tmp_path / f"{name}.npz", x=array)
    files = "--inputs", tmp_path / "zeros.npz", "--inputs", tmp_path / "ones.npz"
    code, out, _ = run("verify", path, "--against", other, *files)
    assert code == 1
    assert [line.split()[0] for line in out.splitlines()] == ["inputs", "3x4", "2x4"]
    assert out.splitlines()[1].endswith("ok")  # 0 in both
    assert out.splitlines()[2].endswith("DIFFERS: 6 of 6 numbers")
    np.savez(tmp_path / "wrong.npz", z=weight)
    assert "must have arrays x, got z" in refused("verify", path, "--against", path, "--inputs", tmp_path / "wrong.npz")
    array = refused("verify", path, "--against", path, "--inputs", tmp_path / "x.npy")
    assert f"an .npz file has the names of the inputs, got {tmp_path}/x.npy: numpy.savez writes one" in array
    (tmp_path / "text.npz").write_text("text")
    assert "must be an .npz file" in refused("verify", path, "--against", path, "--inputs", tmp_path / "text.npz")
    assert "none.npz: no such file" in refused("verify", path, "--against", path, "--inputs", tmp_path / "none.npz")
    none = tmp_path / "none.onnx"
    for arguments in ((path, "--against", none), (none, "--against", path)):
        assert refused("verify", *arguments) == f"mmort: error: {none}: no such file or directory\n"


def test_arrays_that_a_small_file_expands_to(tmp_path, weight, monkeypatch):
    path, zeros = linear(tmp_path / "a.onnx", weight), np.zeros((3000, 4), np.float32)
    monkeypatch.setattr("mmort.onnx.input_files.MAX_EXPANDED_BYTES", 1000)
    np.savez(tmp_path / "plain.npz", x=zeros)
    assert run("verify", path, "--against", path, "--inputs", tmp_path / "plain.npz")[0] == 0
    np.savez_compressed(tmp_path / "bomb.npz", x=zeros)
    message = refused("verify", path, "--against", path, "--inputs", tmp_path / "bomb.npz")
    assert "arrays of 48128 bytes must not be compressed to less than a tenth" in message


def test_members_that_numpy_does_not_read(tmp_path, weight):
    path, file = linear(tmp_path / "a.onnx", weight), tmp_path / "x.npz"
    for name, content in (("x", b"text"), ("x.npy", b"\x93NUMPY\x01\0\x09\0(((((((((")):
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(name, content)
        message = refused("verify", path, "--against", path, "--inputs", file)
        assert message.endswith(f"error: inputs must be an .npz file of numbers, got {file}\n")


def test_command_with_pictures(tmp_path):
    model, picture = mmort.demo.MODEL, mmort.demo.IMAGES[0]
    code, out, _ = run("verify", model, "--against", model, "--image", picture)
    assert code == 0
    assert int(out.splitlines()[1].split()[3]) > 0  # detections
    weaker, file = onnx.load(model), tmp_path / "weaker.onnx"
    (producer,) = (node for node in weaker.graph.node if "masks" in node.output)
    producer.output[list(producer.output).index("masks")] = "strong"
    weaker.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.9), "share"))
    weaker.graph.node.append(onnx.helper.make_node("Mul", ["strong", "share"], ["masks"]))
    onnx.save(weaker, file)
    code, out, _ = run("verify", model, "--against", file, "--image", picture, "--min-mask-overlap", 0.95)
    assert code == 1
    assert "mask overlap below 0.95" in out
    assert run("verify", model, "--against", file, "--image", picture, "--min-mask-overlap", 0.85)[0] == 0


@pytest.mark.parametrize("side", [10_000, 2**31])
def test_sizes_that_a_small_file_states(tmp_path, weight, side):
    path = linear(tmp_path / "x.onnx", weight, (side, side, 4))
    for command in (["verify", path, "--against", path], ["accelerate", path, "-o", tmp_path / "y.onnx"]):
        message = refused(*command)
        assert f"the file states sizes of {4 * side * side} elements, and random inputs have at most 6" in message


def test_two_detectors_of_all_sizes_need_no_image(tmp_path):
    """They detect in one that comes with mmort."""
    code, out, err = run("verify", mmort.demo.MODEL, "--against", mmort.demo.MODEL)
    assert (code, err) == (0, "")
    assert int(out.splitlines()[1].split()[3]) > 0  # detections


@pytest.mark.parametrize("option", [(), ("--image", mmort.demo.IMAGES[0])])
def test_sizes_of_images_are_left_out_if_one_file_does_not_take_them(tmp_path, option):
    """An old export has no such input, but it may have a weight of that name among its inputs."""
    model = onnx.load(mmort.demo.MODEL)
    optional_inputs.replace(model)
    sizes = next(tensor for tensor in model.graph.initializer if tensor.name == "img_shape")
    model.graph.input.remove(next(formal for formal in model.graph.input if formal.name == "img_shape"))
    onnx.save(model, tmp_path / "without.onnx")
    for file in (tmp_path / "without.onnx", mmort.demo.MODEL):
        other = mmort.demo.MODEL if file != mmort.demo.MODEL else tmp_path / "without.onnx"
        code, _, err = run("verify", file, "--against", other, *option)
        assert (code, err) == (0, "")
    weight = onnx.helper.make_tensor_value_info("img_shape", onnx.TensorProto.FLOAT, [3])
    model = tiny_detector.write(tmp_path / "weight.onnx")
    proto = onnx.load(model)
    proto.graph.input.append(weight)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "img_shape"))
    onnx.save(proto, model)
    assert sizes.data_type == onnx.TensorProto.INT64
    assert "Unexpected input data type" not in run("verify", model, "--against", model, *option)[2]
    assert len(mmort.Predictor(model, score_threshold=0)(mmort.demo.IMAGES[0])) == 1


def test_command_with_a_script(tmp_path, weight, script):
    path = linear(tmp_path / "a.onnx", weight)
    code, out, _ = run("verify", path, "--against", f"{script}:pair")
    assert code == 0
    assert out.splitlines()[1].startswith("3x4 ")
    code, out, _ = run("verify", path, "--against", f"{script}:pair", "--sizes", "5x4")
    assert code == 0
    assert out.splitlines()[1].startswith("5x4 ")
    altered = linear(tmp_path / "b.onnx", weight * 2)
    assert run("verify", altered, "--against", f"{script}:model", "--sizes", "5x4")[0] == 1


def test_command_with_several_and_fixed_inputs(tmp_path):
    nodes = [onnx.helper.make_node("Gather", ["x", "i"], ["y"])]
    for shape, sizes in ((("n", 3), "4x3+5,2x3+5"), ((2, 3), "2x3+5")):
        path = write(tmp_path / "a.onnx", nodes, {"x": (FLOAT, shape), "i": (INT64, [5])}, {"y": (FLOAT, None)})
        assert run("verify", path, "--against", path, "--sizes", sizes)[0] == 0
    assert f"inputs must suit {path}, which fails with 3x3, 5" in refused(
        "verify", path, "--against", path, "--sizes", "3x3+5"
    )
    assert run("verify", path, "--against", path)[1].splitlines()[1].startswith("2x3, 5 ")


def test_command_refuses(tmp_path, weight, script):
    path = linear(tmp_path / "a.onnx", weight)
    assert "sizes must be given (--sizes), or inputs (--inputs, --image), as these are dynamic: x" in refused(
        "verify", path, "--against", path
    )
    assert "sizes must have length 1 per set (x), got 2" in refused(
        "verify", path, "--against", path, "--sizes", "1x4+2"
    )
    assert "Unable to allocate" in refused("verify", path, "--against", path, "--sizes", f"{2**40}x4")
    for option, value in (("rtol", "nan"), ("atol", -1.0)):
        error = refused("verify", path, "--against", path, "--sizes", "1x4", f"--{option}", value)
        assert f"verify: {option} must be at least 0, got {value}" in error
    assert "must be an .onnx file or script.py:function, got 'x'" in refused("verify", path, "--against", "x")
    assert "file does not exist" in refused("verify", path, "--against", f"{tmp_path}/no.py:f")
    assert "must name a function of" in refused("verify", path, "--against", f"{script}:number")
    assert "must name a function of" in refused("verify", path, "--against", f"{script}:missing")
    words = write(
        tmp_path / "w.onnx",
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        *[{name: (onnx.TensorProto.STRING, [2])} for name in "xy"],
    )
    assert "got tensor(string); let a script make them" in refused("verify", words, "--against", words)
    with pytest.raises(SystemExit):
        run("verify", path, "--against", path, "--sizes", "1xx4,b")


def test_no_inputs(tmp_path, weight):
    report = mmort.onnx.verify(linear(tmp_path / "a.onnx", weight), tmp_path / "a.onnx", [])
    assert (report.ok, str(report)) == (False, "nothing was compared")


def test_command_on_checkpoints_and_where_nothing_is_detected(tmp_path):
    path = tiny_detector.write(tmp_path / "x.onnx")
    for files in ((path, "best.pth"), ("best.pth", path)):
        assert "mmort parity CONFIG CHECKPOINT compares" in refused("verify", files[0], "--against", files[1])
    model = onnx.load(path)
    (tail,) = (value for value in model.graph.initializer if value.name == "tail")
    tail.CopyFrom(onnx.numpy_helper.from_array(np.array([0, 5]), "tail"))
    (pair,) = (node for node in model.graph.node if node.output[0] == "pair")
    pair.input[1] = "zero"
    onnx.save(model, path)
    code, out, err = run("verify", path, "--against", path, "--sizes", "1x3x16x32")
    assert (code, "nothing detected" in out) == (2, True)
    assert (
        err == "mmort: error: verify: no detections but ties, which proves nothing; pass images of objects to --image\n"
    )


def test_libraries_that_are_pipes(tmp_path, weight):
    os.mkfifo(tmp_path / "pipe.so")
    path = linear(tmp_path / "a.onnx", weight)
    message = refused("verify", path, "--against", path, "--sizes", "2x4", "--library", tmp_path / "pipe.so")
    assert "library must be a regular file, got " in message

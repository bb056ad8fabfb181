"""Detectors' files: which are accepted, their metadata, what their inputs fix, and which engine runs them."""

import json
import pickle
import sys

import numpy as np
import onnx.helper as oh
import pytest

from mmort import Predictor
from mmort.demo import IMAGES, MODEL
from mmort.predict import FixedSizeWarning, MaskFormat, OnnxRuntime, OpenVino, Preprocessing, Ray
from mmort.predict.engines import io_binding
from tests.predict import tiny_detector
from tests.predict.tiny_detector import METADATA, PREPROCESSING

IMAGE = np.zeros((16, 30, 3), np.uint8)


def test_metadata(tmp_path):
    metadata = METADATA | {"masks": json.dumps({"area": "image", "threshold": 0.25})}
    network = OnnxRuntime(tiny_detector.write(tmp_path / "x.onnx", metadata=metadata))
    assert network.classes == ("a", "b")
    assert network.preprocessing == PREPROCESSING
    assert network.mask_format == MaskFormat("image", 0.25)
    assert network.input_shape == (None, None, None)
    predict = Predictor(tmp_path / "x.onnx", score_threshold=0)
    assert predict(IMAGE).names == ("b",)
    assert Predictor(tmp_path / "x.onnx", classes=["x", "y"], preprocessing=Preprocessing()).classes == (
        "x",
        "y",
    )
    assert Predictor(network, score_threshold=0).preprocessing == PREPROCESSING


def test_mask_format_of_files_without_one(tmp_path):
    assert OnnxRuntime(tiny_detector.write(tmp_path / "x.onnx")).mask_format is None
    metadata = METADATA | {"mmort_version": "0.1.0"}
    assert OnnxRuntime(tiny_detector.write(tmp_path / "x.onnx", metadata=metadata)).mask_format == MaskFormat()


def test_metadata_that_cannot_be_read(tmp_path):
    for metadata in ({"classes": "a, b"}, {"preprocessing": '{"size": "x"}'}, {"masks": '{"area": "x"}'}):
        with pytest.raises(ValueError, match=r"x\.onnx: metadata that mmort cannot read"):
            OnnxRuntime(tiny_detector.write(tmp_path / "x.onnx", metadata=metadata))


@pytest.mark.parametrize("img_shape", ["input", "initializer"])
def test_img_shape_is_passed(tmp_path, img_shape):
    network = OnnxRuntime(tiny_detector.write(tmp_path / "x.onnx", img_shape=img_shape))
    _, labels = network(np.zeros((2, 3, 4, 8), np.float32), np.array([[3, 7], [4, 8]]))
    assert labels.tolist() == [[7], [8]]


@pytest.mark.parametrize("devices", [{}, {"CPUExecutionProvider": "cpu"}], ids=["arrays", "buffers"])
def test_io_binding_changes_nothing(monkeypatch, devices):
    """Neither with the arrays' own memory, as on the CPU, nor with buffers, as on a GPU, which are used again."""
    monkeypatch.setattr(io_binding, "_DEVICES", devices)
    plain, bound = OnnxRuntime(MODEL, threads=1), OnnxRuntime(MODEL, threads=1, io_binding=True)
    pictures = [plain.preprocessing(path) for path in IMAGES]
    first, several = plain.preprocessing.batch(pictures[:1]), plain.preprocessing.batch(pictures[1:])
    addresses = []
    for input, img_shape in (first, (first[0][..., ::-1], first[1] - 9), several):
        expected, actual = plain(input, img_shape), bound(input, img_shape)
        assert len(actual) == 3
        assert (expected[1] >= 0).any()
        for output, array in zip(expected, actual, strict=True):
            np.testing.assert_array_equal(output, array)
        addresses += [value.data_ptr() for value in bound._bound._buffers.values()]
    if devices:
        assert addresses[:2] == addresses[2:4]
        assert [value.shape() for value in bound._bound._buffers.values()] == [[*input.shape], [3, 2]]
    else:
        assert addresses == []


def test_io_binding_of_any_form_of_img_shape(tmp_path):
    for form in ("input", "initializer", None):
        path = tiny_detector.write(tmp_path / "x.onnx", img_shape=form)
        network = pickle.loads(pickle.dumps(OnnxRuntime(path, io_binding=True)))
        assert network._bound is not None
        _, labels = network(np.zeros((2, 3, 4, 8), np.float32), np.array([[3, 7], [4, 8]]))
        assert labels.tolist() == ([[7], [8]] if form else [[1], [1]])


def test_fixed_sizes(tmp_path):
    path = tiny_detector.write(tmp_path / "x.onnx", shape=(2, 3, 32, 48))
    predict = Predictor(path, preprocessing=PREPROCESSING, score_threshold=0)
    assert predict.network.input_shape == (2, 32, 48)
    with pytest.warns(FixedSizeWarning, match=f"the only size that {path} takes"):
        assert len(list(predict.predict([IMAGE] * 3, 3))) == 3


@pytest.mark.parametrize("shape", [(1, 3, 30_000, 30_000), (4000, 3, 32, 640), (2**31, 3, 2**31, 2**31)])
def test_fixed_sizes_out_of_proportion(tmp_path, shape):
    predict = Predictor(
        tiny_detector.write(tmp_path / "x.onnx", shape=shape), preprocessing=PREPROCESSING, score_threshold=0
    )
    with pytest.raises(ValueError, match=f"^padding to {shape[0]} images of .* makes more than 67108864 pixels"):
        predict(IMAGE)


def test_pickled(tmp_path):
    network = OnnxRuntime(tiny_detector.write(tmp_path / "x.onnx"), providers=["CPUExecutionProvider"], threads=1)
    again = pickle.loads(pickle.dumps(network))
    assert again.session.get_providers() == ["CPUExecutionProvider"]
    assert again.session.get_session_options().intra_op_num_threads == 1


@pytest.mark.parametrize(("threads", "parallel", "rest"), [(4, 1, 4), (4, 2, 3), (2, 2, 1), (1, 2, 1), (None, 1, 0)])
def test_parallel_callers_are_among_the_threads(tmp_path, threads, parallel, rest):
    network = OnnxRuntime(tiny_detector.write(tmp_path / "x.onnx"), threads=threads, parallel=parallel)
    network = pickle.loads(pickle.dumps(network))
    assert network.parallel == parallel
    assert network.session.get_session_options().intra_op_num_threads == rest


def test_wrong_settings(tmp_path):
    path = tiny_detector.write(tmp_path / "x.onnx")
    with pytest.raises(ValueError, match="parallel must be positive, got 0"):
        OnnxRuntime(path, parallel=0)
    with pytest.raises(ValueError, match="io_binding runs one batch at a time, parallel must be 1, got 2"):
        OnnxRuntime(path, io_binding=True, parallel=2)
    with pytest.raises(ValueError, match="threads must be at most 1024, got 2147483648"):
        OnnxRuntime(path, threads=2**31)
    with pytest.raises(TypeError, match=r"threads must be an integer, got 1\.5"):
        OnnxRuntime(path, threads=1.5)
    with pytest.raises(TypeError, match=r"providers must be a sequence, such as \['CPUExecutionProvider'\], got 'CPUE"):
        OnnxRuntime(path, providers="CPUExecutionProvider")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"names": ("cls_score_0", "bbox_pred_0")},
            "are cls_score_0, bbox_pred_0 instead of dets, labels and perhaps masks, semantic, ",
        ),
        ({"shape": ("N", 1, "H", "W")}, r"takes one input, float32 \[N, 3, H, W\], but this model takes image"),
        ({"shape": ("N", 3, "H")}, "takes one input"),
        ({"more": [oh.make_tensor_value_info("scale", 1, [4])]}, r"image float32 .*, scale float32 "),
    ],
)
def test_other_models(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        OnnxRuntime(tiny_detector.write(tmp_path / "x.onnx", **arguments))


def test_openvino_needs_a_standard_file(monkeypatch, tmp_path):
    """OpenVINO itself is installed for tests/integrations only."""
    with pytest.raises(ValueError, match=r"has operators of mmcv, mmort; make one: mmort portable .*=inlined"):
        OpenVino(MODEL)
    with pytest.raises(FileNotFoundError, match=r"model file does not exist: none\.onnx"):
        OpenVino("none.onnx")
    path = tiny_detector.write(tmp_path / "x.onnx")
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(ImportError, match=r"engine openvino needs openvino: pip install 'mmort\[openvino\]'"):
        OpenVino(path)


def test_texts_are_for_files():
    with pytest.raises(ValueError, match="texts are for a detector's file, got a builtin_function_or_method"):
        Predictor(max, texts="cat")


def test_ray_is_named(monkeypatch):
    """Ray itself is installed for tests/integrations only."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"engine ray needs Ray: pip install 'mmort\[ray\]'"):
        Ray(MODEL)


def test_files_that_cannot_be_loaded(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model file does not exist: none\.onnx"):
        OnnxRuntime("none.onnx")
    for content, message in ((b"?", "it is not an ONNX model: "), (b"", "ONNX Runtime cannot load this file")):
        (tmp_path / "x.onnx").write_bytes(content)
        with pytest.raises(ValueError, match=rf"x\.onnx: {message}"):
            OnnxRuntime(tmp_path / "x.onnx")
    with pytest.raises(ValueError, match="provider NoProvider is not available in this ONNX Runtime, which has: "):
        OnnxRuntime(tiny_detector.write(tmp_path / "y.onnx"), providers=["NoProvider", ("CPUExecutionProvider", {})])

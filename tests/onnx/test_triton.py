"""mmort triton-repository: what Triton reads says what the model takes and gives."""

import os
import re
import shutil

import numpy as np
import onnx
import onnx.helper
import onnxruntime
import pytest

import mmort.onnx
import mmort.ort
from mmort.demo import IMAGES, MODEL
from mmort.onnx import triton
from mmort.onnx.triton import write_triton_repository
from mmort.predict import OnnxRuntime
from tests.cli.running import refused, run

BATCHED = {
    "input": ("TYPE_FP32", "3, -1, -1"),
    "img_shape": ("TYPE_INT64", "2"),
    "dets": ("TYPE_FP32", "100, 5"),
    "labels": ("TYPE_INT64", "100"),
    "masks": ("TYPE_FP32", "100, 28, 28"),
}


def tensors(text):
    return {
        name: (word, dims) for name, word, dims in re.findall(r'name: "(\w+)" data_type: (\w+) dims: \[(.*)\]', text)
    }


def test_repository_of_a_file_that_needs_the_library(tmp_path):
    code, out, err = run("triton-repository", MODEL, tmp_path, "--server-path", "/models")
    folder = tmp_path / "mask_rcnn"
    assert (code, out, err) == (0, f"wrote {folder}\n", "")
    text = (folder / "config.pbtxt").read_text(encoding="utf-8")
    assert tensors(text) == BATCHED
    assert "max_batch_size: 8\n" in text
    assert 'op_library_filename: "/models/mask_rcnn/libmmort_ort.so"' in text
    assert 'key: "preprocessing" value { string_value: "{\\"mean\\": [123.675' in text
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(folder / "libmmort_ort.so"))
    session = onnxruntime.InferenceSession(folder / "1" / "model.onnx", options)
    assert {formal.name: formal.type for formal in session.get_inputs()} == {
        "input": "tensor(float)",
        "img_shape": "tensor(int64)",
    }
    original = OnnxRuntime(MODEL)
    input, img_shape = original.preprocessing.batch([original.preprocessing(IMAGES[0])])
    outputs = session.run(["dets", "labels", "masks"], {"input": input, "img_shape": img_shape})
    for output, expected in zip(outputs, original(input, img_shape), strict=True):
        np.testing.assert_array_equal(output, expected)


def test_repository_of_a_portable_file_has_no_library(tmp_path):
    mmort.onnx.make_portable(MODEL, tmp_path / "digits.onnx")
    (tmp_path / "models").mkdir()
    folder = write_triton_repository(tmp_path / "digits.onnx", tmp_path / "models")
    assert sorted(path.name for path in folder.iterdir()) == ["1", "config.pbtxt"]
    text = (folder / "config.pbtxt").read_text(encoding="utf-8")
    assert tensors(text) == BATCHED
    assert "model_operations" not in text


def test_a_model_in_the_repository_is_replaced_by_force(tmp_path):
    folder = write_triton_repository(MODEL, tmp_path)
    (folder / "1" / "former").touch()
    code, out, err = run("triton-repository", MODEL, "-o", tmp_path, "--force")
    assert (code, out, err) == (0, f"wrote {folder}\n", "")
    assert [path.name for path in (folder / "1").iterdir()] == ["model.onnx"]
    assert [path.name for path in tmp_path.iterdir()] == ["mask_rcnn"]


def model_of(*dims, domain="", elem_type=onnx.TensorProto.FLOAT):
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"], domain=domain)],
        "graph",
        [value("x", elem_type, dims)],
        [value("y", elem_type, dims)],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("first", [1, "points"])
def test_files_of_fixed_size_and_of_other_tools_are_not_batched(tmp_path, first):
    """An open first dimension may be one of points that affect each other."""
    onnx.save(model_of(first, 3, "height", 8), tmp_path / "other.onnx")
    (tmp_path / "models").mkdir()
    folder = write_triton_repository(tmp_path / "other.onnx", tmp_path / "models")
    text = (folder / "config.pbtxt").read_text(encoding="utf-8")
    dims = f"{first if first == 1 else -1}, 3, -1, 8"
    assert tensors(text) == {"x": ("TYPE_FP32", dims), "y": ("TYPE_FP32", dims)}
    assert "max_batch_size: 0\n" in text
    assert "dynamic_batching" not in text


@pytest.mark.parametrize(("further", "size"), [("panoptic", 8), ("points", 0)])
def test_further_outputs(tmp_path, further, size):
    """Only of those that the table of tasks has is the first dimension known to be that of the images."""
    dims = {"input": ("n", 3, "h", "w"), "dets": ("n", "k", 5), "labels": ("n", "k"), further: ("n", "h", "w")}
    types = {"labels": onnx.TensorProto.INT64, "panoptic": onnx.TensorProto.INT32}
    values = [
        onnx.helper.make_tensor_value_info(name, types.get(name, onnx.TensorProto.FLOAT), shape)
        for name, shape in dims.items()
    ]
    graph = onnx.helper.make_graph([], "graph", values[:1], values[1:])
    text = triton._config("detector", onnx.helper.make_model(graph), None)
    assert f"max_batch_size: {size}\n" in text


def test_repository_is_made(tmp_path):
    assert write_triton_repository(MODEL, tmp_path / "new" / "models") == tmp_path / "new" / "models" / "mask_rcnn"


def test_a_name_that_leads_out_of_the_repository(tmp_path):
    shutil.copy(MODEL, tmp_path / "...onnx")
    (tmp_path / "repository").mkdir()
    for options in ([], ["--force"]):
        message = refused("triton-repository", tmp_path / "...onnx", tmp_path / "repository", *options)
        assert "output file must be inside" in message
    assert os.listdir(tmp_path / "repository") == []


def test_refusals(tmp_path):
    assert "output directory must have a name, got ''" in refused("triton-repository", MODEL, "")
    (tmp_path / "mask_rcnn").mkdir()
    assert "already: " + f"{tmp_path}/mask_rcnn; --force replaces it" in refused("triton-repository", MODEL, tmp_path)
    assert "only the folder of a model can be replaced" in refused("triton-repository", MODEL, tmp_path, "--force")
    for name, model, reason in (
        ("strange", model_of(1, domain="strange"), "of a library that mmort does not have"),
        ("text", model_of("n", elem_type=onnx.TensorProto.STRING), "Triton cannot serve x: "),
    ):
        onnx.save(model, tmp_path / f"{name}.onnx")
        assert reason in refused("triton-repository", tmp_path / f"{name}.onnx", tmp_path)
        assert not (tmp_path / name).exists()

"""Triton's own schema reads what mmort triton-repository writes, and the client finds what Predictor finds.

There is no server: ONNX Runtime answers instead, with the inputs and outputs that the configuration names.
"""

import pathlib

import numpy as np
import onnxruntime
import pytest
import tritonclient.http
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

from mmort import Predictor
from mmort.demo import IMAGES, MODEL
from mmort.onnx.triton import write_triton_repository

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "serve"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_triton_repository(MODEL, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def config(folder):
    text = (folder / "config.pbtxt").read_text(encoding="utf-8")
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def test_configuration_is_of_tritons_schema(folder, config):
    assert (config.name, config.backend, config.max_batch_size) == ("mask_rcnn", "onnxruntime", 8)
    assert config.dynamic_batching.max_queue_delay_microseconds > 0
    assert config.model_operations.op_library_filename == [str(folder / "libmmort_ort.so")]
    assert [(tensor.name, list(tensor.dims)) for tensor in config.input] == [("input", [3, -1, -1]), ("img_shape", [2])]
    assert {tensor.data_type for tensor in config.input} == {model_config_pb2.TYPE_FP32, model_config_pb2.TYPE_INT64}


class Server:
    """Answers as Triton's client library does, by ONNX Runtime."""

    def __init__(self, folder, config):
        options = onnxruntime.SessionOptions()
        for library in config.model_operations.op_library_filename:
            options.register_custom_ops_library(library)
        self.session = onnxruntime.InferenceSession(folder / "1" / "model.onnx", options)
        self.config = json_format.MessageToDict(config, preserving_proto_field_name=True)

    def get_model_config(self, model):
        return self.config

    def infer(self, model, tensors):
        words = {"FP32": np.float32, "INT64": np.int64}
        feeds = {
            tensor.name(): np.frombuffer(tensor._get_binary_data(), words[tensor.datatype()]).reshape(tensor.shape())
            for tensor in tensors
        }
        names = [output["name"] for output in self.config["output"]]
        outputs = dict(zip(names, self.session.run(names, feeds), strict=True))
        return type("Answer", (), {"as_numpy": staticmethod(outputs.get)})


def test_client_finds_what_the_file_finds(folder, config, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setattr(tritonclient.http, "InferenceServerClient", lambda address: Server(folder, config))
    import triton_client

    network = triton_client.TritonNetwork("localhost:8000", "mask_rcnn")
    predictor = Predictor(network, classes=network.classes, preprocessing=network.preprocessing, score_threshold=0)
    expected = Predictor(MODEL, score_threshold=0)
    for image in IMAGES:
        detections, wanted = predictor(image), expected(image)
        assert detections.names == wanted.names
        np.testing.assert_array_equal(detections.boxes, wanted.boxes)
        np.testing.assert_array_equal(detections.masks, wanted.masks)

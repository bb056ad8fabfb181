"""docs/errors.md: each of its messages is provoked here."""

import os
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import pytest
import torch

import mmort
import mmort.cli.completion
import mmort.onnx
import mmort.torch
from mmort.configs import read_config
from mmort.detect.checkpoint import load_checkpoint, load_weights
from tests.onnx.tiny_transformer import scenes, transformer

PAGE = Path(mmort.__file__).parents[1] / "docs" / "errors.md"
ROWS = re.findall(r"^\| `(.+?)` \| ", PAGE.read_text(), re.MULTILINE)
BOXES, SCORES = [[0, 0, 10, 10]], [0.9]
MAP = torch.ones(1, 1, 4, 4)


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def export(function, args):
    mmort.onnx.export(Model(function).eval(), args, "model.onnx")


def corner(x):
    return mmort.torch.corner_pool(x, "top")


def config(text):
    Path("config.py").write_text(text)
    read_config("config.py")


def checkpoint(content):
    torch.save(content, "model.pth")
    load_checkpoint("model.pth")


def pipe():
    os.mkfifo("pipe.py")
    read_config("pipe.py")


def two_bases():
    for name in "ab":
        Path(f"{name}.py").write_text("lr = 1")
    config("_base_ = ['a.py', 'b.py']")


def gradient():
    mmort.torch.soft_nms(torch.zeros(1, 4, requires_grad=True), torch.zeros(1))[0].sum().backward()


def broken_model():
    Path("broken.onnx").write_bytes(b"no model")
    mmort.onnx.upgrade("broken.onnx")


def quantized(op_type="Relu", opset=17):
    infos = [oh.make_tensor_value_info(name, 1, [1]) for name in "xy"]
    graph = oh.make_graph([oh.make_node(op_type, ["x"], ["y"])], "g", infos[:1], infos[1:])
    Path("m.onnx").write_bytes(oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset)]).SerializeToString())
    mmort.onnx.quantize("m.onnx", "int8.onnx", [])


def costly():
    rng = np.random.default_rng(0)
    onnx.save(transformer(rng), "m.onnx")
    mmort.onnx.quantize("m.onnx", "int8.onnx", scenes(rng), max_loss=0.0)


def calibrated(*shape, value):
    nodes = [oh.make_node("Conv", ["x", "w"], ["h"]), oh.make_node("Conv", ["h", "w"], ["y"])]
    infos = [oh.make_tensor_value_info(name, 1, ["N", 1, 1, 1]) for name in "xy"]
    graph = oh.make_graph(nodes, "g", infos[:1], infos[1:], [oh.make_tensor("w", 1, [1, 1, 1, 1], [1.0])])
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    Path("m.onnx").write_bytes(model.SerializeToString())
    mmort.onnx.quantize("m.onnx", "int8.onnx", [[np.full(shape, value, np.float32)]])


def existing():
    Path("keep.onnx").write_bytes(b"")
    mmort.onnx.upgrade("model.onnx", "keep.onnx")


def malformed():
    node = oh.make_node("MMCVRoiAlign", ["x"], ["y"], domain="mmcv", output_height=2, output_width=2)
    graph = oh.make_graph([node], "g", [], [])
    mmort.onnx.make_portable(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)]))


def without_table():
    try:
        warnings.simplefilter("ignore")
        torch.onnx.export(Model(corner).eval(), (MAP,), dynamo=True, verbose=False)
    except torch.onnx.errors.OnnxExporterError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise cause from None


PROVOKED = [
    lambda: mmort.nms([1, 2], SCORES, 0.5),
    lambda: mmort.nms(np.zeros((1, 4), complex), SCORES, 0.5),
    lambda: mmort.nms(np.ma.masked_array(BOXES), SCORES, 0.5),
    lambda: mmort.nms(BOXES, SCORES, "0.5"),
    lambda: mmort.nms(BOXES, SCORES, 10**400),
    lambda: mmort.nms(BOXES, SCORES, 0.5, max_num=1.0),
    lambda: mmort.multiclass_nms([BOXES], [[[0.9]]], class_agnostic="no"),
    lambda: mmort.batched_nms(BOXES, SCORES, [0], {}),
    lambda: mmort.batched_nms(BOXES, SCORES, [0], {"iou_thr": 0.5}),
    None,  # in tests/operators/test_errors.py: here mmort.torch is imported
    gradient,
    lambda: mmort.onnx.export(torch.nn.ReLU(), (MAP,), "model.onnx"),
    lambda: export(torch.relu, MAP),
    None,  # in tests/onnx/test_export.py, as it takes seconds
    lambda: export(torch.relu, (MAP[:0],)),
    lambda: export(torch.relu, (MAP.bfloat16(),)),
    lambda: export(corner, (MAP.half(),)),
    without_table,
    lambda: config("a = open('x')"),
    lambda: config("#" * 200_000),
    lambda: config("a = [0] * 10**9"),
    lambda: config("a = {(1, 2): 3}"),
    pipe,
    lambda: read_config("https://example.org/config.py"),
    two_bases,
    lambda: (Path("x.pth").write_bytes(b"x"), load_checkpoint("x.pth")),
    lambda: checkpoint({"a": torch.nn.Linear(1, 1)}),
    lambda: checkpoint({3: MAP}),
    lambda: checkpoint({"w": MAP, "module.w": MAP}),
    lambda: checkpoint({"state_dict": {"w": MAP}, "meta": {"CLASSES": 5}}),
    lambda: load_weights(torch.nn.ReLU(), {"w": MAP}),
    broken_model,
    lambda: quantized(opset=12),
    lambda: quantized("Relu"),
    costly,
    lambda: calibrated(0, 1, 1, 1, value=0),
    lambda: calibrated(1, 1, 1, 1, value=np.nan),
    lambda: quantized("QuantizeLinear"),
    existing,
    lambda: mmort.onnx.upgrade("model.onnx", "nowhere/model.onnx"),
    malformed,
    lambda: mmort.cli.completion.run(None),
]


@pytest.mark.parametrize(("row", "provoke"), list(zip(ROWS, PROVOKED, strict=True)), ids=ROWS)
def test_message(row, provoke, tmp_path, monkeypatch):
    if provoke is None:
        assert "not imported yet" in row or "args must suit" in row
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "shtab", None)
    pattern = ".*".join(map(re.escape, row.split("…")))
    with pytest.raises(Exception, match=f"(?s)^{pattern}") as error:
        provoke()
    assert isinstance(error.value, (ValueError, TypeError, OSError, ImportError, RuntimeError))

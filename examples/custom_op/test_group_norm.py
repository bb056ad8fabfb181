"""The example's operator in numpy, torch, an exported file and a program without Python."""

import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnxruntime
import pytest
import torch
from torch import nn

import example_ops
import mmort.build
import mmort.onnx
import mmort.ort
from example_ops.torch import GroupNorm, group_norm

HERE = Path(__file__).parent


def inputs(*shape):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=generator) for size in (shape, shape[1], shape[1])]


@pytest.mark.parametrize("shape", [(2, 4, 3, 5), (1, 6, 7), (3, 2), (0, 4, 3), (2, 64, 30, 40)])
def test_torch_agrees(shape):
    x, scale, bias = inputs(*shape)
    wanted = nn.functional.group_norm(x, 2, scale, bias) if len(shape) > 2 and x.numel() else None
    actual = group_norm(x, 2, scale, bias)
    assert actual.shape == x.shape
    np.testing.assert_array_equal(actual, example_ops.group_norm(x.numpy(), 2, scale.numpy(), bias.numpy()))
    if wanted is not None:
        torch.testing.assert_close(actual, wanted)


def test_torch_library():
    torch.library.opcheck(group_norm, (inputs(2, 4, 3, 5)[0], 2, *inputs(2, 4, 3, 5)[1:]))


def test_refused():
    x, scale, bias = (tensor.numpy() for tensor in inputs(2, 4, 3, 5))
    with pytest.raises(ValueError, match=r"^group_norm: num_groups must divide C = 4, got 3$"):
        example_ops.group_norm(x, 3, scale, bias)
    with pytest.raises(ValueError, match=r"^group_norm: scale must be \[C\] with C = 4, got \[3\]$"):
        example_ops.group_norm(x, 2, scale[:3], bias)
    with pytest.raises(TypeError, match="float32"):
        example_ops.group_norm(x.astype(np.float64), 2, scale, bias)


def test_export(tmp_path):
    """A network with the operator in its middle, checked in ONNX Runtime at other sizes by the export itself."""
    network = nn.Sequential(nn.Conv2d(3, 8, 3), GroupNorm(4, 8), nn.ReLU()).eval()
    nn.init.normal_(network[1].weight)
    path = tmp_path / "network.onnx"
    sizes = {0: "batch", 2: "height", 3: "width"}
    report = mmort.onnx.export(
        network,
        (torch.rand(2, 3, 20, 30),),
        path,
        dynamic_shapes=(sizes,),
        operators=example_ops.OPERATORS,
        libraries=[example_ops.library_path()],
    )
    print(report)
    assert [node.op_type for node in onnx.load(path).graph.node if node.domain == "example"] == ["GroupNorm"]

    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(example_ops.library_path())
    session = mmort.ort.session(path, sess_options=options)  # with mmort's operators besides
    x = torch.rand(1, 3, 33, 9)
    (outputs,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(outputs), network(x).detach())


def test_program_without_python(tmp_path):
    node = onnx.helper.make_node("GroupNorm", ["x", "scale", "bias"], ["output"], domain="example", num_groups=2)
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in (*node.input, "output")
    ]
    graph = onnx.helper.make_graph([node], "graph", values[:3], values[3:])
    opset = onnx.helper.make_opsetid("example", 1)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), tmp_path / "model.onnx")

    include = f"-I{mmort.build.get_include()}"
    compiler = [os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", include]
    subprocess.run([*compiler, HERE / "host.c", "-o", tmp_path / "host", "-ldl"], check=True)
    (runtime,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    arrays = [tensor.numpy() for tensor in inputs(1, 4, 3, 3)]
    text = " ".join(f"{number:.9g}" for array in arrays for number in array.flat)
    command = [tmp_path / "host", runtime, example_ops.library_path(), tmp_path / "model.onnx"]
    output = subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout
    wanted = example_ops.group_norm(arrays[0], 2, *arrays[1:])
    np.testing.assert_array_equal(np.array(output.split(), np.float32).reshape(wanted.shape), wanted)

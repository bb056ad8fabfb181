"""The ONNX Runtime library as a file: its exports and dependencies, how it is loaded, and the shapes it infers."""

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnxruntime
import pytest

import mmort
import mmort.ort
from mmort import schemas
from tests import front_ends
from tests.compare import assert_same
from tests.operators import cases

EXPORTS = {"RegisterCustomOps", "mmort_describe"}
elf = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the tools read ELF files")


def run_tool(*command):
    assert shutil.which(command[0]), f"{command[0]} is needed to look into the library: install binutils"
    return subprocess.run([*command, mmort.ort.library_path()], check=True, capture_output=True, text=True).stdout


def symbols(*options):
    """(kind, name without its version) of the library's symbols."""
    words = (line.split()[-2:] for line in run_tool("nm", *options).splitlines() if len(line.split()) > 1)
    return [(kind, name.split("@")[0]) for kind, name in words]


def foreign(names):
    """The undefined symbols that only Python or ONNX Runtime could define."""
    return [name for name in names if re.match(r"_?Py|Ort|_Z", name)]


@elf
def test_exports():
    assert {name for _, name in symbols("-D", "--defined-only")} == EXPORTS


@elf
def test_needs_neither_python_nor_onnxruntime():
    undefined = [name for _, name in symbols("-D", "--undefined-only")]
    assert undefined
    assert not foreign(undefined)
    needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", run_tool("readelf", "-d"))
    assert {name.split(".")[0] for name in needed} <= {"libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64"}


def test_foreign_can_find():
    symbols = ["PyLong_Type", "_Py_NoneStruct", "OrtGetApiBase", "_ZdlPv"]
    assert foreign([*symbols, "memcpy", "exp", "_ITM_deregisterTMCloneTable"]) == symbols


@elf
def test_no_data_that_a_module_would_have_to_fill():
    """Cython fills module-level variables when a module is imported; here none ever is."""
    every = symbols()
    assert any("mmk_" in name for _, name in every), "the library is stripped, so there is nothing to see"
    assert not [name for kind, name in every if kind in "bBdD" and "__pyx_" in name]


def test_description():
    description = mmort.ort.describe()
    assert description["version"] == mmort.__version__
    assert description["abi"] == 1
    assert description["simd"] in ("avx512", "avx2", "baseline")
    assert description["operators"] == mmort.ort.operators() == front_ends.ROWS


def test_description_does_not_overrun():
    function = ctypes.CDLL(mmort.ort.library_path()).mmort_describe
    function.restype, function.argtypes = ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t]
    length = function(None, 0)
    for size in (1, 2, 100, length):
        text = ctypes.create_string_buffer(b"\xff" * (size + 8))
        assert function(text, size) == length
        assert text.raw[size - 1] == 0
        assert text.raw[size : size + 8] == b"\xff" * 8


def test_path():
    assert mmort.get_onnxruntime_op_path() == mmort.ort.library_path()


def test_library_not_built(monkeypatch):
    monkeypatch.setattr(mmort.ort.library, "_NAME", "not_there.so")
    for call in (mmort.ort.library_path, mmort.ort.describe, mmort.ort.operators, mmort.get_onnxruntime_op_path):
        with pytest.raises(
            FileNotFoundError, match=r"^mmort was built without .*not_there\.so.*WITH_ORT=1 pip install"
        ):
            call()
    with pytest.raises(FileNotFoundError, match="WITH_ORT=1"):
        mmort.ort.register(onnxruntime.SessionOptions())


def model_of(operator):
    case = cases.ordinary(operator)
    return case, front_ends.make_model(
        front_ends.row_of(operator), front_ends.onnx_attributes(operator, case.attributes)
    )


def test_registered_twice():
    """ONNX Runtime's own refusal: each domain once."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    mmort.ort.register(options)
    mmort.ort.register(options)
    _, model = model_of("corner_pool")
    with pytest.raises(front_ends.ORT_ERRORS, match="Domain already set in registry"):
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def test_options_used_twice():
    options = onnxruntime.SessionOptions()
    mmort.ort.register(options)
    for operator in ("corner_pool", "cummax"):
        case, model = model_of(operator)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        assert_same(
            front_ends.run_session(session, case.arrays), front_ends.run_numpy(operator, case.arrays, case.attributes)
        )


RELOAD = """
import sys

import numpy as np
import onnxruntime

import mmort.ort

model = open(sys.argv[1], "rb").read()
for _ in range(30):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(mmort.ort.library_path())
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    result = session.run(None, {"input": np.array([[[[1, 0, 2, 1]]]], np.float32)})[0]
    assert result.tolist() == [[[[1, 1, 2, 2]]]], result
    del options, session  # ONNX Runtime unloads the library with the last of them
"""


def test_loaded_and_unloaded(tmp_path):
    model = front_ends.make_model(front_ends.row_of("corner_pool"), {"mode": 3})
    onnx.save(model, tmp_path / "model.onnx")
    subprocess.run([sys.executable, "-c", RELOAD, str(tmp_path / "model.onnx")], check=True, timeout=100)


def test_model_as_path_and_as_bytes(tmp_path):
    case, model = model_of("corner_pool")
    onnx.save(model, tmp_path / "model.onnx")
    wanted = front_ends.run_numpy(case.operator, case.arrays, case.attributes)
    for source in (tmp_path / "model.onnx", str(tmp_path / "model.onnx"), model.SerializeToString()):
        assert_same(front_ends.run_session(mmort.ort.session(source), case.arrays), wanted)


def test_old_files_give_no_warnings(capfd):
    """Their weights are listed as inputs, each of which ONNX Runtime warns of."""
    onnxruntime.set_default_logger_severity(2)
    model = Path(__file__).parents[1] / "data" / "old_export" / "mask_rcnn.onnx"
    mmort.ort.session(model)
    assert capfd.readouterr().err == ""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 2
    mmort.ort.session(model, sess_options=options)
    assert "appears in graph inputs" in capfd.readouterr().err


def test_import_is_light():
    """Neither torch nor ONNX Runtime, whose import takes seconds, comes with mmort."""
    code = (
        "import sys, mmort, mmort.ort; mmort.nms([[0, 0, 1, 1]], [1], 0.5); mmort.ort.describe(); print(*sys.modules)"
    )
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "mmort._kernels.numpy_api" in modules
    assert not {"torch", "onnxruntime", "onnx", "PIL"} & set(modules)


def test_session_without_onnxruntime(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"^mmort\.ort\.session needs ONNX Runtime: pip install onnxruntime$"):
        mmort.ort.session("model.onnx")


def test_session_of_what_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such file or directory"):
        mmort.ort.session(tmp_path / "none.onnx")
    with pytest.raises(IsADirectoryError):
        mmort.ort.session(tmp_path)


# ---- shape inference -------------------------------------------------------------------------------------------


def row_ids(row):
    return f"{row['domain']}.{row['type']}"


def inferred(row, shapes, attributes):
    session = front_ends.make_session(front_ends.make_model(row, attributes, shapes=shapes))
    return [output.shape for output in session.get_outputs()]


def attributes_of(row):
    return front_ends.onnx_attributes(row["kernel"], cases.of(row["kernel"])[0].attributes)


def unnamed(shape):
    """ONNX Runtime's Python calls a dimension that has no name None, or a made-up name."""
    return [None if isinstance(size, str) and not size.isupper() else size for size in shape]


@pytest.mark.parametrize("row", front_ends.ROWS, ids=row_ids)
def test_symbolic_dimensions_come_through(row):
    """Outputs have the inputs' names, the attributes' numbers, and nothing where only the run knows."""
    attributes = {attribute["name"]: attribute["default"] for attribute in row["attributes"]} | attributes_of(row)
    inputs = [schemas.Tensor(**tensor).dimensions for tensor in row["inputs"]]
    shapes = [[size for part in shape for size in (("P", "Q", "R", 7) if part is ... else (part,))] for shape in inputs]
    shapes = [[str(size) if isinstance(size, schemas.Product) else size for size in shape] for shape in shapes]
    expected = []
    for tensor in row["outputs"]:
        dimensions = schemas.Tensor(**tensor).dimensions
        if dimensions == (...,):
            expected.append(shapes[0])
        else:
            named = (attributes.get(size, size) if isinstance(size, str) else size for size in dimensions)
            expected.append([None if isinstance(size, schemas.Product) else size for size in named])
    assert [unnamed(shape) for shape in inferred(row, shapes, attributes_of(row))] == expected


@pytest.mark.parametrize("row", front_ends.ROWS, ids=row_ids)
def test_numbers_come_through(row):
    case = cases.ordinary(row["kernel"])
    shapes = [list(array.shape) for array in case.arrays]
    attributes = front_ends.onnx_attributes(row["kernel"], case.attributes)
    actual = front_ends.run_ort(case.operator, case.arrays, case.attributes)
    for shape, array in zip(inferred(row, shapes, attributes), actual, strict=True):
        assert len(shape) == array.ndim
        known = zip(unnamed(shape), array.shape, strict=True)
        assert all(inferred_size == size for inferred_size, size in known if inferred_size is not None)
    sizes = [size for shape in inferred(row, shapes, attributes) for size in shape]
    assert row["kernel"] == "nms" or any(size is not None for size in sizes)


@pytest.mark.parametrize("row", front_ends.ROWS, ids=row_ids)
def test_unknown_dimensions_and_ranks_still_load_and_run(row):
    case = cases.ordinary(row["kernel"])
    attributes = front_ends.onnx_attributes(row["kernel"], case.attributes)
    wanted = front_ends.run_ort(case.operator, case.arrays, case.attributes)
    for shapes in ([None] * len(case.arrays), [[None] * array.ndim for array in case.arrays]):
        session = front_ends.make_session(front_ends.make_model(row, attributes, shapes=shapes))
        assert_same(front_ends.run_session(session, case.arrays), wanted)


def chain(row, attributes, shapes, steps):
    """`steps` nodes of one kind in sequence, each with its own inputs, which wait for the previous node."""
    formals = row["inputs"][: len(shapes)]
    names = [tensor["name"] for tensor in formals]
    outputs = [tensor["name"] for tensor in row["outputs"]]
    nodes, total = [], "zero"
    for step in range(steps):
        # The first input waits for the sum of what came before, so that its tensors are no longer needed.
        nodes.append(onnx.helper.make_node("Add", [f"{names[0]}{step}", total], [f"first{step}"]))
        ins = [f"first{step}", *(f"{name}{step}" for name in names[1:])]
        outs = [f"{name}_{step}" for name in outputs]
        nodes.append(onnx.helper.make_node(row["type"], ins, outs, domain=row["domain"], **attributes))
        nodes.append(onnx.helper.make_node("Cast", outs[:1], [f"cast{step}"], to=onnx.TensorProto.FLOAT))
        nodes.append(onnx.helper.make_node("ReduceSum", [f"cast{step}"], [f"sum{step}"], keepdims=0))
        nodes.append(onnx.helper.make_node("Mul", [f"sum{step}", "zero"], [f"total{step}"]))
        total = f"total{step}"
    inputs = [
        (f"{tensor['name']}{step}", front_ends.TYPES[tensor["type"]], shape)
        for step in range(steps)
        for tensor, shape in zip(formals, shapes, strict=True)
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "chain",
        [onnx.helper.make_tensor_value_info(*value) for value in inputs],
        [onnx.helper.make_tensor_value_info(f"sum{steps - 1}", onnx.TensorProto.FLOAT, None)],
        [onnx.helper.make_tensor("zero", onnx.TensorProto.FLOAT, [], [0.0])],
    )
    opsets = [onnx.helper.make_opsetid("", 13), onnx.helper.make_opsetid(row["domain"], 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def first_output(row, case):
    """Return what the node's first output is, by the numpy API."""
    return front_ends.node_outputs(row["kernel"], front_ends.run_numpy(row["kernel"], case.arrays, case.attributes))[0]


@pytest.mark.parametrize("row", front_ends.ROWS, ids=row_ids)
def test_nodes_of_unknown_sizes_share_no_memory(row):
    """ONNX Runtime lets tensors of the same inferred shape share memory; two unknown sizes are not the same size."""
    of_rank = {}
    for case in cases.of(row["kernel"]):
        if all(array.size for array in case.arrays) and np.isfinite(first_output(row, case)).all():
            form = case.arrays[0].ndim, tuple(case.attributes.items()), len(case.arrays)
            of_rank.setdefault(form, []).append(case)
    (_, attributes, _), same = max(of_rank.items(), key=lambda item: len({case.arrays[0].shape for case in item[1]}))
    same = sorted({case.arrays[0].shape: case for case in same}.values(), key=lambda case: case.arrays[0].size)
    assert len(same) > 2, f"{row['kernel']}: add cases; this test needs three of equal attributes and different sizes"
    shapes = [[None] * array.ndim for array in same[0].arrays]
    model = chain(row, front_ends.onnx_attributes(row["kernel"], dict(attributes)), shapes, len(same))
    session = front_ends.make_session(model)
    (total,) = front_ends.run_session(session, [array for case in same for array in case.arrays])
    np.testing.assert_allclose(total, first_output(row, same[-1]).astype(np.float32).sum(), rtol=1e-3)


def test_unknown_rank_before_another_node():
    """A rank of 0 must not be inferred where the rank is unknown: Concat would refuse the model."""
    row = front_ends.row_of("corner_pool")
    model = front_ends.make_model(row, {"mode": 0})
    model.graph.node.append(onnx.helper.make_node("Concat", ["output", "output"], ["both"], axis=1))
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info("both", onnx.TensorProto.FLOAT, None))
    model.opset_import.append(onnx.helper.make_opsetid("", 17))
    (both,) = front_ends.make_session(model).run(None, {"input": np.ones((1, 2, 3, 4), np.float32)})
    assert both.shape == (1, 4, 3, 4)

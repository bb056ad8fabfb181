"""Operators of another package: the package in docs/adding_an_operator.md is built and used as it stands there."""

import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import venv

import numpy as np
import onnx
import onnx.helper
import onnxruntime
import pytest

import mmort
import mmort.build
import mmort.ort
from mmort import schemas
from tests import front_ends

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "adding_an_operator.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", DOCUMENT, re.M | re.S))


def write_package(folder):
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def run_setup(folder, *arguments):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "setup.py", "-q", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    write_package(folder)
    run_setup(folder, "build_ext", "--inplace")
    return folder


@pytest.fixture
def my_ops(package, monkeypatch):
    monkeypatch.syspath_prepend(package)
    return importlib.import_module("my_ops")


@pytest.fixture
def library(package):
    (path,) = package.glob("my_ops/libmy_ops_ort.*")
    return str(path)


def expected(x, slope):
    return np.where(x < 0, np.float32(slope) * x, x)


def test_document_has_the_files():
    assert set(FILES) == {"setup.py", "pyproject.toml"} | {
        f"my_ops/{name}" for name in ("leaky_relu.c", "operators.c", "__init__.py")
    }


def test_numpy(my_ops, rng):
    x = rng.standard_normal((200, 3, 700)).astype(np.float32)  # long enough for several threads
    np.testing.assert_array_equal(my_ops.leaky_relu(x, 0.25), expected(x, 0.25))
    assert my_ops.leaky_relu(np.zeros((0, 2), np.float32)).shape == (0, 2)
    assert my_ops._kernels.operators() == ("leaky_relu",)
    with pytest.raises(ValueError, match=r"^leaky_relu: slope must not be negative, got -1$"):
        my_ops.leaky_relu(x, -1)


def test_arguments_are_converted_by_the_row(my_ops):
    x = np.array([-2, 0, 3], np.float32)
    for slope in (1, 1.0, np.float32(1), np.int64(1)):
        np.testing.assert_array_equal(my_ops.leaky_relu(x, slope), x)
    (y,) = my_ops._kernels.call("leaky_relu", x=x)
    np.testing.assert_array_equal(y, expected(x, 0.01))
    misaligned = np.frombuffer(b"?" + x.tobytes(), np.float32, offset=1)
    assert not misaligned.flags.aligned
    for array in (misaligned, x.astype(">f4"), np.repeat(x, 2)[::2]):
        np.testing.assert_array_equal(my_ops.leaky_relu(array, 0.5), expected(x, 0.5))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x": np.zeros(2, "c8")}, "leaky_relu: x must be float32, got complex64"),
        ({"x": np.zeros(2, np.int8)}, "leaky_relu: x must be float32, got int8"),
        ({"x": np.zeros(2)}, "leaky_relu: x must be float32, got float64"),
        ({"x": np.zeros(2, "M8[s]")}, r"leaky_relu: x must be float32, got datetime64\[s\]"),
        ({"x": np.zeros(2, "f4,f4")}, r"leaky_relu: x must be float32, got \[.*\]"),
        ({"x": None}, "leaky_relu: x must be float32, got object"),
        ({"slope": 1.0}, "leaky_relu: x is required, got nothing"),
        ({"x": np.zeros(2, np.float32), "slope": "steep"}, "leaky_relu: slope must be a number, got 'steep'"),
        ({"x": np.zeros(2, np.float32), "slope": None}, "leaky_relu: slope must be a number, got None"),
        ({"x": np.zeros(2, np.float32), "slope": True}, "leaky_relu: slope must be a number, got True"),
        ({"x": np.zeros(2, np.float32), "y": 1}, "leaky_relu: there is no argument y, only x, slope"),
        ({f"x{i}": 1 for i in range(100)}, "leaky_relu: there is no argument x0, only x, slope"),
    ],
)
def test_arguments_of_other_types_are_refused(my_ops, arguments, text):
    with pytest.raises(TypeError, match=f"^{text}$"):
        my_ops._kernels.call("leaky_relu", **arguments)


def test_positional_arguments_are_refused(my_ops):
    with pytest.raises(TypeError, match="positional"):
        my_ops._kernels.call("leaky_relu", "leaky_relu", *[np.zeros(1)] * 20)


def test_kernel_that_is_not_built(my_ops):
    with pytest.raises(
        ImportError, match=r"^my_ops\._kernels has no kernel relu; if it is a new one, build and install"
    ):
        my_ops._kernels.call("relu")


def test_program_of_the_document(my_ops, library, tmp_path, monkeypatch):
    """Its last block of Python, with the folder of the package and a model in the working directory."""
    (program,) = re.findall(r"^## Using it\n+```python\n(.*?)^```$", DOCUMENT, re.M | re.S)
    model = make_model([onnx.helper.make_node("LeakyRelu", ["x"], ["y"], domain="mine")], "x", "y")
    onnx.save(model, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    namespace = {}
    exec(program.replace("<the folder of my_ops>/libmy_ops_ort.so", library), namespace)
    x = np.full((1, 1, 1, 2), -1, np.float32)
    np.testing.assert_array_equal(namespace["session"].run(None, {"x": x})[0], expected(x, 0.01))


def test_pip_command_of_the_document(tmp_path):
    """Its last command, in an environment that has what the previous command installs."""
    write_package(tmp_path)
    arguments = re.findall(r"^\.venv/bin/pip (install --no-build-isolation .*)$", DOCUMENT, re.M)
    assert len(arguments) == 1
    venv.create(tmp_path / ".venv")
    (packages,) = tmp_path.glob(".venv/lib/python*/site-packages")
    (packages / "installed.pth").write_text("\n".join(path for path in sys.path if path), encoding="utf-8")
    python = tmp_path / ".venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "-q", *arguments[0].split()], cwd=tmp_path, check=True)
    code = "import my_ops, numpy; print(my_ops.leaky_relu(numpy.float32([-1, 1]), 0.5), my_ops.__file__)"
    command = [python, "-c", code]
    printed = subprocess.run(command, cwd=packages, check=True, capture_output=True, text=True).stdout
    assert printed.split(" /")[0] == "[-0.5  1. ]"
    assert str(packages) in printed
    assert list(packages.glob("my_ops/libmy_ops_ort.*"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nm reads ELF files")
def test_exports(library):
    def symbols(*options):
        text = subprocess.run(["nm", "-D", *options, library], check=True, capture_output=True, text=True).stdout
        return {line.split()[-1].split("@")[0] for line in text.splitlines()}

    assert symbols("--defined-only") == {"RegisterCustomOps", "mmort_describe"}
    assert not [name for name in symbols("--undefined-only") if re.match("_?Py|Ort", name)]


def test_description(my_ops, library):
    assert mmort.ort.describe(library)["version"] == "1.0"
    assert mmort.ort.describe(pathlib.Path(library))["operators"] == mmort.ort.operators(library)
    (operator,) = schemas.parse(my_ops._kernels.describe())
    assert (operator.domain, operator.type, operator.kernel) == ("mine", "LeakyRelu", "leaky_relu")
    assert operator.inputs == (schemas.Tensor("x", "float32", "[...]", False),)
    assert operator.attributes == (schemas.Attribute("slope", "FLOAT", 0.01),)
    assert mmort.ort.describe()["version"] == mmort.__version__


def test_description_of_something_else():
    with pytest.raises(
        ValueError, match=r"^mmort\.ort\.describe: library must be built with mmort\.build, got .*umath"
    ):
        mmort.ort.describe(np._core._multiarray_umath.__file__)
    with pytest.raises(OSError, match="not_there"):
        mmort.ort.operators("not_there.so")


def make_model(nodes, inputs, outputs):
    graph = onnx.helper.make_graph(nodes, "graph", *([value(name) for name in names] for names in (inputs, outputs)))
    opsets = [onnx.helper.make_opsetid(domain, 1) for domain in ("mine", "mmcv", "mmort")]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def value(name):
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * 4)


def with_both(model, library, threads=0):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(library)
    return mmort.ort.session(model.SerializeToString(), sess_options=options)


def test_both_libraries_in_one_session(library, rng):
    nodes = [
        onnx.helper.make_node("LeakyRelu", ["x"], ["y"], "mine", domain="mine", slope=0.5),
        onnx.helper.make_node("MMCVCornerPool", ["y"], ["z"], "theirs", domain="mmcv", mode=3),
    ]
    session = with_both(make_model(nodes, "x", "z"), library)
    x = rng.standard_normal((2, 3, 40, 500)).astype(np.float32)
    (z,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(z, mmort.corner_pool(expected(x, 0.5), "right"))


def test_a_refusal_names_the_node(library):
    node = onnx.helper.make_node("LeakyRelu", ["x"], ["y"], "the_node", domain="mine", slope=1)
    with pytest.raises(
        front_ends.ORT_ERRORS, match=r"leaky_relu: attribute slope must be of type FLOAT, got INT.*the_node"
    ):
        with_both(make_model([node], "x", "y"), library)


def test_unknown_sizes_of_two_libraries_have_two_names(library):
    """ONNX Runtime lets tensors share memory whose sizes have the same names."""
    nodes = [
        onnx.helper.make_node("LeakyRelu", ["a"], ["b"], domain="mine"),
        onnx.helper.make_node("MMCVCornerPool", ["c"], ["d"], domain="mmcv", mode=3),
    ]
    model = make_model(nodes, "ac", "bd")
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    outputs = with_both(model, library).get_outputs()
    assert [len(set(output.shape)) for output in outputs] == [4, 4]
    assert not set(outputs[0].shape) & set(outputs[1].shape)
    assert all(name.startswith("my-ops_") for name in outputs[0].shape)


def test_a_build_compiles_what_has_changed(package, tmp_path):
    """And an archive does not keep the kernels that were deleted."""
    shutil.copytree(package, tmp_path, dirs_exist_ok=True)
    second, setup = tmp_path / "my_ops" / "relu.c", tmp_path / "setup.py"
    second.write_text(FILES["my_ops/leaky_relu.c"].replace("leaky_relu", "relu"))
    setup.write_text(setup.read_text().replace("sources=[", 'sources=["my_ops/relu.c", '))
    run_setup(tmp_path, "build_ext", "--inplace")
    (archive,) = tmp_path.glob("build/lib/*my_ops_ort_kernels*")
    assert b"mmk_relu_run" in archive.read_bytes()

    def compiled():
        return {path: path.stat().st_mtime_ns for path in tmp_path.glob("build/objects/**/*") if path.suffix == ".o"}

    before = compiled()
    assert len(before) > 10
    (tmp_path / "my_ops" / "leaky_relu.c").touch()
    run_setup(tmp_path, "build_ext", "--inplace")
    after = compiled()
    assert {path.name for path in before if before[path] != after[path]} == {"leaky_relu.o"}
    run_setup(tmp_path, "build_ext", "--inplace")
    assert compiled() == after

    write_package(tmp_path)
    second.unlink()
    run_setup(tmp_path, "build_ext", "--inplace")
    assert b"mmk_relu_run" not in archive.read_bytes()
    assert b"mmk_leaky_relu_run" in archive.read_bytes()


def test_source_distribution(tmp_path):
    """It holds all of the package and nothing of the kit, not even a path; Cython translates no kernel for it."""
    write_package(tmp_path)
    (tmp_path / "my_ops" / "second.pyx").write_text("cdef public int second() noexcept nogil:\n    return 0\n")
    setup = tmp_path / "setup.py"
    setup.write_text(setup.read_text().replace("sources=[", 'sources=["my_ops/second.pyx", '))
    run_setup(tmp_path, "sdist")
    assert not list(tmp_path.glob("build/cython/**/*.c"))
    (path,) = tmp_path.glob("dist/*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        (listing,) = (name for name in archive.getnames() if name.endswith("SOURCES.txt"))
        listed = archive.extractfile(listing).read().decode().split()
    assert {*FILES, "my_ops/second.pyx"} <= names
    kit = {path.name for path in pathlib.Path(mmort.build.get_include()).iterdir()} - {"__init__.py"}
    assert not kit & {pathlib.PurePath(name).name for name in [*names, *listed]}


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        (["leaky_relu.c"], r"sources must hold operators\.c, got \['leaky_relu\.c'\]"),
        (
            ["operators.c"],
            r"sources must define a kernel \(int mmk_NAME_prepare\(mmk_call \*call\)\), got none in \['operators\.c'\]",
        ),
    ],
)
def test_refused_sources(sources, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "operators.c").write_text(FILES["my_ops/operators.c"])
    with pytest.raises(ValueError, match=rf"^mmort\.build\.operators: {text}$"):
        mmort.build.operators(extension="my_ops._kernels", library="my_ops.libmy_ops_ort", sources=sources)


@pytest.mark.parametrize(
    "parameters", ["mmk_call *call", "mmk_call* call", "mmk_call * call", "\n    mmk_call *call\n"]
)
def test_kernels_are_found_in_any_style(parameters, tmp_path):
    (tmp_path / "kernel.c").write_text(f"int mmk_relu_prepare({parameters}) {{ return 0; }}\n")
    path = mmort.build._write_kernel_list([str(tmp_path / "kernel.c")], tmp_path)
    assert "MMK_ENTRY(relu)," in pathlib.Path(path).read_text()


def test_without_cython(monkeypatch):
    monkeypatch.setitem(sys.modules, "Cython.Build", None)
    with pytest.raises(ImportError, match=r"^mmort\.build\.operators needs Cython.*pip install setuptools cython"):
        mmort.build.operators(extension="my_ops._kernels", library="my_ops.libmy_ops_ort", sources=["operators.c"])


def row(type_, domains='"mine"', kernel="leaky_relu", inputs=1, outputs=1, attributes=""):
    x, y = (", ".join(['{"t", "[...]", MMK_FLOAT32}'] * count) for count in (inputs, outputs))
    return f'{{"{kernel}", "{type_}", {{{domains}}}, {{{x}}}, {{{y}}}, {{{attributes}}}}},\n'


TABLES = {
    "names a kernel that none of the sources defines": row("A", kernel="leaky"),
    "names one domain more than a library may have": "".join(row("A", f'"d{d}"') for d in range(9)),
    "is one more than a library may have": "".join(row(f"A{r}") for r in range(65)),
    "has one domain more than an operator may have": row("A", '"a", "b", "c"'),
    "has one word more than an attribute may have": row(
        "A", attributes='{.name = "mode", .words = {"a", "b", "c", "d", "e"}}'
    ),
    "has one input more than an operator may have": row("A", inputs=7),
    "has one output more than an operator may have": row("A", outputs=4),
    "has more attributes than an operator may have, a PAIR counting twice": row("A", attributes='PAIR("p", 1), ' * 9),
}


def compile_library(folder, rows, kernel=FILES["my_ops/leaky_relu.c"]):
    """Build a library by hand, as any C compiler can with a kernel in C and the kit; return its path."""
    kit = pathlib.Path(mmort.build.get_include())
    listed = "const mmk_operator mmk_operators[] = {MMK_ENTRY(leaky_relu), {NULL, NULL, NULL}};"
    sources = {
        "kernel.c": kernel,
        "kernel_list.c": f'#include "mmk.h"\nMMK_DECLARE(leaky_relu)\n{listed}\n',
        "operators.c": f'#include "operators.h"\nconst OperatorRow operator_rows[] = {{\n{rows}{{.type = NULL}}}};\n',
    }
    for name, text in sources.items():
        (folder / name).write_text(text)
    options = ["-std=gnu11", "-fPIC", "-shared", '-DMMK_LIBRARY="mine"', '-DMMK_VERSION="0"', f"-I{kit}"]
    command = [os.environ.get("CC", "cc"), *options, *kit.glob("*.c"), *sources, "-o", "library.so"]
    subprocess.run(command, cwd=folder, check=True)
    return str(folder / "library.so")


@pytest.mark.parametrize("text", TABLES)
def test_tables_that_cannot_be_registered(text, tmp_path):
    library = compile_library(tmp_path, TABLES[text])
    with pytest.raises(front_ends.ORT_ERRORS, match=rf"mine: the row of A.* in operators\.c {text}"):
        onnxruntime.SessionOptions().register_custom_ops_library(library)


WIDEN = """
#include "mmk.h"

int mmk_leaky_relu_prepare(mmk_call *call) {
    call->late_outputs = 1;
    call->scratch_size = (size_t)call->inputs[0].size * sizeof(double);
    mmk_add_phase(call, 1, 1.0);
    return 0;
}

void mmk_leaky_relu_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) {
    const mmk_tensor *x = &call->inputs[0];
    double *y = call->scratch;
    for (int64_t i = 0; i < x->size; i++) y[i] = ((const float *)x->data)[i];
    mmk_set_output(call, 0, MMK_FLOAT64, 1, x->shape);
    call->outputs[0].data = y;
    (void)phase, (void)begin, (void)end, (void)scratch;
}
"""


def test_late_output_of_another_element_type(tmp_path):
    """ONNX Runtime gets a copy of it; its elements are neither float32 nor int64, as those of mmort's operators are."""
    rows = '{"leaky_relu", "Widen", {"mine"}, {{"x", "[N]", MMK_FLOAT32}}, {{"y", "[?]", MMK_FLOAT64}}},\n'
    library = compile_library(tmp_path, rows, WIDEN)
    assert mmort.ort.operators(library)[0]["outputs"][0]["type"] == "float64"
    model = make_model([onnx.helper.make_node("Widen", ["x"], ["y"], domain="mine")], "x", "y")
    model.graph.input[0].CopyFrom(onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None]))
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, [None]))
    x = np.arange(1000, dtype=np.float32)
    (y,) = with_both(model, library).run(None, {"x": x})
    np.testing.assert_array_equal(y, x.astype(np.float64))


CHUNKS = """
#include "mmk.h"

int mmk_leaky_relu_prepare(mmk_call *call) {
    const mmk_tensor *x = &call->inputs[0];
    mmk_add_phase(call, x->size, 1000.0);
    return mmk_set_output(call, 0, MMK_FLOAT32, 1, x->shape);
}

void mmk_leaky_relu_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) {
    for (int64_t i = begin; i < end; i++) {
        for (volatile int step = 0; step < 1000; step++) { /* about a microsecond */
        }
        ((float *)call->outputs[0].data)[i] = (float)begin;
    }
    (void)phase, (void)scratch;
}
"""


def test_long_calls_have_chunks_for_the_threads_of_the_session(tmp_path):
    """One chunk on one thread, and four for each of several: a chunk may have costs of its own, such as a copy.

    In calls 1, 2, 4, 8 ... there are as many as chunks of 20 microseconds, and the threads that run them are counted.
    """
    rows = '{"leaky_relu", "Chunks", {"mine"}, {{"x", "[N]", MMK_FLOAT32}}, {{"y", "[N]", MMK_FLOAT32}}},\n'
    library = compile_library(tmp_path, rows, CHUNKS)
    model = make_model([onnx.helper.make_node("Chunks", ["x"], ["y"], domain="mine")], "x", "y")
    for tensor in (model.graph.input[0], model.graph.output[0]):
        tensor.CopyFrom(onnx.helper.make_tensor_value_info(tensor.name, onnx.TensorProto.FLOAT, [None]))
    short, long = np.zeros(100, np.float32), np.zeros(1000, np.float32)

    def counts(threads, x, runs):
        session = with_both(model, library, threads)
        return [len(np.unique(session.run(None, {"x": x})[0])) for _ in range(runs)]

    assert counts(1, long, 8) == [50, 50, 1, 50, 1, 1, 1, 50]
    of_two = counts(2, long, 100)
    assert {count for call, count in enumerate(of_two, 1) if call & (call - 1) == 0} == {50}
    assert max(count for call, count in enumerate(of_two, 1) if call & (call - 1)) == 8
    assert counts(1, short, 3) == [5] * 3  # threads are not counted for so little

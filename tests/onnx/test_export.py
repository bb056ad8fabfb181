"""Export: every operator and a whole detector through both exporters, and what must not be written."""

import json
import logging.handlers
import subprocess
import sys
import warnings
from contextlib import nullcontext

import numpy as np
import onnx
import onnx.defs
import onnx_ir
import onnxruntime
import onnxscript.optimizer
import pytest
import torch
from onnxscript.rewriter import pattern
from torch.export import Dim

import mmort.onnx
import mmort.ort
import mmort.torch
from mmort import schemas
from mmort.onnx.export.draft import Draft
from mmort.onnx.export.options import Options
from mmort.onnx.export.torch_internals import linear_rewriting, quiet
from mmort.onnx.op_schemas import check, op_schema
from mmort.onnx.verify.numbers import refusal
from tests import front_ends
from tests.compare import assert_same
from tests.onnx.models import CLASSES, DETECTIONS, Detector
from tests.operators import cases

EXPORTERS = ("dynamo", "legacy")
KERNELS = sorted({operator.kernel for operator in schemas.operators()})
IMAGES = ({0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC},)
EXAMPLE = torch.randn(2, 3, 70, 90, generator=torch.Generator().manual_seed(0))


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, x):
        return self.function(x)


def nodes(path):
    return [(node.domain, node.op_type) for node in onnx.load(path).graph.node]


def refuse(path, *args, error=ValueError, match=None, **kwargs):
    """Assert that exporting fails with this text and leaves nothing behind."""
    before = sorted(path.parent.iterdir())
    with pytest.raises(error, match=match) as caught:
        mmort.onnx.export(*args, path, **kwargs)
    assert sorted(path.parent.iterdir()) == before
    return caught.value


# ---- schemas ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", schemas.operators(), ids=lambda operator: f"{operator.domain}.{operator.type}")
def test_schemas_equal_the_librarys_description(operator):
    """The schemas come from the extension module; the library describes its own operators to ONNX Runtime."""
    schema = op_schema(operator)
    (row,) = (row for row in front_ends.ROWS if (row["domain"], row["type"]) == (schema.domain, schema.name))
    types = {"float32": "tensor(float)", "int64": "tensor(int64)"}
    for kind, formals in (("inputs", schema.inputs), ("outputs", schema.outputs)):
        optional = [formal.option == onnx.defs.OpSchema.FormalParameterOption.Optional for formal in formals]
        assert [formal.name for formal in formals] == [tensor["name"] for tensor in row[kind]]
        assert [formal.type_str for formal in formals] == [types[tensor["type"]] for tensor in row[kind]]
        assert optional == [tensor["optional"] for tensor in row[kind]]
    names = [expected["name"] for expected in row["attributes"]]
    former = [expected["former_name"] for expected in row["attributes"] if "former_name" in expected]
    assert sorted(schema.attributes) == sorted(names + former)
    for expected in row["attributes"]:
        attribute = schema.attributes[expected["name"]]
        assert attribute.type.name == expected["type"]
        assert attribute.required == (expected["default"] is None and "former_name" not in expected)
        if attribute.default_value.name:
            default = onnx.helper.get_attribute_value(attribute.default_value)
            default = default.decode() if isinstance(default, bytes) else default
            assert default == (
                pytest.approx(expected["default"]) if expected["type"] == "FLOAT" else expected["default"]
            )


def check_roi_align(**attributes):
    row = front_ends.row_of("roi_align")
    shapes = [["N", "C", "H", "W"], ["K", 5]]
    model = front_ends.make_model(row, attributes, shapes=shapes)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    check(model)


def test_checker_knows_the_operators():
    check_roi_align(output_height=2, output_width=2)
    check_roi_align(aligned_height=2, aligned_width=2, pool_mode="max")  # as MMCV wrote them
    for wrong in ({"output_height": 2.0}, {"output_height": "2"}, {"output_hight": 2}, {"mode": 1}):
        with pytest.raises(onnx.checker.ValidationError):
            check_roi_align(**{"output_width": 2, **wrong})


# ---- single operators -------------------------------------------------------------------------------------------


class Single(torch.nn.Module):
    """Calls a torch operator with fixed attributes; the arguments are its named inputs."""

    def __init__(self, kernel, names, attributes):
        super().__init__()
        self.overload = getattr(torch.ops.mmort, kernel).default
        self.names, self.attributes = names, attributes
        self.eval()

    def forward(self, *arrays):
        return self.overload(**dict(zip(self.names, arrays, strict=True)), **self.attributes)


def single(kernel):
    """Return a model of one operator, and inputs for it, from the case with the most attributes."""
    full = [case for case in cases.of(kernel) if all(array.size for array in case.arrays)]
    case = max(full, key=lambda case: (len(case.attributes), -sum(array.size for array in case.arrays)))
    names = front_ends.array_names(getattr(mmort, kernel), case.arrays, case.attributes)
    return Single(kernel, names, case.attributes), tuple(torch.from_numpy(array.copy()) for array in case.arrays)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_single_operator(kernel, exporter, tmp_path):
    model, tensors = single(kernel)
    path = tmp_path / "single.onnx"
    mmort.onnx.export(model, tensors, path, exporter=exporter, check_sizes=[tensors])
    row = front_ends.row_of(kernel)
    assert [name for name in nodes(path) if name[0]] == [(row["domain"], row["type"])]
    actual = front_ends.run_session(mmort.ort.session(path), [tensor.numpy() for tensor in tensors])
    expected = model(*tensors)
    assert_same(actual, [tensor.numpy() for tensor in (expected if isinstance(expected, tuple) else (expected,))])


# ---- a detector -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def detector(tmp_path_factory):
    """Export a detector by torch.export, checked at three sizes."""
    path = tmp_path_factory.mktemp("detector") / "detector.onnx"
    mmort.onnx.export(
        Detector(), (EXAMPLE,), path, dynamic_shapes=IMAGES, output_names=["dets", "labels", "masks"], simplify=False
    )
    return path


def test_detector_finds_the_same_at_30_sizes(detector):
    model, session = Detector(), mmort.ort.session(detector)
    random = np.random.default_rng([cases.SEED, 30])
    detected = 0
    for _ in range(30):
        images = random.standard_normal((random.integers(1, 4), 3, *random.integers(8, 160, 2))).astype(np.float32)
        dets, labels, masks = session.run(None, {"images": images})
        with torch.no_grad():
            expected = [tensor.numpy() for tensor in model(torch.from_numpy(images))]
        np.testing.assert_array_equal(labels, expected[1], err_msg=str(images.shape))
        np.testing.assert_allclose(dets, expected[0], rtol=1e-4, atol=2e-3)
        np.testing.assert_allclose(masks, expected[2], rtol=1e-3, atol=1e-3)
        detected += int((labels >= 0).sum())
    assert detected > 300
    assert set(np.unique(labels)) - {-1} == set(range(CLASSES))


def test_detector_has_the_nodes(detector):
    custom = [name for name in nodes(detector) if name[0]]
    assert sorted(set(custom)) == [("mmcv", "MMCVRoiAlign"), ("mmcv", "NonMaxSuppression"), ("mmort", "MultiClassNMS")]
    model = onnx.load(detector)
    assert [tensor.name for tensor in model.graph.output] == ["dets", "labels", "masks"]
    assert {opset.domain: opset.version for opset in model.opset_import} == {"": 20, "mmcv": 1, "mmort": 1}


def test_detector_by_the_legacy_exporter(tmp_path):
    """It freezes min(48, number of anchors), so the file is right from a certain size on."""
    path = tmp_path / "detector.onnx"
    sizes = [(1, 3, 64, 113), (3, 3, 113, 64)]
    arguments = {"dynamic_shapes": IMAGES, "exporter": "legacy"}
    report = mmort.onnx.export(Detector(), (EXAMPLE,), path, check_sizes=sizes, **arguments)
    assert {row.shape for row in report.rows if getattr(row, "tolerance", "") == "exact"} == {
        f"{n}x{DETECTIONS}" for n in (1, 2, 3)
    }
    path.unlink()
    sizes = [(1, 3, 16, 32), (3, 3, 32, 16)]
    match = r"cause: Converting a tensor to a Python boolean .* \(.*models.py:\d+\)"
    refuse(path, Detector(), (EXAMPLE,), check_sizes=sizes, match=match, **arguments)


def test_simplified(tmp_path):
    path = tmp_path / "pool.onnx"

    def model(x):
        return mmort.torch.corner_pool(x + torch.arange(72.0).reshape(1, 2, 6, 6), "left")

    mmort.onnx.export(model, (torch.randn(1, 2, 6, 6),), path, simplify=True)
    assert ("mmcv", "MMCVCornerPool") in nodes(path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_simplify_without_onnxslim(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxslim", None)
    path = tmp_path / "relu.onnx"
    refuse(path, torch.relu, (torch.randn(3),), simplify=True, error=ImportError, match="pip install onnxslim")


def test_portable(tmp_path):
    """The report has the same detections without the library."""
    path = tmp_path / "suppression.onnx"
    boxes = torch.rand(20, 4) * 10 + torch.tensor([0.0, 0, 10, 10])
    shapes = ({0: "n"}, {0: "n"})
    report = mmort.onnx.export(
        lambda boxes, scores: mmort.torch.nms(boxes, scores, 0.5),
        (boxes, torch.rand(20)),
        path,
        dynamic_shapes=shapes,
        portable=True,
    )
    alone = {row.inputs for row in report.rows if row.compared.endswith("without mmort's library")}
    assert alone == {f"{n}x4, {n}" for n in (20, 26, 14)}
    boxes, scores = boxes.numpy()[:7], np.linspace(0, 1, 7, dtype=np.float32)
    feeds = {"boxes": boxes, "scores": scores}
    plain = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    assert_same(plain, mmort.ort.session(path).run(None, feeds))


def test_inlined(tmp_path):
    """The file has no operators of mmort's; a form of another name is refused before the export."""
    path, example = tmp_path / "pool.onnx", (torch.randn(1, 2, 4, 5),)
    refuse(path, torch.relu, example, portable="inline", match=r"portable must be .* 'inlined', got 'inline'")
    report = mmort.onnx.export(lambda x: mmort.torch.corner_pool(x, "left"), example, path, portable="inlined")
    assert report.ok
    model = onnx.load(path)
    assert ([opset.domain for opset in model.opset_import], len(model.functions)) == ([""], 0)


def test_portable_is_refused_without_a_definition(tmp_path):
    tensors = torch.randn(1, 2, 9, 9), torch.tensor([[0.0, 1, 1, 7, 7]])
    match = r"portable must be False, as mmcv::MMCVRoiAlign has no definition"

    def model(x, rois):
        return mmort.torch.roi_align(x, rois, 2, spatial_scale=-1.0)

    refuse(tmp_path / "align.onnx", model, tensors, portable=True, check_sizes=[tensors], match=match)


# ---- what torch's exporter lacks ----------------------------------------------------------------------------------

MISSING = {
    "cummax": lambda x: torch.cummax(x, 1),
    "cummin": lambda x: torch.cummin(x, -1),
    "cummax of integers": lambda x: torch.cummax((x * 3).long(), 0),
    "cummin of a number": lambda x: torch.cummin(x.sum(), 0),
    "sort stable": lambda x: torch.sort((x * 2).round(), dim=1, stable=True, descending=True),
    "argsort stable": lambda x: torch.argsort((x * 2).round(), dim=1, stable=True),
    "sort of a number": lambda x: torch.sort(x.mean(), stable=True),
    "masked_select": lambda x: x.masked_select(x > 0.2),
    "masked_select, broadcast": lambda x: x.masked_select(x[0, 0] > 0.2),
    "amax": lambda x: x.amax(),
    "amin": lambda x: x.amin(),
    "amax of axes": lambda x: x.amax((0, 2), keepdim=True),
    "searchsorted": lambda x: torch.searchsorted(torch.sort(x, -1)[0], (x * 2).round() / 2),
    "searchsorted right": lambda x: torch.searchsorted(torch.sort(x.flatten())[0], x, right=True, out_int32=True),
    "searchsorted by a sorter": lambda x: torch.searchsorted(x, (x * 2).round() / 2, sorter=x.argsort(-1), right=True),
    "searchsorted of a number by a sorter": lambda x: torch.searchsorted(x[0, 0], 0.5, sorter=x[0, 0].argsort()),
    "searchsorted of a number": lambda x: torch.searchsorted(torch.sort(x[0, 0])[0], 0.5),
    "isin": lambda x: torch.isin((x * 4).long(), torch.tensor([1, 2, -3])),
    "cdist": lambda x: torch.cdist(x, x[:, :2] + 1),
    "cdist p=1": lambda x: torch.cdist(x, x[:, :2] + 1, p=1.0),
    "cdist p=3": lambda x: torch.cdist(x, x[:, :2] + 1, p=3.0),
    "cdist p=0": lambda x: torch.cdist(x, x[:, :2], p=0.0),
    "cdist p=inf": lambda x: torch.cdist(x, x[:, :2], p=torch.inf),
    "kthvalue": lambda x: torch.kthvalue(x, 2, 1),
    "median": lambda x: torch.median(x, 1, keepdim=True),
    "adaptive_avg_pool2d": lambda x: torch.nn.functional.adaptive_avg_pool2d(x[None], (3, 4)),
}


def test_missing_translations(tmp_path):
    """All are in one model, as each export takes a second."""
    example = torch.randn(3, 5, 7)
    model = Function(lambda x: [function(x) for function in MISSING.values()])
    report = mmort.onnx.export(
        model, (example,), tmp_path / "missing.onnx", dynamic_shapes=({0: "b", 1: "h", 2: "w"},), opset_version=18
    )
    assert all(row.values >= len(MISSING) for row in report.rows if "outputs" in row.compared)


@pytest.mark.parametrize("scan", [torch.cummax, torch.cummin])
def test_scans_with_nan_ties_and_infinities(scan, tmp_path):
    values = torch.tensor([1.0, 1, -torch.inf, torch.inf, torch.nan, 2, torch.nan, 0, -0.0, 0])
    rows = torch.stack([values, values.flip(0), values.roll(3), values.roll(5)])
    path = tmp_path / "scan.onnx"
    mmort.onnx.export(
        lambda x: scan(x, 1), (torch.randn(2, 3),), path, dynamic_shapes=({0: "b", 1: "n"},), check_sizes=[(rows,)]
    )
    for shape in ((2, 0), (0, 2), (0, 0)):
        results = mmort.ort.session(path).run(None, {"x": np.empty(shape, np.float32)})
        assert [result.shape for result in results] == [shape, shape]


# ---- torch's operators as MMCV's nodes ----------------------------------------------------------------------------


class Scans(torch.nn.Module):
    def forward(self, x, grid):
        sampled = torch.nn.functional.grid_sample(x, grid, "nearest", "border", align_corners=True)
        return torch.cummax(x, 1), torch.cummin(x, -1), sampled


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_torch_operators_become_mmcv_nodes_on_request(exporter, tmp_path):
    path, args = tmp_path / "scans.onnx", (torch.randn(2, 3, 5, 6), torch.rand(2, 4, 3, 2) * 2 - 1)
    names = ("cummax", "cummin", "grid_sample")
    mmort.onnx.export(Scans().eval(), args, path, exporter=exporter, mmcv_nodes=names, input_names=["a", "b"])
    assert {("mmcv", "cummax"), ("mmcv", "cummin"), ("mmcv", "grid_sampler")} <= set(nodes(path))
    sampler = next(node for node in onnx.load(path).graph.node if node.op_type == "grid_sampler")
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in sampler.attribute}
    assert attributes == {"interpolation_mode": 1, "padding_mode": 1, "align_corners": 1}
    if exporter == "legacy":
        for opset in (11, 16):
            mmort.onnx.export(Scans().eval(), args, path, exporter=exporter, mmcv_nodes=names, opset_version=opset)
            assert ("mmcv", "grid_sampler") in nodes(path)
    grid = Function(lambda x: torch.nn.functional.grid_sample(x, x[:, :2].permute(0, 2, 3, 1), align_corners=False))
    mmort.onnx.export(grid, args[:1], path, exporter=exporter)
    assert ("", "GridSample") in nodes(path)
    assert all(domain == "" for domain, _ in nodes(path))  # the request above has no lasting effect


def test_scans_are_standard_operators_otherwise(tmp_path):
    mmort.onnx.export(lambda x: torch.cummax(x, 0), (torch.randn(3),), tmp_path / "scan.onnx")
    assert all(domain == "" for domain, _ in nodes(tmp_path / "scan.onnx"))


def test_translation_table_for_torch_onnx_export(tmp_path):
    table = mmort.onnx.translation_table(mmcv_nodes=["cummax"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's
        program = torch.onnx.export(
            Function(lambda x: (torch.cummax(x, 0)[0], mmort.torch.corner_pool(x, "top"))),
            (torch.randn(1, 2, 3, 4),),
            dynamo=True,
            verbose=False,
            custom_translation_table=table,
        )
    program.save(tmp_path / "model.onnx")
    assert sorted(nodes(tmp_path / "model.onnx")) == [("mmcv", "MMCVCornerPool"), ("mmcv", "cummax")]


# ---- an operator of another package -------------------------------------------------------------------------------


@torch.library.custom_op(
    "mmdeploy::their_pool", mutates_args=(), schema="(Tensor x, Tensor where, int[2] size) -> Tensor"
)
def their_pool(x, where, size):
    return torch.from_numpy(mmort.roi_align(x.numpy(), where.numpy(), tuple(size), aligned=False))


@their_pool.register_fake
def _(x, where, size):
    return x.new_empty((where.shape[0], x.shape[1], *size))


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_operator_of_another_package(exporter, tmp_path):
    """Its names differ from those of mmort's operator, but its type is one that mmort's library has."""
    text = {
        "domain": "mmdeploy",
        "type": "MMCVRoiAlign",
        "kernel": "their_pool",
        "inputs": [
            {"name": "x", "type": "float32", "shape": "[N, C, H, W]", "optional": False},
            {"name": "where", "type": "float32", "shape": "[K, 5]", "optional": False},
        ],
        "outputs": [{"name": "y", "type": "float32", "shape": "[K, C, height, width]", "optional": False}],
        "attributes": [
            {"name": "aligned_height", "type": "INT", "default": None},
            {"name": "aligned_width", "type": "INT", "default": None},
        ],
    }
    (operator,) = schemas.parse(json.dumps({"operators": [text]}))
    path = tmp_path / "theirs.onnx"
    args = (torch.randn(1, 2, 9, 8), torch.tensor([[0, 1, 1, 7, 6.5]]))
    error = refuse(
        path, Theirs(), args, exporter=exporter, operators=[operator], error=mmort.onnx.VerificationError
    )  # as the library's default is aligned=1
    assert not error.report.ok


class Theirs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.eval()

    def forward(self, x, where):
        return torch.ops.mmdeploy.their_pool(x, where, [2, 3])


def test_operator_without_a_torch_operator():
    operator = schemas.Operator("nowhere", "Nothing", "nothing", (), (), ())
    with pytest.raises(ValueError, match=r"got nowhere::Nothing without torch.ops.nowhere.nothing"):
        mmort.onnx.translation_table(operators=[operator])


# ---- what must not be written -------------------------------------------------------------------------------------


class Branch(torch.nn.Module):
    def forward(self, image):
        if image.shape[2] > image.shape[3]:
            return image.flip(1)
        return image * 2


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("dims", [("n", "h", "w"), (Dim("n"), Dim("h", min=4), Dim("w")), (Dim.AUTO,) * 3])
def test_frozen_branch_is_refused_and_named(exporter, dims, tmp_path):
    shapes = {"image": dict(zip((0, 2, 3), dims, strict=True))}
    match = {
        "dynamo": r"cause: image.shape\[2\] <= image.shape\[3\] was taken for granted at "
        r".*test_export.py:\d+ in forward",
        "legacy": r"cause: Converting a tensor to a Python boolean .*test_export.py:\d+\)",
    }[exporter]
    error = refuse(
        tmp_path / "branch.onnx",
        Branch().eval(),
        (torch.randn(2, 3, 9, 14),),
        dynamic_shapes=shapes,
        exporter=exporter,
        match=match,
    )
    assert len({row.inputs for row in error.report.rows if not row.ok}) == 1  # images that are higher than wide
    assert isinstance(error, mmort.onnx.VerificationError)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_what_was_frozen_is_no_cause_if_the_example_differs_too(exporter, tmp_path):
    def damage(model):
        model.graph.node[-1].op_type = "Div"

    with pytest.raises(mmort.onnx.VerificationError) as caught:
        export_edited(
            tmp_path / "branch.onnx",
            damage,
            (Branch().eval(), (torch.randn(2, 3, 9, 14),)),
            dynamic_shapes=IMAGES,
            exporter=exporter,
        )
    assert "DIFFERS" in str(caught.value)
    assert "cause" not in str(caught.value)


def test_frozen_size_is_refused_and_named(tmp_path):
    model = Function(lambda x: x * torch.linspace(0, 1, int(x.shape[0])))
    match = r"cause: x.shape\[0\] == 5 was taken for granted at .*test_export.py:\d+ in <lambda>"
    refuse(tmp_path / "size.onnx", model, (torch.randn(5),), dynamic_shapes=({0: Dim.AUTO},), match=match)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_frozen_batch_is_refused(exporter, tmp_path):
    model = Function(lambda x: x + torch.zeros(int(x.shape[0]), 1))
    shapes = ({0: Dim.AUTO},)
    refuse(
        tmp_path / "batch.onnx", model, (torch.randn(2, 6),), dynamic_shapes=shapes, exporter=exporter, match="DIFFERS"
    )


def test_nothing_is_overwritten_by_a_failure(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    refuse(path, Branch().eval(), (torch.randn(2, 3, 9, 14),), dynamic_shapes=IMAGES)
    assert path.read_bytes() == b"old"
    mmort.onnx.export(torch.relu, (torch.randn(3),), path)
    assert nodes(path) == [("", "Relu")]


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_unverified_files_say_so(exporter, tmp_path):
    """A wrong file is written only on request, and its metadata has the mark that proven files lack."""
    path = tmp_path / "branch.onnx"
    report = mmort.onnx.export(
        Branch().eval(), (torch.randn(2, 3, 9, 14),), path, dynamic_shapes=IMAGES, exporter=exporter, verify=False
    )
    assert (report.rows, report.ok) == ((), False)
    assert {entry.key: entry.value for entry in onnx.load(path).metadata_props} == {"verified": "false"}
    mmort.onnx.export(torch.relu, (torch.randn(3),), path)
    assert "verified" not in {entry.key for entry in onnx.load(path).metadata_props}


def test_model_that_fails_at_a_check_size(tmp_path):
    def picky(x):
        torch._check(x.shape[0] % 2 == 0)
        return x * 2

    match = r"check_sizes must suit the model, which fails with 5: .*"
    refuse(tmp_path / "x.onnx", picky, (torch.randn(4),), dynamic_shapes=({0: "n"},), check_sizes=[(5,)], match=match)


RELU = (torch.relu, (torch.randn(4),))
REFUSALS = [
    ({"exporter": "torch"}, "exporter must be 'dynamo' or 'legacy', got 'torch'"),
    ({"mmcv_nodes": ["cumsum"]}, "mmcv_nodes must be among cummax, cummin, grid_sample, got 'cumsum'"),
    ({"dynamic_shapes": ({0: "n"}, None)}, "dynamic_shapes must have length 1, an entry per argument, got 2"),
    ({"dynamic_shapes": {"y": {0: "n"}}}, "dynamic_shapes must name input_0, got y"),
    ({"dynamic_shapes": ({0: 2 * Dim("n")},)}, "check_sizes must be given for a dimension computed from another"),
    (
        {"dynamic_shapes": ({0: "n"},), "check_sizes": []},
        "another size than the example's 4 at dynamic axis 0 of input_0",
    ),
    ({"dynamic_shapes": ({0: "n"},), "check_sizes": [(4,)]}, r"axis 0 of input_0, got \[4\]"),
    ({"check_sizes": [{"y": (4,)}]}, "check_sizes must name input_0, got y"),
    ({"check_sizes": [(4, 4)]}, "check_sizes must have the example's number of dimensions, got 4x4 for 4"),
    ({"input_names": ["a", "b"]}, "input_names must have length 1, a name per tensor, got 2"),
    ({"opset_version": 11}, "must be one that the dynamo exporter supports, got 11, .* exporter='legacy' has 11 to 20"),
    ({"opset_version": 21, "exporter": "legacy"}, "opset_version must be 11 to 20 with the legacy exporter, got 21"),
]


@pytest.mark.parametrize(("arguments", "match"), REFUSALS, ids=[match[:40] for _, match in REFUSALS])
def test_wrong_arguments(arguments, match, tmp_path):
    refuse(tmp_path / "relu.onnx", *RELU, match=f"^export: .*{match}", **arguments)


def test_sizes_of_several_inputs_need_names(tmp_path):
    args, path = (torch.randn(4), torch.randn(4)), tmp_path / "add.onnx"
    shapes = ({0: "n"}, {0: "n"})
    refuse(path, torch.add, args, dynamic_shapes=shapes, check_sizes=[(5,)], match="must name the inputs")
    names = ["a", "b"]
    mmort.onnx.export(
        torch.add, args, path, dynamic_shapes=shapes, check_sizes=[{"a": (5,), "b": (5,)}], input_names=names
    )


def test_images_that_are_always_wide(tmp_path):
    dims = {2: Dim("h", max=8), 3: Dim("w", min=9)}
    args = (torch.randn(1, 1, 8, 10),)
    refuse(tmp_path / "x.onnx", torch.relu, args, dynamic_shapes=(dims,), match="check_sizes must be given: the ranges")


def test_empty_examples_are_refused(tmp_path):
    args = (torch.empty(0, 4),)
    refuse(tmp_path / "x.onnx", torch.relu, args, match=r"^export: args must not have empty tensors, got shape 0x4$")


def test_training_mode_is_refused(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    refuse(tmp_path / "x.onnx", model, (torch.randn(1, 2),), match=r"call model.eval\(\); got model in training mode")
    model.eval()[1].train()
    refuse(tmp_path / "x.onnx", model, (torch.randn(1, 2),), match="got 1 in training mode")


# ---- drafts -----------------------------------------------------------------------------------------------------


def export_edited(path, change, model=RELU, **options):
    """Export a model and its arguments with a change of the draft."""
    with Draft(*model, path, Options(**options)) as draft:
        draft.trace()
        change(draft.artifact.model)
        return draft.accept(draft.prove())


def test_edits_are_verified_and_written(tmp_path):
    path = tmp_path / "relu.onnx"
    export_edited(path, lambda model: onnx.helper.set_model_props(model, {"made": "for a test"}))
    assert [(entry.key, entry.value) for entry in onnx.load(path).metadata_props] == [("made", "for a test")]

    def negate(model):
        model.graph.node[0].op_type = "Neg"

    with pytest.raises(mmort.onnx.VerificationError, match="DIFFERS"):
        export_edited(tmp_path / "neg.onnx", negate)
    assert list(tmp_path.iterdir()) == [path]


def test_an_edit_may_give_an_input_a_default_value(tmp_path):
    def give_default(model):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.float32), "other"))

    path, args = tmp_path / "add.onnx", (torch.randn(4), torch.randn(4))
    report = export_edited(path, give_default, (torch.add, args), input_names=["input", "other"])
    assert {row.inputs for row in report.rows} == {"4, 4", "-"}
    assert mmort.onnx.verify(path, lambda x: x + 1, [args[:1]]).ok
    assert not mmort.onnx.verify(path, lambda x, y: x + 1, [args]).ok
    with pytest.raises(ValueError, match=r"inputs must have length 1 \(input\), got 3"):
        mmort.onnx.verify(path, lambda x, *rest: x, [(*args, torch.randn(4))])


@pytest.mark.parametrize("problem", ["", "differs"])
def test_a_draft_is_written_if_its_report_is_ok(problem, tmp_path):
    """Nothing is written if it is not; otherwise what was compared is written."""
    path, report = tmp_path / "relu.onnx", mmort.onnx.Report((refusal("-", problem),))
    refusal_of_draft = pytest.raises(mmort.onnx.VerificationError, match="DIFFERS: differs")
    with refusal_of_draft if problem else nullcontext(), Draft(*RELU, path, Options()) as draft:
        draft.trace()
        compared = draft.artifact.model.SerializeToString()
        assert not path.exists()
        assert draft.accept(report) is report
    assert [file.read_bytes() for file in tmp_path.iterdir()] == ([] if problem else [compared])


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    def break_node(model):
        model.graph.node[0].op_type = "NoSuchOperator"

    path = tmp_path / "relu.onnx"
    with pytest.raises(mmort.onnx.VerificationError) as caught:
        export_edited(path, break_node)
    assert f"export: {path} was not written" in str(caught.value)
    assert "ONNX Runtime cannot load the model: " in str(caught.value)
    assert ".mmort-" not in str(caught.value)


# ---- the rest -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_models_own_warnings_are_shown(exporter, tmp_path):
    def model(x):
        warnings.warn("mind the gap", stacklevel=1)
        return x * 2

    with pytest.warns(UserWarning, match="mind the gap"):
        mmort.onnx.export(model, (torch.randn(3),), tmp_path / "x.onnx", exporter=exporter)


def test_needless_lines_of_torchs_loggers_are_not_printed():
    """As torch 2.9's about each argument of each of mmort's translations; other lines are passed on."""
    logger, lines = logging.getLogger("torch.onnx._internal.exporter._schemas"), []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    try:
        with quiet():
            logger.warning("Missing annotation for parameter '%s' from (boxes, scores)", "boxes")
            logger.warning("another")
    finally:
        logger.removeHandler(handler)
    assert lines == ["another"]


def test_partial_graphs_are_not_printed(capsys):
    """As torch.export does to the standard error if it fails; other lines are passed on."""
    with quiet():
        for text in (
            "a line\n",
            "\n\ndef forward(self, x):\n    pass\n",
            "\n",
            "class GraphModule(torch):",
            "\n",
            "end\n",
        ):
            print(text, end="", file=sys.stderr)
    assert capsys.readouterr().err == "a line\nend\n"


@pytest.mark.filterwarnings("ignore")
def test_inputs_that_the_graph_lost(tmp_path):
    """The legacy exporter drops an input that becomes a constant."""
    message = "export: args must be used by the model; the exported graph does not depend on x[.] Leave out"
    with pytest.raises(ValueError, match=f"^{message}"):
        mmort.onnx.export(lambda x: torch.ones(2), (torch.ones(2),), tmp_path / "x.onnx", exporter="legacy")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_printed(tmp_path, capfd):
    for exporter in EXPORTERS:
        mmort.onnx.export(*RELU, tmp_path / "x.onnx", exporter=exporter)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("opset", [11, 17])
def test_old_opsets_by_the_legacy_exporter(opset, tmp_path):
    path = tmp_path / "pool.onnx"
    model = Function(lambda x: mmort.torch.corner_pool(x, "top"))
    mmort.onnx.export(model, (torch.randn(1, 1, 2, 2),), path, exporter="legacy", opset_version=opset)
    assert onnx.load(path).opset_import[0].version == opset


def test_several_tensors_in_an_argument(tmp_path):
    args = ([torch.randn(2, 3), torch.randn(2, 4)], {"scale": torch.rand(2, 1)})
    shapes = ([{0: "n"}, {0: "n"}], {"scale": {0: "n"}})
    path = tmp_path / "x.onnx"
    mmort.onnx.export(lambda pair, more: torch.cat(pair, 1) * more["scale"], args, path, dynamic_shapes=shapes)
    assert [tensor.name for tensor in onnx.load(path).graph.input] == ["pair_0", "pair_1", "more_0"]


def python(text):
    return subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout


def test_importing_needs_numpy_only():
    text = "import sys, mmort.onnx; print(sorted({'onnx', 'onnxruntime', 'onnxscript', 'torch'} & set(sys.modules)))"
    assert python(text) == "[]\n"


def test_comparing_files_needs_no_torch(tmp_path):
    path = tmp_path / "relu.onnx"
    mmort.onnx.export(*RELU, path)
    arguments = f"({str(path)!r}, {str(path)!r}, [[np.zeros(4, np.float32)]])"
    text = f"import sys, numpy as np, mmort.onnx; print(mmort.onnx.verify{arguments}.ok); print('torch' in sys.modules)"
    assert python(text) == "True\nFalse\n"


def test_without_torch():
    text = "import sys; sys.modules['torch'] = None; import mmort.onnx; mmort.onnx.export(abs, (), 'x.onnx')"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        python(text)
    message = "ImportError: mmort.onnx.export needs torch: pip install 'mmort[torch]'"
    assert caught.value.stderr.splitlines()[-1] == message


def test_functions_are_found_by_the_names_of_their_packages():
    """Whichever is imported first."""
    text = (
        "import mmort.onnx.upgrade.steps, mmort.onnx.verify.command, mmort.onnx.export.draft, mmort.onnx; "
        "print(*(callable(getattr(mmort.onnx, name)) for name in ('export', 'upgrade', 'verify')))"
    )
    assert python(text) == "True True True\n"


# ---- refused in the words of the problem ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.bfloat16])
def test_other_dtypes_are_refused_before_the_export(tmp_path, dtype, monkeypatch):
    monkeypatch.setattr(sys.modules["mmort.onnx.export.draft"], "EXPORTERS", {"dynamo": None})
    pool = Function(lambda x: mmort.torch.corner_pool(x, "top"))
    message = rf"^export: .* must be float32, got {dtype}; export model\.float\(\) with float32 args"
    refuse(tmp_path / "m.onnx", pool, (torch.ones(1, 1, 4, 4, dtype=dtype),), match=message)


def test_a_tensor_is_no_tuple_of_arguments(tmp_path):
    with pytest.raises(TypeError, match=r"^export: args must have tensors, got a numpy array; torch\.from_numpy"):
        mmort.onnx.export(torch.relu, (np.ones(3, np.float32),), tmp_path / "x.onnx")
    with pytest.raises(TypeError, match=r"^export: model must be a module or a function of tensors, got str$"):
        mmort.onnx.export("model.pth", (torch.ones(3),), tmp_path / "x.onnx")
    message = r"^export: args must be a tuple of arguments, got a tensor: write \(tensor,\)$"
    refuse(tmp_path / "m.onnx", Function(torch.relu), torch.ones(1, 3), error=TypeError, match=message)


def test_an_example_on_which_the_model_fails(tmp_path, monkeypatch):
    """torch.export's own log of it says nothing."""
    logged = logging.handlers.BufferingHandler(100)
    monkeypatch.setattr(logging.getLogger("torch.export._trace"), "handlers", [logged])
    fails = Function(lambda x: x.reshape(7, -1))
    message = r"^export: args must suit the model, which fails with 1x3: shape '\[7, -1\]' is invalid"
    refuse(tmp_path / "m.onnx", fails, (torch.ones(1, 3),), match=message)
    assert logged.buffer == []


def test_the_search_for_patterns_of_several_outputs_takes_linear_time(monkeypatch):
    """Without `linear_rewriting` onnxscript asks each node of a graph, at each node, which operator it is."""
    asked = 0
    op_identifier = onnx_ir.Node.op_identifier

    def count(node):
        nonlocal asked
        asked += 1
        return op_identifier(node)

    monkeypatch.setattr(onnx_ir.Node, "op_identifier", count)

    def questions(length):
        nonlocal asked
        asked = 0
        nodes = "".join(f" x{index + 1} = Softplus(x{index})" for index in range(length))
        text = f'<ir_version: 8, opset_import: ["": 18]> g (float[2] x0) => (float[2] x{length}) {{{nodes} }}'
        onnxscript.optimizer.optimize_ir(onnx_ir.from_onnx_text(text))
        return asked

    assert questions(200) > 3 * questions(100)
    with linear_rewriting():
        assert questions(200) < 3 * questions(100)
    assert questions(200) > 3 * questions(100)


def test_patterns_of_several_outputs_are_still_found():
    rule = pattern.RewriteRule(lambda op, x: (op.Sin(x), op.Cos(x)), lambda op, x: (op.Neg(x), op.Abs(x)))
    graph = "g (float[2] x) => (float[2] w) { y = Sin(x) z = Cos(x) w = Add(y, z) }"
    model = onnx_ir.from_onnx_text(f'<ir_version: 8, opset_import: ["": 18]> {graph}')
    with linear_rewriting():
        assert pattern.RewriteRuleSet([rule]).apply_to_model(model) == 1
    assert [node.op_type for node in model.graph] == ["Neg", "Abs", "Add"]

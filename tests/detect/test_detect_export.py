"""``mmort export``: files detect what torch detects and describe their inputs; every error is one line."""

import json
import os
import re
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime
import pytest
import torch

import mmort.onnx
import mmort.ort
from mmort import demo
from mmort.cli import main
from mmort.configs import read_config
from mmort.detect import build, load
from mmort.detect.export import checks, export_steps, graph_masks, head_outputs, options, progress
from mmort.detect.export.examples import Examples, sufficient_shape
from mmort.detect.export.exported_detector import Exported
from mmort.onnx.export import exporters
from mmort.onnx.export.exporters import EXPORTERS
from mmort.onnx.graph.optional_inputs import make_optional
from mmort.onnx.verify.detections import compare_detections
from mmort.predict import MaskFormat, Padding, Preprocessing, paste_masks, read_image
from tests.cli import running
from tests.detect.test_query_detectors import CORNERNET

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
FCOS = DATA / "detect" / "fcos" / "config.py", DATA / "detect" / "fcos" / "checkpoint.pth"
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
IMAGES = sorted((DATA / "preprocessing").glob("*.png"))
EXPECTED = json.loads((DATA / "preprocessing" / "expected.json").read_text())
PIPELINE = EXPECTED["cascade_mask_rcnn"]["pipeline"]

pytestmark = pytest.mark.filterwarnings("default::mmort.predict.FixedSizeWarning")  # printed, as by the command


def run(*arguments):
    return main(["export", *map(str, arguments)])


@pytest.fixture(scope="session")
def mask_rcnn(tmp_path_factory):
    """Export a Mask R-CNN for any size; return its config, checkpoint and file, and the lines printed.

    It has two of four stages, as torch.export takes seconds for each level.
    """
    directory = tmp_path_factory.mktemp("mask_rcnn")
    config = json.loads((DATA / "detect" / "mask_rcnn.json").read_text()) | {"test_pipeline": PIPELINE}
    model = config["model"]
    model["backbone"] |= {"num_stages": 2, "out_indices": [0, 1]}
    model["neck"] |= {"in_channels": [12, 24], "num_outs": 3}
    model["rpn_head"]["anchor_generator"]["strides"] = [4, 8, 16]
    for name in ("bbox_roi_extractor", "mask_roi_extractor"):
        model["roi_head"][name]["featmap_strides"] = [4, 8]
    model["test_cfg"]["rpn"]["max_per_img"] = 60
    (directory / "config.json").write_text(json.dumps(config))
    checkpoint = torch.load(DATA / "detect" / "mask_rcnn.pth", weights_only=True)
    absent = re.compile(r"backbone\.layer[34]\.|neck\.(lateral|fpn)_convs\.[23]\.")
    checkpoint["state_dict"] = {key: value for key, value in checkpoint["state_dict"].items() if not absent.match(key)}
    torch.save(checkpoint, directory / "checkpoint.pth")
    files = directory / "config.json", directory / "checkpoint.pth", directory / "model.onnx"
    arguments = ("--shape", 128, 160, "--input-img", IMAGES[0], "--test-img", IMAGES[1], "--dynamic-export", "--verify")
    options = ("--cfg-options", "model.test_cfg.rcnn.max_per_img=30")
    code, out, _ = running.run("export", *files[:2], "--output-file", files[2], *arguments, *options)
    assert code == 0
    return files, out.splitlines()


@pytest.fixture(scope="session")
def session(mask_rcnn):
    return mmort.ort.session(mask_rcnn[0][2])


def test_steps_and_tables_are_printed(mask_rcnn):
    _, lines = mask_rcnn
    steps = [line for line in lines if re.match(r"[a-z]+ing ", line)]
    assert [step.split()[0] for step in steps] == ["reading", "loading", "running", "exporting", *["comparing"] * 3]
    assert steps[1].endswith("into Mask R-CNN")
    assert "2x3x128x160, 1x3x320x256, 3x3x64x96, 2x3x192x256" in steps[4]
    assert any(re.fullmatch(r"  [0-9.]+ s", line) for line in lines)
    assert any("2x3x192x256" in line for line in lines)  # the test image and its mirror image, at 1.5 times the size
    (matches,) = (line for line in lines if line.startswith("detections that match from end to end, which rounding"))
    assert re.search(r" ([1-9]\d*) of \1 at 1x3x320x256", matches)
    assert lines[-1].startswith("wrote ")


def test_metadata_describes_the_file(mask_rcnn, session):
    metadata = session.get_modelmeta().custom_metadata_map
    settings = Preprocessing.from_dict(json.loads(metadata["preprocessing"]))
    assert settings == Preprocessing.from_config({"model": {}, "test_pipeline": PIPELINE})
    assert json.loads(metadata["thresholds"])["rcnn"]["max_per_img"] == 30
    assert json.loads(metadata["classes"]) == [*map(str, range(10))]
    assert (metadata["family"], metadata["mmort_version"]) == ("Mask R-CNN", mmort.__version__)
    assert json.loads(metadata["mmort_contract"]) == {"version": 1, "task": "detection"}
    onnx.checker.check_model(str(mask_rcnn[0][2]))


def test_padded_batch_equals_torch(mask_rcnn, session):
    (config, checkpoint, _), _ = mask_rcnn
    detector = load(config, checkpoint, {"model.test_cfg.rcnn.max_per_img": 30})
    settings = Preprocessing.from_config({"model": {}, "test_pipeline": PIPELINE})
    inputs, shapes = settings.batch([settings(image) for image in IMAGES])
    results = session.run(None, {"input": inputs, "img_shape": shapes})
    expected = [output.numpy() for output in detector(torch.from_numpy(inputs), torch.from_numpy(shapes))]
    rows = compare_detections("", results, expected, rtol=1e-3, atol=1e-4)
    assert all(row.ok and row.matched > 2 for row in rows)
    assert results[0].shape == (3, 30, 5)
    assert not results[0][results[1] < 0].any()


def test_img_shape_may_be_left_out(session):
    """By default an image is the whole input, as it is for 0; one row serves all images."""
    inputs = np.random.default_rng(0).normal(size=(2, 3, 96, 128)).astype(np.float32)
    assert [(formal.name, formal.type) for formal in session.get_inputs()] == [
        ("input", "tensor(float)"),
        ("img_shape", "optional(tensor(int64))"),
    ]
    default = session.run(None, {"input": inputs})
    for shapes in ([[96, 128]] * 2, [[0, 0]] * 2, [[96, 128]], [[0, 128], [999, 0]]):
        results = session.run(None, {"input": inputs, "img_shape": np.array(shapes)})
        assert all(np.array_equal(*pair) for pair in zip(results, default, strict=True))
    smaller = session.run(None, {"input": inputs, "img_shape": np.array([[48, 64], [96, 128]])})
    assert smaller[0][0, :, 2].max() <= 64
    assert smaller[0][0, :, 3].max() <= 48
    assert np.array_equal(smaller[0][1], default[0][1])


def test_a_plain_session_prints_no_warning(mask_rcnn, capfd):
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(mmort.ort.library_path())
    onnxruntime.InferenceSession(mask_rcnn[0][2], options, providers=["CPUExecutionProvider"])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("opset", "portable"), [(18, False), (15, False), (14, False), (18, True)])
def test_input_with_default(opset, portable):
    """It has an optional type, or a default where that would not be understood."""
    formals = [
        oh.make_tensor_value_info("input", FLOAT, ["n", 3, 4, 5]),
        oh.make_tensor_value_info("shape", INT64, ["n", 2]),
    ]
    graph = oh.make_graph(
        [oh.make_node("Identity", ["shape"], ["y"])], "g", formals, [oh.make_tensor_value_info("y", INT64, ["n", 2])]
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset)], ir_version=8)
    make_optional(model, "shape", portable=portable)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    listed = opset >= 15 and not portable
    assert [formal.name for formal in session.get_inputs()] == ["input", "shape"][: 1 + listed]
    feeds = {"input": np.zeros((2, 3, 4, 5), np.float32)}
    assert session.run(None, feeds)[0].tolist() == [[0, 0], [0, 0]]
    assert session.run(None, feeds | {"shape": np.array([[4, 3]])})[0].tolist() == [[4, 3], [4, 3]]


def test_upgrade_keeps_img_shape(mask_rcnn):
    assert mmort.onnx.upgrade(onnx.load(mask_rcnn[0][2])) == []


def test_heads_of_both_stages_have_names(mask_rcnn):
    """In the order of their calls: those of `Detector.raw`, then numbers."""
    (config, checkpoint, _), _ = mask_rcnn
    detector = load(config, checkpoint, {"model.test_cfg.rcnn.max_per_img": 30})
    with_heads = head_outputs.WithHeads(Exported(detector, pasted=False), detector)
    with torch.no_grad():
        outputs = with_heads(torch.randn(1, 3, 64, 96), torch.tensor([[0, 0]]))
    names = with_heads.names(len(outputs) - 3)
    assert names == [*detector.raw_names, "roi_head.bbox_head_0", "roi_head.bbox_head_1"]


def test_files_hold_no_paths_of_this_machine(mask_rcnn):
    content = mask_rcnn[0][2].read_bytes()
    assert b"stack_trace" not in content
    assert b".py" not in content


def test_static_file_of_the_older_exporter(tmp_path, capsys):
    path = tmp_path / "fcos.onnx"
    arguments = ("--shape", 128, "--opset-version", 11, "--cfg-options", "model.test_cfg.max_per_img=7", "--show")
    ignored = ("--dataset", "coco", "--mean", 1, 2, 3, "--std", 1, 1, 1)
    assert run(*FCOS, "--output-file", path, *arguments, *ignored, "--input-img", IMAGES[0], "--simplify") == 0
    output = capsys.readouterr().out
    assert "MultiClassNMS" in output  # the graph
    assert "score  class  x1, y1, x2, y2\n0." in output
    model = onnx.load(path)
    assert model.opset_import[0].version == 11
    session = mmort.ort.session(path)
    assert session.get_inputs()[0].shape == [1, 3, 128, 128]
    inputs = np.zeros((1, 3, 128, 128), np.float32)
    assert session.run(None, {"input": inputs})[0].shape == (1, 7, 5)
    assert session.run(None, {"input": inputs, "img_shape": np.array([[64, 96]])})[0][..., 2].max() <= 96
    mmort.onnx.upgrade(model)
    assert [formal.name for formal in model.graph.input] == ["input", "img_shape"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fcos.onnx", "fcos.png"]
    assert f"wrote {path.with_suffix('.png')}, with " in output
    assert read_image(path.with_suffix(".png")).shape == read_image(IMAGES[0]).shape
    for name in ("--dataset", "--mean", "--std"):
        assert f"{name} does nothing: the config's values are used" in output
    assert "%" not in output.split("comparing")[0]  # neither torch nor onnxslim prints


def test_without_postprocessing(tmp_path):
    path = tmp_path / "fcos.onnx"
    assert (
        run(*FCOS, "--output-file", path, "--shape", 64, 96, "--opset-version", 16, "--skip-postprocess", "--verify")
        == 0
    )
    session = mmort.ort.session(path)
    inputs = np.random.default_rng(0).normal(size=(1, 3, 64, 96)).astype(np.float32)
    expected = load(*FCOS).raw(torch.from_numpy(inputs))
    results = session.run(None, {"input": inputs})
    assert [formal.name for formal in session.get_outputs()] == [
        *("cls_score_0", "cls_score_1", "cls_score_2", "cls_score_3", "cls_score_4"),
        *("bbox_pred_0", "bbox_pred_1", "bbox_pred_2", "bbox_pred_3", "bbox_pred_4"),
        *("centerness_0", "centerness_1", "centerness_2", "centerness_3", "centerness_4"),
    ]
    assert len(results) == len(expected)
    for result, output in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, output.numpy(), rtol=1e-3, atol=1e-4)


def test_masks_are_pasted_as_in_numpy(rng):
    """The graph's pasting equals numpy's, which defines it: boxes beyond the image, of no size, between pixels."""
    boxes = rng.uniform(-10, 50, (2, 20, 4)).astype(np.float32)
    boxes[..., 2:] = np.maximum(boxes[..., :2], boxes[..., 2:])
    boxes[0, 0], boxes[0, 1], boxes[0, 2] = (5, 5, 5, 9), (3, 4, 8, 9), (-30, -30, -20, -20)
    masks = rng.uniform(0, 1, (2, 20, 7, 7)).astype(np.float32)
    for threshold in (0.5, 0.2):
        mask_format = MaskFormat(threshold=threshold)
        pasted = graph_masks.paste_masks(mask_format, *map(torch.from_numpy, (masks, boxes)), 31, 43).numpy()
        expected = np.stack([paste_masks(*pair, 31, 43, threshold) for pair in zip(masks, boxes, strict=True)])
        assert pasted.dtype == np.float32
        assert (pasted != expected).sum() <= 2  # sums in another order
        assert expected.any()


def test_examples_suit_the_networks():
    """Sizes differ from the example's, one tall and one wide; CornerNet's are odd, SSD's not smaller."""
    image = cv2.imread(str(IMAGES[0]))
    for settings, shape in (
        (Preprocessing(), (800, 1216)),
        (Preprocessing(), (64, 64)),
        (Preprocessing(pad_or=127), (511, 511)),
        (Preprocessing(size=(300, 300), keep_ratio=False), (600, 600)),
        (Preprocessing(size_divisor=128), (256, 384)),
    ):
        examples = Examples(settings, dynamic=True, with_shapes=True)
        sizes = [tuple(input.shape) for input, _ in examples.checks(image, *shape)]
        assert [size[0] for size in sizes] == [1, 3]
        assert sizes[0][2] > sizes[0][3]
        assert sizes[1][2] < sizes[1][3]
        for size in sizes:
            assert all(side % 128 == 127 if settings.pad_or else side % 32 == 0 for side in size[2:])
            assert all(side % settings.size_divisor == 0 for side in size[2:])
            assert settings.keep_ratio or min(size[2:]) >= 300


def test_files_for_all_sizes_are_traced_with_images_of_the_pipelines_size():
    """So that objects are found; a check is larger than a small example, and another one smaller."""
    for settings, shape in (
        (Preprocessing(size=(1333, 800)), (800, 1216)),
        (Preprocessing(size=(256, 200)), (224, 256)),
        (Preprocessing(size=(64, 48)), (160, 160)),
        (Preprocessing(), (800, 1216)),
    ):
        examples = Examples(settings, dynamic=True, with_shapes=True)
        assert examples.default_shape() == shape
    image = cv2.imread(str(IMAGES[0]))
    assert [tuple(input.shape[2:]) for input, _ in examples.checks(image, 224, 256)] == [(512, 448), (128, 160)]


_WINDOWS = {"type": "SwinTransformer", "embed_dims": 12, "window_size": 12, "out_indices": [0, 1, 2, 3]}
_STRIDES = {"type": "HRFPN", "in_channels": [12, 24, 48, 96], "out_channels": 32, "stride": 2}


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({}, (160, 192)),
        ({"backbone": _WINDOWS | {"depths": [1, 1, 1, 1], "num_heads": [1, 1, 1, 1]}}, (640, 768)),
        ({"neck": _STRIDES}, (320, 384)),
    ],
    ids=["as it is", "several windows along a side", "strides after pooling"],
)
def test_files_for_all_sizes_are_traced_at_a_size_that_freezes_no_map(changes, shape):
    """One cell or window along a side is a constant to torch, and larger images failed in ONNX Runtime."""
    config = read_config(FCOS[0])
    config["model"] |= changes
    assert sufficient_shape(build(config), 3, 160, 192, round) == shape


def test_files_of_one_size_hold_every_image_of_the_pipeline():
    for settings, shape in (
        (Preprocessing(size=(208, 160), size_divisor=32), (224, 224)),
        (Preprocessing(size=(320, 300), keep_ratio=False), (300, 320)),
        (Preprocessing(size=(640, 640), padding=Padding(size=(640, 640))), (640, 640)),
    ):
        examples = Examples(settings, dynamic=False, with_shapes=True)
        assert examples.default_shape() == shape
        for image in (np.zeros((10, 30, 3), np.uint8), np.zeros((30, 10, 3), np.uint8)):
            input, img_shape = examples.prepared(image)
            assert input.shape == (1, 3, *shape)
            assert img_shape.tolist() == [[*settings(image).img_shape]]
    with pytest.raises(ValueError, match=r"export: shape \(--shape H W\) is needed"):
        Examples(Preprocessing(pad_or=127), dynamic=False, with_shapes=True).default_shape()


def test_sizes_that_the_older_exporter_freezes(tmp_path):
    """It keeps the example's number of candidates; the message says how files of one size are made."""
    code, out, err = running.run("export", *FCOS, "--output-file", tmp_path / "x.onnx", "--opset-version", 17)
    assert code == 1
    assert "k argument" in err
    assert "--static and --shape make files of one size" in out.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "dynamic"),
    [({}, True), ({"dynamic_export": True}, True), ({"dynamic_export": False}, False), ({"shape": (9, 9)}, False)],
)
def test_all_sizes_are_the_default(arguments, dynamic):
    assert options.ExportOptions(**arguments).dynamic is dynamic


def test_a_fixed_size_is_asked_for_one_way(capsys):
    with pytest.raises(SystemExit):
        run(*FCOS, "--static", "--dynamic-export")
    assert "argument --dynamic-export: not allowed with argument --static" in capsys.readouterr().err


class Attack:
    def __reduce__(self):
        return os.mkdir, ("/nonexistent/marker",)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("config", r"config\.py:1: configs are read, not executed: the call of __import__"),
        ("no detector", r"detect\.build: the config must have a dict 'model'"),
        ("code", r"checkpoint\.pth: holds code, which is not run: it asks for posix\.mkdir"),
        ("truncated", r"checkpoint\.pth: is not a checkpoint, or is cut short: "),
        (
            "classes",
            r"bbox_head\.conv_cls\.bias has 10 rows = 10 classes in the checkpoint, the config has num_classes=3",
        ),
        ("picture", r"picture\.png: not an image"),
        ("option", "options must be key=value, got 'model'"),
        ("shape", "--shape must be one or two numbers, got 3"),
        ("directory", "output directory does not exist: .*nowhere"),
        ("missing", r"nowhere\.pth: no such file or directory$"),
        ("address", r"checkpoint must be a file, download it first: https://example\.org/x\.pth"),
        ("name", "checkpoint must be a file, download it first: open-mmlab://resnet50"),
        ("config address", r"config must be a file, download it first: https://example\.org/c\.py"),
        ("unknown entry", "model with nope is not supported"),
        ("unknown threshold", r"test_cfg with score_thre \(did you mean score_thr\?\) is not supported"),
        ("unknown root", r"got modle\.neck: it has no modle \(did you mean model\?\)"),
        ("opset", r"opset_version must be 11 to \d+, got 99"),
    ],
)
def test_errors_are_one_line(tmp_path, capsys, fault, message):
    config, checkpoint = FCOS
    output, more = tmp_path / "x.onnx", ()
    if fault in ("config", "no detector"):
        config = tmp_path / "config.py"
        config.write_text("__import__('os').mkdir('/tmp/x')" if fault == "config" else "a = 1")
    elif fault in ("code", "truncated"):
        content, checkpoint = checkpoint.read_bytes(), tmp_path / "checkpoint.pth"
        checkpoint.write_bytes(content[:100_000])
        if fault == "code":
            torch.save({"state_dict": {}, "meta": Attack()}, checkpoint)
    elif fault == "picture":
        (tmp_path / "picture.png").write_text("text")
        more = "--input-img", tmp_path / "picture.png"
    elif fault == "directory":
        output = tmp_path / "nowhere" / "x.onnx"
    elif fault == "config address":
        config = "https://example.org/c.py"
    elif fault in ("address", "name"):
        checkpoint = {"address": "https://example.org/x.pth", "name": "open-mmlab://resnet50"}[fault]
    elif fault == "missing":
        checkpoint = tmp_path / "nowhere.pth"
    else:
        more = {
            "classes": ("--cfg-options", "model.bbox_head.num_classes=3"),
            "option": ("--cfg-options", "model"),
            "unknown entry": ("--cfg-options", "model.nope=3"),
            "unknown threshold": ("--cfg-options", "model.test_cfg.score_thre=0.3"),
            "unknown root": ("--cfg-options", "modle.neck=None"),
            "shape": ("--shape", 1, 2, 3),
            "opset": ("--opset-version", 99),
        }[fault]
    assert run(config, checkpoint, "--output-file", output, *more) == (2 if fault == "shape" else 1)
    error = capsys.readouterr().err
    assert error.startswith("mmort: error: ")
    assert error.count("\n") == 1
    assert re.search(message, error)
    assert not output.exists()


ARGUMENTS = [
    "CONFIG",
    "CHECKPOINT",
    "--input-img",
    "--show",
    "--output-file",
    "--opset-version",
    "--test-img",
    "--dataset",
]
ARGUMENTS += ["--verify", "--simplify", "--shape", "--mean", "--std", "--cfg-options", "--dynamic-export"]
ARGUMENTS += ["--skip-postprocess"]
"""Those of MMDetection's pytorch2onnx.py, in its order."""


def test_arguments_of_pytorch2onnx_are_tried_and_documented():
    document = (ROOT / "docs" / "export_options.md").read_text(encoding="utf-8")
    section = document.split("## Arguments of the old command")[1].split("## Further options")[0]
    assert re.findall(r"^\| `([\w-]+)[^`]*` \|", section, re.M) == ARGUMENTS
    source = Path(__file__).read_text(encoding="utf-8")
    commands = source.replace(source[source.index("ARGUMENTS = ") : source.index("def test_arguments_of_py")], "")
    assert [name for name in ARGUMENTS[2:] if f'"{name}"' not in commands] == []


def test_a_missing_package_is_named_before_any_work(monkeypatch, capsys):
    monkeypatch.setattr(checks, "find_spec", lambda name: None if name == "onnxslim" else find_spec(name))
    assert run("no config", "no checkpoint", "--simplify") == 1
    assert capsys.readouterr() == ("", "mmort: error: mmort export needs onnxslim: pip install 'mmort[detect]'\n")


def test_a_key_interrupts(tmp_path, monkeypatch, capsys):
    """Ctrl-C is one line and leaves no file."""

    def interrupted(example, draft, options):
        draft.write_bytes(b"half a file")
        raise KeyboardInterrupt

    monkeypatch.setitem(EXPORTERS, "dynamo", interrupted)
    assert run(*FCOS, "--output-file", tmp_path / "x.onnx") == 130
    assert capsys.readouterr().err == "mmort: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_long_steps_show_signs_of_life(monkeypatch, capsys):
    """They and the announcements appear at once, while what the step itself prints does not."""
    monkeypatch.setattr(progress, "HEARTBEAT", 0.01)
    monkeypatch.setattr(progress, "MIN_SECONDS", 0.0)
    alive = threading.Event()

    def show(line):
        print(line)
        if line.startswith("  ..."):
            alive.set()

    steps = progress.Steps(show)
    steps.begin("tracing")
    with progress.muted():
        print("torch's")
        assert alive.wait(10)
    steps.begin("comparing")
    steps.end()
    lines = re.sub(r"[0-9.]+ s", "0 s", capsys.readouterr().out).splitlines()
    assert list(dict.fromkeys(lines)) == ["tracing", "  ... 0 s", "  0 s", "comparing"]


_SLOW_TERMINAL = """
import sys, time
from mmort.detect.export import progress

class Slow:
    flush = sys.__stdout__.flush
    def write(self, text):
        time.sleep(0.02)
        if full and text != "\\n":
            raise OSError(28, "No space left on device")
        return sys.__stdout__.write(text)

full, progress.HEARTBEAT, sys.stdout = False, 0.01, Slow()
for full in (False, True):
    steps = progress.Steps(print if not full else lambda line: line.startswith("  ") and print(line))
    steps.begin("tracing")
    for _ in range(30):
        with progress.muted():
            time.sleep(0.015)
    steps.end(failed=True)
    sys.stdout = Slow()
"""


def test_signs_of_life_on_a_slow_terminal_and_a_full_disk():
    """`print` uses what stdout is when it begins; if that is replaced and freed meanwhile, the process crashes."""
    command = [sys.executable, "-c", _SLOW_TERMINAL]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "  ... 0 s" in result.stdout


def test_a_flip_test_has_a_price(tmp_path, monkeypatch):
    """It is said, and the option leaves the flip test out of the detector and of the metadata."""
    config, checkpoint = tmp_path / "config.json", tmp_path / "checkpoint.pth"
    steps = EXPECTED["cornernet"]["pipeline"]
    settings = CORNERNET | {"test_pipeline": [step | {"flip": True} if "flip" in step else step for step in steps]}
    config.write_text(json.dumps(settings))
    torch.save(build(settings).state_dict(), checkpoint)
    results = []

    def stop(detector, preprocessing, metadata, *_):
        results.append((detector.flip_test, preprocessing.flip, metadata.preprocessing.flip))
        raise ValueError("enough")

    monkeypatch.setattr(export_steps, "_Export", stop)
    outputs = [running.run("export", config, checkpoint, *more)[1] for more in ((), ("--no-flip",))]
    assert ["2.0 times the work" in output for output in outputs] == [True, False]
    assert results == [(True, True, True), (False, False, False)]


def test_bytes_written_are_the_bytes_compared(tmp_path, monkeypatch):
    """Every session opened for a comparison has the final model, with the optional input and the metadata."""
    compared = []
    session = mmort.ort.session

    def recording(content, **options):
        compared.append(onnx.load_from_string(content))
        return session(content, **options)

    monkeypatch.setattr(mmort.ort, "session", recording)
    path, image = tmp_path / "fcos.onnx", ("--verify", "--test-img", IMAGES[1])
    assert run(*FCOS, "--output-file", path, "--shape", 64, 96, "--opset-version", 16, *image) == 0
    written = onnx.load(path)
    assert len(compared) == 2  # with the outputs of heads, and without img_shape
    for model in compared:
        for part in ("node", "initializer", "input"):
            assert getattr(model.graph, part) == getattr(written.graph, part)
        assert model.metadata_props == written.metadata_props


def test_nothing_is_written_if_detections_differ(tmp_path, capsys, monkeypatch):
    """The boxes of torch are 1 pixel off once the file has been traced."""
    calls = []
    forward = Exported.forward

    def moved(self, input, img_shape):
        calls.append(input)
        dets, *rest = forward(self, input, img_shape)
        return dets + (0 if torch.jit.is_tracing() else 1), *rest

    monkeypatch.setattr(Exported, "forward", moved)
    path = tmp_path / "x.onnx"
    assert run(*FCOS, "--output-file", path, "--shape", 64, 96, "--opset-version", 16) == 1
    error = capsys.readouterr().err
    assert f"{path} was not written" in error
    assert "missing" in error
    assert list(tmp_path.iterdir()) == []
    assert calls


NOTHING = ("--opset-version", 16, "--shape", 64, 96, "--cfg-options", "model.test_cfg.score_thr=0.999")


def test_heads_are_compared_where_nothing_is_detected(tmp_path, capsys):
    path = tmp_path / "x.onnx"
    assert run(*FCOS, "--output-file", path, "--verify", *NOTHING) == 0
    text = capsys.readouterr().out
    assert len(re.findall(r"cls_score_0 .* ok", text)) == 3
    assert "centerness_4" in text
    thresholds = {entry.key: entry.value for entry in onnx.load(path).metadata_props}["thresholds"]
    assert json.loads(thresholds)["score_thr"] == 0.999
    assert [formal.name for formal in onnx.load(path).graph.output] == ["dets", "labels"]
    assert [file.name for file in tmp_path.iterdir()] == ["x.onnx"]


def test_errors_that_no_detection_shows_are_found(tmp_path, capsys, monkeypatch):
    """One weight of 200 of a head's last layer is off by 1 percent of the largest."""

    def damage(model):
        (weights,) = (tensor for tensor in model.graph.initializer if tensor.name.endswith("conv_cls.weight"))
        values = onnx.numpy_helper.to_array(weights).copy()
        values.flat[0] += 0.01 * np.abs(values).max()
        weights.CopyFrom(onnx.numpy_helper.from_array(values, weights.name))

    monkeypatch.setattr(exporters, "remove_traces", damage)
    path = tmp_path / "x.onnx"
    assert run(*FCOS, "--output-file", path, *NOTHING) == 1
    assert re.search(r"cls_score_0 .* DIFFERS: \d+ of \d+ numbers", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_an_unverified_file_says_so(tmp_path, capsys, monkeypatch):
    """Without a comparison not even a session is opened."""
    monkeypatch.setattr(mmort.ort, "session", None)
    path = tmp_path / "x.onnx"
    assert run(*FCOS, "--output-file", path, "--shape", 64, 96, "--opset-version", 16, "--no-verify") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("NOT VERIFIED: it has not been compared with torch")
    assert not any("comparing" in line for line in lines)
    metadata = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert (metadata["family"], metadata["verified"]) == ("FCOS", "false")


@pytest.mark.parametrize(
    ("names", "note", "classes"),
    [
        ("abcdefghij", "; those of the config's test data set are taken", tuple("abcdefghij")),
        ("ab", ", so that detections have numbers instead of names", ()),  # the detector has ten classes
    ],
)
def test_classes_of_the_config_where_the_checkpoint_names_none(tmp_path, capsys, monkeypatch, names, note, classes):
    torch.save(torch.load(demo.CHECKPOINT, weights_only=True)["state_dict"], tmp_path / "plain.pth")
    written = []
    monkeypatch.setattr(export_steps, "_write", lambda network, *_: written.append(network.detector.classes))
    options = "--cfg-options", f"data.test.classes={json.dumps(list(names))}"
    assert run(demo.CONFIG, tmp_path / "plain.pth", *options, "-o", tmp_path / "x.onnx") == 0
    assert f"note: the checkpoint names no classes{note}\n" in capsys.readouterr().out
    assert written == [classes]


def test_failures_of_the_exporter_are_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Exported, "forward", lambda self, input, img_shape: (torch.special.i0e(input), img_shape))
    assert run(*FCOS, "--output-file", tmp_path / "x.onnx", "--opset-version", 16) == 1
    error = capsys.readouterr().err
    assert "torch's legacy exporter cannot export this: Exporting the operator 'aten::special_i0e'" in error
    assert error.count("\n") == 1

"""The contract of files: what is written is read, files of all versions are, and models that do not keep it are not."""

import json
import pathlib
import re

import numpy as np
import onnx
import onnx.helper as oh
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mmort
import mmort.ort
from mmort.contract import (
    BOXES,
    DETECTION,
    VERSION,
    EncoderFile,
    Interface,
    MaskFormat,
    Metadata,
    Padding,
    PoseFormat,
    Preprocessing,
    RecognitionFormat,
    SegmentationFormat,
    TextDetectionFormat,
    TextKernelsFormat,
    check,
    read,
    read_metadata,
    write,
    write_entries,
)
from mmort.contract.mask_format import WORDS as WORDS_OF_MASKS
from mmort.contract.preprocessing import WORDS as WORDS_OF_PREPROCESSING
from mmort.demo import MODEL
from mmort.detections import PanopticFormat
from tests.predict import tiny_detector

THEIRS = {
    "demo/words/config.py": "keys of MMDetection's images",
    "evaluate/mean_ap.py": "a column of MMDetection's table",
    "onnx/adopt/recognize.py": "RF-DETR's names",
    "onnx/verify/detections.py": "the comparison of two files",
    "original/adapters.py": "keys of MMSegmentation's images",
    "original/ends.py": "keys of MMCV's images",
    "torch/functions.py": "an argument of MMCV's nms_match",
}
"""Modules that have the contract's words, and why."""

OLD_FILE = pathlib.Path(__file__).parent.parent / "data" / "old_export" / "mask_rcnn.onnx"

numbers = st.floats(-1e6, 1e6, allow_nan=False)
sides = st.integers(1, 4096)
sizes = st.none() | st.tuples(sides, sides)
names = st.text(st.characters(exclude_categories=["Cs"]))
paddings = st.builds(
    Padding,
    value=st.none() | numbers | st.tuples(numbers, numbers, numbers),
    size=sizes,
    square=st.booleans(),
    size_divisor=sides,
    in_image=st.booleans(),
    centred=st.booleans(),
)
preprocessings = st.builds(
    Preprocessing,
    mean=st.tuples(numbers, numbers, numbers),
    std=st.tuples(*[st.floats(1e-3, 1e6)] * 3),
    size=sizes,
    keep_ratio=st.booleans(),
    size_divisor=sides,
    pad_or=st.integers(0, 4095),
    pad_add=st.integers(0, 4096),
    padding=st.none() | paddings,
    flip=st.booleans(),
    **{
        name: st.sampled_from([word for word in words if word != "area"])  # which is OpenCV's alone
        for name, words in WORDS_OF_PREPROCESSING.items()
        if name != "color_type"
    },
) | st.integers(1, 16).flatmap(
    lambda channels: st.builds(
        Preprocessing,
        mean=st.tuples(*[numbers] * channels),
        std=st.tuples(*[st.floats(1e-3, 1e6)] * channels),
        padding=st.none() | st.builds(Padding, value=st.tuples(*[numbers] * channels)),
        color_type=st.sampled_from(("grayscale", "unchanged") if channels == 1 else ("unchanged",)),
    )
)
panoptics = st.builds(
    PanopticFormat,
    source=st.sampled_from(["queries", "instances"]),
    things=st.integers(0, 80),
    classes=st.integers(80, 999),
    min_visible=st.floats(0, 1),
    inside_only=st.booleans(),
    max_overlap=st.floats(0, 1),
    min_stuff_area=st.integers(0, 2**31),
)
mask_formats = st.builds(
    MaskFormat,
    threshold=numbers,
    stride=sides,
    panoptic=st.none() | panoptics,
    inside_boxes=st.booleans(),
    **{name: st.sampled_from(words) for name, words in WORDS_OF_MASKS.items()},
)
json_objects = st.dictionaries(
    names, st.recursive(st.none() | st.booleans() | numbers | names, lambda inner: st.lists(inner, max_size=3))
)
metadata = st.builds(
    Metadata,
    family=st.none() | names,
    classes=st.none() | st.lists(names, min_size=1).map(tuple),
    preprocessing=st.none() | preprocessings,
    mask_format=st.none() | mask_formats,
    thresholds=st.none() | json_objects,
    angle_version=st.sampled_from([None, "oc", "le90", "le135"]),
    texts=st.none() | st.builds(EncoderFile, st.just("a.texts.onnx"), names),
    layout=st.none() | json_objects,
    mmort_version=st.none() | names,
    is_verified=st.booleans(),
)


@given(metadata)
def test_what_is_written_is_read(stated):
    assert read_metadata("model", write_entries(stated)) == stated


@given(metadata)
def test_a_model_keeps_entries_of_other_tools(stated):
    model = onnx.ModelProto()
    oh.set_model_props(model, {"author": "someone", "family": "of before"})
    write(model, stated)
    write(model, stated)
    entries = Interface.of_model(model).metadata
    assert entries["author"] == "someone"
    assert len(model.metadata_props) == len(entries)
    if stated.family is not None:
        assert read_metadata("model", entries) == stated


def test_every_field_is_written():
    """A field that `write_entries` forgot would be read as its default."""
    stated = Metadata(
        family="FCOS",
        classes=("a",),
        preprocessing=Preprocessing(),
        mask_format=MaskFormat(),
        segmentation=SegmentationFormat((4, 6), (2, 3), True, 0.5),
        pose=PoseFormat(
            "udp", ("hip", "knee"), 1.5, True, 3.0, 7, ((0, 1),), ((1, 2, 3),) * 2, ((4, 5, 6),), (0.1, 0.2)
        ),
        recognition=RecognitionFormat("ctc", ("a", "b"), 1, 0, (1,)),
        text_detection=TextDetectionFormat("quad", 0.5, 0.4, 3, 2, 0.1, 7),
        text_kernels=TextKernelsFormat("pan", "quad", 0.4, 0.3, 0.2, 5, 6, 2.0, 0.5),
        palette=((1, 2, 3),),
        thresholds={},
        angle_version="oc",
        texts=EncoderFile("a.texts.onnx", "1f"),
        layout={},
        mmort_version="0.1",
        is_verified=False,
    )
    defaults = vars(Metadata())
    assert [name for name, value in vars(stated).items() if value == defaults[name]] == [
        "task"
    ]  # of which there is one
    assert read_metadata("model", write_entries(stated)) == stated


def test_files_of_version_0_are_read_as_they_were():
    """The demo's file was written before the contract had a version."""
    model = onnx.load(MODEL)
    entries = {entry.key: entry.value for entry in model.metadata_props}
    assert "mmort_contract" not in entries
    contract = check(str(MODEL), model)
    assert contract == read(str(MODEL), Interface.of_session(mmort.ort.session(MODEL)))
    assert contract.outputs == ("dets", "labels", "masks")
    assert (contract.image.name, contract.inputs, contract.input_shape) == ("input", ("img_shape",), (None, None, None))
    stated = contract.metadata
    assert stated.preprocessing.to_dict() | json.loads(entries["preprocessing"]) == stated.preprocessing.to_dict()
    assert stated.thresholds == json.loads(entries["thresholds"])
    assert list(stated.classes) == json.loads(entries["classes"])
    assert (stated.family, stated.mmort_version) == (entries["family"], entries["mmort_version"])
    assert (stated.mask_format, stated.is_verified) == (MaskFormat(), True)


def test_files_of_mmdetection_state_nothing():
    contract = read("old.onnx", Interface.of_session(mmort.ort.session(OLD_FILE)))
    assert contract.outputs == ("dets", "labels", "masks")
    assert (contract.inputs, contract.metadata) == ((), Metadata())


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            {"version": VERSION + 1, "task": "a later one"},
            r"x: metadata that mmort cannot read: a later mmort wrote the file, by version 2 of the contract, and this "
            r"one knows version 1; pip install --upgrade mmort$",
        ),
        (
            {"version": VERSION, "task": "a later one"},
            "mmort_contract.task must be 'detection' or 'classification' or 'segmentation' or 'keypoints' or "
            "'text recognition' or 'text detection', got \"a later one\"",
        ),
        ({"version": 0, "task": "detection"}, r"mmort_contract.version must be an integer from 1 to \d+, got 0"),
        ({"version": True, "task": "detection"}, r"mmort_contract.version must be an integer from 1 to \d+, got true"),
        ({"task": "detection"}, "mmort_contract must have version"),
        ({"version": 1}, "mmort_contract must have task"),
        ([1], r"mmort_contract must be an object, got \[1\]"),
    ],
)
def test_contracts_that_this_version_does_not_know(stated, message):
    """Before any other entry is read, as a later version may have changed it."""
    with pytest.raises(ValueError, match=message):
        read_metadata("x", {"mmort_contract": json.dumps(stated), "preprocessing": "[", "masks": "{"})


def test_entries_of_other_tools_with_our_names_are_theirs():
    entries = {"family": "Helvetica", "thresholds": "low", "layout": "NCHW", "angle_version": "7"}
    assert read_metadata("model", entries) == Metadata()
    with pytest.raises(ValueError, match="thresholds is not JSON"):
        read_metadata("model", entries | {"mmort_version": "0.1"})
    with pytest.raises(ValueError, match=r"layout must be an object, got \[\]"):
        read_metadata("model", {"layout": "[]", "mmort_version": "0.1"})


def tiny_model(tmp_path, **arguments):
    """Return a detector that states what it must."""
    model = onnx.load(tiny_detector.write(tmp_path / "x.onnx", **arguments))
    write(model, Metadata(classes=("a", "b"), preprocessing=tiny_detector.PREPROCESSING))
    return model


@pytest.mark.parametrize("img_shape", [None, "input", "initializer"])
def test_sessions_and_models_have_the_same_contract(tmp_path, img_shape):
    model = tiny_model(tmp_path, img_shape=img_shape)
    contract = read("x", Interface.of_session(mmort.ort.session(model.SerializeToString())))
    assert contract == check("x", model)
    assert contract.takes_img_shape == (img_shape is not None)


def with_output(model, name, kind, shape):
    """Return the model with another type and shape of an output."""
    value = next(value for value in model.graph.output if value.name == name)
    value.CopyFrom(oh.make_tensor_value_info(name, kind, shape))
    return model


@pytest.mark.parametrize(
    ("name", "kind", "shape", "message"),
    [
        (
            "dets",
            onnx.TensorProto.FLOAT,
            ["N", "K", 7],
            r"x: dets must be float32 \(N, K, 5 or 6\), got dets float32 \[",
        ),
        ("dets", onnx.TensorProto.DOUBLE, ["N", "K", 5], "dets must be float32 .*, got dets float64"),
        ("labels", onnx.TensorProto.INT32, ["N", "K"], "labels must be int64 .*, got labels int32"),
        ("labels", onnx.TensorProto.INT64, ["N", "K", 1], r"labels must be int64 \(N, K\), got"),
    ],
)
def test_models_that_do_not_keep_the_contract(tmp_path, name, kind, shape, message):
    model = with_output(tiny_model(tmp_path), name, kind, shape)
    with pytest.raises(ValueError, match=message):
        check("x", model)


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        (
            "codec",
            "later",
            "pose.codec must be 'simcc' or 'heatmaps' or 'dark' or 'udp' or 'megvii' or 'points', got \"later\"",
        ),
        ("names", ["a", 1], "pose.names must be a list of names"),
        ("padding", -1, "pose.padding must be a finite number from 0 to"),
        ("padding", 0, "pose: padding must be positive, got 0"),
        ("blur", 4, "pose: blur must be a positive odd number, got 4"),
        ("links", [[0, 2]], "Skeleton: links must be between keypoints 0 to 1, got keypoint 2"),
        ("links", [[0, True]], "pose.links must be a list of pairs of keypoints"),
        ("colours", [[0, 0, 0]], "Skeleton: colours must be 2, one for each, got 1"),
        ("link_colours", [[0, 0, 256]], "pose.link_colours must be a list of red, green, blue"),
        ("sigmas", [0.1], "pose: sigmas must be 2, one for each keypoint, got 1"),
        ("sigmas", [0.1, -1], "pose.sigmas must be numbers from 0"),
    ],
)
def test_formats_of_poses(entry, value, message):
    stated = PoseFormat("simcc", ("hip", "knee"), links=((0, 1),)).to_dict() | {entry: value}
    with pytest.raises(ValueError, match=re.escape(message)):
        read_metadata("x", {"pose": json.dumps(stated)})
    del stated["codec"]
    with pytest.raises(ValueError, match="pose"):
        read_metadata("x", {"pose": json.dumps(stated)})


def test_sizes_that_outputs_share(tmp_path):
    model = with_output(tiny_model(tmp_path), "dets", onnx.TensorProto.FLOAT, ["N", 8, 5])
    check("x", with_output(model, "labels", onnx.TensorProto.INT64, ["N", 8]))
    with pytest.raises(ValueError, match=r"labels must be int64 \(N, K\), got labels int64 \['N', 9\]"):
        check("x", with_output(model, "labels", onnx.TensorProto.INT64, ["N", 9]))


def test_the_table_has_every_output_once():
    tensors = [tensor.name for tensor in (*DETECTION.inputs, *DETECTION.outputs)]
    assert len(tensors) == len(set(tensors))
    assert {*DETECTION.for_programs, *(name for form in DETECTION.forms for name in form)} == {
        tensor.name for tensor in DETECTION.outputs
    }
    for form in DETECTION.forms:
        assert form[: len(BOXES)] == DETECTION.forms[0] == BOXES
        assert DETECTION.outputs_among(form[::-1]) == form
        arrays = [
            np.zeros([size if isinstance(size, int) else 6 for size in tensor.sizes])
            for tensor in DETECTION.tensors(form)
        ]
        DETECTION.check_arrays(arrays, 6)


def test_no_other_module_has_the_names():
    package = pathlib.Path(mmort.__file__).parent
    named = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"""['"](dets|img_shape)['"]""", path.read_text(encoding="utf-8"))
    }
    assert named <= {"contract/tasks.py", *THEIRS}

"""What cannot be computed is refused by both doors in the same words, and nothing breaks by it."""

import re
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import cases
import doors
import mmort
import oracles
from compare import assert_close


def zeros(*shape):
    return np.zeros(shape, np.float32)


NAN, INF = np.nan, np.inf


@dataclass(frozen=True)
class Refusal:
    """Arguments of an operator and the whole text of the error behind the operator's name."""

    operator: str
    text: str
    arrays: tuple[np.ndarray, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self):
        return f"{self.operator}-{self.text}"


REFUSALS: list[Refusal] = []


def refuse(operator, text, *arrays, **attributes):
    REFUSALS.append(Refusal(operator, text, arrays, attributes))


for operator, attributes in (("nms", {"iou_threshold": 0.5}), ("soft_nms", {})):
    refuse(operator, "boxes must be [N, 4], got [3, 5]", zeros(3, 5), zeros(3), **attributes)
    refuse(operator, "boxes must be [N, 4], got [4]", zeros(4), zeros(1), **attributes)
    refuse(operator, "boxes must be [N, 4], got [1, 3, 4]", zeros(1, 3, 4), zeros(3), **attributes)
    refuse(operator, "boxes must be [N, 4], got []", zeros(), zeros(1), **attributes)
    refuse(operator, "boxes must be [N, 4], got [0, 3]", zeros(0, 3), zeros(0), **attributes)
    refuse(operator, "scores must be [N] with N = 3, got [2]", zeros(3, 4), zeros(2), **attributes)
    refuse(operator, "scores must be [N] with N = 3, got [4]", zeros(3, 4), zeros(4), **attributes)
    refuse(operator, "scores must be [N] with N = 0, got [1]", zeros(0, 4), zeros(1), **attributes)
    refuse(operator, "scores must be [N], got [3, 1]", zeros(3, 4), zeros(3, 1), **attributes)
    refuse(operator, "scores must be [N], got []", zeros(3, 4), zeros(), **attributes)
refuse("nms", "iou_threshold must be a number, got nan", zeros(3, 4), zeros(3), iou_threshold=np.nan)
refuse("nms", "iou_threshold must be a number, got nan", zeros(0, 4), zeros(0), iou_threshold=np.nan)

refuse("nms_match", "dets must be [N, 5], got [3, 4]", zeros(3, 4), iou_threshold=0.5)
refuse("nms_match", "dets must be [N, 5], got [5]", zeros(5), iou_threshold=0.5)
refuse("nms_match", "dets must be [N, 5], got [0]", zeros(0), iou_threshold=0.5)
refuse("nms_match", "iou_threshold must be a number, got nan", zeros(3, 5), iou_threshold=np.nan)
refuse("box_iou", "boxes1 must be [N, 4], got [3, 5]", zeros(3, 5), zeros(3, 4))
refuse("box_iou", "boxes2 must be [M, 4], got [4]", zeros(3, 4), zeros(4))
refuse("box_iou", "boxes2 must be [N, 4] with N = 3, got [2, 4]", zeros(3, 4), zeros(2, 4), aligned=True)

refuse("corner_pool", "input must be [N, C, H, W], got [3, 4, 5]", zeros(3, 4, 5), mode="top")
refuse("corner_pool", "input must be [N, C, H, W], got [1, 1, 1, 4, 5]", zeros(1, 1, 1, 4, 5), mode="left")
refuse("corner_pool", "input must be [N, C, H, W], got []", zeros(), mode="left")
for operator in ("cummax", "cummin"):
    refuse(operator, "input must have at least one dimension, got a scalar", zeros(), dim=0)
    for dim in (2, -3, 2**40, -(2**63)):
        refuse(operator, f"dim must be in [-2, 1] for an input of 2 dimensions, got {dim}", zeros(2, 3), dim=dim)
    refuse(operator, "dim must be in [-1, 0] for an input of 1 dimensions, got 1", zeros(0), dim=1)
    refuse(operator, "arrays may have up to 16 dimensions, got 17", zeros(*(1,) * 17), dim=0)

POINTS = zeros(2, 4, 5, 2)
refuse("grid_sample", "input must be [N, C, H, W], got [2, 3, 4]", zeros(2, 3, 4), POINTS)
refuse("grid_sample", "input must be [N, C, H, W], got [2, 1, 3, 4, 5]", zeros(2, 1, 3, 4, 5), POINTS)
refuse("grid_sample", "grid must be [N, OH, OW, 2], got [2, 5, 2]", zeros(2, 3, 4, 5), zeros(2, 5, 2))
refuse("grid_sample", "grid must be [N, OH, OW, 2], got [2, 3, 4, 5, 3]", zeros(2, 3, 4, 5), zeros(2, 3, 4, 5, 3))
refuse("grid_sample", "grid must be [N, OH, OW, 2] with N = 2, got [1, 4, 5, 2]", zeros(2, 3, 4, 5), zeros(1, 4, 5, 2))
refuse("grid_sample", "grid must be [N, OH, OW, 2] with N = 0, got [2, 4, 5, 2]", zeros(0, 3, 4, 5), POINTS)
refuse("grid_sample", "grid must be [N, OH, OW, 2], got [2, 4, 5, 1]", zeros(2, 3, 4, 5), zeros(2, 4, 5, 1))
for height, width in ((0, 5), (4, 0), (0, 0)):
    text = f"input must have pixels to read, got [2, 3, {height}, {width}]"
    refuse("grid_sample", text, zeros(2, 3, height, width), POINTS)


for operator, extra in (("deform_conv2d", ()), ("modulated_deform_conv2d", (zeros(1, 9, 4, 5),))):
    fits = {"input": zeros(1, 4, 6, 7), "offset": zeros(1, 18, 4, 5)}
    fits |= {"mask": one for one in extra} | {"weight": zeros(5, 4, 3, 3)} | ({"bias": zeros(5)} if extra else {})

    def refuse_with(text, operator=operator, fits=fits, attributes=(), **changed):
        refuse(operator, text, *(fits | changed).values(), **dict(attributes))

    for shape in ((4, 6, 7), (1, 1, 4, 6, 7), ()):
        refuse_with(f"input must be [N, C, H, W], got {list(shape)}", input=zeros(*shape))
    for shape in ((5, 4, 3), (1, 5, 4, 3, 3)):
        refuse_with(f"weight must be [O, C/groups, KH, KW], got {list(shape)}", weight=zeros(*shape))
    for shape in ((5, 3, 3, 3), (5, 5, 3, 3), (5, 4, 0, 3), (5, 4, 3, 0)):
        text = f"weight must be [O, 4, KH, KW] with KH and KW at least 1, got {list(shape)}"
        refuse_with(text, weight=zeros(*shape))
    for shape in ((18, 4, 5), (1, 1, 18, 4, 5)):
        text = f"offset must be [N, deform_groups*2*KH*KW, OH, OW], got {list(shape)}"
        refuse_with(text, offset=zeros(*shape))
    for shape in (
        (2, 18, 4, 5),
        (0, 18, 4, 5),
        (1, 9, 4, 5),
        (1, 36, 4, 5),
        (1, 18, 3, 5),
        (1, 18, 4, 6),
        (1, 18, 0, 5),
    ):
        refuse_with(f"offset must be [1, 18, 4, 5], got {list(shape)}", offset=zeros(*shape))
    refuse_with("offset must be [1, 18, 0, 0], got [1, 18, 4, 5]", input=zeros(1, 4, 2, 1))
    if extra:
        refuse_with("mask must be [N, deform_groups*KH*KW, OH, OW], got [9, 4, 5]", mask=zeros(9, 4, 5))
        for shape in ((2, 9, 4, 5), (1, 8, 4, 5), (1, 18, 4, 5), (1, 9, 5, 5), (1, 9, 4, 4)):
            refuse_with(f"mask must be [1, 9, 4, 5], got {list(shape)}", mask=zeros(*shape))
        for shape in ((4,), (6,), (0,)):
            refuse_with(f"bias must be [O] with O = 5, got {list(shape)}", bias=zeros(*shape))
        refuse_with("bias must be [O], got [5, 1]", bias=zeros(5, 1))
    for name, least in (("stride", 1), ("padding", 0), ("dilation", 1)):
        for value in ((least - 1, 2), (2, least - 1), (-(2**63), 2), (2, 2**29 + 1), (2**63 - 1, 2)):
            text = f"{name} must be between {least} and 2**29, got {list(value)}"
            refuse_with(text, attributes={name: value}.items())
    for name in ("groups", "deform_groups"):
        for value in (0, -1, -(2**63)):
            refuse_with(f"{name} must be at least 1, got {value}", attributes={name: value}.items())
    for value in (2, 3, 5, 2**62):
        text = f"groups must divide the channels of input and output, 4 and 5, got {value}"
        refuse_with(text, attributes={"groups": value}.items())
    for value in (3, 5, 8, 2**62):
        text = f"deform_groups must divide the channels of input, 4, got {value}"
        refuse_with(text, attributes={"deform_groups": value}.items())


def roi(**changed):
    """One region with some of its numbers changed."""
    ordinary = {"image": 0, "x1": 1, "y1": 1, "x2": 3, "y2": 2}
    return np.array([list((ordinary | changed).values())], np.float32)


MAP = zeros(2, 3, 4, 5)
SIZE = {"output_size": (2, 3)}
refuse("roi_align", "input must be [N, C, H, W], got [3, 4, 5]", zeros(3, 4, 5), roi(), **SIZE)
refuse("roi_align", "rois must be [K, 5], got [3, 4]", MAP, zeros(3, 4), **SIZE)
refuse("roi_align", "rois must be [K, 5], got [5]", MAP, zeros(5), **SIZE)
refuse("roi_align", "rois must be [K, 5], got [0, 4]", MAP, zeros(0, 4), **SIZE)
for image in (2, -1, 1e9, -1e9, 3e38, NAN, INF, -INF):
    text = f"the batch index of rois[0] must be in [0, 2), got {image:g}"
    refuse("roi_align", text, MAP, roi(image=image), **SIZE)
refuse("roi_align", "the batch index of rois[0] must be in [0, 0), got 0", zeros(0, 3, 4, 5), roi(), **SIZE)
for corner in ("x1", "y1", "x2", "y2"):
    for value in (NAN, INF, -INF):
        for sampling_ratio in (0, 2):
            text = f"the coordinates of rois[0] must be finite, got {value:g}"
            refuse("roi_align", text, MAP, roi(**{corner: value}), sampling_ratio=sampling_ratio, **SIZE)
refuse(
    "roi_align", "the coordinates of rois[1] must be finite, got nan", MAP, np.concatenate([roi(), roi(x2=NAN)]), **SIZE
)
for ratio in (1025, 2**40):
    refuse("roi_align", f"sampling_ratio must be at most 1024, got {ratio}", MAP, roi(), sampling_ratio=ratio, **SIZE)
for height, width in ((0, 2), (2, 0), (-1, 2), (2, -(2**40))):
    text = f"output_height and output_width must be at least 1, got {height} and {width}"
    refuse("roi_align", text, MAP, roi(), output_size=(height, width))
    refuse("roi_align", text, MAP, zeros(0, 5), output_size=(height, width))
for value in (NAN, INF, -INF):
    refuse("roi_align", f"spatial_scale must be finite, got {value:g}", MAP, roi(), spatial_scale=value, **SIZE)

BOXES_5, BOXES_K = zeros(3, 5), zeros(2, 3, 5)
refuse("nms_rotated", "dets must be [N, 5], got [3, 4]", zeros(3, 4), zeros(3), iou_threshold=0.5)
refuse("nms_rotated", "dets must be [N, 5], got [0, 6]", zeros(0, 6), zeros(0), iou_threshold=0.5)
refuse("nms_rotated", "scores must be [N] with N = 3, got [2]", BOXES_5, zeros(2), iou_threshold=0.5)
refuse("nms_rotated", "scores must be [N], got [3, 1]", BOXES_5, zeros(3, 1), iou_threshold=0.5)
for labels in ([0, 1], [0, 1, 2, 3], []):
    text = f"labels must be [N] with N = 3, got [{len(labels)}]"
    refuse("nms_rotated", text, BOXES_5, zeros(3), iou_threshold=0.5, labels=labels)
refuse("nms_rotated", "labels must be [N], got [3, 1]", BOXES_5, zeros(3), iou_threshold=0.5, labels=[[0], [1], [2]])
refuse("nms_rotated", "iou_threshold must be a number, got nan", BOXES_5, zeros(3), iou_threshold=NAN)
refuse("nms_rotated", "iou_threshold must be a number, got nan", zeros(0, 5), zeros(0), iou_threshold=NAN)
refuse("box_iou_rotated", "bboxes1 must be [N, 5], got [3, 4]", zeros(3, 4), BOXES_5)
refuse("box_iou_rotated", "bboxes2 must be [M, 5], got [5]", BOXES_5, zeros(5))
refuse("box_iou_rotated", "bboxes2 must be [N, 5] with N = 3, got [2, 5]", BOXES_5, zeros(2, 5), aligned=True)
THRESHOLDS = {"iou_threshold": 0.5, "score_threshold": 0.0}
refuse("nms_rotated_indices", "boxes must be [B, K, 5], got [3, 5]", BOXES_5, zeros(1, 1, 3), **THRESHOLDS)
refuse("nms_rotated_indices", "boxes must be [B, K, 5], got [2, 3, 4]", zeros(2, 3, 4), zeros(2, 1, 3), **THRESHOLDS)
refuse(
    "nms_rotated_indices", "scores must be [B, C, K] with K = 3, got [2, 1, 4]", BOXES_K, zeros(2, 1, 4), **THRESHOLDS
)
refuse(
    "nms_rotated_indices", "scores must be [B, C, K] with B = 2, got [1, 1, 3]", BOXES_K, zeros(1, 1, 3), **THRESHOLDS
)
refuse("nms_rotated_indices", "scores must be [B, C, K], got [2, 3]", BOXES_K, zeros(2, 3), **THRESHOLDS)
for name in THRESHOLDS:
    text = f"{name} must be a number, got nan"
    refuse("nms_rotated_indices", text, BOXES_K, zeros(2, 1, 3), **THRESHOLDS | {name: NAN})
    refuse("multiclass_nms_rotated", text, BOXES_K, zeros(2, 3, 1), **{name: NAN})
refuse("multiclass_nms_rotated", "boxes must be [B, K, 5], got [3, 5]", BOXES_5, zeros(1, 3, 1))
refuse("multiclass_nms_rotated", "scores must be [B, K, C] with B = 2, K = 3, got [2, 1, 3]", BOXES_K, zeros(2, 1, 3))

FEATURES, BEST = zeros(2, 3, 4, 5), zeros(2, 4, 5, 5)
refuse("rotated_feature_align", "features must be [N, C, H, W], got [3, 4, 5]", zeros(3, 4, 5), BEST)
refuse("rotated_feature_align", "best_rbboxes must be [N, H, W, 5], got [40, 5]", FEATURES, zeros(40, 5))
for wrong, text in (((1, 4, 5, 5), "N = 2"), ((2, 3, 5, 5), "H = 4"), ((2, 4, 6, 5), "W = 5")):
    refuse(
        "rotated_feature_align",
        f"best_rbboxes must be [N, H, W, 5] with {text}, got {list(wrong)}",
        FEATURES,
        zeros(*wrong),
    )
refuse("rotated_feature_align", "best_rbboxes must be [N, H, W, 5], got [2, 4, 5, 6]", FEATURES, zeros(2, 4, 5, 6))
for points in (0, -2, 6, 2**40):
    refuse("rotated_feature_align", f"points must be from 1 to 5, got {points}", FEATURES, BEST, points=points)
for points in (1, 5):
    for column in (0, 1) if points == 1 else range(5):
        with_nan = BEST.copy()
        with_nan[1, 2, 3, column] = NAN
        refuse(
            "rotated_feature_align",
            "best_rbboxes must not hold NaN, got it in box [1, 2, 3]",
            FEATURES,
            with_nan,
            points=points,
        )


def rotated_roi(**changed):
    ordinary = {"image": 0, "x": 2, "y": 2, "w": 3, "h": 2, "angle": 1}
    return np.array([list((ordinary | changed).values())], np.float32)


refuse("roi_align_rotated", "input must be [N, C, H, W], got [3, 4, 5]", zeros(3, 4, 5), rotated_roi(), **SIZE)
refuse("roi_align_rotated", "rois must be [K, 6], got [3, 5]", MAP, zeros(3, 5), **SIZE)
refuse("roi_align_rotated", "rois must be [K, 6], got [0, 5]", MAP, zeros(0, 5), **SIZE)
for image in (2, -1, 1e9, 3e38, NAN, INF, -INF):
    text = f"the batch index of rois[0] must be in [0, 2), got {image:g}"
    refuse("roi_align_rotated", text, MAP, rotated_roi(image=image), **SIZE)
for one in ("x", "y", "w", "h", "angle"):
    for value in (NAN, INF, -INF):
        for sampling_ratio in (0, 2):
            text = f"the coordinates of rois[0] must be finite, got {value:g}"
            refuse("roi_align_rotated", text, MAP, rotated_roi(**{one: value}), sampling_ratio=sampling_ratio, **SIZE)
for height, width in ((0, 2), (2, 0), (-1, 2), (2, -(2**40))):
    text = f"output_height and output_width must be at least 1, got {height} and {width}"
    refuse("roi_align_rotated", text, MAP, rotated_roi(), output_size=(height, width))
    refuse("roi_align_rotated", text, MAP, zeros(0, 6), output_size=(height, width))
for value in (NAN, INF, -INF):
    refuse(
        "roi_align_rotated",
        f"spatial_scale must be finite, got {value:g}",
        MAP,
        rotated_roi(),
        spatial_scale=value,
        **SIZE,
    )
refuse(
    "roi_align_rotated",
    "sampling_ratio must be at most 1024, got 1025",
    MAP,
    rotated_roi(),
    sampling_ratio=1025,
    **SIZE,
)
for changed in ({"w": 1e9, "h": 1e9}, {"w": 3e38}):
    text = "rois[1] must not take more than 67108864 samples, or overflow"
    refuse("roi_align_rotated", text, MAP, np.concatenate([rotated_roi(), rotated_roi(**changed)]), **SIZE)
refuse("roi_align_rotated", "rois[0] must not take more than 67108864 samples, or overflow", MAP, rotated_roi(x=3e38),
       spatial_scale=10.0, **SIZE)  # fmt: skip

EXISTING = [refusal for refusal in REFUSALS if hasattr(mmort, refusal.operator)]
IN_ORT = [refusal for refusal in EXISTING if doors.row_of(refusal.operator)]


def whole(refusal):
    return f"{refusal.operator}: {refusal.text}"


@pytest.mark.parametrize("refusal", EXISTING, ids=str)
def test_numpy_refuses(refusal):
    with pytest.raises(ValueError, match=f"^{re.escape(whole(refusal))}$"):
        doors.run_numpy(refusal.operator, refusal.arrays, refusal.attributes)


@pytest.mark.parametrize("refusal", IN_ORT, ids=str)
def test_ort_refuses_in_the_same_words_and_goes_on(refusal):
    session = doors.session_for(refusal.operator, refusal.attributes, count=len(refusal.arrays))
    good = ordinary(refusal.operator)
    for _ in range(2):
        with pytest.raises(doors.ORT_ERRORS, match=f"{re.escape(whole(refusal))}$"):
            doors.run_session(session, refusal.arrays)
    if refusal.text.split()[0] in doors.onnx_attributes(refusal.operator, refusal.attributes):
        return  # this session's attribute is what is wrong, so it refuses everything
    wanted = getattr(oracles, refusal.operator)(*good.arrays, **refusal.attributes)
    assert_close(doors.run_session(session, good.arrays), doors.node_outputs(refusal.operator, wanted))


def ordinary(operator):
    """A case of an operator with something in every array."""
    return next(case for case in cases.of(operator) if all(array.size for array in case.arrays))


# ---- attributes of nodes ---------------------------------------------------------------------------------------

ATTRIBUTES = [(row, attribute) for row in doors.ROWS for attribute in row["attributes"]]


def attribute_ids(value):
    return value["name"] if "name" in value else f"{value['domain']}.{value['type']}"


def node_attributes(row, **changed):
    """Those of an ordinary case, and others changed; None: left out."""
    attributes = doors.onnx_attributes(row["kernel"], ordinary(row["kernel"]).attributes) | changed
    return {name: value for name, value in attributes.items() if value is not None}


def run_row(row, attributes):
    session = doors.make_session(doors.make_model(row, attributes))
    return doors.run_session(session, ordinary(row["kernel"]).arrays)


@pytest.mark.parametrize(("row", "attribute"), ATTRIBUTES, ids=attribute_ids)
def test_attribute_of_another_type(row, attribute):
    name, needed = attribute["name"], attribute["type"]
    wrong = {"INT": 1, "FLOAT": 1.0, "STRING": "avg", "INTS": [1, 2], "FLOATS": [1.0, 2.0]}
    for fitting in ("INT", "INTS") if needed == "INTS" else (needed,):
        del wrong[fitting]
    for came, value in wrong.items():
        text = f"{row['kernel']}: attribute {name} must be of type {needed}, got {came} ({row['type']} node 'the_node')"
        with pytest.raises(doors.ORT_ERRORS, match=re.escape(text)):
            run_row(row, node_attributes(row, **{name: value}))


@pytest.mark.parametrize(("row", "attribute"), ATTRIBUTES, ids=attribute_ids)
def test_attribute_left_out(row, attribute):
    """It has the default of the Python function's argument; if there is none, that is what the error says."""
    name, operator = attribute["name"], row["kernel"]
    left_out = node_attributes(row, **{name: None})
    if attribute["default"] is None:
        text = f"{operator}: attribute {name} ({attribute['type']}) is missing ({row['type']} node 'the_node')"
        with pytest.raises(doors.ORT_ERRORS, match=re.escape(text)):
            run_row(row, left_out)
    else:
        given = node_attributes(row, **{name: doors.CONVERT[attribute["type"]](attribute["default"])})
        for got, wanted in zip(run_row(row, left_out), run_row(row, given), strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("row", "attribute"), ATTRIBUTES, ids=attribute_ids)
def test_defaults_are_those_of_the_function(row, attribute):
    name = doors.argument_of(row["kernel"], attribute["name"])
    default = doors.signature(row["kernel"])[name].default
    if attribute["default"] is None:
        assert default is doors.signature(row["kernel"])[name].empty
    else:
        assert doors.onnx_attributes(row["kernel"], {name: default}) == {attribute["name"]: attribute["default"]}


@pytest.mark.parametrize("row", doors.ROWS, ids=attribute_ids)
def test_attributes_have_the_names_of_the_arguments(row):
    named = [one["name"] for one in row["inputs"]]
    named += [doors.argument_of(row["kernel"], one["name"]) for one in row["attributes"]]
    assert set(doors.signature(row["kernel"])) == set(named)


@pytest.mark.parametrize("row", doors.ROWS, ids=attribute_ids)
def test_other_attributes_are_ignored(row):
    others = {"another": 1, "one_more": "text", "even": [1.0, 2.0]}
    for got, wanted in zip(
        run_row(row, node_attributes(row, **others)), run_row(row, node_attributes(row)), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


FORMER = [(row, attribute) for row, attribute in ATTRIBUTES if "former_name" in attribute]


@pytest.mark.parametrize(("row", "attribute"), FORMER, ids=attribute_ids)
def test_former_names_of_attributes(row, attribute):
    name, former = attribute["name"], attribute["former_name"]
    value = node_attributes(row).get(name, attribute["default"])
    wanted = run_row(row, node_attributes(row, **{name: value}))
    for got, one in zip(run_row(row, node_attributes(row, **{name: None, former: value})), wanted, strict=True):
        np.testing.assert_array_equal(got, one)
    wrong = [1.0, 2.0]
    with pytest.raises(doors.ORT_ERRORS, match=f"attribute {former} must be of type {attribute['type']}, got FLOATS"):
        run_row(row, node_attributes(row, **{name: None, former: wrong}))
    for got, one in zip(run_row(row, node_attributes(row, **{name: value, former: wrong})), wanted, strict=True):
        np.testing.assert_array_equal(got, one)  # today's name wins


CHOICES = [(row, attribute) for row, attribute in ATTRIBUTES if "choices" in attribute]


@pytest.mark.parametrize(("row", "attribute"), CHOICES, ids=attribute_ids)
@pytest.mark.parametrize("value", ["", "AVG", "average", "x" * 300])
def test_another_word(row, attribute, value):
    allowed = " or ".join(f"'{choice}'" for choice in attribute["choices"])
    text = f"{row['kernel']}: {attribute['name']} must be {allowed}, got "
    with pytest.raises(doors.ORT_ERRORS, match=re.escape(text)):
        run_row(row, node_attributes(row, **{attribute["name"]: value}))


PLACES = [
    ("corner_pool", "mode", "mode must be 0 (top), 1 (bottom), 2 (left) or 3 (right)"),
    ("soft_nms", "method", "method must be 0 (naive), 1 (linear) or 2 (gaussian)"),
    ("grid_sample", "interpolation_mode", "interpolation_mode must be 0 (bilinear), 1 (nearest) or 2 (bicubic)"),
    ("grid_sample", "padding_mode", "padding_mode must be 0 (zeros), 1 (border) or 2 (reflection)"),
]


@pytest.mark.parametrize(("operator", "name", "text"), PLACES)
@pytest.mark.parametrize("value", [-1, 4, 2**32, -(2**63)])
def test_number_that_stands_for_no_word(operator, name, text, value):
    row = doors.row_of(operator)
    with pytest.raises(doors.ORT_ERRORS, match=f"{operator}: {re.escape(text)}, got {value}$"):
        run_row(row, node_attributes(row, **{name: value}))


@pytest.mark.parametrize("row", doors.ROWS, ids=attribute_ids)
@pytest.mark.parametrize("change", [-1, +1])
def test_number_of_inputs(row, change):
    names = [formal["name"] for formal in row["inputs"]]
    required = [formal["name"] for formal in row["inputs"] if not formal["optional"]]
    names = names + names[:1] if change > 0 else required[:-1]
    with pytest.raises(doors.ORT_ERRORS, match="the_node"):
        doors.make_session(doors.make_model(row, node_attributes(row), inputs=names))


# ---- arguments of functions ------------------------------------------------------------------------------------

FUNCTIONS = [ordinary(operator) for operator in cases.OPERATORS if hasattr(mmort, operator)]
NOT_NUMBERS = (
    np.array(["1"]),
    np.array([1j]),
    np.array([None]),
    np.array(["2020"], "M8[Y]"),
    np.array([1], np.longdouble),
)


@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda case: case.operator)
def test_arrays_of_other_things(case):
    names = list(doors.signature(case.operator))
    for i, array in enumerate(case.arrays):
        for wrong in NOT_NUMBERS:
            arrays = list(case.arrays)
            arrays[i] = np.broadcast_to(wrong, array.shape)
            with pytest.raises(
                TypeError, match=f"^{case.operator}: {names[i]} must be .*, got {re.escape(str(wrong.dtype))}"
            ):
                doors.run_numpy(case.operator, arrays, case.attributes)


@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda case: case.operator)
def test_bools_are_no_coordinates(case):
    arrays = [array.astype(bool) for array in case.arrays]
    if case.operator in ("corner_pool", "cummax", "cummin"):
        results = doors.run_numpy(case.operator, arrays, case.attributes)
        wanted = doors.run_numpy(case.operator, [array.astype(np.uint8) for array in arrays], case.attributes)
        assert results[0].dtype == bool
        for got, one in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(got, one)
    else:
        with pytest.raises(TypeError, match=f"^{case.operator}: .* got bool"):
            doors.run_numpy(case.operator, arrays, case.attributes)


NUMBERS = {"iou_threshold", "sigma", "min_score", "score_threshold", "spatial_scale"}
PAIRS = {"output_size", "stride", "padding", "dilation"}
INTEGERS = PAIRS | {"max_per_image", "nms_pre", "offset", "max_num", "sampling_ratio", "dim", "points"}
INTEGERS |= {"max_output_boxes_per_class", "pre_top_k", "keep_top_k", "groups", "deform_groups"}


NUMERIC = [
    pytest.param(case, name, id=f"{case.operator}-{name}")
    for case in FUNCTIONS
    for name in list(doors.signature(case.operator))[len(case.arrays) :]
    if name in NUMBERS | INTEGERS
]


@pytest.mark.parametrize(("case", "name"), NUMERIC)
def test_arguments_that_are_no_numbers(case, name):
    kind = "a number" if name in NUMBERS else "an integer"
    for wrong in ("text", None, 1j, object()) + (() if name in NUMBERS else (0.5, 1.0)):
        with pytest.raises(TypeError, match=f"^{case.operator}: {name} must be {kind}, got "):
            doors.run_numpy(case.operator, case.arrays, case.attributes | {name: wrong})


@pytest.mark.parametrize(("case", "name"), NUMERIC)
def test_numbers_of_numpy_are_numbers(case, name):
    value = (case.attributes | {name: case.attributes.get(name, doors.signature(case.operator)[name].default)})[name]
    wanted = doors.run_numpy(case.operator, case.arrays, case.attributes)
    kind = np.float64 if name in NUMBERS else np.int64
    other = tuple(map(kind, value)) if isinstance(value, tuple) else kind(value)
    for got, one in zip(
        doors.run_numpy(case.operator, case.arrays, case.attributes | {name: other}), wanted, strict=True
    ):
        np.testing.assert_array_equal(got, one)


@pytest.mark.parametrize(("case", "name"), [one for one in NUMERIC if one.values[1] in INTEGERS])
def test_integers_beyond_64_bits(case, name):
    with pytest.raises(ValueError, match=f"^{case.operator}: {name} must fit in 64 bits, got {2**63}"):
        doors.run_numpy(case.operator, case.arrays, case.attributes | {name: 2**63})


WORDS = [
    pytest.param(case, name, id=f"{case.operator}-{name}")
    for case in FUNCTIONS
    for name in doors.signature(case.operator)
    if name in ("mode", "method", "pool_mode", "padding_mode")
]


@pytest.mark.parametrize(("case", "name"), WORDS)
@pytest.mark.parametrize("word", ["", "other", "TOP", None, 0])
def test_other_words(case, name, word):
    with pytest.raises(ValueError, match=f"^{case.operator}: {name} must be '.*' or '.*', got {word!r}"):
        doors.run_numpy(case.operator, case.arrays, case.attributes | {name: word})


ENORMOUS = """
import numpy as np

import mmort

for reach in (1e6, 1e9, 1e20, 1e38):
    for sampling_ratio in (0, 2, 10**6, 2**62):
        for pool_mode in ("avg", "max"):
            rois = np.array([[0, -reach, -reach, reach, reach]], np.float32)
            try:
                result = mmort.roi_align(np.ones((1, 1, 4, 4)), rois, (1, 2), 1.0, sampling_ratio, pool_mode)
                assert ((result >= 0) & (result <= 1)).all(), result
            except ValueError as error:
                assert str(error).startswith("roi_align: "), error
"""


def test_enormous_regions_end():
    """With a result or an error, and neither by counting samples one by one nor by keeping them all."""
    subprocess.run([sys.executable, "-c", ENORMOUS], check=True, timeout=20)


@pytest.mark.parametrize("size", [(2,), (1, 2, 3), [], np.zeros(3, int)])
def test_output_size_of_another_length(size):
    with pytest.raises(ValueError, match=r"^roi_align: output_size must be one integer or two, got "):
        mmort.roi_align(MAP, roi(), size)


def test_output_size_as_one_integer():
    np.testing.assert_array_equal(mmort.roi_align(MAP + 1, roi(), 2), mmort.roi_align(MAP + 1, roi(), (2, 2)))


@pytest.mark.parametrize("word", ["nms_rotated", "", None])
def test_batched_nms_of_another_type(word):
    with pytest.raises(ValueError, match=r"^batched_nms: nms_cfg\['type'\] must be 'nms' or 'soft_nms', got "):
        mmort.batched_nms(zeros(2, 4), zeros(2), [0, 1], {"type": word, "iou_threshold": 0.5})


@pytest.mark.parametrize("kind", ["nms", "soft_nms"])
def test_batched_nms_with_wrong_classes(kind):
    config = {"type": kind, "iou_threshold": 0.5}
    for classes in ([0], [[0, 1]], [0, 1, 2], 0):
        with pytest.raises(ValueError, match=r"^batched_nms: idxs must be \[N\]"):
            mmort.batched_nms(zeros(2, 4), zeros(2), classes, config)
    with pytest.raises(TypeError, match=r"^batched_nms: idxs must be integers, got float"):
        mmort.batched_nms(zeros(2, 4), zeros(2), [0.0, 1.0], config)
    with pytest.raises(TypeError, match="unknown"):
        mmort.batched_nms(zeros(2, 4), zeros(2), [0, 1], config | {"unknown": 1})
    with pytest.raises(ValueError, match=r"^batched_nms: boxes must be \[N, 4\], got \[2, 5\]$"):
        mmort.batched_nms(zeros(2, 5), zeros(2), [0, 1], config)
    with pytest.raises(ValueError, match=r"^batched_nms: scores must be \[N\] with N = 3, got \[2\]$"):
        mmort.batched_nms(zeros(3, 4), zeros(2), [0, 1], config)

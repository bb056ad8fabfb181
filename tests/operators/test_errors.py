"""Invalid input is refused by numpy and ONNX Runtime with the same message, and breaks nothing."""

import re
import subprocess
import sys
from typing import Literal, get_origin

import numpy as np
import pytest

import mmort
from tests import front_ends
from tests.compare import assert_close
from tests.operators import cases
from tests.operators.case import zeros
from tests.operators.families.roi import MAP, roi

EXISTING = [refusal for refusal in cases.REFUSALS if hasattr(mmort, refusal.operator)]
IN_ORT = [refusal for refusal in EXISTING if front_ends.row_of(refusal.operator)]


def whole(refusal):
    return f"{refusal.operator}: {refusal.text}"


@pytest.mark.parametrize("refusal", EXISTING, ids=str)
def test_numpy_refuses(refusal):
    with pytest.raises(ValueError, match=f"^{re.escape(whole(refusal))}$"):
        front_ends.run_numpy(refusal.operator, refusal.arrays, refusal.attributes)


@pytest.mark.parametrize("refusal", IN_ORT, ids=str)
def test_ort_refuses_in_the_same_words_and_goes_on(refusal):
    session = front_ends.session_for(refusal.operator, refusal.attributes, count=len(refusal.arrays))
    good = cases.ordinary(refusal.operator, len(refusal.arrays))
    for _ in range(2):
        with pytest.raises(front_ends.ORT_ERRORS, match=f"{re.escape(whole(refusal))}$"):
            front_ends.run_session(session, refusal.arrays)
    if refusal.text.split()[0] in front_ends.onnx_attributes(refusal.operator, refusal.attributes):
        return  # this session's attribute is what is wrong, so it refuses everything
    wanted = front_ends.run_oracle(refusal.operator, good.arrays, refusal.attributes)
    assert_close(front_ends.run_session(session, good.arrays), front_ends.node_outputs(refusal.operator, wanted))


# ---- attributes of nodes ---------------------------------------------------------------------------------------

ATTRIBUTES = [(row, attribute) for row in front_ends.ROWS for attribute in row["attributes"]]


def attribute_ids(value):
    return value["name"] if "name" in value else f"{value['domain']}.{value['type']}"


def node_attributes(row, **changed):
    """Return an ordinary case's attributes with some changed; None leaves one out."""
    attributes = front_ends.onnx_attributes(row["kernel"], cases.ordinary(row["kernel"]).attributes) | changed
    return {name: value for name, value in attributes.items() if value is not None}


def run_row(row, attributes):
    session = front_ends.make_session(front_ends.make_model(row, attributes))
    return front_ends.run_session(session, cases.ordinary(row["kernel"]).arrays)


@pytest.mark.parametrize(("row", "attribute"), ATTRIBUTES, ids=attribute_ids)
def test_attribute_of_another_type(row, attribute):
    name, needed = attribute["name"], attribute["type"]
    wrong = {"INT": 1, "FLOAT": 1.0, "STRING": "avg", "INTS": [1, 2], "FLOATS": [1.0, 2.0]}
    for fitting in ("INT", "INTS") if needed == "INTS" else (needed,):
        del wrong[fitting]
    for kind, value in wrong.items():
        text = f"{row['kernel']}: attribute {name} must be of type {needed}, got {kind} ({row['type']} node 'the_node')"
        with pytest.raises(front_ends.ORT_ERRORS, match=re.escape(text)):
            run_row(row, node_attributes(row, **{name: value}))


@pytest.mark.parametrize(("row", "attribute"), ATTRIBUTES, ids=attribute_ids)
def test_attribute_left_out(row, attribute):
    """It takes the default of the Python function's argument; if there is none, it is reported as missing."""
    name, operator = attribute["name"], row["kernel"]
    left_out = node_attributes(row, **{name: None})
    if attribute["default"] is None:
        text = f"{operator}: attribute {name} ({attribute['type']}) is missing ({row['type']} node 'the_node')"
        with pytest.raises(front_ends.ORT_ERRORS, match=re.escape(text)):
            run_row(row, left_out)
    else:
        explicit = node_attributes(row, **{name: front_ends.CONVERT[attribute["type"]](attribute["default"])})
        for got, wanted in zip(run_row(row, left_out), run_row(row, explicit), strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("row", "attribute"), ATTRIBUTES, ids=attribute_ids)
def test_defaults_are_those_of_the_function(row, attribute):
    name = front_ends.argument_names(row["kernel"])[attribute["name"]]
    default = front_ends.signature(row["kernel"])[name].default
    if attribute["default"] is None:
        assert default is front_ends.signature(row["kernel"])[name].empty
    else:
        assert front_ends.onnx_attributes(row["kernel"], {name: default}) == {attribute["name"]: attribute["default"]}


@pytest.mark.parametrize("row", front_ends.ROWS, ids=attribute_ids)
def test_unknown_attributes_are_ignored(row):
    unknown = {"an_integer": 1, "a_text": "text", "a_list": [1.0, 2.0]}
    for got, wanted in zip(
        run_row(row, node_attributes(row, **unknown)), run_row(row, node_attributes(row)), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


FORMER = [(row, attribute) for row, attribute in ATTRIBUTES if "former_name" in attribute]


@pytest.mark.parametrize(("row", "attribute"), FORMER, ids=attribute_ids)
def test_former_names_of_attributes(row, attribute):
    name, former = attribute["name"], attribute["former_name"]
    value = node_attributes(row).get(name, attribute["default"])
    wanted = run_row(row, node_attributes(row, **{name: value}))
    for got, expected in zip(run_row(row, node_attributes(row, **{name: None, former: value})), wanted, strict=True):
        np.testing.assert_array_equal(got, expected)
    wrong = [1.0, 2.0]
    with pytest.raises(
        front_ends.ORT_ERRORS, match=f"attribute {former} must be of type {attribute['type']}, got FLOATS"
    ):
        run_row(row, node_attributes(row, **{name: None, former: wrong}))
    for got, expected in zip(run_row(row, node_attributes(row, **{name: value, former: wrong})), wanted, strict=True):
        np.testing.assert_array_equal(got, expected)  # the current name wins


CHOICES = [(row, attribute) for row, attribute in ATTRIBUTES if "choices" in attribute]


@pytest.mark.parametrize(("row", "attribute"), CHOICES, ids=attribute_ids)
@pytest.mark.parametrize("value", ["", "AVG", "average", "x" * 300])
def test_unknown_word(row, attribute, value):
    allowed = " or ".join(f"'{choice}'" for choice in attribute["choices"])
    text = f"{row['kernel']}: {attribute['name']} must be {allowed}, got "
    with pytest.raises(front_ends.ORT_ERRORS, match=re.escape(text)):
        run_row(row, node_attributes(row, **{attribute["name"]: value}))


@pytest.mark.parametrize(("value", "shown"), [(b"\xff\xfe", "[?][?]"), (b"avg\0", "avg[?]"), (b"\0avg", "[?]avg")])
def test_words_that_are_not_text(value, shown):
    """ONNX Runtime's error is UTF-8 whatever the attribute holds, and NUL does not end the word."""
    row = front_ends.row_of("roi_align")
    with pytest.raises(front_ends.ORT_ERRORS, match=f"roi_align: mode must be 'avg' or 'max', got '{shown}' "):
        run_row(row, node_attributes(row, mode=value))


NUMBERED_WORDS = [
    ("corner_pool", "mode", "mode must be 0 (top), 1 (bottom), 2 (left) or 3 (right)"),
    ("soft_nms", "method", "method must be 0 (naive), 1 (linear) or 2 (gaussian)"),
    ("grid_sample", "interpolation_mode", "interpolation_mode must be 0 (bilinear), 1 (nearest) or 2 (bicubic)"),
    ("grid_sample", "padding_mode", "padding_mode must be 0 (zeros), 1 (border) or 2 (reflection)"),
]


@pytest.mark.parametrize(("operator", "name", "text"), NUMBERED_WORDS)
@pytest.mark.parametrize("value", [-1, 4, 2**32, -(2**63)])
def test_number_that_stands_for_no_word(operator, name, text, value):
    row = front_ends.row_of(operator)
    with pytest.raises(front_ends.ORT_ERRORS, match=f"{operator}: {re.escape(text)}, got {value}$"):
        run_row(row, node_attributes(row, **{name: value}))


@pytest.mark.parametrize("row", front_ends.ROWS, ids=attribute_ids)
@pytest.mark.parametrize("change", [-1, +1])
def test_number_of_inputs(row, change):
    names = [formal["name"] for formal in row["inputs"]]
    required = [formal["name"] for formal in row["inputs"] if not formal["optional"]]
    names = names + names[:1] if change > 0 else required[:-1]
    with pytest.raises(front_ends.ORT_ERRORS, match="the_node"):
        front_ends.make_session(front_ends.make_model(row, node_attributes(row), inputs=names))


# ---- arguments of functions ------------------------------------------------------------------------------------

FUNCTIONS = [cases.ordinary(operator) for operator in cases.OPERATORS if hasattr(mmort, operator)]
NOT_NUMBERS = (
    np.array(["1"]),
    np.array([1j]),
    np.array([None]),
    np.array(["2020"], "M8[Y]"),
    *([np.array([1], np.longdouble)] if np.longdouble(1).nbytes > 8 else []),  # float64 on Windows and Apple silicon
)


def names_of_arrays(case):
    return front_ends.array_names(getattr(mmort, case.operator), case.arrays, case.attributes)


@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda case: case.operator)
def test_arrays_of_unsupported_dtypes(case):
    names = names_of_arrays(case)
    for i, array in enumerate(case.arrays):
        for wrong in NOT_NUMBERS:
            arrays = list(case.arrays)
            arrays[i] = np.broadcast_to(wrong, array.shape)
            with pytest.raises(
                TypeError, match=f"^{case.operator}: {names[i]} must be .*, got {re.escape(str(wrong.dtype))}"
            ):
                front_ends.run_numpy(case.operator, arrays, case.attributes)


@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda case: case.operator)
def test_bools_are_not_coordinates(case):
    arrays = [array.astype(bool) for array in case.arrays]
    if case.operator in ("corner_pool", "cummax", "cummin"):
        results = front_ends.run_numpy(case.operator, arrays, case.attributes)
        wanted = front_ends.run_numpy(case.operator, [array.astype(np.uint8) for array in arrays], case.attributes)
        assert results[0].dtype == bool
        for got, expected in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(got, expected)
    else:
        with pytest.raises(TypeError, match=f"^{case.operator}: .* got bool"):
            front_ends.run_numpy(case.operator, arrays, case.attributes)


def annotated(fits):
    """Return (case, name) of the arguments whose annotation fits, other than the arrays."""
    return [
        pytest.param(case, name, id=f"{case.operator}-{name}")
        for case in FUNCTIONS
        for name, parameter in front_ends.signature(case.operator).items()
        if name not in names_of_arrays(case) and fits(parameter.annotation)
    ]


NUMBERS = annotated(lambda annotation: annotation is float)
INTEGERS = annotated(lambda annotation: annotation in (int, int | tuple[int, int]))
WORDS = annotated(lambda annotation: get_origin(annotation) is Literal)


@pytest.mark.parametrize(("case", "name"), NUMBERS)
def test_arguments_that_are_not_numbers(case, name):
    for wrong in ("text", None, 1j, object()):
        with pytest.raises(TypeError, match=f"^{case.operator}: {name} must be a number, got "):
            front_ends.run_numpy(case.operator, case.arrays, case.attributes | {name: wrong})


@pytest.mark.parametrize(("case", "name"), INTEGERS)
def test_arguments_that_are_not_integers(case, name):
    for wrong in ("text", None, 1j, object(), 0.5, 1.0):
        with pytest.raises(TypeError, match=f"^{case.operator}: {name} must be an integer, got "):
            front_ends.run_numpy(case.operator, case.arrays, case.attributes | {name: wrong})


@pytest.mark.parametrize(("case", "name"), NUMBERS + INTEGERS)
def test_numbers_of_numpy_are_numbers(case, name):
    value = (case.attributes | {name: case.attributes.get(name, front_ends.signature(case.operator)[name].default)})[
        name
    ]
    wanted = front_ends.run_numpy(case.operator, case.arrays, case.attributes)
    kind = np.float64 if front_ends.signature(case.operator)[name].annotation is float else np.int64
    converted = tuple(map(kind, value)) if isinstance(value, tuple) else kind(value)
    got = front_ends.run_numpy(case.operator, case.arrays, case.attributes | {name: converted})
    for result, expected in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("case", "name"), INTEGERS)
def test_integers_beyond_64_bits(case, name):
    with pytest.raises(ValueError, match=f"^{case.operator}: {name} must fit in 64 bits, got {2**63}"):
        front_ends.run_numpy(case.operator, case.arrays, case.attributes | {name: 2**63})


@pytest.mark.parametrize(("case", "name"), WORDS)
@pytest.mark.parametrize("word", ["", "other", "TOP", None, 0])
def test_other_words(case, name, word):
    with pytest.raises(ValueError, match=f"^{case.operator}: {name} must be '.*' or '.*', got {word!r}"):
        front_ends.run_numpy(case.operator, case.arrays, case.attributes | {name: word})


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
    """With a result or an error, without visiting the samples one by one or keeping them all."""
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


BOXES, SCORES, IDXS = [[0, 0, 10, 10], [0, 0, 10, 9]], [0.9, 0.8], [0, 0]


def test_batched_nms_takes_a_number_as_torchvision_does():
    dets, keep = mmort.batched_nms(BOXES, SCORES, IDXS, 0.5)
    expected_dets, expected_keep = mmort.batched_nms(BOXES, SCORES, IDXS, {"type": "nms", "iou_threshold": 0.5})
    np.testing.assert_array_equal(dets, expected_dets)
    np.testing.assert_array_equal(keep, expected_keep)


@pytest.mark.parametrize(
    ("nms_cfg", "message"),
    [
        ({}, "nms_cfg must have iou_threshold, such as"),
        ({"iou_thr": 0.5}, "iou_thr was renamed iou_threshold in MMCV 1.x"),
        ({"type": "soft_nms", "iou_thr": 0.5}, "iou_thr was renamed iou_threshold in MMCV 1.x"),
        (
            {"type": "soft_nms", "score": 0.5},
            "nms_cfg has no entry score for soft_nms; there are iou_threshold, max_num",
        ),
        ("nms", "nms_cfg must be a mapping such as .*, a number or None, got 'nms'"),
        (True, "nms_cfg must be a mapping such as .*, a number or None, got True"),
    ],
)
def test_settings_of_batched_nms(nms_cfg, message):
    with pytest.raises(TypeError, match=f"^batched_nms: {message}|^batched_nms: nms_cfg has no entry .*{message}"):
        mmort.batched_nms(BOXES, SCORES, IDXS, nms_cfg)


@pytest.mark.parametrize("value", ["0.5", b"0.5", True, np.True_])
def test_text_and_bools_are_not_numbers(value):
    with pytest.raises(TypeError, match=r"^nms: iou_threshold must be a number, got "):
        mmort.nms(BOXES, SCORES, value)
    with pytest.raises(TypeError, match=r"^nms: max_num must be an integer, got "):
        mmort.nms(BOXES, SCORES, 0.5, max_num=value)


@pytest.mark.parametrize("value", ["no", None, 0.5])
def test_flags(value):
    with pytest.raises(TypeError, match=r"^multiclass_nms: class_agnostic must be True or False, got "):
        mmort.multiclass_nms([BOXES], [[[0.9], [0.8]]], class_agnostic=value)


def test_enormous_number():
    with pytest.raises(ValueError, match=r"^nms: iou_threshold must fit in a double"):
        mmort.nms(BOXES, SCORES, 10**400)


class Converting:
    """An array whose conversion calls the same operator with other arguments."""

    def __array__(self, dtype=None, copy=None):
        mmort.box_iou(BOXES, BOXES, aligned=True, mode="iof")
        mmort.batched_nms(BOXES, SCORES, [0, 1], {"type": "nms", "iou_threshold": 0.1})
        return np.array(BOXES, dtype)


def test_calls_within_a_call():
    np.testing.assert_array_equal(mmort.box_iou(Converting(), Converting()), mmort.box_iou(BOXES, BOXES))
    for got, wanted in zip(mmort.nms(Converting(), SCORES, 0.5), mmort.nms(BOXES, SCORES, 0.5), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("char", "lqLQ")
def test_both_64_bit_integers_of_c(char):
    """Numpy keeps long and long long apart, and calls both int64."""
    values, indices = mmort.cummax(np.array([1, 3, 2], char), 0)
    assert (values.tolist(), indices.tolist(), values.dtype) == ([1, 3, 3], [0, 1, 1], np.dtype(char).name)


def test_masked_arrays_are_refused():
    with pytest.raises(TypeError, match=r"^nms: boxes must not be a masked array"):
        mmort.nms(np.ma.masked_array(BOXES, mask=[[0] * 4, [1] * 4]), SCORES, 0.5)


def test_empty_lists_are_no_boxes():
    for dets, indices in (mmort.nms([], [], 0.5), mmort.soft_nms([], []), mmort.batched_nms([], [], [], 0.5)):
        assert (dets.shape, indices.shape) == ((0, 5), (0,))
    assert mmort.nms_match([], 0.5) == []
    assert mmort.nms_rotated([], [], 0.5)[0].shape == (0, 6)
    assert mmort.box_iou([], BOXES).shape == (0, 2)
    assert mmort.box_iou_rotated([], []).shape == (0, 0)
    assert mmort.roi_align(MAP, [], 7).shape == mmort.roi_align_rotated(MAP, [], 7).shape == (0, 3, 7, 7)


@pytest.mark.parametrize("arguments", [{"bias": zeros(1)}, {"mask": MAP}, {"stride": zeros(1)}])
def test_what_torchvision_calls_deform_conv2d(arguments):
    """Its bias is the fourth argument, which is the stride here."""
    with pytest.raises(TypeError, match=r"it has neither a bias nor a mask.*modulated_deform_conv2d has both$"):
        mmort.deform_conv2d(MAP, MAP, MAP, **arguments)


@pytest.mark.parametrize("boxes", [[zeros(1, 4)], (zeros(1, 4), zeros(2, 4)), [zeros(0, 4)]])
@pytest.mark.parametrize("function", [mmort.roi_align, mmort.roi_align_rotated])
def test_boxes_as_torchvision_takes_them(function, boxes):
    with pytest.raises(
        TypeError, match=rf"^{function.__name__}: rois must be one array \[K, 5\].* list of {len(boxes)} a"
    ):
        function(MAP, boxes, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mmort.cummax(MAP, axis=0), "cummax: axis is called dim, as in torch"),
        (lambda: mmort.cummin(MAP, axis=0), "cummin: axis is called dim, as in torch"),
        (lambda: mmort.roi_align(MAP, boxes=[], output_size=7), "roi_align: boxes is called rois, as in MMCV"),
        (
            lambda: mmort.batched_nms(BOXES, SCORES, IDXS, iou_threshold=0.5),
            "batched_nms: iou_threshold is called nms_cfg, for which a number may stand",
        ),
    ],
)
def test_names_of_arguments_elsewhere(call, message):
    with pytest.raises(TypeError, match=f"^{message}$"):
        call()


@pytest.mark.parametrize(
    ("call", "former", "name"),
    [
        (lambda **former: mmort.nms(BOXES, SCORES, **former), "iou_thr", "iou_threshold"),
        (lambda **former: mmort.soft_nms(BOXES, SCORES, **former), "iou_thr", "iou_threshold"),
        (lambda **former: mmort.nms_match(zeros(2, 5), **former), "iou_thr", "iou_threshold"),
        (lambda **former: mmort.nms_rotated(zeros(2, 5), SCORES, **former), "iou_thr", "iou_threshold"),
        (lambda **former: mmort.roi_align(MAP, [], **former), "out_size", "output_size"),
        (lambda **former: mmort.roi_align_rotated(MAP, [], 7, **former), "sample_num", "sampling_ratio"),
        (lambda **former: mmort.deform_conv2d(MAP, MAP, MAP, **former), "deformable_groups", "deform_groups"),
    ],
)
def test_former_names_of_arguments(call, former, name):
    with pytest.raises(TypeError, match=f"^\\w+: {former} was renamed {name} in MMCV 1.x$"):
        call(**{former: 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        call(other=1)


def test_subpackages_name_their_import():
    code = "import mmort; mmort.torch"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr.endswith("AttributeError: mmort.torch is not imported yet: import mmort.torch\n")


def test_a_function_like_an_unknown_one_is_suggested():
    result = subprocess.run([sys.executable, "-c", "import mmort; mmort.sotf_nms"], capture_output=True, text=True)
    assert result.stderr.endswith(
        "AttributeError: module 'mmort' has no attribute 'sotf_nms'. Did you mean: 'soft_nms'?\n"
    )

"""Calls that would take long: they are refused, as docs/limits.md describes, or they can be interrupted."""

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import mmort
import mmort.build
from tests import front_ends
from tests.operators.case import zeros

COUNT = 2**18 + 1
COMPARED = f"at most 262144 boxes can be compared with each other, got {COUNT}"
KERNEL, OFFSET = zeros(1, 400_000, 1, 1), zeros(1, 2, 631, 631)


def disproportion(steps, elements):
    return f"{steps} are more than the limit, 2**32 and 2**14 for each of {elements} input and output elements"


TOO_MUCH = [
    ("roi_align", disproportion("5.66e+09 samples", 7020),
     (zeros(2, 3, 4, 5), zeros(300, 5)), {"output_size": (2, 3), "sampling_ratio": 1024}),
    ("roi_align_rotated", disproportion("5.66e+09 samples", 7320),
     (zeros(2, 3, 4, 5), zeros(300, 6)), {"output_size": (2, 3), "sampling_ratio": 1024}),
    ("multi_scale_deformable_attention", disproportion("9e+10 samples", 1500003),
     (zeros(1, 1, 1, 300_000), np.array([[1, 1]]), np.array([0]), zeros(1, 1, 1, 1, 300_000, 2),
      zeros(1, 1, 1, 1, 300_000)), {}),
    ("deform_conv2d", disproportion("1.59e+11 products", 800_000 + 3 * 631**2),
     (KERNEL, OFFSET, KERNEL), {"padding": 315}),
    ("modulated_deform_conv2d", disproportion("1.59e+11 products", 800_000 + 4 * 631**2),
     (KERNEL, OFFSET, zeros(1, 1, 631, 631), KERNEL), {"padding": 315}),
    ("soft_nms", COMPARED, (zeros(COUNT, 4), zeros(COUNT) + 1), {}),
    ("nms_match", COMPARED, (zeros(COUNT, 5),), {"iou_threshold": 0.5}),
    ("nms_match_pairs", COMPARED, (zeros(1, COUNT, 4), zeros(1, 1, COUNT), zeros(1), zeros(1)), {}),
    ("multiclass_nms", COMPARED, (zeros(1, COUNT, 4), zeros(1, COUNT, 1) + 1), {"method": "soft_nms_linear"}),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "text", "arrays", "attributes"), TOO_MUCH, ids=[case[0] for case in TOO_MUCH])
def test_work_out_of_proportion_is_refused(operator, text, arrays, attributes):
    """By both front ends, in the same words."""
    with pytest.raises(ValueError, match=f"^{operator}: {re.escape(text)}$"):
        front_ends.run_numpy(operator, arrays, attributes)
    if front_ends.row_of(operator):
        with pytest.raises(front_ends.ORT_ERRORS, match=f"{operator}: {re.escape(text)}$"):
            front_ends.run_ort(operator, arrays, attributes)


NOTHING = {
    "nms_match_pairs": ((zeros(10**9, 0, 4), zeros(10**9, 1, 0), zeros(1), zeros(1)), {}),
    "multiclass_nms": ((zeros(10**8, 0, 4), zeros(10**8, 0, 1)), {"max_per_image": 0}),
    "nms_rotated_indices": ((zeros(10**8, 0, 5), zeros(10**8, 1, 0)), {"iou_threshold": 0.5, "score_threshold": 0.5}),
    "nms_indices": ((zeros(10**9, 0, 4), zeros(10**9, 1, 0)), {"iou_threshold": 0.5, "score_threshold": 0.5}),
    "group_norm": ((zeros(10**9, 1, 0), zeros(1), zeros(1)), {"num_groups": 1}),
    "filter_scores": ((zeros(10**9, 0, 1),), {}),
}


@pytest.mark.parametrize("operator", NOTHING)
@pytest.mark.parametrize("run", [front_ends.run_numpy, front_ends.run_ort], ids=["numpy", "ort"])
def test_arrays_without_elements_take_no_time(operator, run):
    arrays, attributes = NOTHING[operator]
    begin = time.process_time()
    run(operator, arrays, attributes)
    assert time.process_time() - begin < 1


def test_sizes_that_overflow_when_they_are_multiplied():
    """3 heads of (2**64 + 3) / 3 channels would be 3 channels of output, and be written as all of them."""
    row = front_ends.row_of("multi_scale_deformable_attention")
    model = front_ends.make_model(row, {}, shapes=[None, [0, 2], [0], [1, 1, 3, 0, 1, 2], [1, 1, 3, 0, 1]])
    shape = oh.make_tensor("shape", onnx.TensorProto.INT64, [4], [1, 0, 3, 6148914691236517206])
    model.graph.initializer.append(shape)
    model.graph.node.insert(0, oh.make_node("ConstantOfShape", ["shape"], ["value"]))
    del model.graph.input[0]
    model.opset_import.append(oh.make_opsetid("", 17))
    session = front_ends.make_session(model)
    arrays = np.zeros((0, 2), np.int64), np.zeros(0, np.int64), zeros(1, 1, 3, 0, 1, 2), zeros(1, 1, 3, 0, 1)
    text = "multi_scale_deformable_attention: the sizes of value are too large to be multiplied"
    with pytest.raises(front_ends.ORT_ERRORS, match=text):
        front_ends.run_session(session, arrays)


def test_padding_takes_the_memory_of_the_outputs_only():
    """All rows but two are padding; they are written once."""
    boxes, scores = np.array([[[0, 0, 2, 2], [4, 4, 6, 6]]], np.float32), np.array([[[0.5], [0.6]]], np.float32)
    for run in (front_ends.run_numpy, front_ends.run_ort):
        dets, labels, indices = run("multiclass_nms", (boxes, scores), {"max_per_image": 1000})
        np.testing.assert_array_equal(indices[0, :3], [1, 0, -1])
        assert dets[0, 2:].max() == dets[0, 2:].min() == 0
        assert labels[0, 2:].max() == -1


CONTRACT = """
#include <stdio.h>
#include <string.h>
#include "mmk.h"
int main(void) {
    int64_t shape[17] = {0};
    mmk_call call = {.name = "five_phases"};
    for (int i = 0; i < 5; i++) mmk_add_phase(&call, 1, 1.0);
    printf("%d %d %s\\n", call.phases, call.stopped, call.message);
    mmk_call other = {.name = "too_many_dimensions"};
    printf("%d %s\\n", mmk_set_output(&other, 0, MMK_FLOAT32, 17, shape), other.message);
    return 0;
}
"""


def test_kernels_that_ask_for_more_than_a_call_has(tmp_path):
    """Kernels of other packages, too, get an error and not memory behind the end of the call."""
    include = Path(mmort.build.get_include())
    source, program = tmp_path / "contract.c", tmp_path / "contract"
    source.write_text(CONTRACT)
    sources = [source, *(include / f"{name}.c" for name in ("check", "run", "shapes"))]
    subprocess.run(["cc", "-std=gnu11", f"-I{include}", *sources, "-o", program], check=True)
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines() == [
        "4 1 five_phases: a kernel may have up to 4 phases",
        "-1 too_many_dimensions: arrays may have up to 16 dimensions, output 0 has 17",
    ]


# ---- interrupts ------------------------------------------------------------------------------------------------------


def disjoint(count, size=0.4):
    """Return boxes of a square grid that do not overlap, in a random order."""
    corners = np.stack(np.divmod(np.random.default_rng(0).permutation(count), 1000), axis=1).astype(np.float32)
    return np.concatenate([corners, corners + np.float32(size)], axis=1)


def turned(boxes, size=0.4):
    return np.concatenate([boxes[:, :2], np.full((len(boxes), 2), size), boxes[:, :1]], axis=1).astype(np.float32)


BOXES, SCORES = disjoint(250_000), np.linspace(1, 0.5, 250_000, dtype=np.float32)
FAR = BOXES.astype(np.float64) + 1e8  # so far away from 0 that a grid cannot tell them apart
REGION = np.array([[0, 0, 0, 1000, 1000]], np.float32)
LONG = {
    "nms": lambda: mmort.nms(FAR, SCORES, 0.01),
    "nms of empty boxes": lambda: mmort.nms(BOXES * 0, SCORES, -1.0),
    "soft_nms": lambda: mmort.soft_nms(BOXES, SCORES),
    "nms_match": lambda: mmort.nms_match(np.concatenate([FAR, SCORES[:, None]], axis=1), 0.5),
    "multiclass_nms": lambda: mmort.multiclass_nms(
        FAR[None], SCORES[None, :, None], iou_threshold=0.01, max_per_image=len(BOXES)
    ),
    "nms_rotated": lambda: mmort.nms_rotated(turned(BOXES), SCORES, 0.5),
    "roi_align": lambda: mmort.roi_align(zeros(1, 64, 9, 9), REGION, 8, 0.008, sampling_ratio=1000),
    "roi_align_rotated": lambda: mmort.roi_align_rotated(
        zeros(1, 64, 9, 9), np.array([[0, 4, 4, 8, 8, 1]], np.float32), 8, sampling_ratio=1000
    ),
    "box_iou_rotated": lambda: mmort.box_iou_rotated(turned(BOXES[:3000], 500), turned(BOXES[:3000], 400)),
}


class Interrupt(Exception):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
@pytest.mark.parametrize("operator", LONG)
@pytest.mark.parametrize("threads", [1, 2])
def test_interrupts_are_answered(operator, threads):
    """A call in the main thread runs the handlers of signals, as Ctrl-C's, within 0.5 seconds (of processor time)."""

    def handler(number, frame):
        raise Interrupt

    mmort.set_num_threads(threads)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        begin = time.process_time()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupt):
            LONG[operator]()
        assert time.process_time() - begin < 0.5 * threads
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_handlers_that_return_change_nothing():
    """And a call in another thread goes on while the main thread is interrupted."""
    rois = np.array([[0, 0, 0, 1000, 1000]], np.float32)
    results = []

    def call():
        results.append(mmort.roi_align(np.ones((1, 8, 9, 9), np.float32), rois, 4, 0.008, sampling_ratio=1000))

    before = signal.signal(signal.SIGALRM, lambda number, frame: results.append(None))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        other = threading.Thread(target=call)
        other.start()
        call()
        other.join()
    finally:
        signal.signal(signal.SIGALRM, before)
    arrays = [result for result in results if result is not None]
    assert len(results) == 3
    np.testing.assert_array_equal(arrays[0], arrays[1])
    assert arrays[0].max() > 0.5


# ---- other threads ---------------------------------------------------------------------------------------------------

RACE = """
import sys, threading, time
import numpy as np
import mmort

ROWS = 4000
mmort.set_num_threads(2)
pixels, value = np.zeros((1, 16, 32, 32), np.float32), np.zeros((1, 64, 1, 8), np.float32)
rois = np.zeros((ROWS, 5), np.float32)
rois[:, 3:] = 16
far = rois + np.float32([1e6, 0, 0, 1e8, 1e8])
turned, far_turned = (np.concatenate([array, array[:, 1:2]], axis=1) for array in (rois, far))
shapes, wide = np.full((1000, 2), 8), np.full((1000, 2), 10**6)
locations, weights = np.full((1, 50, 1, 1000, 1, 2), 0.9, np.float32), np.ones((1, 50, 1, 1000, 1), np.float32)
starts, wide_starts = np.zeros(1000, np.int64), np.full(1000, 10**12)
scores, low = np.ones((1, 100000, 1), np.float32), np.zeros((1, 100000, 1), np.float32)
attend = mmort.multi_scale_deformable_attention
CALLS = [
    (rois, far, lambda array: mmort.roi_align(pixels, array, 7)),
    (turned, far_turned, lambda array: mmort.roi_align_rotated(pixels, array, 7)),
    (shapes, wide, lambda array: attend(value, array, starts, locations, weights)),
    (starts, wide_starts, lambda array: attend(value, shapes, array, locations, weights)),
    (scores, low, lambda array: mmort.filter_scores(array, 0.5, 50000)),
]
valid, invalid, call = CALLS[int(sys.argv[1])]
written, done = valid.copy(), threading.Event()


def write():
    while not done.is_set():
        np.copyto(written, invalid)
        np.copyto(written, valid)


writer = threading.Thread(target=write)
writer.start()
end = time.monotonic() + 0.15
while time.monotonic() < end:
    try:
        call(written)
    except ValueError:
        pass
done.set()
writer.join()
"""


@pytest.mark.parametrize("call", range(5), ids=["roi_align", "roi_align_rotated", "shapes", "starts", "filter_scores"])
def test_another_thread_writes_what_was_checked(call):
    """The result is then a mixture of both, or a refusal; nothing out of bounds is read or written."""
    subprocess.run([sys.executable, "-c", RACE, str(call)], check=True)


# ---- interpreters ----------------------------------------------------------------------------------------------------


def test_sub_interpreters_are_refused():
    code = """
try:
    import _interpreters as interpreters
except ModuleNotFoundError:
    import _xxsubinterpreters as interpreters
code = "try:\\n  import mmort\\nexcept ImportError as error:\\n  print(error)"
interpreters.run_string(interpreters.create(), code)
import mmort
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(
        "mmort cannot be imported into a sub-interpreter, as numpy cannot: use it in the main"
    )
    assert done.stderr == ""

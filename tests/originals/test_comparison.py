"""The comparison sees small differences, and refuses results that show nothing."""

from dataclasses import replace

import numpy as np
import pytest

from tests.originals.comparison import differences, require_substance
from tests.originals.results import BatchResult, ImageResult


def _result(count=12):
    random = np.random.default_rng(0)
    corners = random.uniform(0, 40, (count, 2, 2)).cumsum(1).reshape(count, 4)
    masks = np.zeros((count, 100, 100), bool)
    for mask, (left, top, right, bottom) in zip(masks, corners.astype(int), strict=True):
        mask[top : bottom + 1, left : right + 1] = True
    image = ImageResult(corners, random.uniform(0.1, 1, count), random.integers(0, 3, count), masks)
    return BatchResult(random.normal(size=(1, 3, 8, 8)), [image])


def _changed(**changes):
    """Return the result with an image's entries replaced by what functions make of them."""
    result = _result()
    image = result.images[0]
    values = {name: change(getattr(image, name).copy()) for name, change in changes.items()}
    return replace(result, images=[replace(image, **values)])


def _add(value, index=(3,)):
    def change(array):
        array[index] += value
        return array

    return change


def _erase(array):
    array[2, array[2].any(1).argmax()] = False
    return array


CHANGES = {
    "a box by 0.02 pixels": {"boxes": _add(0.02, (3, 2))},
    "a score by 0.0002": {"scores": _add(2e-4)},
    "a label": {"labels": _add(1)},
    "a row of a mask": {"masks": _erase},
    "a box that is not finite": {"boxes": _add(np.nan, (3, 0))},
    "two scores exchanged": {"scores": lambda scores: scores[[1, 0, *range(2, len(scores))]]},
}


@pytest.mark.parametrize("change", CHANGES)
def test_sees(change):
    assert differences(_changed(**CHANGES[change]), _result())
    assert differences(_result(), _changed(**CHANGES[change]))


def test_order_does_not_matter():
    order = np.random.default_rng(1).permutation(12)
    shuffled = _changed(**dict.fromkeys(("boxes", "scores", "labels", "masks"), lambda values: values[order]))
    assert not differences(shuffled, _result())


def test_one_detection_cannot_stand_for_two():
    twice = _changed(**dict.fromkeys(("boxes", "scores", "labels", "masks"), lambda values: values[[0, *range(11)]]))
    assert differences(twice, _result())


@pytest.mark.parametrize("name", ["boxes", "scores", "labels", "masks"])
def test_sees_a_missing_detection(name):
    names = "boxes", "scores", "labels", "masks"
    assert differences(_changed(**dict.fromkeys(names, lambda values: values[1:])), _result())


def test_sees_inputs_and_masks_and_segments():
    result = _result()
    assert differences(replace(result, input=result.input + 1e-3), result)
    assert differences(replace(result, input=result.input[..., :7]), result)
    assert differences(replace(result, images=[replace(result.images[0], masks=None)]), result)
    panoptic = replace(result.images[0], panoptic=np.zeros((10, 10), np.int64))
    other = replace(panoptic, panoptic=np.eye(10, dtype=np.int64))
    assert differences(replace(result, images=[other]), replace(result, images=[panoptic]))
    assert differences(replace(result, images=[]), result)


def _rotated(*changes):
    """Return a result of boxes of 30 x 20, with changes to the numbers of the first."""
    boxes = np.array([[40.0 * index, 50, 30, 20, 0.3] for index in range(4)])
    boxes[0] += changes or 0
    return BatchResult(np.zeros((1, 3, 8, 8)), [ImageResult(boxes, np.full(4, 0.5), np.arange(4))])


@pytest.mark.parametrize(
    "changes", [(0.02, 0, 0, 0, 0), (0, 0.02, 0, 0, 0), (0, 0, 0.04, 0, 0), (0, 0, 0, 0.04, 0), (0, 0, 0, 0, 2e-3)]
)
def test_sees_changes_of_rotated_boxes(changes):
    assert differences(_rotated(*changes), _rotated())


@pytest.mark.parametrize("changes", [(), (0, 0, 0, 0, np.pi), (0, 0, -10, 10, np.pi / 2), (0, 0, -10, 10, -np.pi / 2)])
def test_descriptions_of_a_rotated_box_are_equal(changes):
    assert not differences(_rotated(*changes), _rotated())


NOTHING = {
    "no detection": dict.fromkeys(("boxes", "scores", "labels", "masks"), lambda values: values[:0]),
    "equal scores": {"scores": np.zeros_like},
    "one class": {"labels": np.zeros_like},
    "empty masks": {"masks": np.zeros_like},
}


@pytest.mark.parametrize("name", NOTHING)
def test_refuses_results_that_show_nothing(name):
    require_substance([_result()], 2)
    with pytest.raises(AssertionError):
        require_substance([_changed(**NOTHING[name])], 2)

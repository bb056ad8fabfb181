"""nms, nms_match and soft_nms of more boxes than are all compared, in scenes that a grid could get wrong."""

import time

import numpy as np
import pytest

import mmort
from tests.operators.families.nms import nms, nms_match, soft_nms

COUNT = 1500


def boxes_of(centers, sides, dtype=np.float32):
    return np.concatenate([centers - sides / 2, centers + sides / 2], axis=1).astype(dtype)


def scattered(rng, plane, sides, dtype=np.float32):
    return boxes_of(rng.uniform(0, plane, (len(sides), 2)), sides, dtype)


def giant(rng):
    sides = rng.uniform(10, 30, (COUNT, 2))
    sides[rng.integers(COUNT, size=3)] = [[1e5, 1e5], [1e5, 20], [3e3, 2e4]]
    return scattered(rng, 400, sides)


def outlier(rng):
    boxes = scattered(rng, 400, rng.uniform(10, 30, (COUNT, 2)))
    boxes[rng.integers(COUNT, size=2)] = [[1e30, 0, 1.5e30, 4], [-3e30, -3e7, -1e30, 3e7]]
    return boxes


def decades(rng):
    """Sides and areas from below the smallest normal numbers to near the largest, concentric."""
    return boxes_of(np.zeros((COUNT, 2)), 10 ** rng.uniform(-22, 18, (COUNT, 1)) * rng.uniform(0.7, 1.4, (COUNT, 2)))


def decades_in_double(rng):
    sides = 10 ** rng.uniform(-160, 150, (COUNT, 1)) * rng.uniform(0.7, 1.4, (COUNT, 2))
    return boxes_of(np.zeros((COUNT, 2)), sides, np.float64)


def far_away(rng):
    """Some boxes so far from 0 that cells of their size cannot be numbered, each close to others."""
    boxes = scattered(rng, 60, rng.uniform(1, 4, (COUNT, 2)), np.float64)
    return boxes + rng.choice([0.0, 1e9, -1e12], (COUNT, 1))


def negative_and_empty(rng):
    sides = rng.choice([-9.0, -0.5, 0.0, 0.5, 9.0], (COUNT, 2))
    return scattered(rng, 60, sides)


def not_finite(rng):
    boxes = scattered(rng, 200, rng.uniform(5, 40, (COUNT, 2)))
    boxes[rng.integers(COUNT, size=60), rng.integers(4, size=60)] = rng.choice([np.nan, np.inf, -np.inf], 60)
    return boxes


def nested(rng):
    return boxes_of(np.zeros((COUNT, 2)), np.linspace(1, 900, COUNT)[:, None] * np.ones(2))


def crowd(rng):
    return scattered(rng, 200, rng.uniform(10, 60, (COUNT, 2)))


def sparse(rng):
    return scattered(rng, 3000, 2 * 300 ** rng.random((COUNT, 2)))


def lattice(rng):
    """Neighbours meet in whole pixels, so that many overlaps equal a threshold."""
    corners = np.stack(np.divmod(rng.permutation(COUNT), 40), axis=1) * 4.0
    return boxes_of(corners, np.full((COUNT, 2), 16.0))


SCENES = (giant, outlier, decades, decades_in_double, far_away, negative_and_empty, not_finite, nested, crowd, sparse,
          lattice)  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("threshold", [0, 1e-6, 0.03, 0.3, 0.6, 0.9, 0.9999])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_grid_gives_what_all_pairs_give(scene, threshold):
    """With and without an offset and a limit; scores in random order, and the same by area; in either order of visits.

    Boxes that overlap little are visited in the order of the plane if there are threads to divide them.
    """
    rng = np.random.default_rng(SCENES.index(scene))
    boxes = scene(rng)
    random_scores = rng.random(COUNT).astype(boxes.dtype)
    by_area = np.sort(random_scores)[np.argsort(np.argsort(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)))]
    for scores in (random_scores, by_area):
        for options in ({}, {"offset": 1}, {"max_num": 70}):
            expected, kept = nms(boxes, scores, threshold, **options)
            for threads in (1, 2):
                mmort.set_num_threads(threads)
                dets, indices = mmort.nms(boxes, scores, threshold, **options)
                np.testing.assert_array_equal(indices, kept)
                np.testing.assert_array_equal(dets, expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("threshold", [1e-6, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_groups_are_those_of_all_pairs(scene, threshold):
    rng = np.random.default_rng(SCENES.index(scene))
    boxes = scene(rng)
    dets = np.concatenate([boxes, rng.random((COUNT, 1)).astype(boxes.dtype)], axis=1)
    groups, expected = mmort.nms_match(dets, threshold), nms_match(dets, threshold)
    assert [group.tolist() for group in groups] == [group.tolist() for group in expected]


def ascending(sides):
    """Return concentric squares, of which the smaller have lower scores."""
    return boxes_of(np.zeros((len(sides), 2)), sides[:, None] * np.ones(2)), np.linspace(0, 1, len(sides))


def hostile(name):
    rng = np.random.default_rng(0)
    if name == "lattice":
        corners = np.stack(np.divmod(rng.permutation(131_072), 512), axis=1) * 33.0
        return *(boxes_of(corners, np.full((131_072, 2), 32.0)), rng.random(131_072)), 0.1
    if name == "nested":
        return *ascending(np.linspace(1, 1000, 120_000)), 0.5
    count = 260_000
    sides = rng.uniform(10, 100, (count, 2))
    if name == "decades":
        sides = 10 ** rng.uniform(-13, 15, (count, 1)) * np.ones(2)
    boxes = scattered(rng, 20_000, sides)
    if name == "outlier":
        boxes[7] = [1e30, 0, 1.5e30, 4]
    if name == "empty":
        return boxes * 0, rng.random(count), 0.0
    if name == "crowd":
        boxes /= 5
    return boxes, rng.random(count), 0.1


@pytest.mark.parametrize("name", ["lattice", "nested", "outlier", "decades", "empty", "crowd"])
def test_hostile_scenes_take_no_time(name):
    """Each took 5 seconds and more, or was refused."""
    boxes, scores, threshold = hostile(name)
    mmort.set_num_threads(1)
    begin = time.process_time()
    mmort.nms(boxes, scores.astype(np.float32), threshold)
    assert time.process_time() - begin < 2


@pytest.mark.parametrize("method", ["naive", "linear", "gaussian"])
@pytest.mark.parametrize("scene", [giant, outlier, crowd, sparse, lattice], ids=lambda scene: scene.__name__)
def test_soft_nms_gives_what_all_pairs_give(scene, method):
    rng = np.random.default_rng(SCENES.index(scene))
    boxes, scores = scene(rng), rng.random(COUNT).astype(np.float32)
    dets, indices = mmort.soft_nms(boxes, scores, method=method, min_score=0.3)
    expected, kept = soft_nms(boxes, scores, method=method, min_score=0.3)
    np.testing.assert_array_equal(indices, kept)
    np.testing.assert_allclose(dets, expected, rtol=1e-5)


def test_a_giant_does_not_slow_soft_nms():
    """It made all cells so large that every pair was compared, which took 8 seconds."""
    rng = np.random.default_rng(0)
    boxes = scattered(rng, 4000, rng.uniform(10, 30, (100_000, 2)))
    boxes[7] = [-1e6, -1e6, 1e6, 1e6]
    mmort.set_num_threads(1)
    begin = time.process_time()
    mmort.soft_nms(boxes, rng.random(len(boxes)).astype(np.float32))
    assert time.process_time() - begin < 2

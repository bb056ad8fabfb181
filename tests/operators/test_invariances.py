"""What libraries of operators promise of nms, roi_align, deformable convolution and grid_sample, whatever the input.

Shifted, scaled, turned or reordered inputs give shifted, scaled, turned or reordered results; simple maps give values
that a formula states.
"""

import numpy as np
import pytest

import mmort
from tests.compare import assert_close, assert_same
from tests.operators.families.boxes import make_boxes, make_scores

THRESHOLDS = (0.2, 0.5, 0.8)


@pytest.fixture
def boxes(rng):
    """Return boxes with integer corners, whose shifts and doubles are exact, and distinct scores."""
    return make_boxes(rng, 300, "grid"), make_scores(rng, 300)


# ---- suppression -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_nms_of_changed_boxes(boxes, rng, threshold):
    corners, scores = boxes
    _, kept = mmort.nms(corners, scores, threshold)
    for factor, shift in ((1, 1000), (1, -64.5), (2, 0), (0.25, 0), (-1, 0)):
        changed = corners * np.float32(factor) + np.float32(shift)
        changed = changed if factor > 0 else changed[:, [2, 3, 0, 1]]  # mirrored
        assert_same([mmort.nms(changed, scores, threshold)[1]], [kept])
    assert_same([mmort.nms(corners[:, [1, 0, 3, 2]], scores, threshold)[1]], [kept])  # x and y exchanged
    order = rng.permutation(len(scores))
    assert_same([order[mmort.nms(corners[order], scores[order], threshold)[1]]], [kept])


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_nms_of_what_it_kept(boxes, threshold):
    """Nothing more is dropped."""
    dets, kept = mmort.nms(*boxes, threshold)
    assert 1 < len(kept) < 300
    assert mmort.nms(dets[:, :4], dets[:, 4], threshold)[1].tolist() == list(range(len(kept)))
    assert kept[0] == np.argmax(boxes[1])


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_classes_are_boxes_that_lie_apart(boxes, rng, threshold):
    """What torchvision does: boxes of each class are moved away from those of the others."""
    corners, scores = boxes
    classes = rng.integers(0, 5, len(scores))
    moved = corners + 64 * classes[:, None].astype(np.float32)
    expected = mmort.nms(moved, scores, threshold)[1]
    assert_same([mmort.batched_nms(corners, scores, classes, threshold)[1]], [expected])


# ---- regions ---------------------------------------------------------------------------------------------------


def plane(height, width):
    """Return a map of one channel whose values are linear: 3y - 2x + 1 at pixel (y, x)."""
    y, x = np.mgrid[:height, :width]
    return (3.0 * y - 2 * x + 1)[None, None]


@pytest.mark.parametrize("sampling_ratio", [0, 1, 3])
@pytest.mark.parametrize("aligned", [False, True])
def test_roi_align_of_a_plane(rng, sampling_ratio, aligned):
    """The mean of a bin is the value at its centre."""
    corners = rng.uniform(2, 9, (20, 2))
    rois = np.column_stack([np.zeros(20), corners, corners + rng.uniform(1, 8, (20, 2))])
    output = mmort.roi_align(plane(20, 20), rois, (4, 3), 1.0, sampling_ratio, "avg", aligned)
    (x1, y1, x2, y2), half = rois[:, 1:, None].transpose(1, 0, 2), 0.5 if aligned else 0.0
    y = y1 - half + (y2 - y1) * (np.arange(4) + 0.5) / 4
    x = x1 - half + (x2 - x1) * (np.arange(3) + 0.5) / 3
    assert_close([output[:, 0]], [3 * y[:, :, None] - 2 * x[:, None] + 1])


def test_roi_align_of_the_whole_map(rng):
    pixels = rng.standard_normal((2, 3, 5, 7))
    rois = np.array([[1.0, 0, 0, 7, 5], [0, 0, 0, 7, 5]])
    assert_close([mmort.roi_align(pixels, rois, (5, 7), 1.0, 1)], [pixels[::-1]])


@pytest.mark.parametrize("pool_mode", ["avg", "max"])
def test_samples_of_a_bin_are_bins_of_a_finer_output(rng, pool_mode):
    pixels, corners = rng.standard_normal((1, 4, 12, 12)), rng.uniform(0, 9, (9, 2))
    rois = np.column_stack([np.zeros(9), corners, corners + 4])
    fine = mmort.roi_align(pixels, rois, (6, 9), 1.0, 1, pool_mode).reshape(9, 4, 2, 3, 3, 3)
    pooled = getattr(np, {"avg": "mean", "max": "max"}[pool_mode])(fine, axis=(3, 5))
    assert_close([mmort.roi_align(pixels, rois, (2, 3), 1.0, 3, pool_mode)], [pooled])


def test_roi_align_of_changed_regions(rng):
    """In other units, in other images, shifted with the map, and turned by a quarter."""
    pixels, corners = np.zeros((2, 3, 20, 20)), rng.uniform(1, 6, (9, 2))
    pixels[:, :, 3:17, 3:17] = rng.standard_normal((2, 3, 14, 14))
    rois = np.column_stack([rng.integers(0, 2, 9), corners, corners + rng.uniform(1, 9, (9, 2))])
    expected = mmort.roi_align(pixels, rois, 3, 1.0, 2)
    in_pixels = rois * [1, 4, 4, 4, 4]
    assert_close([mmort.roi_align(pixels, in_pixels, 3, 0.25, 2)], [expected])
    assert_close([mmort.roi_align(pixels[::-1], rois * [-1, 1, 1, 1, 1] + [1, 0, 0, 0, 0], 3, 1.0, 2)], [expected])
    shifted = np.roll(pixels, (3, 2), (2, 3))
    assert_close([mmort.roi_align(shifted, rois + np.array([0, 2, 3, 2, 3]), 3, 1.0, 2)], [expected])
    turned = mmort.roi_align(pixels.swapaxes(2, 3), rois[:, [0, 2, 1, 4, 3]], 3, 1.0, 2)
    assert_close([turned.swapaxes(2, 3)], [expected])


# ---- deformable convolution ------------------------------------------------------------------------------------


def test_whole_offsets_are_shifts(rng):
    """An offset of whole pixels for all taps is a convolution of the shifted map."""
    pixels, weight = rng.standard_normal((2, 4, 12, 12)), rng.standard_normal((3, 4, 3, 3))
    offset = np.zeros((2, 18, 10, 10))
    plain = mmort.deform_conv2d(pixels, offset, weight)
    offset[:, 0::2], offset[:, 1::2] = 2, -1
    shifted = mmort.deform_conv2d(pixels, offset, weight)
    assert_close([shifted[:, :, :-2, 1:]], [plain[:, :, 2:, :-1]])


def test_offsets_of_a_plane(rng):
    """On a linear map an offset adds its multiple."""
    pixels = plane(20, 20)
    offset = rng.uniform(-2, 2, (1, 2, 10, 10))
    output = mmort.deform_conv2d(pixels, offset, np.ones((1, 1, 1, 1)), stride=2)
    expected = pixels[:, :, ::2, ::2] + 3 * offset[:, :1] - 2 * offset[:, 1:]
    assert_close([output[..., 1:-1, 1:-1]], [expected[..., 1:-1, 1:-1]])


def test_masks_are_factors(rng):
    pixels, offset, weight = (rng.standard_normal(shape) for shape in ((1, 2, 8, 8), (1, 18, 6, 6), (3, 2, 3, 3)))
    mask, bias = rng.random((1, 9, 6, 6)), rng.standard_normal(3)
    whole = mmort.modulated_deform_conv2d(pixels, offset, mask, weight)
    parts = [mmort.modulated_deform_conv2d(pixels, offset, part, weight) for part in (0.25 * mask, 0.75 * mask)]
    assert_close([parts[0] + parts[1]], [whole])
    with_bias = mmort.modulated_deform_conv2d(pixels, offset, mask, weight, bias)
    assert_close([with_bias], [whole + bias[:, None, None]])
    ones = mmort.modulated_deform_conv2d(pixels, offset, np.ones_like(mask), weight)
    assert_close([mmort.deform_conv2d(pixels, offset, weight)], [ones])


# ---- grids -----------------------------------------------------------------------------------------------------


def identity(height, width, align_corners):
    """Return the grid of the pixels' own positions."""
    axes = (
        np.linspace(-1, 1, size) if align_corners else (2 * np.arange(size) + 1) / size - 1 for size in (height, width)
    )
    y, x = np.meshgrid(*axes, indexing="ij")
    return np.stack([x, y], axis=-1)[None]


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grids_of_pixels(rng, mode, align_corners):
    pixels = rng.standard_normal((1, 3, 6, 7))
    attributes = {"mode": mode, "padding_mode": "border", "align_corners": align_corners}
    grid = identity(6, 7, align_corners)
    assert_close([mmort.grid_sample(pixels, grid, **attributes)], [pixels])
    assert_close([mmort.grid_sample(pixels, grid * [-1, 1], **attributes)], [pixels[..., ::-1]])
    turned = mmort.grid_sample(pixels.swapaxes(2, 3), grid[..., ::-1], **attributes)
    assert_close([turned], [pixels])


@pytest.mark.parametrize("align_corners", [False, True])
def test_grids_on_a_plane(rng, align_corners):
    grid = rng.uniform(-0.5, 0.5, (1, 5, 6, 2))
    x, y = (((grid[..., i] + 1) * (12 - align_corners) - (not align_corners)) / 2 for i in (0, 1))
    output = mmort.grid_sample(plane(12, 12), grid, align_corners=align_corners)
    assert_close([output[:, 0]], [3 * y - 2 * x + 1])


def test_grids_outside(rng):
    """Zeros; the pixel of the corner; and a map that repeats itself, mirrored, every two widths."""
    pixels = rng.standard_normal((1, 2, 4, 5))
    far = np.full((1, 1, 1, 2), 50.0)
    assert_same([mmort.grid_sample(pixels, far)], [np.zeros((1, 2, 1, 1))])
    assert_same([mmort.grid_sample(pixels, far, padding_mode="border")], [pixels[..., -1:, -1:]])
    grid = rng.uniform(-1, 1, (1, 6, 6, 2))
    inside = mmort.grid_sample(pixels, grid, padding_mode="reflection")
    for shift in ([4, 0], [0, -4], [8, 4]):
        assert_close([mmort.grid_sample(pixels, grid + shift, padding_mode="reflection")], [inside])
    assert_close([mmort.grid_sample(pixels, [2, 2] - grid, padding_mode="reflection")], [inside])

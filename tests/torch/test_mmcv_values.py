"""Inputs and results that MMCV's own tests state, for the operators that mmort has too."""

import numpy as np
import pytest
import torch

import mmort
import mmort.torch
from mmort.detect.parts.deform_roi_pool import deform_roi_pool

BOXES = np.float32([[6, 3, 8, 7], [3, 6, 9, 11], [3, 7, 10, 12], [1, 4, 13, 7]])
SCORES = np.float32([0.6, 0.9, 0.7, 0.2])


def test_nms():
    dets, kept = mmort.nms(BOXES, SCORES, iou_threshold=0.3, offset=0)
    assert kept.tolist() == [1, 0, 3]
    np.testing.assert_array_equal(dets, np.column_stack([BOXES, SCORES])[kept])


@pytest.mark.parametrize(
    ("method", "indices", "scores"),
    [
        ("linear", [1, 0, 2, 3], [0.9, 0.6, 0.29024392, 0.2]),
        ("gaussian", [1, 0, 2, 3], [0.9, 0.59630775, 0.35275510, 0.18650459]),
        ("naive", [1, 0, 3], [0.9, 0.6, 0.2]),
    ],
)
def test_soft_nms(method, indices, scores):
    dets, kept = mmort.soft_nms(BOXES, SCORES, iou_threshold=0.3, sigma=0.5, min_score=0.01, method=method)
    assert kept.tolist() == indices
    np.testing.assert_array_equal(dets[:, :4], BOXES[indices])
    np.testing.assert_allclose(dets[:, 4], scores, atol=1e-7)


def test_nms_match():
    dets = np.float32([
        [49.1, 32.4, 51.0, 35.9, 0.9], [49.3, 32.9, 51.0, 35.3, 0.9], [35.3, 11.5, 39.9, 14.5, 0.4],
        [35.2, 11.7, 39.7, 15.7, 0.3],
    ])  # fmt: skip
    groups = mmort.nms_match(dets, 0.6)
    assert [group.tolist() for group in groups] == [[0, 1], [2, 3]]
    assert {int(group[0]) for group in groups} == set(mmort.nms(dets[:, :4], dets[:, 4], 0.6)[1].tolist())
    tensors = mmort.torch.nms_match(torch.tensor(dets), 0.6)
    assert [group.tolist() for group in tensors] == [group.tolist() for group in groups]
    with pytest.raises(ValueError, match=r"dets must be \[N, 5\], got \[2, 3\]"):
        mmort.nms_match(np.zeros((2, 3)), 0.6)


@pytest.mark.parametrize(
    ("labels", "expected"),
    # With labels MMCV states 3, 1, 0 too: it lets box 1 drop box 2 of another label, as its CPU code knows none.
    [(None, [3, 1, 0]), ([1, 0, 1, 0], [3, 1, 0, 2])],
)
def test_nms_rotated(labels, expected):
    dets = np.float32([[6, 3, 8, 7, 0.5], [3, 6, 9, 11, 0.6], [3, 7, 10, 12, 0.3], [1, 4, 13, 7, 0.6]])
    scores = np.float32([0.7, 0.8, 0.5, 0.9])
    kept, indices = mmort.nms_rotated(dets, scores, 0.5, None if labels is None else np.array(labels))
    assert indices.tolist() == expected
    np.testing.assert_array_equal(kept[:, :5], dets[indices])


ROTATED = (
    np.float32([[1, 1, 3, 4, 0.5], [2, 2, 3, 4, 0.6], [7, 7, 8, 8, 0.4]]),
    np.float32([[0, 2, 2, 5, 0.3], [2, 1, 3, 3, 0.5], [5, 5, 6, 7, 0.4]]),
)


@pytest.mark.parametrize("clockwise", [True, False])
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("iou", [[0.3708, 0.4351, 0], [0.1104, 0.4487, 0.0424], [0, 0, 0.3622]]),
        ("iof", [[0.4959, 0.5306, 0], [0.1823, 0.5420, 0.1832], [0, 0, 0.4404]]),
    ],
)
def test_box_iou_rotated(mode, expected, clockwise):
    turned = [boxes * np.float32([1, 1, 1, 1, 1 if clockwise else -1]) for boxes in ROTATED]
    overlaps = mmort.box_iou_rotated(*turned, mode=mode, clockwise=clockwise)
    np.testing.assert_allclose(overlaps, expected, atol=1e-4)
    aligned = mmort.box_iou_rotated(*turned, mode=mode, aligned=True, clockwise=clockwise)
    np.testing.assert_allclose(aligned, np.diag(expected), atol=1e-4)


FIRST = [[1, 1, 3, 4], [2, 2, 3, 4], [7, 7, 8, 8]]
SECOND = [[0, 2, 2, 5], [2, 1, 3, 3]]
ROW = [[4, 0, 5, 3], [3, 0, 4, 3], [2, 0, 3, 3], [1, 0, 2, 3]]


@pytest.mark.parametrize(
    ("first", "second", "aligned", "expected"),
    [
        (FIRST, SECOND, False, [[1 / 3, 0.5], [0.2, 0.5], [0, 0]]),
        (FIRST[:2], SECOND, True, [1 / 3, 0.5]),
        ([[0, 0, 3, 3]], ROW, False, [[0, 0.2, 0.5, 0.5]]),
    ],
)
def test_bbox_overlaps(first, second, aligned, expected):
    arrays = np.float32(first), np.float32(second)
    np.testing.assert_allclose(mmort.box_iou(*arrays, aligned=aligned, offset=1), expected, atol=1e-7)
    overlaps = mmort.torch.bbox_overlaps(*map(torch.tensor, arrays), aligned=aligned, offset=1)
    np.testing.assert_allclose(overlaps.numpy(), expected, atol=1e-7)


SMALL, LARGE = [[1, 2], [3, 4]], [[1, 2, 5, 6], [3, 4, 7, 8], [9, 10, 13, 14], [11, 12, 15, 16]]
SMALL_GRADIENT = [[3.0625, 0.4375], [0.4375, 0.0625]]
LARGE_GRADIENT = np.outer([0.6875, 0.625, 0.625, 0.0625], [0.6875, 0.625, 0.625, 0.0625])
REGIONS = [
    ([[SMALL]], 1, [[[[1, 1.25], [1.5, 1.75]]]], [[SMALL_GRADIENT]]),
    ([[SMALL, [[4, 3], [2, 1]]]], 1, [[[[1, 1.25], [1.5, 1.75]], [[4, 3.75], [3.5, 3.25]]]], [[SMALL_GRADIENT] * 2]),
    ([[LARGE]], 3, [[[[1.9375, 4.75], [7.5625, 10.375]]]], [[LARGE_GRADIENT]]),
]
"""Map, side of the region from the origin, what RoIAlign of 2x2 bins with 2x2 samples gives, and the map's gradient."""


@pytest.mark.parametrize(("pixels", "side", "expected", "gradient"), REGIONS)
def test_roi_align(pixels, side, expected, gradient):
    maps = torch.tensor(pixels, dtype=torch.float64, requires_grad=True)
    rois = torch.tensor([[0, 0, 0, side, side]], dtype=torch.float64)
    output = mmort.torch.roi_align(maps, rois, (2, 2), 1.0, 2, "avg", True)
    output.sum().backward()
    np.testing.assert_allclose(output.detach().numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(maps.grad.numpy(), gradient, atol=1e-12)


@pytest.mark.parametrize(("pixels", "side", "expected", "gradient"), REGIONS)
def test_deform_roi_pool(pixels, side, expected, gradient):
    """With offsets of 0."""
    maps = torch.tensor(pixels, dtype=torch.float64, requires_grad=True)
    rois = torch.tensor([[0, 0, 0, side, side]], dtype=torch.float64)
    output = deform_roi_pool(maps, rois, torch.zeros(1, 2, 2, 2).double(), 1.0, sampling_ratio=2, gamma=0.1)
    output.sum().backward()
    np.testing.assert_allclose(output.detach().numpy(), expected, rtol=1e-3)
    np.testing.assert_allclose(maps.grad.numpy(), gradient, atol=1e-3)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("pixels", "side", "expected", "gradient"), REGIONS)
def test_roi_align_rotated(pixels, side, expected, gradient, turned):
    rois = np.float64([[0, side / 2, side / 2, side, side, np.pi / 2 if turned else 0]])
    output = mmort.roi_align_rotated(np.float64(pixels), rois, (2, 2), 1.0, 2, aligned=True)
    np.testing.assert_allclose(output, np.rot90(expected, -1, (2, 3)) if turned else expected, atol=1e-6)


def test_corner_pool():
    rows = [[0, 0, 0, 0, 0], [2, 1, 3, 0, 2], [5, 4, 1, 1, 6], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    columns = [[0, 3, 1, 0, 0], [0, 1, 1, 0, 0], [0, 3, 4, 0, 0], [0, 2, 2, 0, 0], [0, 0, 2, 0, 0]]
    zeros = [0] * 5
    for mode, values, expected in (
        ("left", rows, [zeros, [3, 3, 3, 2, 2], [6, 6, 6, 6, 6], zeros, zeros]),
        ("right", rows, [zeros, [2, 2, 3, 3, 3], [5, 5, 5, 5, 6], zeros, zeros]),
        ("top", columns, [[0, 3, 4, 0, 0], [0, 3, 4, 0, 0], [0, 3, 4, 0, 0], [0, 2, 2, 0, 0], [0, 0, 2, 0, 0]]),
        ("bottom", columns, [[0, 3, 1, 0, 0], [0, 3, 1, 0, 0], [0, 3, 4, 0, 0], [0, 3, 4, 0, 0], [0, 3, 4, 0, 0]]),
    ):
        pooled = mmort.corner_pool(np.array([[values]]), mode)
        assert pooled.dtype == np.int64
        assert pooled.tolist() == [[expected]], mode


def test_deform_conv2d():
    """With offsets that a convolution computes; ten images of the same pixels."""
    model = mmort.torch.DeformConv2dPack(1, 1, kernel_size=2, stride=1, padding=0).double()
    offsets = [
        [0.1, 0.4, 0.6, 0.1], [0.3, 0.2, 0.1, 0.3], [0.5, 0.5, 0.2, 0.8], [0.8, 0.3, 0.9, 0.1], [0.3, 0.1, 0.2, 0.5],
        [0.3, 0.7, 0.5, 0.3], [0.6, 0.2, 0.5, 0.3], [0.4, 0.1, 0.8, 0.4],
    ]  # fmt: skip
    model.conv_offset.weight.data = torch.tensor(offsets, dtype=torch.float64).reshape(8, 1, 2, 2)
    model.conv_offset.bias.data = torch.tensor([0.7, 0.1, 0.8, 0.5, 0.6, 0.5, 0.4, 0.7], dtype=torch.float64)
    model.weight.data = torch.tensor([[[[0.4, 0.2], [0.1, 0.9]]]], dtype=torch.float64)
    pixels = torch.tensor([[[1, 2, 3], [0, 1, 2], [3, 5, 2]]], dtype=torch.float64).repeat(10, 1, 1, 1).requires_grad_()
    output = model(pixels)
    output.sum().backward()
    gradients = [
        [[1.44, 2.88], [0, 1.44]], [[-0.72, -1.44], [0, -0.72]], [[0, 0], [0, 0]], [[0, 0], [0, 0]],
        [[-0.1, -0.2], [0, -0.1]], [[-0.08, -0.16], [0, -0.08]], [[-0.54, -1.08], [0, -0.54]],
        [[-0.54, -1.08], [0, -0.54]],
    ]  # fmt: skip
    for actual, expected in (
        (output, [[[[1.65, 0], [0, 0]]]] * 10),
        (pixels.grad, [[[[-0.666, 0.204, 0], [0.03, -0.416, 0.012], [0, 0.252, 0.129]]]] * 10),
        (model.conv_offset.weight.grad / 10, np.array(gradients)[:, None]),
        (model.conv_offset.bias.grad / 10, [1.44, -0.72, 0, 0, -0.1, -0.08, -0.54, -0.54]),
        (model.weight.grad / 10, [[[[3.62, 0], [0.4, 0.18]]]]),
    ):
        np.testing.assert_allclose(actual.detach().numpy(), expected, atol=1e-9)


def test_modulated_deform_conv2d():
    """Offsets of 0 and masks of a half, as a new layer computes them."""
    model = mmort.torch.ModulatedDeformConv2dPack(1, 1, kernel_size=2, stride=1, padding=1, bias=False).double()
    model.weight.data.fill_(1)
    pixels = torch.tensor([[[[1.0, 2, 3]] * 3]], dtype=torch.float64).reshape(1, 1, 3, 3).requires_grad_()
    output = model(pixels)
    output.sum().backward()
    edge, middle = [0.5, 1.5, 2.5, 1.5], [1, 3, 5, 3]
    bias = [-3, -1.5, -3, -1.5, -3, -1.5, -3, -1.5, 4.5, 4.5, 4.5, 4.5]
    for actual, expected in (
        (output, [[[edge, middle, middle, edge]]]),
        (pixels.grad, np.full((1, 1, 3, 3), 2)),
        (model.weight.grad, np.full((1, 1, 2, 2), 9)),
        (model.conv_offset.bias.grad, bias),
    ):
        np.testing.assert_allclose(actual.detach().numpy(), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("logits", "labels", "loss", "gradient"),
    [
        ([[1, 0], [0, 1]], [0, 1], 0.13562961, [[-0.00657264, 0.11185755], [0.11185755, -0.00657264]]),
        (
            [[1, 0, -1], [0, 1, 2]],
            [2, 1],
            1.10251057,
            [[0.28808805, 0.11185755, -0.09602935], [0.11185755, -0.00657264, 0.40376765]],
        ),
        (
            [[1e-6, 2e-6, 3e-6], [4e-6, 5e-5, 6e-4], [7e-3, 8e-2, 9e-1]],
            [1, 2, 0],
            0.42287254,
            [
                [0.07457182, -0.02485716, 0.07457201],
                [0.07457211, 0.07457669, -0.02483728],
                [-0.02462499, 0.08277918, 0.18050370],
            ],
        ),
    ],
)
def test_sigmoid_focal_loss(logits, labels, loss, gradient):
    tensor = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    result = mmort.torch.sigmoid_focal_loss(tensor, torch.tensor(labels), 2.0, 0.25, None, "mean")
    result.backward()
    assert result.item() == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(tensor.grad.numpy(), gradient, atol=1e-7)


def test_multi_scale_deformable_attention(rng):
    """What torch's grid_sample gives, level by level."""
    shapes, (images, heads, channels, queries, points) = [(6, 4), (3, 2)], (1, 2, 2, 2, 2)
    value = torch.tensor(rng.random((images, 30, heads, channels)) * 0.01)
    locations = torch.tensor(rng.random((images, queries, heads, 2, points, 2)))
    weights = torch.tensor(rng.random((images, queries, heads, 2, points)))
    expected = torch.zeros(images, heads, channels, queries, dtype=torch.float64)
    for level, (maps, (height, width)) in enumerate(zip(value.split([24, 6], dim=1), shapes, strict=True)):
        maps = maps.permute(0, 2, 3, 1).reshape(images * heads, channels, height, width)
        grid = (2 * locations[:, :, :, level] - 1).transpose(1, 2).flatten(0, 1)
        samples = torch.nn.functional.grid_sample(maps, grid, align_corners=False)
        level_weights = weights[:, :, :, level].transpose(1, 2).reshape(images * heads, 1, queries, points)
        expected += (samples * level_weights).sum(-1).reshape(expected.shape)
    tensors = value, torch.tensor(shapes), torch.tensor([0, 24]), locations, weights
    actual = mmort.torch.multi_scale_deformable_attention(*tensors)
    wanted = expected.permute(0, 3, 1, 2).reshape(actual.shape)
    np.testing.assert_allclose(actual.numpy(), wanted.numpy(), rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("align_corners", [False, True])
def test_grid_sample_of_a_finer_grid(rng, dtype, align_corners):
    pixels = torch.tensor(rng.random((1, 1, 10, 10)).astype(dtype))
    identity = torch.tensor([[[1, 0, 0], [0, 1, 0]]], dtype=pixels.dtype)
    grid = torch.nn.functional.affine_grid(identity, (1, 1, 15, 15), align_corners=False)
    wanted = torch.nn.functional.grid_sample(pixels, grid, align_corners=align_corners)
    samples = mmort.torch.grid_sample(pixels, grid, align_corners=align_corners)
    np.testing.assert_allclose(samples.numpy(), wanted.numpy(), atol=1e-6)


FEATURES = """
1.2924 -.2172 -.5222 .1172 .9144 1.2248 1.3115 -.9690 -.8949 -1.1797 -.9093 -.3961 -.4586 .5062 -.7947 -.7397
-1.0943 -.7495 1.3461 -1.1652 .2034 .6763 -1.2357 .5231 -1.0062 1.2592 1.4225 -.3951 -.1242 -1.6240 .1932 2.7181
-1.6271 -1.0276 .0578 -.2997 -.9684 -1.6946 -1.3188 -1.1938 -1.6744 -.8917 -.6556 1.0073 -.1205 .3671 -.3731 -.5347
.7035 .2089 -.1774 3.4670 -.8505 -.9278 1.4714 .1644 .0898 .3531 -.4007 .1927 1.2569 -.2636 -.5223 .0616
.1760 -.7639 -.4600 -1.3260 -.9921 -.2970 -.8955 1.0508 1.3515 -.1641 1.9679 1.1986 -.3616 .6287 .4933 .3360
-.5860 .2124 -.8700 2.4200 -.0551 -1.5103 -1.6779 .8399 .8431 1.2414 -1.1243 -.3887 -2.1254 .6047 -.3515 .7254
"""
ANCHORS = """
13.080 12.688 11.214 93.944 -.91905 38.104 10.134 146.59 90.306 -.98211
-53.213 49.508 51.513 32.055 -.31954 26.974 25.248 54.495 3.1083 -.62127
-15.604 -51.908 239.98 15.008 -1.2546 31.354 -7.3635 67.879 35.081 -.33851
-5.3292 9.1946 12.834 10.485 -1.3039 -23.925 36.623 39.875 72.009 -.65934
72.114 -23.781 29.106 84.501 -1.1340 26.258 -7.7034 176.29 106.15 -1.2156
38.057 46.016 12.965 6.9384 -1.0855 24.428 -16.189 205.72 31.622 -.15719
3.8226 29.608 14.457 68.179 -.91997 25.003 -42.490 96.007 49.086 -1.4786
85.983 54.980 78.080 100.03 -1.0926 9.9065 41.457 5.9799 17.973 -.56313
-18.244 4.6309 53.010 24.310 -.70345 19.419 36.704 52.390 54.133 -.37730
56.387 23.752 9.0441 17.792 -1.5583 36.303 16.396 20.283 19.148 -.83419
32.169 30.521 26.283 196.80 -.30454 25.788 -32.189 88.882 102.07 -1.5328
8.4676 -16.668 24.657 112.75 -.40388 -10.799 6.0422 9.5807 33.677 -.35438
69.363 10.850 25.968 22.311 -.16408 2.8140 4.6843 3.1289 21.480 -.67583
26.661 45.290 6.1679 30.005 -.89806 5.0871 13.234 92.087 49.622 -.28020
-12.643 25.176 50.488 54.246 -.44840 -34.521 .98435 52.413 9.7996 -.84218
49.829 -10.808 29.848 73.579 -.62672 80.446 28.064 45.273 53.809 -1.2359
"""
ALIGNED = """
1.1095 -.2172 -.5222 -.6225 .9144 .7662 1.0487 -.9690 -.8949 -1.6384 -.9093 -.3961 -.8604 .5062 -.7947 -.7397
-.3961 -.7495 1.3461 1.5528 .2034 .5522 -1.6722 .5231 -1.0062 1.1350 1.4225 -.3951 -.4826 -1.6240 .1932 2.7181
-2.6436 -1.0276 .0578 -.8344 -.9684 -1.8151 -2.1843 -1.1938 -1.6744 -1.0121 -.6556 1.0073 -.8474 .3671 -.3731 -.5347
.7035 .2089 -.1774 3.4670 -.8505 -.9278 1.4714 .1644 .0898 .3064 -.4007 .5849 1.2569 -.2636 -.5223 .0616
.1760 -.7639 -.4600 -1.3260 -.9921 -.2970 -.8955 1.0508 1.3515 -.6125 1.9679 .5550 -.3616 .6287 .4933 .3360
-.5860 .2124 -.8700 2.4200 -.0551 -1.5103 -1.6779 .8399 .8431 .8455 -1.1243 -1.5994 -2.1254 .6047 -.3515 .7254
"""


def test_rotated_feature_align():
    features, boxes, expected = (np.array(text.split(), np.float64) for text in (FEATURES, ANCHORS, ALIGNED))
    output = mmort.rotated_feature_align(
        features.reshape(2, 3, 4, 4), boxes.reshape(2, 4, 4, 5), spatial_scale=1 / 8, points=1
    )
    np.testing.assert_allclose(output, expected.reshape(2, 3, 4, 4), atol=2e-4)

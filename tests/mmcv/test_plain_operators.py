"""The functions of ``mmcv._ext`` that are written in torch and numpy, against their definitions."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

import mmort.torch
from mmort.mmcv import ext_module

EXT = SimpleNamespace(**ext_module.functions())


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


def numbers(*shape, low=-1.0, high=1.0):
    return torch.empty(shape, dtype=torch.float64).uniform_(low, high)


def rois(count, images, size):
    start = numbers(count, 2, low=0, high=size / 2)
    index = torch.arange(count, dtype=torch.float64)[:, None] % images
    return torch.cat([index, start, start + numbers(count, 2, low=2, high=size / 2)], 1)


SIZE = {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.5}


def test_roi_pool():
    maps, regions = numbers(2, 2, 9, 8), rois(6, 2, 18)
    output, argmax = numbers(6, 2, 2, 3), torch.zeros(6, 2, 2, 3, dtype=torch.int32)
    EXT.roi_pool_forward(maps, regions, output, argmax, **SIZE)
    for k, row, column in itertools.product(range(6), range(2), range(3)):
        left, top = regions[k, 1:3] * 0.5
        right, bottom = (regions[k, 3:] + 1) * 0.5
        height, width = (bottom - top) / 2, (right - left) / 3
        rows = slice(int((top + row * height).floor()), int((top + (row + 1) * height).ceil()))
        columns = slice(int((left + column * width).floor()), int((left + (column + 1) * width).ceil()))
        wanted = maps[int(regions[k, 0]), :, rows, columns].amax((1, 2))
        assert torch.equal(output[k, :, row, column], wanted)
    planes = maps[regions[:, 0].long()].flatten(2)
    assert torch.equal(planes.gather(2, argmax.long().flatten(2)).reshape(output.shape), output)


def test_roi_pool_outside_the_map():
    maps, regions = torch.ones(1, 1, 4, 4), torch.tensor([[0.0, 20, 20, 30, 30], [0, 4, 4, 1, 1], [0, 3, 3, 12, 12]])
    output, argmax = torch.zeros(3, 1, 2, 3), torch.full((3, 1, 2, 3), -1, dtype=torch.int32)
    EXT.roi_pool_forward(maps, regions, output, argmax, **SIZE)
    assert output[:2].eq(0).all()
    assert argmax[:2].eq(-1).all()
    assert output[2, 0].tolist() == [[1, 1, 0], [0, 0, 0]]
    assert (argmax[2] >= 0).tolist() == (output[2] > 0).tolist()


def test_precise_roi_pool_is_the_limit_of_many_samples():
    maps, regions = numbers(1, 2, 9, 8), torch.tensor([[0, 2.0, 3, 11, 15], [0, -3, 4, 9, 8]], dtype=torch.float64)
    output = numbers(2, 2, 2, 3)
    EXT.prroi_pool_forward(maps, regions, output, **SIZE)
    padded = functional.pad(maps, (4, 4, 4, 4))  # outside the map it is 0, where RoIAlign repeats the border
    moved = regions + torch.tensor([0, 8, 8, 8, 8])
    wanted = mmort.torch.roi_align(padded, moved, (2, 3), 0.5, 200, "avg", False)
    torch.testing.assert_close(output, wanted, atol=1e-4, rtol=0)


def test_precise_roi_pool_of_nothing():
    output = numbers(1, 2, 2, 3)
    EXT.prroi_pool_forward(numbers(1, 2, 9, 8), torch.tensor([[0.0, 5, 5, 5, 9]]).double(), output, **SIZE)
    assert output.eq(0).all()


@pytest.mark.parametrize("ratio", [0, 2])
def test_deform_roi_pool(ratio):
    maps, regions = numbers(2, 2, 9, 8), rois(4, 2, 14)
    for offset in (torch.empty(0).double(), torch.zeros(4, 2, 2, 3).double()):
        output = numbers(4, 2, 2, 3)
        EXT.deform_roi_pool_forward(maps, regions, offset, output, sampling_ratio=ratio, gamma=0.3, **SIZE)
        wanted = mmort.torch.roi_align(maps, regions, (2, 3), 0.5, ratio, "avg", True)
        torch.testing.assert_close(output, wanted)
    # A bin that moves by its own width takes the value of the one to its right.
    offset[:, 0, :, 0] = 1 / 3 / 0.3
    EXT.deform_roi_pool_forward(maps, regions, offset, output, sampling_ratio=ratio, gamma=0.3, **SIZE)
    torch.testing.assert_close(output[..., 0], wanted[..., 1])


def test_border_align():
    maps, boxes, pool = numbers(2, 8, 9, 8), rois(6, 1, 10)[:, 1:].reshape(2, 3, 4), 4
    output, argmax = numbers(2, 2, 3, 4), torch.zeros(2, 2, 3, 4, dtype=torch.int32)
    EXT.border_align_forward(maps, boxes, output, argmax, pool_size=pool)
    steps = torch.arange(pool + 1).double() / pool
    for image, box, side in itertools.product(range(2), range(3), range(4)):
        left, top, right, bottom = boxes[image, box]
        x = [left + (right - left) * steps, left.expand(5), right - (right - left) * steps, right.expand(5)][side]
        y = [top.expand(5), top + (bottom - top) * steps, bottom.expand(5), bottom - (bottom - top) * steps][side]
        points = functional.pad(torch.stack([x, y, x, y], 1) + 0.5, (1, 0))  # regions of no size have one sample
        samples = mmort.torch.roi_align(maps[image : image + 1, 2 * side : 2 * side + 2], points, 1, 1.0, 1)
        torch.testing.assert_close(output[image, :, box, side], samples[:, :, 0, 0].amax(0))
        assert argmax[image, :, box, side].tolist() == samples[:, :, 0, 0].argmax(0).tolist()


@pytest.mark.parametrize("aligned", [False, True])
def test_bezier_align_between_straight_lines(aligned):
    """Bins are as high as a curve, here 0 or 1 pixel, and centred on what would be their upper left corners."""
    maps, regions = numbers(2, 2, 9, 8), rois(4, 2, 14)
    left, top, right, bottom = regions[:, 1:].T
    thirds = torch.arange(4).double() / 3
    upper_x, upper_y = left[:, None] + (right - left)[:, None] * thirds, top[:, None].expand(-1, 4)
    lower_x, lower_y = upper_x.flip(1), bottom[:, None].expand(-1, 4)
    curves = torch.stack([torch.cat([upper_x, lower_x], 1), torch.cat([upper_y, lower_y], 1)], 2).flatten(1)
    output, settings = numbers(4, 2, 2, 3), {"aligned_height": 2, "aligned_width": 3, "spatial_scale": 0.5}
    EXT.bezier_align_forward(
        maps, torch.cat([regions[:, :1], curves], 1), output, sampling_ratio=2, aligned=aligned, **settings
    )
    half_width = (right - left).clamp(min=0 if aligned else 2) / 6
    for row in range(2):
        y = top + (bottom - top) * row / 2 - (0 if aligned else 0.5)
        flat = torch.stack([regions[:, 0], left - half_width, y, right - half_width, y], 1)
        wanted = mmort.torch.roi_align(maps, flat, (2, 3), 0.5, 2, "avg", aligned)[:, :, 0]
        torch.testing.assert_close(output[:, :, row], wanted)


def test_correlation():
    first, second = numbers(1, 3, 6, 7), numbers(1, 3, 6, 7)
    settings = {"kH": 1, "kW": 1, "patchH": 3, "patchW": 5, "padH": 0, "padW": 0, "dilationH": 1, "dilationW": 1}
    output = numbers(1, 3, 5, 3, 4)
    EXT.correlation_forward(first, second, output, dilation_patchH=2, dilation_patchW=1, dH=2, dW=2, **settings)
    for down, right, row, column in itertools.product(range(3), range(5), range(3), range(4)):
        y, x = 2 * row + 2 * (down - 1), 2 * column + right - 2
        inside = 0 <= y < 6 and 0 <= x < 7
        wanted = (first[0, :, 2 * row, 2 * column] * second[0, :, y, x]).sum() if inside else 0
        assert float(output[0, down, right, row, column]) == pytest.approx(float(wanted))


def test_tin_shift():
    maps, output = torch.arange(1.0, 9).reshape(1, 4, 2, 1), torch.zeros(1, 4, 2, 1)
    EXT.tin_shift_forward(maps, torch.tensor([[1, -2]]), output)
    assert output[0, :, :, 0].tolist() == [[0, 6], [1, 8], [3, 0], [5, 0]]


@pytest.mark.parametrize("psa_type", [0, 1])
def test_psamask(psa_type):
    masks, output = numbers(2, 15, 4, 5), torch.zeros(2, 20, 4, 5, dtype=torch.float64)
    sizes = {"h_feature": 4, "w_feature": 5, "h_mask": 5, "w_mask": 3, "half_h_mask": 2, "half_w_mask": 1}
    EXT.psamask_forward(masks, output, psa_type=psa_type, num_=2, **sizes)
    for y, x, other_y, other_x in itertools.product(range(4), range(5), range(4), range(5)):
        row, column = other_y - y + 2, other_x - x + 1
        inside = 0 <= row < 5 and 0 <= column < 3
        wanted = masks[:, row * 3 + column, y, x] if inside else torch.zeros(2).double()
        written = output[:, other_y * 5 + other_x, y, x] if psa_type == 0 else output[:, y * 5 + x, other_y, other_x]
        assert torch.equal(written, wanted)


def test_sync_bn_of_one_process_is_batch_norm():
    maps, weight, bias = numbers(4, 3, 5).float(), numbers(3).float(), numbers(3).float()
    running, reference = [torch.zeros(3), torch.ones(3)], [torch.zeros(3), torch.ones(3)]
    mean, var, std, norm, output = (torch.zeros(size) for size in (3, 3, 3, (4, 3, 5), (4, 3, 5)))
    EXT.sync_bn_forward_mean(maps, mean)
    EXT.sync_bn_forward_var(maps, mean, var)
    outputs = (*running, norm, std, output)
    EXT.sync_bn_forward_output(maps, mean, var, weight, bias, *outputs, eps=1e-5, momentum=0.1, group_size=1)
    torch.testing.assert_close(output, functional.batch_norm(maps, *reference, weight, bias, True, 0.1, 1e-5))
    torch.testing.assert_close(running, reference)


def square(x, y, side):
    return torch.tensor([x, y, x + side, y, x + side, y + side, x, y + side])


@pytest.mark.parametrize("backwards", [False, True])
def test_overlaps_of_quadrilaterals(backwards):
    first = torch.stack([square(0.0, 0, 2), square(10.0, 10, 1), square(0.0, 0, 0)])
    second = torch.stack([square(1.0, 0, 2), square(0.0, 0, 2), torch.tensor([1.0, -1, 3, 1, 1, 3, -1, 1])])
    if backwards:
        second = second.reshape(3, 4, 2).flip(1).reshape(3, 8)
    for flag, wanted in enumerate([[[1 / 3, 1, 0.5], [0, 0, 0], [0, 0, 0]], [[0.5, 1, 1], [0, 0, 0], [0, 0, 0]]]):
        ious = torch.ones(9)
        EXT.box_iou_quadri(first, second, ious, mode_flag=flag, aligned=False)
        torch.testing.assert_close(ious.reshape(3, 3), torch.tensor(wanted))
        EXT.box_iou_quadri(first, second, ious[:3], mode_flag=flag, aligned=True)
        torch.testing.assert_close(ious[:3], torch.tensor(wanted).diagonal())


def test_overlaps_of_quadrilaterals_are_those_of_rotated_boxes():
    centre, sides, angle = numbers(30, 2, low=0, high=12), numbers(30, 2, low=2, high=8), numbers(30, low=-3, high=3)
    boxes = torch.cat([centre, sides, angle[:, None]], 1)
    offsets = torch.tensor([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]]).double() * sides[:, None]
    turn = torch.stack([angle.cos(), angle.sin(), -angle.sin(), angle.cos()], 1).reshape(30, 2, 2)
    corners = (centre[:, None] + offsets @ turn).flatten(1).float()
    ious = torch.zeros(900)
    EXT.box_iou_quadri(corners, corners, ious, mode_flag=0, aligned=False)
    wanted = mmort.torch.box_iou_rotated(boxes, boxes).float()
    torch.testing.assert_close(ious.reshape(30, 30), wanted, atol=1e-5, rtol=1e-4)
    scores = torch.rand(30)
    kept = EXT.nms_quadri(corners, scores, scores.argsort(), corners, 0.2, 0)
    assert kept.tolist() == mmort.torch.nms_rotated(boxes.float(), scores, 0.2)[1].tolist()
    assert 3 < len(kept) < 30


def test_convex_overlaps():
    """Nine points whose hull is a square, some of them inside, on its sides, or twice."""
    points = torch.tensor([0.0, 0, 1, 0, 2, 0, 2, 2, 0, 2, 1, 1, 0, 0, 0, 1, 0.3, 0.7])
    targets = torch.stack([square(1.0, 0, 2), square(0.0, 0, 2), square(2.0, 2, 1)])
    ious = torch.ones(2, 3)
    EXT.convex_iou(torch.stack([points, points + 1]), targets, ious)
    torch.testing.assert_close(ious, torch.tensor([[1 / 3, 1, 0], [1 / 3, 1 / 7, 1 / 4]]))
    output = torch.zeros(3, 19)
    EXT.convex_giou(points.expand(3, -1), targets, output)
    # The hulls of both: their union, either of them, and a hexagon of area 7 around squares of 4 and 1.
    torch.testing.assert_close(output[:, 18], torch.tensor([1 / 3, 1, -2 / 7]))


def test_gradient_of_convex_giou():
    points, target = numbers(1, 18), square(-0.4, -0.3, 0.9)[None].double()
    output, step = numbers(1, 19), 1e-6
    EXT.convex_giou(points, target, output)
    for index in range(18):
        sides = []
        for sign in (1, -1):
            moved, value = points.clone(), numbers(1, 19)
            moved[0, index] += sign * step
            EXT.convex_giou(moved, target, value)
            sides.append(value[0, 18])
        assert float(output[0, index]) == pytest.approx(float(sides[0] - sides[1]) / (2 * step), abs=1e-5)


def test_sorted_vertices():
    angles = torch.tensor([3.0, 0.5, -0.1, -2.0])
    vertices, mask = torch.zeros(1, 2, 24, 2), torch.zeros(1, 2, 24, dtype=torch.bool)
    vertices[0, 0, [0, 5, 9, 20]] = torch.stack([angles.cos(), angles.sin()], 1)
    mask[0, 0, [0, 5, 9, 20]] = mask[0, 1, [8, 9]] = True
    indices = EXT.diff_iou_rotated_sort_vertices_forward(vertices, mask, mask.sum(2).int())
    assert indices.tolist() == [[[5, 0, 20, 9, 5, 8, 8, 8, 8], [10] * 9]]


def test_contours_expand():
    mask = torch.tensor([[1, 1, 1, 0, 1], [1, 1, 1, 1, 1]], dtype=torch.uint8)
    labels = torch.tensor([[1, 0, 0, 0, 0], [0, 0, 0, 2, 3]], dtype=torch.int32)
    masks = torch.stack([mask, labels.to(torch.uint8)])
    assert EXT.contour_expand(masks, labels, 0, 4) == [[1, 1, 1, 0, 3], [1, 1, 2, 2, 3]]
    assert EXT.contour_expand(masks, labels, 2, 4) == [[0] * 5, [0] * 5]


def test_pixels_are_grouped():
    score, embedding = torch.tensor([[0.5, 0.75, 0.25, 1.0]]), torch.tensor([[[0.0], [0.5], [3.0], [0.1]]])
    labels = torch.tensor([[1, 0, 0, 0]], dtype=torch.int32)
    groups = EXT.pixel_group(score, torch.ones(1, 4).bool(), embedding, labels, labels.to(torch.uint8), 2, 1.0)
    assert groups == [[0, 0], [0.625, 2, 0, 0, 1, 0]]


def test_voxels():
    points = torch.tensor([[0.2, 0.2, 0.2], [9, 0, 0], [1.5, 0.1, 0.1], [0.3, 0.1, 0.4], [0.1, 0.1, 0.1]])
    size, limits = torch.tensor([1.0, 1, 1]), torch.tensor([0.0, 0, 0, 2, 2, 1])
    cells = torch.zeros(5, 3, dtype=torch.int32)
    EXT.dynamic_voxelize_forward(points, size, limits, cells, NDim=3)
    assert cells.tolist() == [[0, 0, 0], [-1] * 3, [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    voxels, coors = torch.zeros(3, 2, 3), torch.zeros(3, 3, dtype=torch.int32)
    counts, number = torch.zeros(3, dtype=torch.int32), torch.tensor(0)
    limit = {"max_points": 2, "max_voxels": 3, "NDim": 3, "deterministic": True}
    EXT.hard_voxelize_forward(points, size, limits, voxels, coors, counts, number, **limit)
    assert (int(number), counts.tolist(), coors[:2].tolist()) == (2, [2, 1, 0], [[0, 0, 0], [0, 0, 1]])
    assert torch.equal(voxels, torch.stack([points[[0, 3]], torch.stack([points[2], points[2] * 0]), points[:2] * 0]))
    number.zero_()
    EXT.hard_voxelize_forward(points[:0], size, limits, voxels, coors, counts, number, **limit)
    assert int(number) == 0


def test_points_in_boxes():
    box = torch.tensor([[1.0, 1, 0, 4, 2, 1, torch.pi / 2]])  # turned, it is long along y
    points = torch.tensor([[1.0, 2.9, 0.5], [2.5, 1, 0.5], [1, 1, 1.1], [1, 1, 0]])
    indices = torch.zeros(1, 4, dtype=torch.int32)
    EXT.points_in_boxes_cpu_forward(box, points, indices)
    assert indices.tolist() == [[1, 0, 0, 1]]


def test_neighbours():
    points, known = numbers(1, 4, 3), numbers(1, 6, 3)
    distances, indices = numbers(1, 4, 3), torch.zeros(1, 4, 3, dtype=torch.int32)
    EXT.three_nn_forward(points, known, distances, indices, b=1, n=4, m=6)
    squares = torch.cdist(points, known).square()
    torch.testing.assert_close(distances, squares.sort(2).values[..., :3])
    assert torch.equal(indices.long(), squares.argsort(2)[..., :3])


def test_ball_query():
    centres, points = torch.zeros(1, 2, 3), torch.zeros(1, 4, 3)
    centres[0, 1], points[0, :, 0] = 9, torch.tensor([3.0, 1.0, 0.2, 1.5])
    indices = torch.full((1, 2, 5), 7, dtype=torch.int32)
    EXT.ball_query_forward(centres, points, indices, b=1, n=4, m=2, min_radius=0.5, max_radius=2.0, nsample=5)
    assert indices.tolist() == [[[1, 3, 1, 1, 1], [7] * 5]]


def test_sizes_that_the_output_does_not_have():
    """A region of 2**31 rows took gigabytes before the output was looked at."""
    input, rois, output = torch.ones(1, 1, 4, 4), torch.ones(1, 17), torch.ones(1, 1, 2, 2)
    sizes = {"aligned_width": 2, "spatial_scale": 1.0, "sampling_ratio": 1, "aligned": True}
    align = EXT.bezier_align_forward
    with pytest.raises(ValueError, match=r"aligned_width must be those of output, \[2, 2\], got \[2147483647, 2\]$"):
        align(input, rois, output, aligned_height=2**31 - 1, **sizes)
    with pytest.raises(ValueError, match=r"bezier_align_forward: sampling_ratio must be at most 1024, got 1048576$"):
        align(input, rois, output, aligned_height=2, **sizes | {"sampling_ratio": 2**20})


HUGE = 2**31 - 1
SIZES = {f"{name}{side}": 1 for name in ("k", "dilation", "dilation_patch", "d") for side in "HW"}
SIZES |= {"patchH": 3, "patchW": 3, "padH": 0, "padW": 0}
"""Of a correlation."""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"h_mask": HUGE},
            r"features \[2, 3\] and masks \[2147483647, 3\] must be those of the tensors, got \[1, 9, 2, 3",
        ),
        ({"h_feature": HUGE}, r"num_ 1, features \[2147483647, 3\] and masks \[3, 3\] must be those"),
        ({"num_": HUGE}, r"num_ 2147483647, features "),
        ({"h_feature": -2, "w_feature": -3}, r"features \[-2, -3\] "),
    ],
)
def test_sizes_of_masks_that_the_tensors_do_not_have(settings, message):
    sizes = {"num_": 1, "h_feature": 2, "w_feature": 3, "h_mask": 3, "w_mask": 3, "half_h_mask": 1, "half_w_mask": 1}
    masks, maps = torch.ones(1, 9, 2, 3), torch.zeros(1, 6, 2, 3)
    for function, tensors in ((EXT.psamask_forward, (masks, maps)), (EXT.psamask_backward, (maps, masks))):
        with pytest.raises(ValueError, match=rf"^mmcv\._ext\.psamask_\w+: .*{message}"):
            function(*tensors, psa_type=0, **sizes | settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patchH": HUGE}, r"output must be \[1, 2147483647, 3, 4, 4\] by the sizes, got \[1, 3, 3, 4, 4\]$"),
        (
            {"kH": 2**16, "padH": 2**15},
            r"may have 16384 elements and a padding of 1024, got \[65536, 1\] and \[32768, 0",
        ),
        ({"padW": HUGE, "dW": HUGE}, r"a padding of 1024, got \[1, 1\] and \[0, 2147483647\]$"),
        (
            {"dH": 0},
            r"patch, kernel, dilation and stride must be at least 1, and padding 0, got .*\[0, 1\] and \[0, 0\]$",
        ),
    ],
)
def test_correlations_out_of_proportion(settings, message):
    input, output = torch.ones(1, 2, 4, 4), torch.zeros(1, 3, 3, 4, 4)
    with pytest.raises(ValueError, match=f"^mmcv._ext.correlation_forward: .*{message}"):
        EXT.correlation_forward(input, input, output, **SIZES | settings)
    with pytest.raises(ValueError, match=f"^mmcv._ext.correlation_backward: .*{message}"):
        EXT.correlation_backward(output, input, input, input * 0, input * 0, **SIZES | settings)


def test_correlation_with_what_is_far_outside():
    """The second map was padded up to there: gigabytes."""
    input, output = numbers(1, 2, 4, 4), torch.full((1, 3, 3, 4, 4), 7.0)
    EXT.correlation_forward(input, input, output, **SIZES | {"dilation_patchH": HUGE, "dilation_patchW": 10**6})
    expected = torch.zeros(1, 3, 3, 4, 4)
    expected[:, 1, 1] = input.square().sum(1)
    torch.testing.assert_close(output, expected)


def test_voxels_of_sizes_that_the_tensors_do_not_have():
    points, size, limits = torch.rand(3, 3), torch.ones(3), torch.tensor([0.0, 0, 0, 2, 2, 1])
    cells, voxels, counts = torch.zeros(3, 3, dtype=torch.int32), torch.zeros(3, 2, 3), torch.zeros(3)
    for wrong in (HUGE, 2, -1):
        with pytest.raises(ValueError, match=rf"must have as many coordinates as NDim, got {wrong}$"):
            EXT.dynamic_voxelize_forward(points, size, limits, cells, NDim=wrong)
        with pytest.raises(ValueError, match=rf"must have as many coordinates as NDim, got {wrong}$"):
            EXT.hard_voxelize_forward(points, size, limits, voxels, cells, counts, counts[0], 2, 3, wrong)
    far = torch.cat([limits[:3], torch.full((3,), 2.0**30)])
    with pytest.raises(ValueError, match=r"voxels must be numbered in 63 bits, got \[20000001, 20000001, 20000001\]$"):
        EXT.hard_voxelize_forward(points * 0 + 2e7 + 0.5, size, far, voxels, cells, counts, counts[0], 2, 3, 3)


def test_neighbours_in_a_crowd():
    """All distances at once took gigabytes; in blocks they are the same."""
    centres, points = numbers(2, 1500, 3), numbers(2, 900, 3)
    squares = torch.cdist(centres.double(), points.double()).square()
    distances, indices = torch.zeros(2, 1500, 3), torch.zeros(2, 1500, 3, dtype=torch.int32)
    EXT.three_nn_forward(centres, points, distances, indices, b=2, n=1500, m=900)
    torch.testing.assert_close(distances.double(), squares.sort(2).values[..., :3], rtol=1e-5, atol=1e-6)
    near, far = torch.zeros(2, 1500), torch.zeros(2, 900)
    of_near, of_far = torch.zeros(2, 1500, dtype=torch.int32), torch.zeros(2, 900, dtype=torch.int32)
    EXT.chamfer_distance_forward(centres, points, near, far, of_near, of_far)
    torch.testing.assert_close(near.double(), squares.amin(2), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(far.double(), squares.amin(1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        squares.gather(2, of_near[..., None].long())[..., 0], near.double(), rtol=1e-5, atol=1e-6
    )
    balls = torch.full((2, 1500, 2), -1, dtype=torch.int32)
    EXT.ball_query_forward(centres, points, balls, b=2, n=900, m=1500, min_radius=0.0, max_radius=0.5, nsample=2)
    inside = squares < 0.25
    assert torch.equal(balls[..., 0].long(), torch.where(inside.any(2), inside.int().argmax(2), -1))
    for wrong in ({"nsample": HUGE}, {"m": HUGE}, {"b": 1}):
        sizes = {"b": 2, "n": 900, "m": 1500, "nsample": 2} | wrong
        with pytest.raises(ValueError, match=r"b, m and nsample must be the sizes of idx_tensor, \[2, 1500, 2\], got "):
            EXT.ball_query_forward(centres, points, balls, min_radius=0.0, max_radius=0.5, **sizes)

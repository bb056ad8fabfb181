"""The functions of ``mmcv._ext`` as MMCV calls them: outputs are written into tensors that exist."""

from types import SimpleNamespace

import pytest
import torch

import mmort.torch
from mmort.mmcv import ext_module

EXT = SimpleNamespace(**ext_module.functions())
SEED = 20


def numbers(*shape, low=-1.0, high=1.0):
    return torch.empty(shape, dtype=torch.float64).uniform_(low, high)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(SEED)


def boxes(count, size=30.0):
    corners = numbers(count, 2, low=0, high=size - 8)
    return torch.cat([corners, corners + numbers(count, 2, low=1, high=8)], 1)


def test_nms():
    corners, scores = boxes(60), numbers(60, low=0)
    kept = EXT.nms(corners, scores, iou_threshold=0.3, offset=0)
    assert kept.tolist() == mmort.torch.nms(corners, scores, 0.3)[1].tolist()
    assert 5 < len(kept) < 60
    assert EXT.nms(corners, scores, iou_threshold=0.3, offset=1).tolist() != kept.tolist()


@pytest.mark.parametrize(("method", "word"), [(0, "naive"), (1, "linear"), (2, "gaussian")])
def test_softnms(method, word):
    corners, scores, dets = boxes(40).float(), numbers(40, low=0).float(), torch.full((40, 5), -1.0)
    indices = EXT.softnms(corners, scores, dets, iou_threshold=0.3, sigma=0.5, min_score=0.05, method=method, offset=0)
    wanted, kept = mmort.torch.soft_nms(corners, scores, 0.3, 0.5, 0.05, word)
    assert torch.equal(indices, kept)
    assert torch.equal(dets[: len(kept)], wanted)
    assert (dets[len(kept) :] == -1).all()


def test_nms_match():
    dets = torch.tensor([[0, 0, 10, 10, 0.8], [0, 0, 10, 9, 0.9], [20, 20, 30, 30, 0.7]])
    assert EXT.nms_match(dets, iou_threshold=0.5) == [[1, 0], [2]]


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.torch.jit.trace:DeprecationWarning")
def test_functions_that_are_translated_as_a_whole_are_traced():
    """MMDeploy's have a `symbolic` beside a `forward` that calls these two."""

    class Overlaps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, boxes):
            groups = EXT.nms_match(boxes, iou_threshold=0.5)
            ious = boxes.new_zeros(len(boxes) ** 2)
            EXT.box_iou_rotated(boxes, boxes, ious, mode_flag=0, aligned=False)
            return ious[: len(groups)]

    boxes = torch.tensor([[0, 0, 10, 10, 0.8], [0, 0, 10, 9, 0.9], [20, 20, 30, 30, 0.7]])
    traced = torch.jit.trace(Overlaps.apply, (boxes,))
    assert torch.equal(traced(boxes), Overlaps.apply(boxes))


@pytest.mark.parametrize("multi_label", [0, 1])
def test_nms_rotated(multi_label):
    """MMCV reads no classes, neither on a CPU nor on a GPU."""
    dets = torch.tensor([[5.0, 5, 10, 4, 0.0, 0], [5, 5, 10, 4, 0.1, 1], [5, 5, 10, 4, 1.5, 1]])
    dets, scores = dets[:, : 5 + multi_label], torch.tensor([0.8, 0.9, 0.7])
    order = scores.argsort(descending=True)
    kept = EXT.nms_rotated(dets, scores, order, dets[order], dets[:, -1], 0.5, multi_label)
    assert kept.tolist() == [1, 2]


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize(("flag", "mode"), [(0, "iou"), (1, "iof")])
def test_overlaps(flag, mode, aligned):
    first, second = boxes(6), boxes(6)
    ious = numbers(*([6] if aligned else [6, 6]))
    EXT.bbox_overlaps(first, second, ious, mode=flag, aligned=aligned, offset=1)
    assert torch.equal(ious, mmort.torch.bbox_overlaps(first, second, mode, aligned, 1))
    rotated = [torch.cat([tensor, numbers(6, 1)], 1) for tensor in (first, second)]
    ious = numbers(6 if aligned else 36)
    EXT.box_iou_rotated(*rotated, ious, mode_flag=flag, aligned=aligned)
    assert torch.equal(ious, mmort.torch.box_iou_rotated(*rotated, mode, aligned).flatten())


def test_overlaps_record_no_gradient():
    first = boxes(2).requires_grad_()
    ious = torch.zeros(2, 2, dtype=torch.float64)
    EXT.bbox_overlaps(first, first, ious, mode=0, aligned=False, offset=0)
    assert not ious.requires_grad


def test_polygons():
    points = numbers(4, 18)
    rectangles, inside = torch.zeros(4, 8, dtype=torch.float64), torch.zeros(9, 4, dtype=torch.float64)
    EXT.min_area_polygons(points, rectangles)
    assert torch.equal(rectangles, mmort.torch.min_area_polygons(points))
    EXT.points_in_polygons_forward(points[0].reshape(9, 2), rectangles, inside)
    assert torch.equal(inside, mmort.torch.points_in_polygons(points[0].reshape(9, 2), rectangles))


@pytest.mark.parametrize("pad", [0, 1, 2])
def test_masked_convolution(pad):
    image, weight, bias = numbers(1, 3, 6, 7), numbers(5, 3, 3, 3), numbers(5)
    dense = torch.nn.functional.conv2d(image, weight, bias, padding=pad)
    rows, columns = torch.nonzero(torch.rand(dense.shape[2:]) < 0.4, as_tuple=True)
    col, output = numbers(27, len(rows)), torch.zeros_like(dense)
    EXT.masked_im2col_forward(image, rows, columns, col, kernel_h=3, kernel_w=3, pad_h=pad, pad_w=pad)
    result = weight.reshape(5, -1) @ col + bias[:, None]
    height, width = dense.shape[2:]
    EXT.masked_col2im_forward(result, rows, columns, output, height=height, width=width, channels=5)
    wanted = torch.zeros_like(dense)
    wanted[:, :, rows, columns] = dense[:, :, rows, columns]
    torch.testing.assert_close(output, wanted)


def test_modulated_convolution_reads_offsets_by_the_size_of_its_output():
    """MMCV's kernel does, whatever the offsets' size; its models rely on it."""
    image, weight = numbers(2, 4, 8, 9), numbers(3, 4, 3, 3)
    offset, mask = numbers(2, 18, 8, 9), numbers(2, 9, 8, 9)
    output = numbers(2, 3, 6, 7)
    steps = {"stride_h": 1, "stride_w": 1, "pad_h": 0, "pad_w": 0, "dilation_h": 1, "dilation_w": 1}
    sizes = {"kernel_h": 3, "kernel_w": 3, "group": 1, "deformable_group": 1, "with_bias": False, **steps}
    empty = image.new_empty(0)
    EXT.modulated_deform_conv_forward(image, weight, empty, empty, offset, mask, output, empty, **sizes)
    as_read = [tensor.flatten(1)[:, : n * 42].reshape(2, n, 6, 7) for tensor, n in ((offset, 18), (mask, 9))]
    torch.testing.assert_close(output, mmort.torch.modulated_deform_conv2d(image, *as_read, weight))
    with pytest.raises(ValueError, match=r"modulated_deform_conv: mask must have 9 channels of 6 x 7, got shape"):
        EXT.modulated_deform_conv_forward(image, weight, empty, empty, offset, mask[:, :4], output, empty, **sizes)


def test_softmax_focal_loss():
    logits, target, weight = numbers(6, 4, low=-3, high=3), torch.tensor([0, 3, -1, 1, 1, 2]), numbers(4, low=0)
    softmax, output = logits.softmax(1), numbers(6)
    EXT.softmax_focal_loss_forward(softmax, target, weight, output, gamma=2.0, alpha=0.3)
    for row, label in enumerate(target.tolist()):
        chance = softmax[row, label]
        wanted = -0.3 * weight[label] * (1 - chance) ** 2 * chance.log() if label >= 0 else 0.0
        assert output[row] == pytest.approx(float(wanted))

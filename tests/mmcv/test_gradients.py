"""Backward functions of ``mmcv._ext`` against numerical derivatives of the forward functions."""

from types import SimpleNamespace

import pytest
import torch

from mmort.mmcv import ext_module

EXT = SimpleNamespace(**ext_module.functions())


def numbers(*shape, low=-1.0, high=1.0):
    return torch.empty(shape, dtype=torch.float64).uniform_(low, high)


def rois(count, images, size):
    start = numbers(count, 2, low=0, high=size / 2)
    index = torch.arange(count, dtype=torch.float64)[:, None] % images
    return torch.cat([index, start, start + numbers(count, 2, low=2, high=size / 2)], 1)


def rotated_rois(count, images, size):
    index = torch.arange(count, dtype=torch.float64)[:, None] % images
    sides = numbers(count, 2, low=2, high=size / 2)
    return torch.cat([index, numbers(count, 2, low=0, high=size), sides, numbers(count, 1, low=-3, high=3)], 1)


class Case:
    """An operator: its differentiable inputs, and how MMCV calls the two functions."""

    def __init__(self, inputs, forward, backward):
        self.inputs, self.forward, self.backward = inputs, forward, backward

    def function(self):
        """Return the operator as a function with a gradient."""
        case = self

        class Operator(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *inputs):
                ctx.save_for_backward(*inputs)
                return case.forward(*inputs)

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx, gradient):
                return case.backward(gradient.contiguous(), *ctx.saved_tensors)

        return Operator.apply


def roi_align(pool_mode, aligned, sampling_ratio):
    regions = rois(5, 2, 9)
    settings = {
        "aligned_height": 2,
        "aligned_width": 3,
        "spatial_scale": 0.9,
        "sampling_ratio": sampling_ratio,
        "pool_mode": pool_mode,
        "aligned": aligned,
    }
    maxima = []

    def forward(input):
        output, y, x = (torch.zeros(5, 3, 2, 3, dtype=torch.float64) for _ in range(3))
        EXT.roi_align_forward(input, regions, output, y, x, **settings)
        maxima[:] = y, x
        return output

    def backward(gradient, input):
        result = torch.zeros_like(input)
        EXT.roi_align_backward(gradient, regions, *maxima, result, **settings)
        return result

    return Case([numbers(2, 3, 9, 8)], forward, backward)


def pooling(name, shape, regions, output_shape, **settings):
    """Return a case of an operator that pools rotated regions or boxes."""

    def forward(input):
        output = torch.zeros(output_shape, dtype=torch.float64)
        getattr(EXT, f"{name}_forward")(input, regions, output, **settings)
        return output

    def backward(gradient, input):
        result = torch.zeros_like(input)
        getattr(EXT, f"{name}_backward")(gradient, regions, result, **settings)
        return result

    return Case([numbers(*shape)], forward, backward)


def roi_align_rotated(aligned, clockwise):
    size = {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.9, "sampling_ratio": 2}
    regions = rotated_rois(5, 2, 9)
    flags = {"aligned": aligned, "clockwise": clockwise}
    return pooling("roi_align_rotated", (2, 3, 9, 8), regions, (5, 3, 2, 3), **size, **flags)


def riroi_align_rotated():
    size = {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.9, "num_samples": 2}
    regions = rotated_rois(5, 2, 9)
    turns = {"num_orientations": 4, "clockwise": True}
    return pooling("riroi_align_rotated", (2, 8, 9, 8), regions, (5, 8, 2, 3), **size, **turns)


def rotated_feature_align(points):
    boxes = rotated_rois(2 * 5 * 6, 1, 6)[:, 1:].reshape(2, 5, 6, 5)
    return pooling("rotated_feature_align", (2, 3, 5, 6), boxes, (2, 3, 5, 6), spatial_scale=0.9, points=points)


def deform_conv():
    settings = {"kW": 2, "kH": 3, "dW": 1, "dH": 2, "padW": 1, "padH": 1, "dilationW": 2, "dilationH": 1}
    settings |= {"group": 2, "deformable_group": 2, "im2col_step": 2}
    empty = torch.empty(0)

    def forward(input, offset, weight):
        output = numbers(2, 4, 3, 6)
        EXT.deform_conv_forward(input, weight, offset, output, empty, empty, **settings)
        return output

    def backward(gradient, input, offset, weight):
        results = [torch.zeros_like(tensor) for tensor in (input, offset, weight)]
        EXT.deform_conv_backward_input(input, offset, gradient, *results[:2], weight, empty, **settings)
        EXT.deform_conv_backward_parameters(input, offset, gradient, results[2], empty, empty, scale=1, **settings)
        return tuple(results)

    return Case([numbers(2, 4, 6, 6), numbers(2, 24, 3, 6), numbers(4, 2, 3, 2)], forward, backward)


def modulated_deform_conv(offset_size):
    settings = {"kernel_h": 3, "kernel_w": 2, "stride_h": 2, "stride_w": 1, "pad_h": 1, "pad_w": 1}
    settings |= {"dilation_h": 1, "dilation_w": 2, "group": 2, "deformable_group": 2, "with_bias": True}
    empty = torch.empty(0)

    def forward(input, offset, mask, weight, bias):
        output = numbers(2, 4, 3, 6)
        EXT.modulated_deform_conv_forward(input, weight, bias, empty, offset, mask, output, empty, **settings)
        return output

    def backward(gradient, input, offset, mask, weight, bias):
        results = [torch.zeros_like(tensor) for tensor in (input, offset, mask, weight, bias)]
        of_input, of_offset, of_mask, of_weight, of_bias = results
        EXT.modulated_deform_conv_backward(
            *(input, weight, bias, empty, offset, mask, empty),
            *(of_input, of_weight, of_bias, of_offset, of_mask, gradient),
            **settings,
        )
        return tuple(results)

    inputs = [numbers(2, 4, 6, 6), numbers(2, 24, *offset_size), numbers(2, 12, *offset_size)]
    return Case([*inputs, numbers(4, 2, 3, 2), numbers(4)], forward, backward)


def carafe(name):
    settings = {"kernel_size": 3, "group_size": 2, "scale_factor": 2}

    def forward(features, masks):
        output = numbers(2, 4, 6, 8)
        buffers = [numbers(2, 4, 3, 4), numbers(2, 4, 6, 8), numbers(*masks.shape)] if name == "carafe" else []
        getattr(EXT, f"{name}_forward")(features, masks, *buffers, output, **settings)
        if buffers:
            assert torch.equal(buffers[0], features)  # MMCV hands it to the backward pass
        return output

    def backward(gradient, features, masks):
        results = [torch.zeros_like(features), torch.zeros_like(masks)]
        buffers = [numbers(1)] * 4 if name == "carafe" else []
        getattr(EXT, f"{name}_backward")(gradient, features, masks, *buffers, *results, **settings)
        return tuple(results)

    return Case([numbers(2, 4, 3, 4), numbers(2, 18, 6, 8)], forward, backward)


def ms_deform_attn():
    shapes, starts = torch.tensor([[3, 4], [2, 2]]), torch.tensor([0, 12])

    def forward(value, locations, weights):
        return EXT.ms_deform_attn_forward(value, shapes, starts, locations, weights, im2col_step=64)

    def backward(gradient, value, locations, weights):
        results = [torch.zeros_like(tensor) for tensor in (value, locations, weights)]
        EXT.ms_deform_attn_backward(value, shapes, starts, locations, weights, gradient, *results, im2col_step=64)
        return tuple(results)

    locations = numbers(2, 5, 2, 2, 3, 2, low=-0.2, high=1.2)
    return Case([numbers(2, 16, 2, 3), locations, numbers(2, 5, 2, 2, 3)], forward, backward)


def active_rotated_filter():
    indices = torch.stack([torch.randperm(18) + 1 for _ in range(4)], 1).reshape(2, 3, 3, 4).int()

    def forward(input):
        output = numbers(3 * 4, 2 * 2, 3, 3)
        EXT.active_rotated_filter_forward(input, indices, output)
        return output

    def backward(gradient, input):
        result = torch.zeros_like(input)
        EXT.active_rotated_filter_backward(gradient, indices, result)
        return result

    return Case([numbers(3, 2, 2, 3, 3)], forward, backward)


def sigmoid_focal_loss(weighted):
    target = torch.tensor([0, 2, 1, 3, 1])
    weight = numbers(4, low=0) if weighted else torch.empty(0, dtype=torch.float64)
    settings = {"gamma": 2.5, "alpha": 0.3}

    def forward(input):
        output = numbers(5, 4)
        EXT.sigmoid_focal_loss_forward(input, target, weight, output, **settings)
        return output.sum()

    def backward(gradient, input):
        result = numbers(5, 4)
        EXT.sigmoid_focal_loss_backward(input, target, weight, result, **settings)
        return gradient * result

    return Case([numbers(5, 4, low=-3, high=3)], forward, backward)


def softmax_focal_loss(weighted):
    target = torch.tensor([0, 2, -1, 3, 1])
    weight = numbers(4, low=0) if weighted else torch.empty(0, dtype=torch.float64)
    settings = {"gamma": 2.5, "alpha": 0.3}

    def forward(input):
        output = numbers(5)
        EXT.softmax_focal_loss_forward(input.softmax(1), target, weight, output, **settings)
        return output.sum()

    def backward(gradient, input):
        result = numbers(5, 4)
        EXT.softmax_focal_loss_backward(input.softmax(1), target, weight, numbers(5), result, **settings)
        return gradient * result

    return Case([numbers(5, 4, low=-3, high=3)], forward, backward)


def roi_pool():
    regions = torch.cat([rois(5, 2, 9), torch.tensor([[0, 20.0, 20, 30, 30], [1, 5, 5, 2, 2]])])
    settings = {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.7}
    largest = []

    def forward(input):
        output = torch.zeros(7, 3, 2, 3, dtype=torch.float64)
        largest[:] = [torch.full((7, 3, 2, 3), -1, dtype=torch.int32)]
        EXT.roi_pool_forward(input, regions, output, largest[0], **settings)
        return output

    def backward(gradient, input):
        result = torch.zeros_like(input)
        EXT.roi_pool_backward(gradient, regions, largest[0], result, **settings)
        return result

    return Case([numbers(2, 3, 9, 8)], forward, backward)


def prroi_pool():
    regions = torch.cat([rois(4, 2, 9), torch.tensor([[0, -4.0, 3, 14, 7]])])
    settings = {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.7}

    def forward(input, corners):
        output = numbers(5, 3, 2, 3)
        EXT.prroi_pool_forward(input, torch.cat([regions[:, :1], corners], 1), output, **settings)
        return output

    def backward(gradient, input, corners):
        boxes, results = torch.cat([regions[:, :1], corners], 1), [torch.zeros_like(input), torch.zeros_like(regions)]
        EXT.prroi_pool_backward(gradient, boxes, results[0], **settings)
        EXT.prroi_pool_coor_backward(numbers(1), gradient, input, boxes, results[1], **settings)
        return results[0], results[1][:, 1:]

    return Case([numbers(2, 3, 9, 8), regions[:, 1:]], forward, backward)


def deform_roi_pool(sampling_ratio):
    regions = rois(5, 2, 9)
    settings = {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.9, "sampling_ratio": sampling_ratio}

    def forward(input, offset):
        output = numbers(5, 3, 2, 3)
        EXT.deform_roi_pool_forward(input, regions, offset, output, gamma=0.2, **settings)
        return output

    def backward(gradient, input, offset):
        results = [torch.zeros_like(tensor) for tensor in (input, offset)]
        EXT.deform_roi_pool_backward(gradient, input, regions, offset, *results, gamma=0.2, **settings)
        return tuple(results)

    return Case([numbers(2, 3, 9, 8), numbers(5, 2, 2, 3)], forward, backward)


def border_align():
    boxes = rois(2 * 7, 1, 9)[:, 1:].reshape(2, 7, 4)
    largest = []

    def forward(input):
        output = torch.zeros(2, 3, 7, 4, dtype=torch.float64)
        largest[:] = [torch.zeros(2, 3, 7, 4, dtype=torch.int32)]
        EXT.border_align_forward(input, boxes, output, largest[0], pool_size=5)
        return output

    def backward(gradient, input):
        result = torch.zeros_like(input)
        EXT.border_align_backward(gradient, boxes, largest[0], result, pool_size=5)
        return result

    return Case([numbers(2, 12, 8, 9)], forward, backward)


def bezier_align(aligned, sampling_ratio):
    regions = torch.cat([torch.arange(4.0, dtype=torch.float64)[:, None] % 2, numbers(4, 16, low=0, high=9)], 1)
    settings = {"aligned_height": 2, "aligned_width": 3, "spatial_scale": 0.9, "sampling_ratio": sampling_ratio}
    return pooling("bezier_align", (2, 3, 9, 8), regions, (4, 3, 2, 3), aligned=aligned, **settings)


def correlation(patch_dilation, padding):
    settings = {"kH": 2, "kW": 3, "patchH": 3, "patchW": 5, "padH": padding, "padW": padding, "dilationH": 1}
    settings |= {"dilationW": 2, "dilation_patchH": patch_dilation, "dilation_patchW": 1, "dH": 2, "dW": 1}
    height, width = (7 + 2 * padding - 2) // 2 + 1, 8 + 2 * padding - 4

    def forward(first, second):
        output = numbers(2, 3, 5, height, width)
        EXT.correlation_forward(first, second, output, **settings)
        return output

    def backward(gradient, first, second):
        results = [numbers(*first.shape), numbers(*second.shape)]
        EXT.correlation_backward(gradient, first, second, *results, **settings)
        return tuple(results)

    return Case([numbers(2, 3, 7, 8), numbers(2, 3, 7, 8)], forward, backward)


def tin_shift():
    shift = torch.tensor([[1, -2, 0], [-5, 3, 4]], dtype=torch.int32)
    return in_out("tin_shift", numbers(2, 4, 6, 5), (2, 4, 6, 5), shift)


def psamask(psa_type):
    sizes = {"num_": 2, "h_feature": 4, "w_feature": 5, "h_mask": 5, "w_mask": 3, "half_h_mask": 2, "half_w_mask": 1}

    def forward(input):
        output = torch.zeros(2, 20, 4, 5, dtype=torch.float64)
        EXT.psamask_forward(input, output, psa_type=psa_type, **sizes)
        return output

    def backward(gradient, input):
        result = torch.zeros_like(input)
        EXT.psamask_backward(gradient, result, psa_type=psa_type, **sizes)
        return result

    return Case([numbers(2, 15, 4, 5)], forward, backward)


def in_out(name, input, shape, *arguments, **settings):
    """Return a case of an operator with arguments between input and output, in both directions."""

    def forward(input):
        output = torch.zeros(shape, dtype=torch.float64)
        getattr(EXT, f"{name}_forward")(input, *arguments, output, **settings)
        return output

    def backward(gradient, input):
        result = torch.zeros_like(input)
        getattr(EXT, f"{name}_backward")(gradient, *arguments, result, **settings)
        return result

    return Case([input], forward, backward)


def gather_points():
    indices = torch.randint(7, (2, 4), dtype=torch.int32)
    return in_out("gather_points", numbers(2, 3, 7), (2, 3, 4), indices, b=2, c=3, n=7, npoints=4)


def group_points():
    indices = torch.randint(7, (2, 4, 3), dtype=torch.int32)
    return in_out("group_points", numbers(2, 3, 7), (2, 3, 4, 3), indices, b=2, c=3, n=7, npoints=4, nsample=3)


def three_interpolate():
    indices, weights = torch.randint(7, (2, 4, 3), dtype=torch.int32), numbers(2, 4, 3)
    return in_out("three_interpolate", numbers(2, 3, 7), (2, 3, 4), indices, weights, b=2, c=3, m=7, n=4)


def chamfer_distance():
    nearest = []

    def forward(first, second):
        distances = [numbers(2, 5), numbers(2, 4)]
        nearest[:] = [torch.zeros(2, 5, dtype=torch.int32), torch.zeros(2, 4, dtype=torch.int32)]
        EXT.chamfer_distance_forward(first, second, *distances, *nearest)
        return torch.cat(distances, 1)

    def backward(gradient, first, second):
        results = [torch.zeros_like(first), torch.zeros_like(second)]
        EXT.chamfer_distance_backward(first, second, *nearest, *gradient.split([5, 4], 1), *results)
        return tuple(results)

    return Case([numbers(2, 5, 2), numbers(2, 4, 2)], forward, backward)


def batch_norm():
    running = torch.zeros(3), torch.ones(3)
    saved = []

    def forward(input, weight, bias):
        mean, var, std = (numbers(3) for _ in range(3))
        norm, output = numbers(4, 3, 5), numbers(4, 3, 5)
        EXT.sync_bn_forward_mean(input, mean)
        EXT.sync_bn_forward_var(input, mean, var)
        outputs = *running, norm, std, output
        EXT.sync_bn_forward_output(input, mean, var, weight, bias, *outputs, eps=1e-5, momentum=0.1, group_size=1)
        saved[:] = norm, std
        return output

    def backward(gradient, input, weight, bias):
        norm, std = saved
        result, of_weight, of_bias = numbers(4, 3, 5), numbers(3), numbers(3)
        EXT.sync_bn_backward_param(gradient, norm, of_weight, of_bias)
        EXT.sync_bn_backward_data(gradient, weight, of_weight, of_bias, norm, std, result)
        return result, of_weight, of_bias

    return Case([numbers(4, 3, 5), numbers(3), numbers(3)], forward, backward)


CASES = {
    **{
        f"roi_align {mode}, aligned {aligned}, ratio {ratio}": (roi_align, mode, aligned, ratio)
        for mode in (0, 1)
        for aligned in (False, True)
        for ratio in (0, 2)
    },
    **{f"roi_align_rotated {flags}": (roi_align_rotated, *flags) for flags in [(True, False), (False, True)]},
    "riroi_align_rotated": (riroi_align_rotated,),
    "rotated_feature_align 1": (rotated_feature_align, 1),
    "rotated_feature_align 5": (rotated_feature_align, 5),
    "deform_conv": (deform_conv,),
    "modulated_deform_conv": (modulated_deform_conv, (3, 6)),
    "modulated_deform_conv with larger offsets": (modulated_deform_conv, (6, 6)),
    "carafe": (carafe, "carafe"),
    "carafe_naive": (carafe, "carafe_naive"),
    "ms_deform_attn": (ms_deform_attn,),
    "active_rotated_filter": (active_rotated_filter,),
    "sigmoid_focal_loss": (sigmoid_focal_loss, False),
    "sigmoid_focal_loss with weights": (sigmoid_focal_loss, True),
    "softmax_focal_loss": (softmax_focal_loss, False),
    "softmax_focal_loss with weights": (softmax_focal_loss, True),
    "roi_pool": (roi_pool,),
    "prroi_pool": (prroi_pool,),
    "deform_roi_pool, ratio 0": (deform_roi_pool, 0),
    "deform_roi_pool, ratio 2": (deform_roi_pool, 2),
    "border_align": (border_align,),
    "bezier_align, aligned": (bezier_align, True, 2),
    "bezier_align, ratio 0": (bezier_align, False, 0),
    "correlation": (correlation, 1, 0),
    "correlation with padding": (correlation, 2, 2),
    "tin_shift": (tin_shift,),
    "psamask collecting": (psamask, 0),
    "psamask distributing": (psamask, 1),
    "gather_points": (gather_points,),
    "group_points": (group_points,),
    "three_interpolate": (three_interpolate,),
    "chamfer_distance": (chamfer_distance,),
    "batch_norm": (batch_norm,),
}


@pytest.mark.parametrize("name", CASES)
def test_backward_is_the_derivative_of_forward(name):
    torch.manual_seed(3)
    make, *arguments = CASES[name]
    case = make(*arguments)
    inputs = [tensor.requires_grad_() for tensor in case.inputs]
    step, tolerance = (1e-2, 1e-2) if name == "batch_norm" else (1e-6, 1e-5)  # it computes in float32, as MMCV's
    assert torch.autograd.gradcheck(case.function(), inputs, eps=step, atol=tolerance, fast_mode=True)

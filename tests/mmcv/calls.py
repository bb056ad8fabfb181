"""A call of every function of ``mmcv._ext`` that works, for tests that vary the layouts and shapes of tensors."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mmort.mmcv import ext_module

FUNCTIONS = ext_module.functions()


@dataclass
class Call:
    """Arguments by name: tensors that are read, tensors that are written, and others.

    `empty` has the tensors that have no rows if there are none of what the operator is about, and the numbers that
    change with them.  `flat` has tensors in other shapes, which MMCV's kernel takes too.
    """

    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    empty: tuple[str, ...] = ()
    of_empty: dict[str, Any] = field(default_factory=dict)
    flat: dict[str, tuple[int, ...]] = field(default_factory=dict)


def run(name, inputs, outputs, settings):
    """Return what a function returns, as nested lists, and what it has written."""
    written = {key: tensor.clone(memory_format=torch.preserve_format) for key, tensor in outputs.items()}
    if any(tensor.stride() != outputs[key].stride() for key, tensor in written.items()):
        written = {key: strided(tensor) for key, tensor in outputs.items()}
    returned = FUNCTIONS[name](**inputs, **written, **settings)
    return returned.tolist() if isinstance(returned, Tensor) else returned, written


def strided(tensor):
    """Return a tensor whose elements do not lie side by side."""
    if tensor.dim() == 0:
        return tensor.clone()
    return torch.stack([tensor, torch.full_like(tensor, 1)], tensor.dim())[..., 0]


def numbers(*shape, low=-1.0, high=1.0):
    return torch.empty(shape).uniform_(low, high)


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


def boxes(count, size=12.0):
    corners = numbers(count, 2, low=0, high=size / 2)
    return torch.cat([corners, corners + numbers(count, 2, low=1, high=size / 2)], 1)


def turned(count, size=12.0):
    sides = numbers(count, 2, low=1, high=size / 2)
    return torch.cat([numbers(count, 2, low=0, high=size), sides, numbers(count, 1, low=-3, high=3)], 1)


def corners(count):
    left, top, right, bottom = boxes(count).T
    return torch.stack([left, top, right, top, right, bottom, left, bottom], 1)


def indexed(rows, images=2):
    return torch.cat([torch.arange(len(rows))[:, None] % images, rows], 1)


def integers(high, *shape):
    return torch.randint(high, shape, dtype=torch.int32)


def suppressions():
    scores, order = numbers(6, low=0), torch.arange(6)
    soft = {"iou_threshold": 0.3, "sigma": 0.5, "min_score": 0.05, "method": 1, "offset": 0}
    upright, rotated = boxes(6), turned(6)
    yield (
        "nms",
        Call({"boxes": upright, "scores": scores}, {}, {"iou_threshold": 0.3, "offset": 0}, ("boxes", "scores")),
    )
    yield (
        "softnms",
        Call({"boxes": upright, "scores": scores}, {"dets": zeros(6, 5)}, soft, ("boxes", "scores", "dets")),
    )
    dets = torch.cat([upright, scores[:, None]], 1)
    yield "nms_match", Call({"dets": dets}, {}, {"iou_threshold": 0.3}, ("dets",))
    names = ("dets", "scores", "order", "dets_sorted", "labels")
    inputs = dict(zip(names, (rotated, scores, order, rotated, order), strict=True))
    yield "nms_rotated", Call(inputs, {}, {"iou_threshold": 0.3, "multi_label": 0}, names)
    inputs = dict(zip(names[:4], (corners(6), scores, order, corners(6)), strict=True))
    yield (
        "nms_quadri",
        Call(inputs, {}, {"iou_threshold": 0.3, "multi_label": 0}, names[:4], flat={"dets": (6, 4, 2)}),
    )


def overlaps():
    both = ("bboxes1", "ious")
    pair, quads = {"bboxes1": boxes(4), "bboxes2": boxes(3)}, {"bboxes1": corners(4), "bboxes2": corners(3)}
    yield "bbox_overlaps", Call(pair, {"ious": zeros(4, 3)}, {"mode": 0, "aligned": False, "offset": 0}, both)
    pair = {"bboxes1": turned(4), "bboxes2": turned(3)}
    flags = {"mode_flag": 0, "aligned": False}
    yield "box_iou_rotated", Call(pair, {"ious": zeros(12)}, flags, both, flat={"ious": (4, 3)})
    shapes = {"bboxes1": (4, 4, 2), "bboxes2": (3, 4, 2), "ious": (4, 3)}
    yield "box_iou_quadri", Call(quads, {"ious": zeros(12)}, flags, both, flat=shapes)
    sets = {"pointsets": numbers(3, 18, low=0, high=9), "polygons": corners(3)}
    shapes = {"pointsets": (3, 9, 2), "polygons": (3, 4, 2)}
    yield "convex_iou", Call(sets, {"ious": zeros(3, 3)}, {}, ("pointsets", "ious"), flat={**shapes, "ious": (9,)})
    yield "convex_giou", Call(sets, {"output": zeros(3, 19)}, {}, ("pointsets", "polygons", "output"), flat=shapes)
    vertices = {"vertices": numbers(1, 2, 24, 2), "mask": torch.rand(1, 2, 24) > 0.7}
    vertices["num_valid"] = vertices["mask"].sum(2).int()
    yield "diff_iou_rotated_sort_vertices_forward", Call(vertices, empty=tuple(vertices))
    yield (
        "min_area_polygons",
        Call(
            {"pointsets": numbers(3, 18)},
            {"polygons": zeros(3, 8)},
            {},
            ("pointsets", "polygons"),
            flat={"pointsets": (3, 9, 2), "polygons": (3, 4, 2)},
        ),
    )
    inputs = {"points": numbers(5, 2, low=0, high=9), "polygons": corners(3)}
    shapes = {"polygons": (3, 4, 2), "output": (15,)}
    yield (
        "points_in_polygons_forward",
        Call(inputs, {"output": zeros(5, 3)}, {}, ("points", "output"), flat=shapes),
    )


def regions():
    maps, gradient, pooled = numbers(2, 8, 9, 8), zeros(2, 8, 9, 8), numbers(3, 8, 2, 3)
    output, largest = zeros(3, 8, 2, 3), zeros(3, 8, 2, 3, dtype=torch.int32)
    size = {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.5}
    aligned = {"aligned_height": 2, "aligned_width": 3, "spatial_scale": 0.5, "sampling_ratio": 2, "aligned": True}
    upright, rotated, curves = indexed(boxes(3)), indexed(turned(3)), indexed(numbers(3, 16, low=0, high=9))
    ahead, back = ("rois", "output"), ("grad_output", "rois")
    maxima = {"argmax_y": zeros(3, 8, 2, 3), "argmax_x": zeros(3, 8, 2, 3)}
    yield (
        "roi_align_forward",
        Call(
            {"input": maps, "rois": upright},
            {"output": output, **maxima},
            {"pool_mode": 0, **aligned},
            (*ahead, *maxima),
        ),
    )
    of_mode = {"grad_output": pooled, "rois": upright, **maxima}
    yield (
        "roi_align_backward",
        Call(of_mode, {"grad_input": gradient}, {"pool_mode": 0, **aligned}, (*back, *maxima)),
    )
    yield (
        "roi_pool_forward",
        Call({"input": maps, "rois": upright}, {"output": output, "argmax": largest}, size, (*ahead, "argmax")),
    )
    inputs = {"grad_output": pooled, "rois": upright, "argmax": integers(72, 3, 8, 2, 3)}
    yield "roi_pool_backward", Call(inputs, {"grad_input": gradient}, size, (*back, "argmax"))
    yield "prroi_pool_forward", Call({"input": maps, "rois": upright}, {"output": output}, size, ahead)
    inputs = {"grad_output": pooled, "rois": upright}
    yield "prroi_pool_backward", Call(inputs, {"grad_input": gradient}, size, back)
    inputs = inputs | {"output": output, "input": maps}
    yield (
        "prroi_pool_coor_backward",
        Call(inputs, {"grad_rois": zeros(3, 5)}, size, (*back, "output", "grad_rois")),
    )
    offset = numbers(3, 2, 2, 3)
    moved = {**size, "sampling_ratio": 2, "gamma": 0.1}
    inputs = {"input": maps, "rois": upright, "offset": offset}
    yield "deform_roi_pool_forward", Call(inputs, {"output": output}, moved, (*ahead, "offset"))
    outputs = {"grad_input": gradient, "grad_offset": zeros(3, 2, 2, 3)}
    inputs = inputs | {"grad_output": pooled}
    yield "deform_roi_pool_backward", Call(inputs, outputs, moved, (*back, "offset", "grad_offset"))
    turns = {**size, "sampling_ratio": 2, "aligned": True, "clockwise": True}
    yield "roi_align_rotated_forward", Call({"input": maps, "rois": rotated}, {"output": output}, turns, ahead)
    inputs = {"grad_output": pooled, "rois": rotated}
    yield "roi_align_rotated_backward", Call(inputs, {"grad_input": gradient}, turns, back)
    turns = {**size, "num_samples": 2, "num_orientations": 4, "clockwise": True}
    yield "riroi_align_rotated_forward", Call({"features": maps, "rois": rotated}, {"output": output}, turns, ahead)
    yield "riroi_align_rotated_backward", Call(inputs, {"grad_input": gradient}, turns, back)
    yield "bezier_align_forward", Call({"input": maps, "rois": curves}, {"output": output}, aligned, ahead)
    inputs = {"grad_output": pooled, "rois": curves}
    yield "bezier_align_backward", Call(inputs, {"grad_input": gradient}, aligned, back)
    sides, bordered = boxes(6).reshape(2, 3, 4), zeros(2, 2, 3, 4)
    inputs, outputs = {"input": maps, "boxes": sides}, {"output": bordered, "argmax_idx": bordered.int()}
    yield "border_align_forward", Call(inputs, outputs, {"pool_size": 3}, (*inputs, *outputs))
    inputs = {"grad_output": numbers(2, 2, 3, 4), "boxes": sides, "argmax_idx": integers(4, 2, 2, 3, 4)}
    yield "border_align_backward", Call(inputs, {"grad_input": gradient}, {"pool_size": 3}, (*inputs, "grad_input"))
    anchors, points = turned(2 * 9 * 8).reshape(2, 9, 8, 5), {"spatial_scale": 0.5, "points": 5}
    shapes = {"best_bboxes": (2 * 9 * 8, 5)}
    inputs = {"features": maps, "best_bboxes": anchors}
    yield (
        "rotated_feature_align_forward",
        Call(inputs, {"output": gradient}, points, (*inputs, "output"), flat=shapes),
    )
    inputs = {"grad_output": maps, "best_bboxes": anchors}
    yield (
        "rotated_feature_align_backward",
        Call(inputs, {"grad_input": gradient}, points, (*inputs, "grad_input"), flat=shapes),
    )


def convolutions():
    maps, empty = numbers(2, 4, 6, 7), torch.empty(0)
    weight, bias, offset, mask = numbers(3, 4, 3, 3), numbers(3), numbers(2, 18, 6, 7), numbers(2, 9, 6, 7)
    steps = {"kW": 3, "kH": 3, "dW": 1, "dH": 1, "padW": 1, "padH": 1, "dilationW": 1, "dilationH": 1}
    steps |= {"group": 1, "deformable_group": 1, "im2col_step": 2}
    convolved, buffers = numbers(2, 3, 6, 7), {"columns": empty, "ones": empty}
    inputs = {"input": maps, "weight": weight, "offset": offset, **buffers}
    rows = ("input", "offset")
    yield "deform_conv_forward", Call(inputs, {"output": zeros(2, 3, 6, 7)}, steps, (*rows, "output"))
    inputs = {"input": maps, "offset": offset, "gradOutput": convolved, "weight": weight, "columns": empty}
    outputs = {"gradInput": zeros(2, 4, 6, 7), "gradOffset": zeros(2, 18, 6, 7)}
    yield "deform_conv_backward_input", Call(inputs, outputs, steps, (*rows, "gradOutput", *outputs))
    inputs = {"input": maps, "offset": offset, "gradOutput": convolved, **buffers}
    outputs = {"gradWeight": zeros(3, 4, 3, 3)}
    yield (
        "deform_conv_backward_parameters",
        Call(inputs, outputs, {"scale": 1.0, **steps}, (*rows, "gradOutput")),
    )
    modulated = {
        f"{name}_{axis}": size
        for name, size in zip(("kernel", "stride", "pad", "dilation"), (3, 1, 1, 1), strict=True)
        for axis in "hw"
    }
    modulated |= {"group": 1, "deformable_group": 1, "with_bias": True}
    inputs = {"input": maps, "weight": weight, "bias": bias, "offset": offset, "mask": mask, **buffers}
    rows, shapes = ("input", "offset", "mask"), {"offset": (2, 18 * 42), "mask": (2, 9 * 42)}
    outputs = {"output": zeros(2, 3, 6, 7)}
    yield "modulated_deform_conv_forward", Call(inputs, outputs, modulated, (*rows, "output"), flat=shapes)
    outputs = {f"grad_{name}": torch.zeros_like(inputs[name]) for name in ("input", "weight", "bias", "offset", "mask")}
    inputs = inputs | {"grad_output": convolved}
    of_rows = (*rows, "grad_output", *(f"grad_{name}" for name in rows))
    yield "modulated_deform_conv_backward", Call(inputs, outputs, modulated, of_rows, flat=shapes)
    places = {"mask_h_idx": torch.tensor([0, 2, 5]), "mask_w_idx": torch.tensor([1, 6, 3])}
    kernel = {"kernel_h": 3, "kernel_w": 3, "pad_h": 1, "pad_w": 1}
    yield "masked_im2col_forward", Call({"im": maps[:1], **places}, {"col": zeros(36, 3)}, kernel)
    size = {"height": 6, "width": 7, "channels": 4}
    yield "masked_col2im_forward", Call({"col": numbers(4, 3), **places}, {"im": zeros(1, 4, 6, 7)}, size)
    indices = torch.stack([torch.randperm(9) + 1 for _ in range(4)], 1).reshape(1, 3, 3, 4).int()
    inputs = {"input": numbers(3, 2, 1, 3, 3), "indices": indices}
    yield (
        "active_rotated_filter_forward",
        Call(inputs, {"output": zeros(12, 2, 3, 3)}, {}, ("input", "output")),
    )
    inputs = {"grad_out": numbers(12, 2, 3, 3), "indices": indices}
    yield (
        "active_rotated_filter_backward",
        Call(inputs, {"grad_in": zeros(3, 2, 1, 3, 3)}, {}, ("grad_out", "grad_in")),
    )


def upsampling_and_attention():
    features, masks, upsampled = numbers(2, 4, 3, 4), numbers(2, 18, 6, 8), numbers(2, 4, 6, 8)
    settings = {"kernel_size": 3, "group_size": 2, "scale_factor": 2}
    inputs, outputs = {"features": features, "masks": masks}, {"output": zeros(2, 4, 6, 8)}
    yield "carafe_naive_forward", Call(inputs, outputs, settings, (*inputs, *outputs))
    outputs = outputs | {"rfeatures": zeros(2, 4, 3, 4), "routput": zeros(2, 4, 6, 8), "rmasks": zeros(2, 18, 6, 8)}
    yield "carafe_forward", Call(inputs, outputs, settings, (*inputs, *outputs))
    inputs = {"top_grad": upsampled, "features": features, "masks": masks}
    outputs = {"bottom_grad": zeros(2, 4, 3, 4), "mask_grad": zeros(2, 18, 6, 8)}
    yield "carafe_naive_backward", Call(inputs, outputs, settings, (*inputs, *outputs))
    inputs = {"top_grad": upsampled, "rfeatures": features, "masks": masks}
    buffers = {name: zeros(1) for name in ("rtop_grad", "rbottom_grad_hs", "rbottom_grad", "rmask_grad")}
    yield "carafe_backward", Call(inputs, {**outputs, **buffers}, settings, (*inputs, *outputs))
    value, weights = numbers(2, 16, 2, 3), numbers(2, 5, 2, 2, 3)
    inputs = {
        "value": value,
        "value_spatial_shapes": torch.tensor([[3, 4], [2, 2]]),
        "value_level_start_index": torch.tensor([0, 12]),
        "sampling_locations": numbers(2, 5, 2, 2, 3, 2, low=0),
        "attention_weights": weights,
    }
    rows, step = ("value", "sampling_locations", "attention_weights"), {"im2col_step": 64}
    yield "ms_deform_attn_forward", Call(inputs, {}, step, rows)
    inputs = inputs | {"grad_output": numbers(2, 5, 6)}
    outputs = {
        "grad_value": zeros(2, 16, 2, 3),
        "grad_sampling_loc": zeros(2, 5, 2, 2, 3, 2),
        "grad_attn_weight": zeros(2, 5, 2, 2, 3),
    }
    yield "ms_deform_attn_backward", Call(inputs, outputs, step, (*rows, "grad_output", *outputs))
    sizes = {"num_": 2, "h_feature": 4, "w_feature": 5, "h_mask": 3, "w_mask": 3, "half_h_mask": 1, "half_w_mask": 1}
    sizes |= {"psa_type": 1}
    inputs, outputs = {"input": numbers(2, 9, 4, 5)}, {"output": zeros(2, 20, 4, 5)}
    shapes = {"input": (2 * 9 * 20,), "output": (2 * 20 * 20,)}
    yield "psamask_forward", Call(inputs, outputs, sizes, ("input", "output"), {"num_": 0}, shapes)
    inputs, outputs = {"grad_output": numbers(2, 20, 4, 5)}, {"grad_input": zeros(2, 9, 4, 5)}
    shapes = {"grad_output": (2 * 20 * 20,), "grad_input": (2 * 9 * 20,)}
    yield "psamask_backward", Call(inputs, outputs, sizes, ("grad_output", "grad_input"), {"num_": 0}, shapes)


def losses_and_normalization():
    logits, target, weight = numbers(5, 3), torch.tensor([0, 2, 1, 2, 0]), numbers(3, low=0)
    factors = {"gamma": 2.0, "alpha": 0.25}
    inputs = {"input": logits, "target": target, "weight": weight}
    yield (
        "sigmoid_focal_loss_forward",
        Call(inputs, {"output": zeros(5, 3)}, factors, ("input", "target", "output")),
    )
    yield (
        "sigmoid_focal_loss_backward",
        Call(inputs, {"grad_input": zeros(5, 3)}, factors, ("input", "target", "grad_input")),
    )
    inputs = {"softmax": logits.softmax(1), "target": target, "weight": weight}
    yield (
        "softmax_focal_loss_forward",
        Call(inputs, {"output": zeros(5)}, factors, ("softmax", "target", "output")),
    )
    outputs = {"buff": zeros(5), "grad_input": zeros(5, 3)}
    yield "softmax_focal_loss_backward", Call(inputs, outputs, factors, ("softmax", "target", *outputs))
    maps, of_channels = numbers(4, 3, 5), [numbers(3, low=0.5) for _ in range(4)]
    mean, var, scale, bias = of_channels
    yield "sync_bn_forward_mean", Call({"input": maps}, {"mean": zeros(3)})
    yield "sync_bn_forward_var", Call({"input": maps, "mean": mean}, {"var": zeros(3)})
    inputs = {"input": maps, "mean": mean, "var": var, "weight": scale, "bias": bias}
    outputs = {name: zeros(3) for name in ("running_mean", "running_var", "std")}
    outputs = outputs | {"norm": zeros(4, 3, 5), "output": zeros(4, 3, 5)}
    settings = {"eps": 1e-5, "momentum": 0.1, "group_size": 1}
    yield "sync_bn_forward_output", Call(inputs, outputs, settings)
    inputs = {"grad_output": maps, "norm": numbers(4, 3, 5)}
    yield "sync_bn_backward_param", Call(inputs, {"grad_weight": zeros(3), "grad_bias": zeros(3)})
    inputs = inputs | {"weight": scale, "grad_weight": mean, "grad_bias": bias, "std": var}
    yield "sync_bn_backward_data", Call(inputs, {"grad_input": zeros(4, 3, 5)})


def texts_and_sequences():
    kernels = torch.zeros(4, 5, dtype=torch.int32)
    kernels[0, 0], kernels[3, 4] = 1, 2
    text = torch.ones(3, 4, 5, dtype=torch.uint8)
    inputs = {"kernel_mask": text, "internal_kernel_label": kernels}
    yield "contour_expand", Call(inputs, {}, {"min_kernel_area": 0, "kernel_num": 3})
    inputs = {"score": numbers(4, 5, low=0), "mask": text[0].bool(), "embedding": numbers(4, 5, 2)}
    inputs = inputs | {"kernel_label": kernels, "kernel_contour": (kernels > 0).to(torch.uint8)}
    yield "pixel_group", Call(inputs, {}, {"kernel_region_num": 3, "distance_threshold": 0.8})
    inputs = {"input1": numbers(2, 3, 6, 7), "input2": numbers(2, 3, 6, 7)}
    windows = {"kH": 1, "kW": 1, "patchH": 3, "patchW": 3, "padH": 0, "padW": 0, "dilationH": 1, "dilationW": 1}
    windows |= {"dilation_patchH": 1, "dilation_patchW": 1, "dH": 1, "dW": 1}
    outputs = {"output": zeros(2, 3, 3, 6, 7)}
    yield "correlation_forward", Call(inputs, outputs, windows, (*inputs, *outputs))
    outputs = {"grad_input1": zeros(2, 3, 6, 7), "grad_input2": zeros(2, 3, 6, 7)}
    inputs = {"grad_output": numbers(2, 3, 3, 6, 7), **inputs}
    yield "correlation_backward", Call(inputs, outputs, windows, (*inputs, *outputs))
    shift = torch.tensor([[1, -2], [0, 1]], dtype=torch.int32)
    inputs, outputs = {"input": numbers(2, 4, 6, 5), "shift": shift}, {"output": zeros(2, 4, 6, 5)}
    yield "tin_shift_forward", Call(inputs, outputs, {}, (*inputs, *outputs))
    inputs, outputs = {"grad_output": numbers(2, 4, 6, 5), "shift": shift}, {"grad_input": zeros(2, 4, 6, 5)}
    yield "tin_shift_backward", Call(inputs, outputs, {}, (*inputs, *outputs))


def points():
    cloud, limits = numbers(7, 4, low=0, high=4), torch.tensor([0.0, 0, 0, 4, 4, 4])
    inputs = {"points": cloud, "voxel_size": torch.tensor([1.0, 1, 2]), "coors_range": limits}
    outputs = {"coors": zeros(7, 3, dtype=torch.int32)}
    yield "dynamic_voxelize_forward", Call(inputs, outputs, {"NDim": 3}, ("points", "coors"))
    outputs = {"voxels": zeros(5, 2, 4), "coors": zeros(5, 3, dtype=torch.int32)}
    outputs = outputs | {"num_points_per_voxel": zeros(5, dtype=torch.int32), "voxel_num": torch.tensor(0)}
    yield (
        "hard_voxelize_forward",
        Call(inputs, outputs, {"max_points": 2, "max_voxels": 5, "NDim": 3}, ("points",)),
    )
    inputs = {"boxes_tensor": numbers(3, 7, low=0, high=3), "pts_tensor": cloud[:, :3].contiguous()}
    outputs = {"pts_indices_tensor": zeros(3, 7, dtype=torch.int32)}
    yield "points_in_boxes_cpu_forward", Call(inputs, outputs, {}, ("boxes_tensor", "pts_indices_tensor"))
    inputs = {"unknown_tensor": numbers(2, 4, 3), "known_tensor": numbers(2, 6, 3)}
    outputs = {"dist2_tensor": zeros(2, 4, 3), "idx_tensor": zeros(2, 4, 3, dtype=torch.int32)}
    shapes = {"unknown_tensor": (8, 3), "known_tensor": (12, 3), "dist2_tensor": (24,), "idx_tensor": (8, 3)}
    every = (*inputs, *outputs)
    yield "three_nn_forward", Call(inputs, outputs, {"b": 2, "n": 4, "m": 6}, every, {"b": 0}, shapes)
    features, nearest, weights = numbers(2, 3, 7), integers(7, 2, 4, 3), numbers(2, 4, 3)
    inputs = {"points_tensor": features, "idx_tensor": nearest, "weight_tensor": weights}
    outputs = {"out_tensor": zeros(2, 3, 4)}
    sizes, shapes = (
        {"b": 2, "c": 3, "m": 7, "n": 4},
        {"points_tensor": (6, 7), "idx_tensor": (8, 3), "weight_tensor": (24,)},
    )
    every = (*inputs, *outputs)
    yield "three_interpolate_forward", Call(inputs, outputs, sizes, every, {"b": 0}, {**shapes, "out_tensor": (24,)})
    inputs = {"grad_out_tensor": numbers(2, 3, 4), "idx_tensor": nearest, "weight_tensor": weights}
    outputs = {"grad_points_tensor": zeros(2, 3, 7)}
    shapes = {"idx_tensor": (8, 3), "weight_tensor": (24,), "grad_points_tensor": (6, 7)}
    yield (
        "three_interpolate_backward",
        Call(inputs, outputs, {"b": 2, "c": 3, "n": 4, "m": 7}, (*inputs, *outputs), {"b": 0}, shapes),
    )
    for name, indices, sizes in (
        ("gather_points", integers(7, 2, 4), {"b": 2, "c": 3, "n": 7, "npoints": 4}),
        ("group_points", nearest, {"b": 2, "c": 3, "n": 7, "npoints": 4, "nsample": 3}),
    ):
        gathered = numbers(2, 3, *indices.shape[1:])
        inputs = {"points_tensor": features, "idx_tensor": indices}
        outputs = {"out_tensor": torch.zeros_like(gathered)}
        shapes = {"points_tensor": (6, 7), "idx_tensor": (-1,), "out_tensor": (-1,)}
        yield f"{name}_forward", Call(inputs, outputs, sizes, (*inputs, *outputs), {"b": 0}, shapes)
        inputs = {"grad_out_tensor": gathered, "idx_tensor": indices}
        outputs = {"grad_points_tensor": zeros(2, 3, 7)}
        shapes = {"grad_points_tensor": (6, 7), "idx_tensor": (-1,), "grad_out_tensor": (-1,)}
        yield f"{name}_backward", Call(inputs, outputs, sizes, (*inputs, *outputs), {"b": 0}, shapes)
    inputs, outputs = {"new_xyz_tensor": numbers(2, 4, 3), "xyz_tensor": numbers(2, 6, 3)}, {"idx_tensor": nearest * 0}
    sizes = {"b": 2, "n": 6, "m": 4, "min_radius": 0.1, "max_radius": 1.0, "nsample": 3}
    shapes = {"new_xyz_tensor": (24,), "xyz_tensor": (12, 3), "idx_tensor": (24,)}
    yield "ball_query_forward", Call(inputs, outputs, sizes, (*inputs, *outputs), {"b": 0}, shapes)
    inputs = {"xyz1": numbers(2, 5, 2), "xyz2": numbers(2, 4, 2)}
    outputs = {"dist1": zeros(2, 5), "dist2": zeros(2, 4)}
    outputs = outputs | {"idx1": zeros(2, 5, dtype=torch.int32), "idx2": zeros(2, 4, dtype=torch.int32)}
    yield "chamfer_distance_forward", Call(inputs, outputs, {}, (*inputs, *outputs))
    inputs = inputs | {"idx1": integers(4, 2, 5), "idx2": integers(5, 2, 4)}
    inputs = inputs | {"graddist1": numbers(2, 5), "graddist2": numbers(2, 4)}
    outputs = {"gradxyz1": zeros(2, 5, 2), "gradxyz2": zeros(2, 4, 2)}
    yield "chamfer_distance_backward", Call(inputs, outputs, {}, (*inputs, *outputs))


def calls():
    """Return the calls by name, the same each time."""
    with torch.random.fork_rng():
        torch.manual_seed(11)
        families = (
            suppressions,
            overlaps,
            regions,
            convolutions,
            upsampling_and_attention,
            losses_and_normalization,
            texts_and_sequences,
            points,
        )
        return {name: call for family in families for name, call in family()}

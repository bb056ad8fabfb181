"""Compare mmort.mmcv with MMCV's operators, compiled for the CPU: times by turns, and the largest difference.

    python benchmarks/mmcv_operators.py EXTENSION

EXTENSION is the compiled module of MMCV 2.1, mmcv/_ext.*.so.  It is loaded from its path; MMCV itself is not needed.
Every operator that MMCV has for the CPU gets inputs of ordinary sizes, on one thread.
"""

import importlib.machinery
import importlib.util
import statistics
import sys
import time

import torch

import mmort
from mmort.mmcv.ext_module import functions

ROUNDS = 7


def uniform(*shape, low=0.0, high=1.0):
    return torch.empty(shape).uniform_(low, high)


def upright(count, size):
    corners = uniform(count, 2, high=size)
    return torch.cat([corners, corners + uniform(count, 2, low=8, high=size / 4)], 1)


def rotated(count, size):
    sides = uniform(count, 2, low=8, high=size / 4)
    return torch.cat([uniform(count, 2, high=size), sides, uniform(count, 1, low=-1.5, high=1.5)], 1)


def quadrilaterals(count, size):
    left, top, right, bottom = upright(count, size).T
    return torch.stack([left, top, right, top, right, bottom, left, bottom], 1)


def indexed(boxes):
    return torch.nn.functional.pad(boxes, (1, 0))


def cases():
    """Yield name, inputs before the outputs, outputs, inputs after them, settings."""
    zeros, empty = torch.zeros, torch.empty(0)
    boxes, scores = upright(1000, 800), uniform(1000)
    turned, corners = rotated(500, 800), quadrilaterals(200, 400)
    order = scores[:500].argsort(descending=True)
    yield "nms", [boxes, scores], [], [], {"iou_threshold": 0.5, "offset": 0}
    soft = {"iou_threshold": 0.3, "sigma": 0.5, "min_score": 0.05, "method": 1, "offset": 0}
    yield "softnms", [boxes, scores], [zeros(1000, 5)], [], soft
    yield "nms_match", [torch.cat([boxes, scores[:, None]], 1)], [], [], {"iou_threshold": 0.5}
    yield "nms_rotated", [turned, scores[:500], order, turned[order], order], [], [0.5, 0], {}
    yield "nms_quadri", [corners, scores[:200], order, corners], [], [0.5, 0], {}
    yield "bbox_overlaps", [boxes, boxes[:100]], [zeros(1000, 100)], [], {"mode": 0, "aligned": False, "offset": 0}
    yield "box_iou_rotated", [turned, turned[:100]], [zeros(50000)], [], {"mode_flag": 0, "aligned": False}
    yield "box_iou_quadri", [corners, corners[:50]], [zeros(10000)], [], {"mode_flag": 0, "aligned": False}

    maps, pooled = uniform(1, 64, 50, 68), uniform(100, 64, 7, 7)
    size = {"spatial_scale": 1 / 16, "sampling_ratio": 2, "aligned": True}
    align = {"aligned_height": 7, "aligned_width": 7, **size}
    turn = {"pooled_height": 7, "pooled_width": 7, "clockwise": False, **size}
    rois, rotated_rois = indexed(upright(100, 800)), indexed(rotated(100, 800))
    curves = indexed(uniform(100, 16, high=800))
    output, gradient = zeros(100, 64, 7, 7), zeros(1, 64, 50, 68)
    yield "roi_align_forward", [maps, rois], [output], [empty, empty], {"pool_mode": 1, **align}
    yield "roi_align_backward", [pooled, rois, empty, empty], [gradient], [], {"pool_mode": 1, **align}
    yield "roi_align_rotated_forward", [maps, rotated_rois], [output], [], turn
    yield "roi_align_rotated_backward", [pooled, rotated_rois], [gradient], [], turn
    yield "bezier_align_forward", [maps, curves], [output], [], align
    yield "bezier_align_backward", [pooled, curves], [gradient], [], align
    anchors = rotated(50 * 68, 800).reshape(1, 50, 68, 5)
    feature = {"spatial_scale": 1 / 16, "points": 5}
    yield "rotated_feature_align_forward", [maps, anchors], [zeros(1, 64, 50, 68)], [], feature
    yield "rotated_feature_align_backward", [maps, anchors], [gradient], [], feature

    weight, offset, mask = uniform(64, 64, 3, 3), uniform(1, 18, 50, 68, low=-2, high=2), uniform(1, 9, 50, 68)
    kernel = {"kW": 3, "kH": 3, "dW": 1, "dH": 1, "padW": 1, "padH": 1, "dilationW": 1, "dilationH": 1}
    kernel |= {"group": 1, "deformable_group": 1, "im2col_step": 1}
    convolved = zeros(1, 64, 50, 68)
    yield "deform_conv_forward", [maps, weight, offset], [convolved], [empty, empty], kernel
    backward = [maps, offset, maps], [gradient, torch.zeros_like(offset)], [weight, empty]
    yield "deform_conv_backward_input", *backward, kernel
    backward = [maps, offset, maps], [torch.zeros_like(weight)], [empty, empty]
    yield "deform_conv_backward_parameters", *backward, {"scale": 1, **kernel}
    names = ("kernel", "stride", "pad", "dilation")
    modulated = {f"{name}_{axis}": 3 if name == "kernel" else 1 for name in names for axis in "hw"}
    modulated |= {"group": 1, "deformable_group": 1, "with_bias": False}
    inputs = [maps, weight, empty, empty, offset, mask]
    yield "modulated_deform_conv_forward", inputs, [convolved], [empty], modulated
    results = [torch.zeros_like(tensor) for tensor in (maps, weight, empty, offset, mask)]
    yield "modulated_deform_conv_backward", [*inputs, empty], results, [maps], modulated

    filters = uniform(32, 32, 1, 3, 3)
    indices = torch.stack([torch.randperm(9) + 1 for _ in range(8)], 1).reshape(1, 3, 3, 8).int()
    yield "active_rotated_filter_forward", [filters, indices], [zeros(256, 32, 3, 3)], [], {}
    yield "active_rotated_filter_backward", [uniform(256, 32, 3, 3), indices], [zeros(32, 32, 1, 3, 3)], [], {}
    psa = {"psa_type": 0, "num_": 1, "h_feature": 20, "w_feature": 20, "h_mask": 15, "w_mask": 15}
    psa |= {"half_h_mask": 7, "half_w_mask": 7}
    yield "psamask_forward", [uniform(1, 225, 20, 20)], [zeros(1, 400, 20, 20)], [], psa
    yield "psamask_backward", [uniform(1, 400, 20, 20)], [zeros(1, 225, 20, 20)], [], psa

    cloud, limits = uniform(20000, 4, high=40), torch.tensor([0.0, 0, 0, 40, 40, 40])
    voxel, cells = torch.tensor([0.5, 0.5, 4.0]), zeros(20000, 3, dtype=torch.int32)
    yield "dynamic_voxelize_forward", [cloud, voxel, limits], [cells], [], {"NDim": 3}
    buffers = [zeros(8000, 10, 4), zeros(8000, 3, dtype=torch.int32), zeros(8000, dtype=torch.int32), torch.tensor(0)]
    hard = {"max_points": 10, "max_voxels": 8000, "NDim": 3, "deterministic": True}
    yield "hard_voxelize_forward", [cloud, voxel, limits], buffers, [], hard
    cuboids = torch.cat([uniform(50, 3, high=40), uniform(50, 3, low=2, high=6), uniform(50, 1)], 1)
    inside = zeros(50, 20000, dtype=torch.int32)
    yield "points_in_boxes_cpu_forward", [cuboids, cloud[:, :3].contiguous()], [inside], [], {}

    kernels = zeros(160, 160, dtype=torch.int32)
    kernels[40:60, 20:140], kernels[100:120, 20:140] = 1, 2
    text = zeros(3, 160, 160, dtype=torch.uint8)
    text[:, 30:70, 10:150] = text[:, 90:130, 10:150] = 1
    yield "contour_expand", [text, kernels, 10, 3], [], [], {}
    pixels = [uniform(160, 160), text[0].bool(), uniform(160, 160, 4), kernels, (kernels > 0).to(torch.uint8)]
    yield "pixel_group", [*pixels, 3, 3.0], [], [], {}


def run(function, before, outputs, after, settings):
    """Return the seconds of a call, and all that it wrote or returned."""
    written = [tensor.clone() for tensor in outputs]
    begin = time.perf_counter()
    returned = function(*before, *written, *after, **settings)
    seconds = time.perf_counter() - begin
    return seconds, [*written, *([] if returned is None else [torch.as_tensor(flat(returned))])]


def flat(returned):
    """Return nested lists as one."""
    if isinstance(returned, list):
        return [number for item in returned for number in (flat(item) if isinstance(item, list) else [item])]
    return returned


def difference(first, second):
    """Return the largest difference of two lists of tensors, relative to the largest number."""
    if [tensor.shape for tensor in first] != [tensor.shape for tensor in second]:
        return "another size"
    pairs = [(a.double(), b.double()) for a, b in zip(first, second, strict=True) if a.numel()]
    worst = max(float((a - b).abs().max() / max(float(b.abs().max()), 1e-12)) for a, b in pairs)
    return f"{worst:.0e}" if worst else "0"


def main():
    loader = importlib.machinery.ExtensionFileLoader("_ext", sys.argv[1])
    compiled = importlib.util.module_from_spec(importlib.util.spec_from_loader("_ext", loader))
    loader.exec_module(compiled)
    torch.set_num_threads(1)
    mmort.set_num_threads(1)
    torch.manual_seed(0)
    print("| operator | MMCV, ms | mmort, ms | faster | difference |\n|-|-|-|-|-|")
    for name, *call in cases():
        theirs, ours = getattr(compiled, name), functions()[name]
        results = run(theirs, *call)[1], run(ours, *call)[1]
        seconds = [(run(theirs, *call)[0], run(ours, *call)[0]) for _ in range(ROUNDS)]
        times = [1000 * statistics.median(column) for column in zip(*seconds, strict=True)]
        factor = statistics.median(first / second for first, second in seconds)
        print(f"| {name} | {times[0]:.3g} | {times[1]:.3g} | {factor:.2g} | {difference(*results)} |", flush=True)


if __name__ == "__main__":
    main()

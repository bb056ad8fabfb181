"""The functions and layers of `mmort.torch` that are more than an operator: arguments, and results by definition.

All numbers of the arguments are float16's, so that every dtype gets the same ones; coordinates are of images
whose areas float16 has not.  The definitions are numpy's, in float64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import mmort
import mmort.torch


@dataclass
class Plain:
    """A function or layer, its arguments by name, and its results for them.

    `floating` are the arguments of floating dtypes.  `empty` are those without rows if there are no boxes, points or
    regions, and `wrong` shapes that are refused.  `traced` is whether torch.compile and torch.export trace it; `fixed`
    whether the shapes of results follow from those of the arguments.
    """

    function: Callable[..., Any]
    arguments: dict[str, Any]
    expected: Callable[..., Any]
    floating: tuple[str, ...]
    empty: tuple[str, ...] = ()
    wrong: dict[str, tuple[int, ...]] = field(default_factory=dict)
    compiled: bool = True
    exported: bool = True
    fixed: bool = True
    nearest: bool = True


def half(array):
    """Return numbers that float16 has, in float64."""
    return np.asarray(array).astype(np.float16).astype(np.float64)


def upright(rng, n, size=600):
    corners = rng.uniform(0, size, (n, 2))
    return half(np.concatenate([corners, corners + rng.uniform(10, size, (n, 2))], 1))


def rotated(rng, n, size=600):
    return half(np.column_stack([rng.uniform(0, size, (n, 2)), rng.uniform(300, size, (n, 2)), rng.uniform(-3, 3, n)]))


def regions(boxes, images=2):
    return np.column_stack([np.arange(len(boxes)) % images, boxes])


def iou(bboxes1, bboxes2, mode="iou", aligned=False, offset=0):
    """Overlaps of batches of boxes, pair by pair."""
    if not aligned:
        bboxes1, bboxes2 = bboxes1[..., :, None, :], bboxes2[..., None, :, :]
    low = np.maximum(bboxes1[..., :2], bboxes2[..., :2])
    high = np.minimum(bboxes1[..., 2:], bboxes2[..., 2:])
    shared = np.clip(high - low + offset, 0, None).prod(-1)
    first, second = ((boxes[..., 2:] - boxes[..., :2] + offset).prod(-1) for boxes in (bboxes1, bboxes2))
    return shared / (first + second - shared if mode == "iou" else first)


def point_sample(input, points, align_corners=False, mode="bilinear"):
    return mmort.grid_sample(input, 2 * points - 1, mode, align_corners=align_corners)


def image_points(rois, rel_roi_points, img, spatial_scale=1.0):
    start, end = rois[:, None, -4:-2], rois[:, None, -2:]
    return (start + rel_roi_points * (end - start)) * spatial_scale / np.array([img[1], img[0]])


def rotated_filters(input, indices):
    outputs, inputs, layers, height, width = input.shape
    turned = np.zeros((outputs, indices.shape[3], inputs, layers * height * width))
    for orientation in range(indices.shape[3]):
        for source, target in enumerate(indices[..., orientation].ravel()):
            turned[:, orientation, :, target - 1] = input.reshape(outputs, inputs, -1)[:, :, source]
    return turned.reshape(-1, inputs * layers, height, width)


def smallest_rectangle(pointsets):
    """The rectangle along the direction of two of the points that has the least area."""
    results = []
    for numbers in pointsets.reshape(-1, pointsets.shape[-1]):
        points, best = numbers.reshape(-1, 2), (math.inf, None)
        for i, first in enumerate(points):
            for second in points[i + 1 :]:
                along = (second - first) / np.hypot(*(second - first))
                axes = np.array([along, [-along[1], along[0]]])
                (left, top), (right, bottom) = (choose(points @ axes.T, 0) for choose in (np.amin, np.amax))
                area = (right - left) * (bottom - top)
                if area < best[0]:
                    best = area, np.array([[right, top], [left, top], [left, bottom], [right, bottom]]) @ axes
        results.append(best[1].ravel())
    return np.array(results).reshape(*pointsets.shape[:-1], 8)


def inside(points, polygons):
    """1 where the angles that a point sees a polygon's sides under add up to a turn."""
    to_corners = polygons.reshape(1, -1, 4, 2) - points[:, None, None]
    angles = np.arctan2(to_corners[..., 1], to_corners[..., 0])
    steps = (np.roll(angles, -1, 2) - angles + math.pi) % (2 * math.pi) - math.pi
    return (np.abs(steps.sum(2)) > math.pi).astype(np.float64)


def turned_channels(features, rois, out_size, spatial_scale, num_samples, num_orientations, clockwise):
    pooled = mmort.roi_align_rotated(features, rois, out_size, spatial_scale, num_samples, False, clockwise)
    result = np.empty_like(pooled)
    for index, roi in enumerate(rois):
        turn = roi[5] * num_orientations / (2 * math.pi)
        whole = math.floor(turn)
        for channel in range(pooled.shape[1]):
            group, orientation = divmod(channel, num_orientations)
            first, second = (
                pooled[index, group * num_orientations + (orientation - whole + step) % num_orientations]
                for step in (0, 1)
            )
            result[index, channel] = (1 - turn + whole) * first + (turn - whole) * second
    return result


def focal_loss(input, target, gamma=2.0, alpha=0.25, weight=None, reduction="mean"):
    chance = 1 / (1 + np.exp(-input))
    hit = target[:, None] == np.arange(input.shape[1])
    loss = -np.where(hit, alpha * (1 - chance) ** gamma * np.log(chance), 0)
    loss -= np.where(hit, 0, (1 - alpha) * chance**gamma * np.log(1 - chance))
    if weight is not None:
        loss *= np.append(weight, 1)[np.minimum(target, len(weight))][:, None]
    return {"none": loss, "sum": loss.sum(), "mean": loss.sum() / max(len(input), 1)}[reduction]


def bin_centres(features, rois):
    """What SimpleRoIAlign of 2 x 3 bins at a quarter of the size samples, region by region."""
    pooled = [np.empty((0, features.shape[1], 2, 3))]
    for image, left, top, right, bottom in rois:
        x = (left + (np.arange(3) + 0.5) * (right - left) / 3) / 4 / features.shape[3]
        y = (top + (np.arange(2) + 0.5) * (bottom - top) / 2) / 4 / features.shape[2]
        grid = np.stack(np.meshgrid(x, y), 2)[None]
        pooled.append(point_sample(features[int(image)][None], grid))
    return np.concatenate(pooled)


def convolution(layer, *arguments):
    """Return the results of a deformable convolution with a layer's weight (and bias), by numpy."""
    weight, bias = (
        None if tensor is None else tensor.detach().double().numpy() for tensor in (layer.weight, layer.bias)
    )
    if len(arguments) == 2:
        return mmort.deform_conv2d(*arguments, weight, padding=1)
    return mmort.modulated_deform_conv2d(*arguments, weight, bias, padding=1)


def attended(layer, query, reference_points, spatial_shapes):
    """Return the results of an attention layer with its parameters, by numpy."""

    def linear(part, x):
        weight, bias = (tensor.detach().double().numpy() for tensor in (part.weight, part.bias))
        return x @ weight.T + bias

    heads, levels, points = layer.num_heads, layer.num_levels, layer.num_points
    images, queries, _ = query.shape
    values = linear(layer.value_proj, query).reshape(images, queries, heads, -1)
    offsets = linear(layer.sampling_offsets, query).reshape(images, queries, heads, levels, points, 2)
    weights = np.exp(linear(layer.attention_weights, query).reshape(images, queries, heads, -1))
    weights = (weights / weights.sum(3, keepdims=True)).reshape(images, queries, heads, levels, points)
    locations = reference_points[:, :, None, :, None] + offsets / spatial_shapes[:, ::-1][:, None]
    starts = np.append(0, spatial_shapes.prod(1).cumsum()[:-1])
    sampled = mmort.multi_scale_deformable_attention(values, spatial_shapes, starts, locations, weights)
    return query + linear(layer.output_proj, sampled)


def with_half_parameters(layer, seed=3):
    """Return a layer whose parameters are numbers of float16."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        parameter.data = (torch.randn(parameter.shape, generator=generator) / 4).half().float()
    return layer.eval()


def plain():
    """Return what is to be tested by name, the same each time."""
    rng = np.random.default_rng(62)
    boxes, scores, classes = upright(rng, 12), half(rng.random(12)), rng.integers(0, 2, 12)
    turned, maps = rotated(rng, 6), half(rng.standard_normal((2, 4, 60, 80)))
    pooled_regions, turned_regions = regions(upright(rng, 5, 120)), regions(half(rotated(rng, 5) / [4, 4, 8, 8, 1]))
    named = mmort.torch
    suppressed = {"boxes": boxes, "scores": scores}
    kept = {"floating": ("boxes", "scores"), "fixed": False}
    first, second = upright(rng, 10).reshape(2, 5, 4), upright(rng, 6).reshape(2, 3, 4)
    permutations = np.stack([rng.permutation(18) + 1 for _ in range(4)], 1).reshape(2, 3, 3, 4)
    filters = {"input": half(rng.standard_normal((3, 2, 2, 3, 3))), "indices": permutations}
    sets, corners = half(rng.uniform(0, 600, (4, 18))), half(rng.uniform(0, 600, (5, 8)))
    logits, targets = half(rng.standard_normal((7, 3)) * 4), rng.integers(0, 4, 7)
    offset, mask = half(rng.uniform(-2, 2, (1, 18, 6, 7))), half(rng.random((1, 9, 6, 7)))
    image = half(rng.standard_normal((1, 2, 6, 7)))
    queries, references = half(rng.standard_normal((1, 10, 8))), half(rng.random((1, 10, 2, 2)))
    pair = named.DeformConv2d(2, 3, 3, padding=1), named.ModulatedDeformConv2d(2, 3, 3, padding=1)
    deformable, modulated = map(with_half_parameters, pair)
    packs = named.DeformConv2dPack(2, 3, 3, padding=1), named.ModulatedDeformConv2dPack(2, 3, 3, padding=1)
    packed, modulated_pack = map(with_half_parameters, packs)
    attention = with_half_parameters(named.MultiScaleDeformableAttention(8, 2, 2, 2, batch_first=True))
    weighted = named.SigmoidFocalLoss(2.0, 0.25, torch.tensor([0.5, 2, 1]), "none")
    of_rois = {"floating": ("input", "rois"), "empty": ("rois",), "wrong": {"input": (4, 8, 8), "rois": (3, 9)}}
    settings = {"out_size": (2, 3), "spatial_scale": 0.25, "num_samples": 2, "num_orientations": 4, "clockwise": True}

    def pack(layer):
        def run(x):
            weight, bias = layer.conv_offset.weight.double(), layer.conv_offset.bias.double()
            computed = torch.nn.functional.conv2d(torch.tensor(x), weight, bias, padding=1)
            offsets = computed.detach().numpy()
            if offsets.shape[1] == 18:
                return convolution(layer, x, offsets)
            return convolution(layer, x, offsets[:, :18], 1 / (1 + np.exp(-offsets[:, 18:])))

        return run

    return {
        "nms": Plain(
            named.nms,
            {**suppressed, "iou_threshold": 0.3},
            mmort.nms,
            **kept,
            empty=("boxes", "scores"),
            wrong={"boxes": (12, 5), "scores": (12, 1)},
        ),
        "nms_rotated": Plain(
            named.nms_rotated,
            {"dets": turned, "scores": scores[:6], "iou_threshold": 0.3},
            mmort.nms_rotated,
            ("dets", "scores"),
            ("dets", "scores"),
            {"dets": (6, 4), "scores": (6, 1)},
            fixed=False,
        ),
        "batched_nms": Plain(
            named.batched_nms,
            {**suppressed, "idxs": classes, "nms_cfg": 0.3},
            mmort.batched_nms,
            **kept,
            empty=("boxes", "scores", "idxs"),
            wrong={"boxes": (12, 5), "scores": (12, 1), "idxs": (3,)},
        ),
        "batched_nms soft": Plain(
            named.batched_nms,
            {**suppressed, "idxs": classes, "nms_cfg": {"type": "soft_nms", "iou_threshold": 0.3}},
            mmort.batched_nms,
            ("boxes", "scores"),
            ("boxes", "scores", "idxs"),
            {"boxes": (12, 5), "scores": (12, 1), "idxs": (3,)},
            exported=False,
            fixed=False,
        ),
        "nms_match": Plain(
            named.nms_match,
            {"dets": np.column_stack([boxes, scores]), "iou_threshold": 0.3},
            mmort.nms_match,
            ("dets",),
            ("dets",),
            {"dets": (12, 4)},
            compiled=False,
            exported=False,
            fixed=False,
        ),
        **{
            f"box_iou_rotated {'aligned' if aligned else 'of pairs'}": Plain(
                named.box_iou_rotated,
                {"bboxes1": turned[:3], "bboxes2": turned[3:], "mode": "iof", "aligned": aligned, "clockwise": False},
                mmort.box_iou_rotated,
                ("bboxes1", "bboxes2"),
                ("bboxes1", "bboxes2"),
                {"bboxes1": (3, 4), "bboxes2": (3, 2, 5)},
                exported=False,
            )
            for aligned in (False, True)
        },
        **{
            f"bbox_overlaps {mode} {'aligned' if aligned else 'of pairs'} {len(shape)}": Plain(
                named.bbox_overlaps,
                {
                    "bboxes1": one.reshape(shape),
                    "bboxes2": other.reshape(-1, 4) if len(shape) == 2 else other,
                    "mode": mode,
                    "aligned": aligned,
                    "offset": offset,
                },
                iou,
                ("bboxes1", "bboxes2"),
                ("bboxes1", "bboxes2"),
                {"bboxes1": (10, 3), "bboxes2": (3, 2, 4)},
            )
            for mode, aligned, offset, one, other, shape in (
                ("iou", False, 0, first, second, (10, 4)),
                ("iof", True, 1, first, first[::-1].copy(), (10, 4)),
                ("iou", False, 1, first, second, (2, 5, 4)),
                ("iou", True, 0, first, first[::-1].copy(), (2, 5, 4)),
            )
        },
        "point_sample": Plain(
            named.point_sample,
            {"input": maps, "points": half(rng.random((2, 3, 5, 2)))},
            point_sample,
            ("input", "points"),
            (),
            {"input": (4, 60, 80), "points": (2, 3, 5, 3)},
        ),
        "rel_roi_point_to_rel_img_point": Plain(
            named.rel_roi_point_to_rel_img_point,
            {
                "rois": pooled_regions,
                "rel_roi_points": half(rng.random((5, 4, 2))),
                "img": (600, 800),
                "spatial_scale": 0.25,
            },
            image_points,
            ("rois", "rel_roi_points"),
            ("rois", "rel_roi_points"),
            {"rois": (5, 6), "rel_roi_points": (4, 4, 2)},
        ),
        "active_rotated_filter": Plain(
            named.active_rotated_filter,
            filters,
            rotated_filters,
            ("input",),
            ("input",),
            {"input": (3, 2, 3, 3), "indices": (2, 3, 3)},
        ),
        "min_area_polygons": Plain(
            named.min_area_polygons,
            {"pointsets": sets},
            smallest_rectangle,
            ("pointsets",),
            ("pointsets",),
            {"pointsets": (4, 17)},
        ),
        "points_in_polygons": Plain(
            named.points_in_polygons,
            {"points": half(rng.uniform(0, 600, (9, 2))), "polygons": corners},
            inside,
            ("points", "polygons"),
            ("points",),
            {"points": (9, 3), "polygons": (5, 4, 2)},
        ),
        "riroi_align_rotated": Plain(
            named.riroi_align_rotated,
            {"features": maps, "rois": turned_regions, **settings},
            turned_channels,
            ("features", "rois"),
            ("rois",),
            {"features": (2, 3, 6, 8), "rois": (5, 5)},
        ),
        "RiRoIAlignRotated": Plain(
            named.RiRoIAlignRotated(**settings),
            {"features": maps, "rois": turned_regions},
            lambda features, rois: turned_channels(features, rois, **settings),
            ("features", "rois"),
            ("rois",),
            {"features": (2, 3, 6, 8), "rois": (5, 5)},
        ),
        **{
            f"sigmoid_focal_loss {reduction}": Plain(
                named.sigmoid_focal_loss,
                {"input": logits, "target": targets, "weight": half(rng.random(3)), "reduction": reduction},
                focal_loss,
                ("input", "weight"),
                ("input", "target") if reduction != "mean" else (),
                {"input": (7,), "target": (6,), "weight": (2,)},
            )
            for reduction in ("none", "sum", "mean")
        },
        "SigmoidFocalLoss": Plain(
            weighted,
            {"input": logits, "target": targets},
            lambda input, target: focal_loss(input, target, weight=np.array([0.5, 2, 1]), reduction="none"),
            ("input",),
            ("input", "target"),
            {"input": (7,), "target": (6,)},
        ),
        "SimpleRoIAlign": Plain(
            named.SimpleRoIAlign((2, 3), 0.25),
            {"features": maps, "rois": pooled_regions},
            bin_centres,
            ("features", "rois"),
            ("rois",),
            {"rois": (5, 6)},
        ),
        "RoIAlign": Plain(
            named.RoIAlign((2, 3), 0.25, 2),
            {"input": maps, "rois": pooled_regions},
            lambda input, rois: mmort.roi_align(input, rois, (2, 3), 0.25, 2),
            **of_rois,
        ),
        "RoIAlignRotated": Plain(
            named.RoIAlignRotated((2, 3), 0.25, 2),
            {"input": maps, "rois": turned_regions},
            lambda input, rois: mmort.roi_align_rotated(input, rois, (2, 3), 0.25, 2),
            **of_rois,
        ),
        "CornerPool": Plain(
            named.CornerPool("top"),
            {"x": maps},
            lambda x: mmort.corner_pool(x, "top"),
            ("x",),
            ("x",),
            {"x": (3, 4, 5)},
        ),
        "DeformConv2d": Plain(
            deformable,
            {"x": image, "offset": offset},
            lambda *arguments, **named: convolution(deformable, *named.values()),
            ("x", "offset"),
            ("x", "offset"),
            {"x": (2, 6, 7), "offset": (1, 17, 6, 7)},
        ),
        "ModulatedDeformConv2d": Plain(
            modulated,
            {"x": image, "offset": offset, "mask": mask},
            lambda *arguments, **named: convolution(modulated, *named.values()),
            ("x", "offset", "mask"),
            ("x", "offset", "mask"),
            {"mask": (1, 8, 6, 7)},
        ),
        "DeformConv2dPack": Plain(packed, {"x": image}, pack(packed), ("x",), ("x",), nearest=False),
        "ModulatedDeformConv2dPack": Plain(
            modulated_pack, {"x": image}, pack(modulated_pack), ("x",), ("x",), nearest=False
        ),
        "MultiScaleDeformableAttention": Plain(
            attention,
            {"query": queries, "reference_points": references, "spatial_shapes": np.array([[2, 3], [2, 2]])},
            lambda **named: attended(attention, **named),
            ("query", "reference_points"),
            ("query", "reference_points"),
            {"reference_points": (1, 10, 2, 3)},
            nearest=False,
        ),
    }

"""Rotated regions of a feature map: roi_align_rotated and rotated_feature_align."""

import math

import numpy as np

from tests.operators.case import INF, NAN, SIZES, add, oracle, refuse, zeros
from tests.operators.families.boxes import larger
from tests.operators.families.roi import MAP, SIZE, clamped_sample

# ---- oracles ---------------------------------------------------------------------------------------------------------


@oracle
def roi_align_rotated(input, rois, output_size, spatial_scale=1.0, sampling_ratio=0, aligned=True, clockwise=False):
    number = input.dtype.type
    pooled_height, pooled_width = output_size
    channels, height, width = input.shape[1:]
    output = np.zeros((len(rois), channels, pooled_height, pooled_width), input.dtype)
    if not output.size or not height * width:
        return (output,)
    for k, roi in enumerate(rois):
        image = input[int(roi[0])]
        centre_x, centre_y = (centre * number(spatial_scale) - number(0.5 if aligned else 0) for centre in roi[1:3])
        roi_width, roi_height = roi[3:5] * number(spatial_scale)
        angle = -float(roi[5]) if clockwise else float(roi[5])
        cosine, sine = number(math.cos(angle)), number(math.sin(angle))
        if not aligned:
            roi_width, roi_height = larger(roi_width, number(1)), larger(roi_height, number(1))
        bin_width, bin_height = number(roi_width / number(pooled_width)), number(roi_height / number(pooled_height))
        across = sampling_ratio if sampling_ratio > 0 else math.ceil(bin_width)
        down = sampling_ratio if sampling_ratio > 0 else math.ceil(bin_height)
        for ph in range(pooled_height):
            for pw in range(pooled_width):
                values = []
                for iy in range(down):
                    y = (-roi_height / number(2) + number(ph) * bin_height) + (number(iy + 0.5) * bin_height) / number(
                        down
                    )
                    for ix in range(across):
                        x = (-roi_width / number(2) + number(pw) * bin_width) + (number(ix + 0.5) * bin_width) / number(
                            across
                        )
                        values.append(
                            clamped_sample(
                                image, (y * cosine - x * sine) + centre_y, (y * sine + x * cosine) + centre_x
                            )
                        )
                output[k, :, ph, pw] = np.add.reduce(values) / number(len(values)) if values else 0
    return (output,)


@oracle
def rotated_feature_align(features, best_rbboxes, spatial_scale=1 / 8, points=1):
    number, output = features.dtype.type, features.copy()
    for n, h, w in np.ndindex(best_rbboxes.shape[:3]):
        box = best_rbboxes[n, h, w]
        with np.errstate(all="ignore"):
            y, x, width, height = box[:4] * number(spatial_scale)
            c, s = (number(f(float(box[4]))) if np.isfinite(box[4]) else number(np.nan) for f in (math.cos, math.sin))
            ax, ay, bx, by = (
                c * (width / number(2)),
                s * (width / number(2)),
                -s * (height / number(2)),
                c * (height / number(2)),
            )
            corners = [((y + ay) + by, (x + ax) + bx), ((y - ay) + by, (x - ax) + bx)]
            corners += [((y - ay) - by, (x - ax) - bx), ((y + ay) - by, (x + ax) - bx)]
        for point in [(y, x), *corners][:points]:
            output[n, :, h, w] += clamped_sample(features[n], *point)
    return (output,)


# ---- cases -----------------------------------------------------------------------------------------------------------


def rotated_pyramid(k, shape=(2, 3, 13, 17), scale=4.0, max_size=0.8):
    """Return a builder of a feature map [N, C, H, W] and k rotated RoIs in units `scale` times finer."""

    def build(rng):
        extent = np.array([shape[3], shape[2]]) * scale
        images = rng.integers(0, max(shape[0], 1), k)
        parts = (
            images,
            rng.uniform(-0.2, 1.2, (k, 2)) * extent,
            rng.uniform(0, max_size, (k, 2)) * extent,
            rng.uniform(-4, 4, k),
        )
        return rng.standard_normal(shape).astype(np.float32), np.column_stack(parts).astype(np.float32)

    return build


def map_and_rotated_rois(rois, shape=(1, 2, 6, 5)):
    return lambda rng: (rng.standard_normal(shape).astype(np.float32), np.array(rois, np.float32))


def outside_of_nan(rng):
    pixels = np.ones((1, 1, 4, 4), np.float32)
    pixels[0, 0, 0, 0] = NAN
    return pixels, np.array([[0, 20, 20, 2, 2, 0]], np.float32)


for aligned in (True, False):
    for clockwise in (True, False):
        for sampling_ratio in (-1, 0, 1, 3):
            attributes = {
                "output_size": (3, 2),
                "sampling_ratio": sampling_ratio,
                "aligned": aligned,
                "clockwise": clockwise,
            }
            ending = f"a{aligned:d}_c{clockwise:d}_s{sampling_ratio}"
            add(
                "roi_align_rotated", f"ordinary_{ending}", rotated_pyramid(5), "close", spatial_scale=0.25, **attributes
            )
            add(
                "roi_align_rotated",
                f"tiny_{ending}",
                rotated_pyramid(5, max_size=0.02),
                "close",
                spatial_scale=0.25,
                **attributes,
            )
            rois = [
                [0, 2, 3, 0, 0, 0], [0, 2, 3, 4, 0, 1], [0, 2, 3, -3, -2, 1], [0, 40, 3, 5, 5, 0],
                [0, -1, -1, 0.5, 0.5, 0], [0.9, 2, 2, 3, 3, 7], [-0.5, 2, 2, 3, 3, 1e4], [0, 2.5, 3, 5, 6, 0],
                [0, 2, 3, 1e3, 1e-3, 0.5], [0, 2, 3, -3, 2, 0],
            ]  # fmt: skip
            add("roi_align_rotated", f"edges_{ending}", map_and_rotated_rois(rois), "close", **attributes)
            if sampling_ratio > 0:  # channels, and a number of samples for each pixel, with which regions read a copy
                size = (6, 5) if sampling_ratio == 1 else (18, 16)
                shared = map_and_rotated_rois(2 * rois, (1, 9, *size))
                add("roi_align_rotated", f"copied_edges_{ending}", shared, "close", **attributes)
for k in SIZES:
    add(
        "roi_align_rotated",
        f"k{k}",
        rotated_pyramid(k, (2, 2, 9, 8)),
        "close",
        output_size=(2, 3),
        spatial_scale=0.25,
        sampling_ratio=2,
    )
for c in SIZES:
    for k in (1, 4):
        build = rotated_pyramid(k, (1, c, 9, 8))
        add("roi_align_rotated", f"c{c}_k{k}", build, "close", output_size=(2, 3), spatial_scale=0.25, sampling_ratio=2)
    add("roi_align_rotated", f"w{c}", rotated_pyramid(3, (1, 5, 4, c)), "close", output_size=(2, 2), spatial_scale=0.25)
    add("roi_align_rotated", f"h{c}", rotated_pyramid(3, (1, 5, c, 4)), "close", output_size=(2, 2), spatial_scale=0.25)
shared = rotated_pyramid(60, (1, 9, 30, 30), max_size=0.3)
rows = rotated_pyramid(6, (1, 19, 9, 8), max_size=0.5)
add("roi_align_rotated", "rows_of_bins", rows, "close", output_size=(14, 9), spatial_scale=0.25, sampling_ratio=2)
add("roi_align_rotated", "many_overlap_s0", shared, "close", output_size=(3, 3), spatial_scale=0.25)
for kind, max_size in (("many", 0.8), ("many_small", 0.05)):
    build = rotated_pyramid(40, (2, 33, 40, 40), max_size=max_size)
    add("roi_align_rotated", kind, build, "close", output_size=(3, 3), spatial_scale=0.25, sampling_ratio=2)
add(
    "roi_align_rotated",
    "long_bins",
    rotated_pyramid(2, (1, 5, 40, 40)),
    "close",
    output_size=(1, 1),
    spatial_scale=0.25,
)
add("roi_align_rotated", "no_images", rotated_pyramid(0, (0, 2, 4, 4)), "close", output_size=(2, 2))
add("roi_align_rotated", "outside_of_nan", outside_of_nan, "close", output_size=(2, 2), sampling_ratio=2)


def map_and_best_boxes(shape=(2, 3, 5, 6), scale=8.0):
    def build(rng):
        extent = np.array([shape[2], shape[3]]) * scale
        boxes = np.concatenate([
            rng.uniform(-0.3, 1.3, (shape[0], *shape[2:], 2)) * extent, rng.uniform(-5, 60, (shape[0], *shape[2:], 2)),
            rng.uniform(-4, 4, (shape[0], *shape[2:], 1)),
        ], axis=-1)  # fmt: skip
        return rng.standard_normal(shape).astype(np.float32), boxes.astype(np.float32)

    return build


def infinite_boxes(rng):
    boxes = rng.uniform(0, 5, (1, 3, 5, 5)).astype(np.float32)
    for i, value in enumerate((INF, -INF, 3e38)):
        boxes[0, i, np.arange(5), np.arange(5)] = value
    return rng.standard_normal((1, 9, 3, 5)).astype(np.float32), boxes


for points in range(1, 6):
    add("rotated_feature_align", f"ordinary_p{points}", map_and_best_boxes(), "close", points=points)
    add("rotated_feature_align", f"s1_p{points}", map_and_best_boxes(scale=1), "close", points=points, spatial_scale=1)
    add("rotated_feature_align", f"infinite_p{points}", infinite_boxes, "close", points=points, spatial_scale=1.0)
for n in SIZES:
    add("rotated_feature_align", f"c{n}", map_and_best_boxes((1, n, 4, 5)), "close", points=5)
    add("rotated_feature_align", f"w{n}", map_and_best_boxes((2, 5, 2, n)), "close", points=5)
    add("rotated_feature_align", f"h{n}", map_and_best_boxes((1, 2, n, 3)), "close", points=5)
add("rotated_feature_align", "many", map_and_best_boxes((2, 33, 20, 23)), "close", points=5)
add("rotated_feature_align", "no_images", map_and_best_boxes((0, 3, 4, 5)), "close")

# ---- refusals --------------------------------------------------------------------------------------------------------

FEATURES, BEST = zeros(2, 3, 4, 5), zeros(2, 4, 5, 5)
refuse("rotated_feature_align", "features must be [N, C, H, W], got [3, 4, 5]", zeros(3, 4, 5), BEST)
refuse("rotated_feature_align", "best_rbboxes must be [N, H, W, 5], got [40, 5]", FEATURES, zeros(40, 5))
for wrong, text in (((1, 4, 5, 5), "N = 2"), ((2, 3, 5, 5), "H = 4"), ((2, 4, 6, 5), "W = 5")):
    refuse(
        "rotated_feature_align",
        f"best_rbboxes must be [N, H, W, 5] with {text}, got {list(wrong)}",
        FEATURES,
        zeros(*wrong),
    )
refuse("rotated_feature_align", "best_rbboxes must be [N, H, W, 5], got [2, 4, 5, 6]", FEATURES, zeros(2, 4, 5, 6))
for points in (0, -2, 6, 2**40):
    refuse("rotated_feature_align", f"points must be from 1 to 5, got {points}", FEATURES, BEST, points=points)
for points in (1, 5):
    for column in (0, 1) if points == 1 else range(5):
        with_nan = BEST.copy()
        with_nan[1, 2, 3, column] = NAN
        refuse(
            "rotated_feature_align",
            "best_rbboxes must not contain NaN, got NaN in box [1, 2, 3]",
            FEATURES,
            with_nan,
            points=points,
        )


def rotated_roi(**changed):
    valid = {"image": 0, "x": 2, "y": 2, "w": 3, "h": 2, "angle": 1}
    return np.array([list((valid | changed).values())], np.float32)


refuse("roi_align_rotated", "input must be [N, C, H, W], got [3, 4, 5]", zeros(3, 4, 5), rotated_roi(), **SIZE)
refuse("roi_align_rotated", "rois must be [K, 6], got [3, 5]", MAP, zeros(3, 5), **SIZE)
refuse("roi_align_rotated", "rois must be [K, 6], got [0, 5]", MAP, zeros(0, 5), **SIZE)
for image in (2, -1, 1e9, 3e38, NAN, INF, -INF):
    text = f"the batch index of rois[0] must be in [0, 2), got {image:g}"
    refuse("roi_align_rotated", text, MAP, rotated_roi(image=image), **SIZE)
for name in ("x", "y", "w", "h", "angle"):
    for value in (NAN, INF, -INF):
        for sampling_ratio in (0, 2):
            text = f"the coordinates of rois[0] must be finite, got {value:g}"
            refuse("roi_align_rotated", text, MAP, rotated_roi(**{name: value}), sampling_ratio=sampling_ratio, **SIZE)
for height, width in ((0, 2), (2, 0), (-1, 2), (2, -(2**40))):
    text = f"output_height and output_width must be at least 1, got {height} and {width}"
    refuse("roi_align_rotated", text, MAP, rotated_roi(), output_size=(height, width))
    refuse("roi_align_rotated", text, MAP, zeros(0, 6), output_size=(height, width))
for value in (NAN, INF, -INF):
    refuse(
        "roi_align_rotated",
        f"spatial_scale must be finite, got {value:g}",
        MAP,
        rotated_roi(),
        spatial_scale=value,
        **SIZE,
    )
refuse(
    "roi_align_rotated",
    "sampling_ratio must be at most 1024, got 1025",
    MAP,
    rotated_roi(),
    sampling_ratio=1025,
    **SIZE,
)
for changed in ({"w": 1e9, "h": 1e9}, {"w": 3e38}):
    text = "rois[1] must not take more than 67108864 samples, or overflow"
    refuse("roi_align_rotated", text, MAP, np.concatenate([rotated_roi(), rotated_roi(**changed)]), **SIZE)
refuse("roi_align_rotated", "rois[0] must not take more than 67108864 samples, or overflow", MAP, rotated_roi(x=3e38),
       spatial_scale=10.0, **SIZE)  # fmt: skip

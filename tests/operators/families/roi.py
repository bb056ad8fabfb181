"""roi_align."""

import math

import numpy as np

from tests.operators.case import INF, NAN, SIZES, add, oracle, refuse, with_holes, zeros
from tests.operators.families.boxes import larger

# ---- oracles ---------------------------------------------------------------------------------------------------------


@oracle
def roi_align(input, rois, output_size, spatial_scale=1.0, sampling_ratio=0, pool_mode="avg", aligned=True):
    number = input.dtype.type
    pooled_height, pooled_width = output_size
    channels = input.shape[1]
    output = np.zeros((len(rois), channels, pooled_height, pooled_width), input.dtype)
    with np.errstate(all="ignore"):
        for k, roi in enumerate(rois):
            image = input[int(roi[0])]
            x1, y1, x2, y2 = (corner * number(spatial_scale) - number(0.5 if aligned else 0) for corner in roi[1:])
            roi_width, roi_height = x2 - x1, y2 - y1
            if not aligned:
                roi_width, roi_height = larger(roi_width, number(1)), larger(roi_height, number(1))
            bin_width, bin_height = number(roi_width / number(pooled_width)), number(roi_height / number(pooled_height))
            across = sampling_ratio if sampling_ratio > 0 else math.ceil(bin_width)
            down = sampling_ratio if sampling_ratio > 0 else math.ceil(bin_height)
            for ph in range(pooled_height):
                for pw in range(pooled_width):
                    values = []
                    for iy in range(down):
                        y = (y1 + number(ph) * bin_height) + (number(iy + 0.5) * bin_height) / number(down)
                        for ix in range(across):
                            x = (x1 + number(pw) * bin_width) + (number(ix + 0.5) * bin_width) / number(across)
                            values.append(clamped_sample(image, y, x))
                    if pool_mode == "max":
                        output[k, :, ph, pw] = np.max(values, axis=0) if values else -10000
                    else:
                        output[k, :, ph, pw] = np.add.reduce(values) / number(len(values)) if values else 0
    return (output,)


def clamped_sample(image, y, x):
    """Return a bilinear sample of every channel: the border's value up to one pixel outside, 0 beyond."""
    number, (channels, height, width) = image.dtype.type, image.shape
    if not height * width or not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(channels, image.dtype)
    y, x = max(y, number(0)), max(x, number(0))
    top, left = int(y), int(x)
    if top >= height - 1:
        top, y = height - 1, number(height - 1)
    if left >= width - 1:
        left, x = width - 1, number(width - 1)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    ly, lx = y - number(top), x - number(left)
    hy, hx = number(1) - ly, number(1) - lx
    return (
        (hy * hx) * image[:, top, left]
        + (hy * lx) * image[:, top, right]
        + (ly * hx) * image[:, bottom, left]
        + (ly * lx) * image[:, bottom, right]
    )


# ---- cases -----------------------------------------------------------------------------------------------------------


def pyramid(k, shape=(2, 3, 13, 17), scale=4.0, kind="ordinary"):
    """Return a builder of a feature map [N, C, H, W] and k RoIs in units `scale` times finer."""

    def build(rng):
        batches, _, height, width = shape
        rois = np.zeros((k, 5), np.float32)
        if batches:
            rois[:, 0] = rng.integers(0, batches, k)
        extent = np.array([width, height]) * scale
        reach, *sizes = {"ordinary": (0.7, 0.02, 0.8), "tiny": (0.7, 0, 0.02), "inside": (0.2, 0.1, 0.3)}[kind]
        centre = rng.uniform(0.5 - reach, 0.5 + reach, (k, 2)) * extent
        size = rng.uniform(*sizes, (k, 2)) * extent
        rois[:, 1:] = np.concatenate([centre - size / 2, centre + size / 2], axis=1)
        return rng.standard_normal(shape).astype(np.float32), rois

    return build


def map_and_rois(rois, shape=(1, 2, 6, 5)):
    return lambda rng: (rng.standard_normal(shape).astype(np.float32), np.array(rois, np.float32).reshape(-1, 5))


for pool_mode in ("avg", "max"):
    for aligned in (True, False):
        for sampling_ratio in (0, 1, 2, 3):
            attributes = {"output_size": (3, 2), "spatial_scale": 0.25, "sampling_ratio": sampling_ratio}
            attributes |= {"pool_mode": pool_mode, "aligned": aligned}
            ending = f"{pool_mode}_a{aligned:d}_s{sampling_ratio}"
            add("roi_align", f"ordinary_{ending}", pyramid(9), "close", **attributes)
            add("roi_align", f"tiny_{ending}", pyramid(5, kind="tiny"), "close", **attributes)
            rois = [
                [0, 1, 1, 1, 1],
                [0, 1, 1, 4, 1],
                [0, 3, 3, 1, 1],
                [0, -1, -1, 5, 6],
                [0, -9, -9, -5, -5],
                [0, 4, 5, 9, 9],
                [0, -0.5, -0.5, 4.5, 5.5],
                [0.9, 0, 0, 3, 3],
                [-0.5, 0, 0, 3, 3],
                [0, -1, -1, -1, -1],
                [0, 3, 1, 1, 3],
            ]
            edges = {**attributes, "spatial_scale": 1.0, "output_size": (2, 2)}
            add("roi_align", f"edges_{ending}", map_and_rois(rois), "close", **edges)
            if sampling_ratio in (0, 3):  # enough samples and channels that regions share tiles
                shared = map_and_rois(3 * rois, (1, 9, 6, 5))
                add("roi_align", f"shared_edges_{ending}", shared, "close", **edges)
for k in SIZES:
    add(
        "roi_align",
        f"k{k}",
        pyramid(k, (2, 2, 9, 8)),
        "close",
        output_size=(2, 3),
        spatial_scale=0.25,
        sampling_ratio=2,
    )
for c in SIZES:
    add(
        "roi_align",
        f"c{c}",
        pyramid(3, (1, c, 9, 8)),
        "close",
        output_size=(2, 3),
        spatial_scale=0.25,
        sampling_ratio=2,
    )
for width in SIZES:
    add("roi_align", f"w{width}", pyramid(3, (1, 2, 4, width)), "close", output_size=(2, 2), spatial_scale=0.25)
    attributes = {"output_size": (2, 2), "spatial_scale": 0.25, "pool_mode": "max"}
    add("roi_align", f"h{width}_max", pyramid(3, (1, 2, width, 4)), "close", **attributes)
for size in ((1, 1), (7, 7), (1, 9), (14, 2)):
    add("roi_align", f"out{size[0]}x{size[1]}", pyramid(4), "close", output_size=size, spatial_scale=0.25)
add(
    "roi_align", "many", pyramid(40, (2, 33, 40, 40)), "close", output_size=(7, 7), spatial_scale=0.25, sampling_ratio=2
)
add(
    "roi_align",
    "no_images",
    lambda rng: (np.zeros((0, 2, 4, 4), np.float32), np.zeros((0, 5), np.float32)),
    "close",
    output_size=(2, 2),
)
add(
    "roi_align",
    "far_below_zero",  # MMCV's maximum starts at -10000
    lambda rng: (np.full((1, 1, 4, 4), -1e6, np.float32), np.array([[0, 1, 1, 2, 2]], np.float32)),
    "close",
    output_size=(2, 2),
    sampling_ratio=2,
    pool_mode="max",
)
for pool_mode in ("avg", "max"):
    attributes = {"output_size": (5, 5), "sampling_ratio": 2, "spatial_scale": 0.25, "pool_mode": pool_mode}
    # inside, as at the border MMCV multiplies infinities by 0, which mmort does not
    build = with_holes(pyramid(9, (2, 33, 9, 11), kind="inside"))
    add("roi_align", f"holes_{pool_mode}", build, "close", **attributes)

# ---- refusals --------------------------------------------------------------------------------------------------------


def roi(**changed):
    """Return a region with some of its numbers changed."""
    valid = {"image": 0, "x1": 1, "y1": 1, "x2": 3, "y2": 2}
    return np.array([list((valid | changed).values())], np.float32)


MAP = zeros(2, 3, 4, 5)
SIZE = {"output_size": (2, 3)}
refuse("roi_align", "input must be [N, C, H, W], got [3, 4, 5]", zeros(3, 4, 5), roi(), **SIZE)
refuse("roi_align", "rois must be [K, 5], got [3, 4]", MAP, zeros(3, 4), **SIZE)
refuse("roi_align", "rois must be [K, 5], got [5]", MAP, zeros(5), **SIZE)
refuse("roi_align", "rois must be [K, 5], got [0, 4]", MAP, zeros(0, 4), **SIZE)
for image in (2, -1, 1e9, -1e9, 3e38, NAN, INF, -INF):
    text = f"the batch index of rois[0] must be in [0, 2), got {image:g}"
    refuse("roi_align", text, MAP, roi(image=image), **SIZE)
refuse("roi_align", "the batch index of rois[0] must be in [0, 0), got 0", zeros(0, 3, 4, 5), roi(), **SIZE)
for corner in ("x1", "y1", "x2", "y2"):
    for value in (NAN, INF, -INF):
        for sampling_ratio in (0, 2):
            text = f"the coordinates of rois[0] must be finite, got {value:g}"
            refuse("roi_align", text, MAP, roi(**{corner: value}), sampling_ratio=sampling_ratio, **SIZE)
refuse(
    "roi_align", "the coordinates of rois[1] must be finite, got nan", MAP, np.concatenate([roi(), roi(x2=NAN)]), **SIZE
)
for ratio in (1025, 2**40):
    refuse("roi_align", f"sampling_ratio must be at most 1024, got {ratio}", MAP, roi(), sampling_ratio=ratio, **SIZE)
for height, width in ((0, 2), (2, 0), (-1, 2), (2, -(2**40))):
    text = f"output_height and output_width must be at least 1, got {height} and {width}"
    refuse("roi_align", text, MAP, roi(), output_size=(height, width))
    refuse("roi_align", text, MAP, zeros(0, 5), output_size=(height, width))
for value in (NAN, INF, -INF):
    refuse("roi_align", f"spatial_scale must be finite, got {value:g}", MAP, roi(), spatial_scale=value, **SIZE)

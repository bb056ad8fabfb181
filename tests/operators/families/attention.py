"""multi_scale_deformable_attention."""

import math

import numpy as np

from tests.operators.case import INF, NAN, SIZES, add, oracle

# ---- oracles ---------------------------------------------------------------------------------------------------------


@oracle
def multi_scale_deformable_attention(value, spatial_shapes, level_start_index, sampling_locations, attention_weights):
    number = value.dtype.type
    images, queries, heads, levels, points, _ = sampling_locations.shape
    output = np.zeros((images, queries, heads, value.shape[3]), value.dtype)
    for b, q, m, level, p in np.ndindex(images, queries, heads, levels, points):
        height, width = spatial_shapes[level]
        pixels = value[b, level_start_index[level] :][: height * width, m].reshape(height, width, value.shape[3])
        x, y = sampling_locations[b, q, m, level, p]
        x, y = x * number(width) - number(0.5), y * number(height) - number(0.5)
        if not (-1 < x < width and -1 < y < height):
            continue
        left, top = math.floor(x), math.floor(y)
        for row, column in np.ndindex(2, 2):
            weight = (1 - abs(number(top + row) - y)) * (1 - abs(number(left + column) - x))
            if 0 <= top + row < height and 0 <= left + column < width:
                output[b, q, m] += attention_weights[b, q, m, level, p] * weight * pixels[top + row, left + column]
    return (output.reshape(images, queries, heads * value.shape[3]),)


# ---- cases -----------------------------------------------------------------------------------------------------------


def maps(images=2, queries=5, heads=2, channels=3, points=4, sizes=((3, 4), (2, 2), (1, 3)), low=-0.3, high=1.3, gap=0):
    """Return a builder of maps of these sizes, with `gap` unused pixels before each, and points in [low, high)."""

    def build(rng):
        areas = np.array([height * width + gap for height, width in sizes], np.int64)
        starts = np.concatenate([[0], np.cumsum(areas)[:-1]]).astype(np.int64)[: len(sizes)] + gap
        shape = images, queries, heads, len(sizes), points
        return (
            rng.standard_normal((images, int(areas.sum()), heads, channels)).astype(np.float32),
            np.array(sizes, np.int64).reshape(-1, 2),
            starts,
            rng.uniform(low, high, (*shape, 2)).astype(np.float32),
            rng.uniform(0, 1, shape).astype(np.float32),
        )

    return build


def strange_points(rng):
    value, shapes, starts, locations, weights = maps()(rng)
    locations.reshape(-1)[::7] = np.resize([NAN, INF, -INF, 1e30, -1e30, 0, 1], locations.reshape(-1)[::7].shape)
    return value, shapes, starts, locations, weights


for n in SIZES:
    add("multi_scale_deformable_attention", f"channels{n}", maps(channels=n), "close")
    add("multi_scale_deformable_attention", f"queries{n}", maps(queries=n), "close")
    add("multi_scale_deformable_attention", f"points{n}", maps(points=n, queries=2), "close")
for name, options in {
    "no_images": {"images": 0},
    "no_heads": {"heads": 0},
    "no_levels": {"sizes": ()},
    "a_map_without_pixels": {"sizes": ((0, 3), (2, 2))},
    "gaps": {"gap": 3},
    "one_pixel": {"sizes": ((1, 1),)},
    "wide_blocks": {"channels": 65},
    "many": {"queries": 300, "heads": 8, "channels": 32, "sizes": ((20, 30), (10, 15))},
}.items():
    add("multi_scale_deformable_attention", name, maps(**options), "close")
add("multi_scale_deformable_attention", "strange_points", strange_points, "close")

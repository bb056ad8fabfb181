"""grid_sample and point_sample."""

from functools import partial

import numpy as np

from tests.operators.case import INF, NAN, SIZES, add, oracle, refuse, with_holes, zeros
from tests.operators.families.boxes import larger, smaller

# ---- oracles ---------------------------------------------------------------------------------------------------------


@oracle
def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=False):
    number = input.dtype.type
    batches, channels, height, width = input.shape
    shape = (batches, channels, *grid.shape[1:3])
    if 0 in shape:
        return (np.zeros(shape, input.dtype),)

    def unnormalise(v, n):
        return (
            (v + number(1)) / number(2) * number(n - 1)
            if align_corners
            else ((v + number(1)) * number(n) - number(1)) / number(2)
        )

    def reflect(u, n):
        low, high = (number(0), number(n - 1)) if align_corners else (number(-0.5), number(n - 0.5))
        if low == high:
            return np.zeros_like(u)
        span, distance = high - low, np.abs(u - low)
        rest, turns = np.fmod(distance, span), np.floor(distance / span)
        turns = np.where(turns < 2**31, turns, 0)  # beyond, and for NaN, the conversion to an integer gives an even one
        return np.where(turns % 2 == 0, rest + low, span - rest + low)

    def pad(u, n):
        if padding_mode == "reflection":
            u = reflect(u, n)
        return u if padding_mode == "zeros" else smaller(number(n - 1), larger(u, number(0)))

    def pixel(y, x):
        """[N, OH, OW, C], 0 outside."""
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        rows, columns = (np.where(inside, v, 0).astype(np.int64) for v in (y, x))
        result = input[np.arange(batches)[:, None, None], :, rows, columns]
        return np.where(inside[..., None], result, number(0)), inside[..., None]

    with np.errstate(all="ignore"):
        x, y = unnormalise(grid[..., 0], width), unnormalise(grid[..., 1], height)
        if mode == "nearest":
            values, _ = pixel(np.rint(pad(y, height)), np.rint(pad(x, width)))
        elif mode == "bilinear":
            x, y = pad(x, width), pad(y, height)
            west, north = np.floor(x), np.floor(y)
            east, south = west + number(1), north + number(1)
            values = number(0)
            for row, column, weight in (
                (north, west, (east - x) * (south - y)),
                (north, east, (x - west) * (south - y)),
                (south, west, (east - x) * (y - north)),
                (south, east, (x - west) * (y - north)),
            ):
                result, inside = pixel(row, column)
                values = values + np.where(inside, result * weight[..., None], number(0))
        else:
            west, north = np.floor(x), np.floor(y)
            across, down = _cubic(x - west), _cubic(y - north)
            values = number(0)
            for i in range(4):
                row = number(0)
                for j in range(4):
                    result, _ = pixel(
                        np.trunc(pad(north + number(i - 1), height)), np.trunc(pad(west + number(j - 1), width))
                    )
                    row = row + result * across[j][..., None]
                values = values + row * down[i][..., None]
    return (np.ascontiguousarray(np.moveaxis(values, 3, 1)),)


def _cubic(t):
    """Return the weights of four pixels around a point t after the second (cubic convolution, A = -0.75)."""
    number = t.dtype.type
    a, one = number(-0.75), number(1)

    def near(z):
        return ((a + number(2)) * z - (a + number(3))) * z * z + one

    def far(z):
        return ((a * z - number(5) * a) * z + number(8) * a) * z - number(4) * a

    return far(t + one), near(t), near(one - t), far((one - t) + one)


@oracle
def point_sample(input, points, align_corners=False, **options):
    grid = points if points.ndim == 4 else points[:, :, None]
    (output,) = grid_sample(input, grid * 2 - grid.dtype.type(1), align_corners=align_corners, **options)
    return (output if points.ndim == 4 else output[..., 0],)


# ---- cases -----------------------------------------------------------------------------------------------------------


def map_and_grid(shape=(2, 3, 7, 9), points=(5, 6), reach=1.5):
    def build(rng):
        grid = rng.uniform(-reach, reach, (shape[0], *points, 2)).astype(np.float32)
        return rng.standard_normal(shape).astype(np.float32), grid

    return build


def on_the_pixels(rng):
    """Coordinates at and right between pixel centres and at the border, for both values of align_corners."""
    values = np.concatenate([np.linspace(-1, 1, 17), np.linspace(-0.875, 0.875, 8), np.linspace(-1.125, 1.125, 10)])
    grid = np.stack(np.meshgrid(values, values), axis=-1)[None].astype(np.float32)
    return rng.standard_normal((1, 2, 9, 8)).astype(np.float32), grid


def not_finite(rng):
    values = np.array([NAN, INF, -INF, 1e10, -1e10, 3e38, -3e38, 1e-40, 0.3], np.float32)
    grid = np.stack(np.meshgrid(values, values), axis=-1)[None].astype(np.float32)
    return rng.standard_normal((1, 2, 4, 5)).astype(np.float32), grid


def far_or_not_a_number(rng):
    """Points of which one coordinate is far outside and the other is not finite."""
    far, strange = np.meshgrid(np.float32([-9, 7]), np.float32([NAN, INF, -INF]))
    grid = np.stack([np.stack([far, strange], axis=-1), np.stack([strange, far], axis=-1)])
    return rng.standard_normal((2, 2, 6, 4)).astype(np.float32), grid


for mode in ("bilinear", "nearest", "bicubic"):
    for padding_mode in ("zeros", "border", "reflection"):
        for align_corners in (False, True):
            attributes = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
            ending = f"{mode}_{padding_mode}_a{align_corners:d}"
            add("grid_sample", f"ordinary_{ending}", map_and_grid(), "close", **attributes)
            add("grid_sample", f"far_{ending}", map_and_grid(reach=20), "close", **attributes)
            add("grid_sample", f"pixels_{ending}", on_the_pixels, "close", **attributes)
            add("grid_sample", f"not_finite_{ending}", not_finite, "close", **attributes)
            add("grid_sample", f"far_not_finite_{ending}", far_or_not_a_number, "close", **attributes)
            add("grid_sample", f"holes_{ending}", with_holes(on_the_pixels), "close", **attributes)
            for images, channels in ((4, 9), (1, 33)):
                build = map_and_grid((images, channels, 5, 6), (7, 19))
                add("grid_sample", f"{images}x{channels}_{ending}", build, "close", **attributes)
                add("grid_sample", f"{images}x{channels}_holes_{ending}", with_holes(build), "close", **attributes)
            for side in (1, 2, 3):
                build = map_and_grid((1, 2, side, 4 - side), (3, 17), reach=3)
                add("grid_sample", f"{side}x{4 - side}_{ending}", build, "close", **attributes)
    for n in SIZES:
        add("grid_sample", f"w{n}_{mode}", map_and_grid(points=(2, n)), "close", mode=mode)
        add("grid_sample", f"c{n}_{mode}", map_and_grid((1, n, 5, 4)), "close", mode=mode, padding_mode="border")
    for channels in (1, 3, 33):
        add("grid_sample", f"many{channels}_{mode}", map_and_grid((2, channels, 40, 40), (50, 60)), "close", mode=mode)
add("grid_sample", "no_rows", map_and_grid(points=(0, 6)), "close")
add("grid_sample", "no_images", map_and_grid((0, 3, 7, 9)), "close")
add("grid_sample", "no_pixels_no_points", map_and_grid((1, 3, 0, 0), points=(0, 6)), "close")

for shape in ((2, 5, 2), (2, 3, 4, 2), (2, 0, 2), (2, 33, 2)):
    build = partial(
        lambda rng, shape: (map_and_grid()(rng)[0], rng.uniform(-0.2, 1.2, shape).astype(np.float32)), shape=shape
    )
    for options in ({}, {"align_corners": True}, {"mode": "nearest", "padding_mode": "border"}):
        add("point_sample", f"{'x'.join(map(str, shape))}_{'_'.join(options) or 'default'}", build, "close", **options)

# ---- refusals --------------------------------------------------------------------------------------------------------

POINTS = zeros(2, 4, 5, 2)
refuse("grid_sample", "input must be [N, C, H, W], got [2, 3, 4]", zeros(2, 3, 4), POINTS)
refuse("grid_sample", "input must be [N, C, H, W], got [2, 1, 3, 4, 5]", zeros(2, 1, 3, 4, 5), POINTS)
refuse("grid_sample", "grid must be [N, OH, OW, 2], got [2, 5, 2]", zeros(2, 3, 4, 5), zeros(2, 5, 2))
refuse("grid_sample", "grid must be [N, OH, OW, 2], got [2, 3, 4, 5, 3]", zeros(2, 3, 4, 5), zeros(2, 3, 4, 5, 3))
refuse("grid_sample", "grid must be [N, OH, OW, 2] with N = 2, got [1, 4, 5, 2]", zeros(2, 3, 4, 5), zeros(1, 4, 5, 2))
refuse("grid_sample", "grid must be [N, OH, OW, 2] with N = 0, got [2, 4, 5, 2]", zeros(0, 3, 4, 5), POINTS)
refuse("grid_sample", "grid must be [N, OH, OW, 2], got [2, 4, 5, 1]", zeros(2, 3, 4, 5), zeros(2, 4, 5, 1))
for height, width in ((0, 5), (4, 0), (0, 0)):
    text = f"input must have pixels to read, got [2, 3, {height}, {width}]"
    refuse("grid_sample", text, zeros(2, 3, height, width), POINTS)

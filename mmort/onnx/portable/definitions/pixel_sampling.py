"""Sampling maps by GridSample at points in pixels, for the operators on regions."""

from __future__ import annotations

from mmort.onnx.graph.builder import FLOAT, INT64, Builder, FunctionBuilder, Value
from mmort.onnx.portable.definitions.sampling import OUTSIDE, sample


def on_map(op: FunctionBuilder, y: Value, x: Value, height: Value, width: Value) -> Value:
    """Return whether points are at most a pixel outside the map, where the border's value is taken."""
    return on_axis(op, y, height) & on_axis(op, x, width)


def on_axis(op: FunctionBuilder, position: Value, size: Value) -> Value:
    """Return whether positions along one axis are at most a pixel outside a map of that size."""
    return (position >= -1.0) & (position <= size.to(FLOAT))


def clamped_pixels(op: FunctionBuilder, position: Value, inside: Value, size: Value) -> Value:
    """Move positions to the map's pixels; those not on the map, which may be NaN, to the first."""
    return op.Min(op.Max(op.Where(inside, position, 0.0), 0.0), op.Max(size - [1], [0]).to(FLOAT))


def bordered(op: FunctionBuilder, maps: Value) -> Value:
    """Repeat the outer pixels of maps once, as rounding may take a point beyond them; leave maps without pixels."""

    def repeated(op: Builder) -> tuple[Value, ...]:
        return (op.Pad(maps, [0, 0, 1, 1] * 2, mode="edge"),)

    (bordered,) = op.choose(op.Size(maps) > 0, repeated, lambda op: (maps,), [(FLOAT, [None] * 4)])
    return bordered


def sample_pixels(op: FunctionBuilder, maps: Value, y: Value, x: Value, used: Value, shape: list[Value]) -> Value:
    """Sample maps that are `bordered` at pixels (N, rows, columns) of the original; 0 where a point is not used."""
    units = []  # GridSample's, in which -1 and 1 are the outer edges of the map
    for position, axis in ((x, 3), (y, 2)):
        unit = (position * 2.0 + 3.0) / op.size(maps, axis).to(FLOAT) - 1.0
        units.append(op.Unsqueeze(op.Where(used, unit, OUTSIDE), [-1]))
    # Padded with zeros, ONNX Runtime's GridSample is five times as fast as with the border.
    return sample(op, maps, op.reshape(op.Concat(*units, axis=-1), *shape, 2))


def sample_positions(
    op: FunctionBuilder, start: Value, bin_size: Value, bins: Value, count: Value
) -> tuple[Value, Value, Value]:
    """Place samples in bins along an axis: `count` (K, 1) in each, with room for the largest count in all.

    Returns the positions (K, bins * room), the room, and which samples count (K, bins * room).
    """
    room = op.largest(count.to(INT64), 1)
    index = op.range(bins * room)
    bin_index = index / room
    number = (index - bin_index * room).to(FLOAT)
    positions = start + bin_index.to(FLOAT) * bin_size + (number + 0.5) * bin_size / count
    return positions, room, op.Unsqueeze(number, [0]) < count


def stacked(op: FunctionBuilder, input: Value, image: Value) -> tuple[Value, Value]:
    """Return the `bordered` maps below each other as one, and the first row (K, 1, 1) of each region's image.

    A wrong index of an image (K, 1) is refused.
    """
    images, channels = op.size(input, 0), op.size(input, 1)
    maps = op.Transpose(bordered(op, input), perm=[1, 0, 2, 3])
    map_height, map_width = op.size(maps, 2), op.size(maps, 3)
    first_row = op.Gather(op.range(images), op.Unsqueeze(image, [2]).to(INT64)) * map_height
    return op.reshape(maps, 1, channels, images * map_height, map_width), first_row.to(FLOAT)

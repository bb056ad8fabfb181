"""Deformable convolution, without and with a mask: deform_conv2d and modulated_deform_conv2d."""

import numpy as np

from tests.operators.case import INF, NAN, SIZES, add, oracle, refuse, with_holes, zeros

# ---- oracles ---------------------------------------------------------------------------------------------------------


@oracle
def deform_conv2d(input, offset, weight, stride=1, padding=0, dilation=1, groups=1, deform_groups=1):
    ones = np.ones((offset.shape[0], offset.shape[1] // 2, *offset.shape[2:]), input.dtype)
    return modulated_deform_conv2d(input, offset, ones, weight, None, stride, padding, dilation, groups, deform_groups)


@oracle
def modulated_deform_conv2d(
    input, offset, mask, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, deform_groups=1
):
    stride, padding, dilation = (np.broadcast_to(value, 2) for value in (stride, padding, dilation))
    images, channels, _, _ = input.shape
    outputs, _, kernel_height, kernel_width = weight.shape
    taps, size = kernel_height * kernel_width, offset.shape[2:]
    output = np.zeros((images, outputs, *size), input.dtype)

    def starts(axis, step):
        """Return where a tap reads without an offset."""
        return (np.arange(size[axis]) * stride[axis] - padding[axis] + step * dilation[axis]).astype(input.dtype)

    with np.errstate(all="ignore"):
        for image in range(images):
            for channel in range(channels):
                for tap in range(taps):
                    at = channel // (channels // deform_groups) * taps + tap
                    y = starts(0, tap // kernel_width)[:, None] + offset[image, 2 * at]
                    x = starts(1, tap % kernel_width) + offset[image, 2 * at + 1]
                    sample = mask[image, at] * _zero_padded_sample(input[image, channel], y, x)
                    group, member = divmod(channel, channels // groups)
                    for o in range(group * (outputs // groups), (group + 1) * (outputs // groups)):
                        output[image, o] += weight[o, member].flat[tap] * sample
        if bias is not None:
            output += bias[:, None, None]
    return (output,)


def _zero_padded_sample(plane, y, x):
    """Return bilinear samples; pixels outside the plane are 0 and take part in no product."""
    number, (height, width) = plane.dtype.type, plane.shape
    outside = (y <= -1) | (y >= height) | (x <= -1) | (x >= width)
    if not plane.size:
        return np.zeros(y.shape, plane.dtype)
    top, left = np.floor(y), np.floor(x)
    ly, lx = y - top, x - left
    hy, hx = number(1) - ly, number(1) - lx

    def pixel(row, column):
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        row, column = (np.where(inside, v, 0).astype(np.int64) for v in (row, column))
        return np.where(inside, plane[row, column], number(0))

    one = number(1)
    value = hy * hx * pixel(top, left) + hy * lx * pixel(top, left + one)
    value = value + ly * hx * pixel(top + one, left) + ly * lx * pixel(top + one, left + one)
    return np.where(outside, number(0), value)


# ---- cases -----------------------------------------------------------------------------------------------------------


def deformed(shape, outputs, kernel=(3, 3), reach=1.5, biased=True, stride=1, padding=0, dilation=1, groups=1,
             deform_groups=1):  # fmt: skip
    """Return a builder of map, offsets (of about `reach` pixels), mask, weight and bias that fit together."""
    images, channels, *sides = shape
    stride, padding, dilation = (np.broadcast_to(value, 2) for value in (stride, padding, dilation))
    size = [max(0, (sides[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1) for i in (0, 1)]
    taps = deform_groups * kernel[0] * kernel[1]

    def build(rng):
        shapes = [shape, (images, 2 * taps, *size), (images, taps, *size), (outputs, channels // groups, *kernel)]
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in [*shapes, (outputs,)]]
        arrays[1] *= np.float32(reach)
        return tuple(arrays if biased else arrays[:-1])

    return build


def without_mask(build):
    def unmodulated(rng):
        input, offset, _, weight, _ = build(rng)
        return input, offset, weight

    return unmodulated


def offsets_among(values, build):
    """Return the builder with offsets drawn from a few values."""

    def chosen(rng):
        input, offset, *rest = build(rng)
        return input, rng.choice(np.float32(values), offset.shape), *rest

    return chosen


def add_convolutions(name, build, tolerance="fused", **attributes):
    add("deform_conv2d", name, without_mask(build), tolerance, **attributes)
    add("modulated_deform_conv2d", name, build, tolerance, **attributes)


for name, shape, outputs, options in (
    ("ordinary", (1, 4, 6, 7), 5, {}),
    ("smaller", (1, 3, 4, 5), 2, {}),
    ("larger", (2, 5, 9, 8), 3, {}),
    ("padded", (2, 3, 6, 7), 5, {"padding": 1}),
    ("asymmetric", (1, 2, 9, 8), 3, {"stride": (2, 1), "padding": (2, 0), "dilation": (1, 2)}),
    ("strided", (1, 2, 10, 11), 3, {"stride": 3, "padding": 2}),
    ("dilated", (1, 2, 7, 7), 3, {"dilation": 2, "padding": 2}),
    ("groups2", (1, 6, 5, 6), 4, {"groups": 2}),
    ("depthwise", (1, 6, 5, 6), 6, {"groups": 6}),
    ("deform_groups2", (2, 6, 5, 6), 4, {"deform_groups": 2}),
    ("groups2_deform_groups3", (2, 6, 5, 6), 4, {"groups": 2, "deform_groups": 3}),
    ("groups3_deform_groups6", (1, 6, 5, 6), 3, {"groups": 3, "deform_groups": 6}),
    ("groups2_deform_groups2", (1, 8, 5, 6), 4, {"groups": 2, "deform_groups": 2, "padding": 1}),
    ("does_not_fit", (1, 2, 2, 5), 3, {}),
    ("does_not_fit_at_all", (1, 2, 1, 1), 3, {"stride": 2}),
    ("no_images", (0, 2, 5, 6), 3, {}),
    ("no_channels", (1, 0, 5, 6), 3, {}),
    ("no_pixels", (1, 2, 0, 6), 3, {"padding": 2}),
    ("no_outputs", (1, 2, 5, 6), 0, {}),
    ("many", (1, 33, 30, 41), 19, {"padding": 1}),
    ("several_blocks_and_panels", (1, 70, 3, 4), 35, {"padding": 1}),
    ("blocks_of_several_groups", (1, 72, 3, 4), 36, {"groups": 12, "deform_groups": 2, "padding": 1}),
):
    add_convolutions(name, deformed(shape, outputs, **options), **options)
for n in SIZES:
    add_convolutions(f"c{n}", deformed((1, n, 4, 5), 2))
    add_convolutions(f"w{n}", deformed((1, 2, 3, n), 2, padding=1), padding=1)
    add_convolutions(f"h{n}", deformed((1, 2, n, 3), 2, padding=1), padding=1)
    add_convolutions(f"o{n}", deformed((1, 2, 4, 5), n))
for kernel in ((1, 1), (1, 4), (2, 2), (5, 3), (8, 8), (9, 9)):
    tolerance = "close" if kernel == (9, 9) else "fused"  # beyond 64 taps the order of summation differs
    add_convolutions(f"k{kernel[0]}x{kernel[1]}", deformed((1, 3, 11, 12), 3, kernel, padding=2), tolerance, padding=2)
PADDED = deformed((1, 3, 5, 6), 4, padding=1)
for name, build in (
    ("far", deformed((1, 3, 5, 6), 4, reach=30, padding=1)),
    ("whole_pixels", offsets_among([-2, -1, 0, 1, 2], PADDED)),
    ("border", offsets_among([-1, 5, 6, -6, 0.5, np.nextafter(np.float32(1), 0)], PADDED)),
    ("not_finite", offsets_among([NAN, INF, -INF, 0.5, 1e10, -3e38], PADDED)),
    ("holes", with_holes(PADDED)),
    ("border_holes", with_holes(offsets_among([-1, 5, 6, 0.5, 0], PADDED))),
):
    add_convolutions(name, build, padding=1)
add("modulated_deform_conv2d", "no_bias", deformed((1, 4, 6, 7), 5, biased=False), "fused")
add("modulated_deform_conv2d", "no_bias_strided", deformed((2, 4, 6, 7), 5, biased=False, stride=2), "fused", stride=2)
add("modulated_deform_conv2d", "mask_not_finite",
    lambda rng: tuple(np.where(rng.random(a.shape) < 0.05, NAN, a).astype(a.dtype) if i == 2 else a
                      for i, a in enumerate(PADDED(rng))), "fused", padding=1)  # fmt: skip

# ---- refusals --------------------------------------------------------------------------------------------------------

for operator, extra in (("deform_conv2d", ()), ("modulated_deform_conv2d", (zeros(1, 9, 4, 5),))):
    fits = {"input": zeros(1, 4, 6, 7), "offset": zeros(1, 18, 4, 5)}
    fits |= (
        dict(zip(("mask",), extra, strict=False))
        | {"weight": zeros(5, 4, 3, 3)}
        | ({"bias": zeros(5)} if extra else {})
    )

    def refuse_with(text, operator=operator, fits=fits, attributes=(), **changed):
        refuse(operator, text, *(fits | changed).values(), **dict(attributes))

    for shape in ((4, 6, 7), (1, 1, 4, 6, 7), ()):
        refuse_with(f"input must be [N, C, H, W], got {list(shape)}", input=zeros(*shape))
    for shape in ((5, 4, 3), (1, 5, 4, 3, 3)):
        refuse_with(f"weight must be [O, C/groups, KH, KW], got {list(shape)}", weight=zeros(*shape))
    for shape in ((5, 3, 3, 3), (5, 5, 3, 3), (5, 4, 0, 3), (5, 4, 3, 0)):
        text = f"weight must be [O, 4, KH, KW] with KH and KW at least 1, got {list(shape)}"
        refuse_with(text, weight=zeros(*shape))
    for shape in ((18, 4, 5), (1, 1, 18, 4, 5)):
        text = f"offset must be [N, deform_groups*2*KH*KW, OH, OW], got {list(shape)}"
        refuse_with(text, offset=zeros(*shape))
    for shape in (
        (2, 18, 4, 5),
        (0, 18, 4, 5),
        (1, 9, 4, 5),
        (1, 36, 4, 5),
        (1, 18, 3, 5),
        (1, 18, 4, 6),
        (1, 18, 0, 5),
    ):
        refuse_with(f"offset must be [1, 18, 4, 5], got {list(shape)}", offset=zeros(*shape))
    refuse_with("offset must be [1, 18, 0, 0], got [1, 18, 4, 5]", input=zeros(1, 4, 2, 1))
    if extra:
        refuse_with("mask must be [N, deform_groups*KH*KW, OH, OW], got [9, 4, 5]", mask=zeros(9, 4, 5))
        for shape in ((2, 9, 4, 5), (1, 8, 4, 5), (1, 18, 4, 5), (1, 9, 5, 5), (1, 9, 4, 4)):
            refuse_with(f"mask must be [1, 9, 4, 5], got {list(shape)}", mask=zeros(*shape))
        for shape in ((4,), (6,), (0,)):
            refuse_with(f"bias must be [O] with O = 5, got {list(shape)}", bias=zeros(*shape))
        refuse_with("bias must be [O], got [5, 1]", bias=zeros(5, 1))
    for name, low in (("stride", 1), ("padding", 0), ("dilation", 1)):
        for value in ((low - 1, 2), (2, low - 1), (-(2**63), 2), (2, 2**29 + 1), (2**63 - 1, 2)):
            text = f"{name} must be between {low} and 2**29, got {list(value)}"
            refuse_with(text, attributes={name: value}.items())
    for name in ("groups", "deform_groups"):
        for value in (0, -1, -(2**63)):
            refuse_with(f"{name} must be at least 1, got {value}", attributes={name: value}.items())
    for value in (2, 3, 5, 2**62):
        text = f"groups must divide the channels of input and output, 4 and 5, got {value}"
        refuse_with(text, attributes={"groups": value}.items())
    for value in (3, 5, 8, 2**62):
        text = f"deform_groups must divide the channels of input, 4, got {value}"
        refuse_with(text, attributes={"deform_groups": value}.items())

"""carafe."""

import numpy as np

from tests.operators.case import INF, NAN, SIZES, add, oracle, refuse, zeros


@oracle
def carafe(features, masks, kernel_size, group_size, scale_factor):
    """Add shifted maps, by row and column of the neighbourhood."""
    images, channels, height, width = features.shape
    radius = kernel_size // 2
    padded = np.pad(features, ((0, 0), (0, 0), (radius, radius), (radius, radius)))
    weights = masks.reshape(images, group_size, 1, kernel_size, kernel_size, *masks.shape[2:])
    output = np.zeros((images, group_size, channels // group_size, *masks.shape[2:]), features.dtype)
    with np.errstate(all="ignore"):
        for row, column in np.ndindex(kernel_size, kernel_size):
            shifted = padded[:, :, row : row + height, column : column + width]
            shifted = shifted.repeat(scale_factor, axis=2).repeat(scale_factor, axis=3)
            output += weights[:, :, :, row, column] * shifted.reshape(output.shape)
    return (output.reshape(images, channels, *masks.shape[2:]),)


def maps(images, channels, height, width, kernel_size=3, groups=1, factor=2, strange=False):
    """Return a builder of features and masks."""

    def build(rng):
        features = rng.standard_normal((images, channels, height, width)).astype(np.float32)
        shape = images, groups * kernel_size**2, height * factor, width * factor
        masks = rng.standard_normal(shape).astype(np.float32)
        if strange:
            for array in (features, masks):
                array[rng.random(array.shape) < 0.05] = NAN
                array[rng.random(array.shape) < 0.05] = INF
        return features, masks

    return build


def adding(name, *shape, kernel_size=3, groups=1, factor=2, strange=False):
    """Add a case."""
    build = maps(*shape, kernel_size, groups, factor, strange)
    add("carafe", name, build, kernel_size=kernel_size, group_size=groups, scale_factor=factor)


for n in SIZES:
    adding(f"width{n}", 1, 2, 3, n)
    adding(f"height{n}", 2, 2, n, 3, kernel_size=5)
for kernel_size in (1, 3, 5):
    for groups, factor in ((1, 1), (2, 2), (3, 3)):
        adding(f"kernel{kernel_size}_groups{groups}_factor{factor}", 2, 6, 4, 5, kernel_size=kernel_size,
               groups=groups, factor=factor)  # fmt: skip
adding("strange", 2, 4, 9, 11, groups=2, strange=True)
adding("no_images", 0, 4, 3, 3)
adding("no_channels", 2, 0, 3, 3)
adding("many", 2, 16, 40, 41, kernel_size=5, groups=4)

X = zeros(1, 4, 2, 3)
for kernel_size in (0, 2, -1, 65, 2**62):
    text = f"kernel_size must be odd and from 1 to 63, got {kernel_size}"
    refuse("carafe", text, X, zeros(1, 9, 4, 6), kernel_size=kernel_size, group_size=1, scale_factor=2)
for groups in (0, -1, 3, 2**62):
    text = f"group_size must divide C = 4, got {groups}"
    refuse("carafe", text, X, zeros(1, 9, 4, 6), kernel_size=3, group_size=groups, scale_factor=2)
for factor in (0, -2, 2**62):
    text = f"scale_factor must be from 1 to 65536, got {factor}"
    refuse("carafe", text, X, zeros(1, 9, 4, 6), kernel_size=3, group_size=1, scale_factor=factor)
for shape in ((1, 18, 4, 6), (1, 8, 4, 6), (1, 9, 5, 6), (1, 9, 4, 3), (1, 9, 4, 7)):
    text = (
        "masks must be [N, group_size*kernel_size**2, H*scale_factor, W*scale_factor], got "
        f"{list(shape)} for features [1, 4, 2, 3]"
    )
    refuse("carafe", text, X, zeros(*shape), kernel_size=3, group_size=1, scale_factor=2)
refuse("carafe", "features must be [N, C, H, W], got [4]", zeros(4), zeros(1, 9, 4, 6), kernel_size=3, group_size=1,
       scale_factor=2)  # fmt: skip
refuse("carafe", "masks must be [N, M, OH, OW] with N = 1, got [2, 9, 4, 6]", X, zeros(2, 9, 4, 6), kernel_size=3,
       group_size=1, scale_factor=2)  # fmt: skip

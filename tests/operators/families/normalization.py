"""group_norm."""

import numpy as np

from tests.operators.case import INF, NAN, SIZES, add, oracle, refuse, zeros
from tests.operators.families.scan import holes

# ---- oracles ---------------------------------------------------------------------------------------------------------


@oracle
def group_norm(x, num_groups, scale, bias, eps=1e-5):
    """Compute in float64, whatever the dtype."""
    if not x.size:
        return (x.copy(),)
    each = (-1,) + (1,) * (x.ndim - 2)
    groups = x.astype(np.float64).reshape(len(x), num_groups, -1)
    with np.errstate(all="ignore"):
        differences = groups - groups.mean(axis=2, keepdims=True)
        variance = (differences**2).mean(axis=2, keepdims=True)
        normal = (differences / np.sqrt(variance + x.dtype.type(eps))).reshape(x.shape)
        return ((normal * scale.reshape(each) + bias.reshape(each)).astype(x.dtype),)


# ---- cases -----------------------------------------------------------------------------------------------------------


def normalized(*shape, make=lambda rng, shape: rng.standard_normal(shape)):
    """Return a builder of an input, scale and bias."""

    def build(rng):
        parameters = rng.uniform(-2, 2, (2, shape[1]))
        return tuple(array.astype(np.float32) for array in (make(rng, shape), *parameters))

    return build


STRANGE_INPUTS = {
    "constant": lambda rng, shape: np.full(shape, 0.3),
    "far_from_zero": lambda rng, shape: 100 + rng.standard_normal(shape),
    "huge": lambda rng, shape: 1e37 * rng.standard_normal(shape),
    "tiny": lambda rng, shape: 1e-30 * rng.standard_normal(shape),
    "outlier": lambda rng, shape: np.where(rng.random(shape) < 0.02, 1e6, rng.standard_normal(shape)),
    "holes": lambda rng, shape: holes(*shape)(rng)[0],
}

for n in SIZES:
    add("group_norm", f"pixels{n}", normalized(2, 6, n), "close", num_groups=1)
    add("group_norm", f"channels{n}", normalized(2, n, 3, 5), "close", num_groups=max(n, 1))
    add("group_norm", f"images{n}", normalized(n, 6, 2, 3), "close", num_groups=2)
for num_groups in (1, 2, 3, 4, 6, 12):
    add("group_norm", f"groups{num_groups}", normalized(2, 12, 5, 7), "close", num_groups=num_groups)
    for name, make in STRANGE_INPUTS.items():
        add("group_norm", f"{name}_groups{num_groups}", normalized(2, 12, 9, 11, make=make), "close",
            num_groups=num_groups)  # fmt: skip
for eps in (0, 1e-12, 1.0, 1e30):
    add("group_norm", f"eps{eps}", normalized(2, 4, 5, 6), "close", num_groups=2, eps=eps)
add("group_norm", "constant_eps0", normalized(1, 4, 9, make=STRANGE_INPUTS["constant"]), "close", num_groups=2, eps=0)
add("group_norm", "no_pixels", normalized(2, 4, 3, 0), "close", num_groups=2)
add("group_norm", "no_channels", normalized(2, 0, 3, 4), "close", num_groups=5)
add("group_norm", "two_dimensions", normalized(9, 32), "close", num_groups=4)
add("group_norm", "max_dimensions", normalized(2, 4, *(1,) * 13, 3), "close", num_groups=2)
add("group_norm", "many", normalized(3, 64, 40, 41), "close", num_groups=32)

# ---- refusals --------------------------------------------------------------------------------------------------------

CHANNELS = zeros(4)
refuse("group_norm", "x must be [N, C, ...], got [4]", CHANNELS, CHANNELS, CHANNELS, num_groups=2)
for scale, bias, text in (
    (zeros(3), CHANNELS, "scale must be [C] with C = 4, got [3]"),
    (zeros(1, 4), CHANNELS, "scale must be [C], got [1, 4]"),
    (CHANNELS, zeros(5), "bias must be [C] with C = 4, got [5]"),
    (CHANNELS, zeros(), "bias must be [C], got []"),
):
    refuse("group_norm", text, zeros(2, 4, 5), scale, bias, num_groups=2)
for num_groups in (0, -1, -(2**63)):
    text = f"num_groups must be at least 1, got {num_groups}"
    refuse("group_norm", text, zeros(2, 4, 5), CHANNELS, CHANNELS, num_groups=num_groups)
    refuse("group_norm", text, zeros(2, 0, 5), zeros(0), zeros(0), num_groups=num_groups)
for num_groups in (3, 8, 2**62):
    text = f"num_groups must divide C = 4, got {num_groups}"
    refuse("group_norm", text, zeros(2, 4, 5), CHANNELS, CHANNELS, num_groups=num_groups)
for eps in (-1.0, NAN, INF, -INF):
    text = f"epsilon must be finite and at least 0, got {eps:g}"
    refuse("group_norm", text, zeros(2, 4, 5), CHANNELS, CHANNELS, num_groups=2, eps=eps)

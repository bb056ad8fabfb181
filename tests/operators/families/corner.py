"""corner_pool."""

import numpy as np

from tests.operators.case import SIZES, add, oracle, refuse, zeros
from tests.operators.families.scan import holes, tensor

# ---- oracles ---------------------------------------------------------------------------------------------------------


@oracle
def corner_pool(input, mode):
    output = input.copy()
    lines = np.moveaxis(output, {"top": 2, "bottom": 2, "left": 3, "right": 3}[mode], 0)
    if mode in ("top", "left"):
        lines = lines[::-1]
    for i in range(1, len(lines)):
        before, here = lines[i - 1], lines[i]
        lines[i] = np.where((before < here) | (here != here), here, before)
    return (output,)


# ---- cases -----------------------------------------------------------------------------------------------------------

for mode in ("top", "bottom", "left", "right"):
    for n in SIZES:
        add("corner_pool", f"w{n}_{mode}", tensor(1, 2, 3, n), mode=mode)
        add("corner_pool", f"h{n}_{mode}", tensor(2, 1, n, 3), mode=mode)
        add("corner_pool", f"c{n}_{mode}", tensor(1, n, 4, 5), mode=mode)
    add("corner_pool", f"no_images_{mode}", tensor(0, 2, 3, 4), mode=mode)
    add("corner_pool", f"ties_{mode}", tensor(2, 3, 9, 11, levels=2), mode=mode)
    add("corner_pool", f"holes_{mode}", holes(2, 3, 9, 17), mode=mode)
    add("corner_pool", f"many_{mode}", tensor(2, 33, 64, 65), mode=mode)

# ---- refusals --------------------------------------------------------------------------------------------------------

refuse("corner_pool", "input must be [N, C, H, W], got [3, 4, 5]", zeros(3, 4, 5), mode="top")
refuse("corner_pool", "input must be [N, C, H, W], got [1, 1, 1, 4, 5]", zeros(1, 1, 1, 4, 5), mode="left")
refuse("corner_pool", "input must be [N, C, H, W], got []", zeros(), mode="left")

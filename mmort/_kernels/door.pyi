from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def operators() -> tuple[str, ...]: ...
def simd_level() -> str: ...
def call(
    operator: str, inputs: tuple[NDArray[np.generic] | None, ...], attributes: tuple[int | float, ...]
) -> tuple[NDArray[np.generic], ...]: ...

"""Random valid calls of an operator: numpy gives what the naive oracle gives, torch and ONNX Runtime numpy's bits.

python -m tests.fuzz.agreement [OPERATOR ...] --count 1000 [--seconds S] [--seed N]: the count is that of each operator.
"""

import argparse
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mmort.torch
from mmort.torch.operators import OPERATORS
from tests import front_ends
from tests.compare import assert_close, assert_same
from tests.fuzz import children
from tests.fuzz.valid import VALID, Call, make_call
from tests.operators import cases

CLOSE = {case.operator for case in cases.CASES if case.tolerance != "exact"}
"""Operators that sum in another order than their oracle, or may fuse multiplication and addition."""


def to_arrays(result: Any) -> tuple[np.ndarray, ...]:
    """Return the result of a function of tensors as arrays."""
    return tuple(tensor.numpy() for tensor in ([result] if isinstance(result, torch.Tensor) else result))


def run_torch(call: Call) -> tuple[np.ndarray, ...] | None:
    """Return what the torch API gives; None if it has no such function on the same kernels."""
    function = OPERATORS.get(call.operator) or getattr(mmort.torch, call.operator, None)
    if function is None or not hasattr(mmort, call.operator):
        return None
    names = front_ends.array_names(getattr(mmort, call.operator), call.arrays, call.attributes)
    tensors = (torch.from_numpy(array.copy()) for array in call.arrays)
    return to_arrays(function(**dict(zip(names, tensors, strict=True)), **call.attributes))


def compare(call: Call) -> None:
    """Run a call through all front ends."""
    results = front_ends.run_numpy(call.operator, call.arrays, call.attributes)
    with np.errstate(all="ignore"):
        wanted = front_ends.run_oracle(call.operator, call.arrays, call.attributes)
    (assert_close if call.operator in CLOSE else assert_same)(results, wanted, call.operator)
    row = front_ends.row_of(call.operator)
    if row is not None and call.arrays[0].dtype == np.float32:
        got = front_ends.run_ort(call.operator, call.arrays, call.attributes)
        assert_same(got, front_ends.node_outputs(call.operator, results), f"{call.operator} in ONNX Runtime:")
    if (tensors := run_torch(call)) is not None:
        assert_same(tensors, results[-len(tensors) :], f"{call.operator} in torch:")


def fuzzer_of(operator: str) -> children.Fuzzer:
    """Return the random calls of an operator, a fifth of them in float64."""

    def make(rng: random.Random, folder: Path) -> Call:
        call = make_call(operator, np.random.default_rng(rng.getrandbits(64)))
        if rng.random() < 0.2:
            arrays = tuple(array.astype(np.float64) if array.dtype == np.float32 else array for array in call.arrays)
            return Call(operator, arrays, call.attributes)
        return call

    return children.Fuzzer(f"agreement {operator}", make, compare, refusals=(), batch=250)


def main() -> int:
    parser = children.parser("Random valid calls, compared with naive oracles through all front ends.")
    parser.add_argument("operators", nargs="*", default=sorted(VALID), metavar="OPERATOR")
    options = parser.parse_args()
    torch.set_num_threads(1)
    OPERATORS["cummax"](torch.zeros(1), 0)  # the first call imports much, which the children then need not
    seconds = options.seconds / len(options.operators)
    names = vars(options) | {"seconds": seconds}
    return max(children.main(fuzzer_of(operator), argparse.Namespace(**names)) for operator in options.operators)


if __name__ == "__main__":
    sys.exit(main())

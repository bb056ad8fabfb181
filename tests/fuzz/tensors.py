"""Random calls of the torch API, hostile in shapes, dtypes, layouts, kinds of tensors, numbers and attributes.

python -m tests.fuzz.tensors --seconds 60 [--seed N] [--count N]

A call gives results or is refused with ValueError, TypeError, MemoryError, or RuntimeError (where torch itself checks
the types of arguments), within 2 seconds and 500 MB; it leaves its inputs as they are.
"""

import random
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mmort.torch
from mmort.torch.operators import OPERATORS
from tests import front_ends
from tests.fuzz import hostile
from tests.fuzz.children import Fuzzer, main
from tests.fuzz.valid import VALID, make_call

FUNCTIONS = {name: getattr(mmort.torch, name, None) or OPERATORS.get(name) for name in sorted(VALID)}
NAMES = [name for name, function in FUNCTIONS.items() if function is not None]
DTYPES = (torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.int64, torch.bool, torch.uint8)


def tensor(rng: random.Random, like: np.ndarray) -> Any:
    """Return a tensor in which something differs from the valid array."""
    changed = hostile.array(rng, like)
    if not isinstance(changed, np.ndarray):
        return changed if rng.random() < 0.1 else torch.from_numpy(like.copy())
    try:
        made = torch.from_numpy(np.array(changed))
    except (TypeError, ValueError):  # a dtype or byte order that torch has not
        made = torch.from_numpy(like.copy())
    kind = rng.randrange(12)
    if kind == 0 and not made.is_complex():
        return made.to(rng.choice(DTYPES))
    if kind == 1 and made.is_floating_point():
        return made.requires_grad_()
    if kind == 2:
        return made.transpose(0, -1) if made.ndim else made
    if kind == 3 and made.numel():
        return made.reshape(-1)[:1].expand(made.shape) if made.ndim else made
    if kind == 4 and made.dtype == torch.float32:
        return made.to_sparse()
    if kind == 5:
        return made.to("meta")
    if kind == 6 and made.is_floating_point():
        return torch.nn.Parameter(made)
    if kind == 7 and made.is_floating_point():
        return torch.complex(made.double(), made.double()).imag
    return made


def make(rng: random.Random, folder: Path) -> tuple[str, dict[str, Any]]:
    """Return an operator and arguments, of which one or several are hostile."""
    operator = rng.choice(NAMES)
    call = make_call(operator, np.random.default_rng(rng.getrandbits(64)))
    names = front_ends.array_names(getattr(mmort, operator), call.arrays, call.attributes)
    change = rng.choice((0.1, 0.3, 1.0))
    arguments: dict[str, Any] = {}
    for name, array in zip(names, call.arrays, strict=True):
        arguments[name] = tensor(rng, array) if rng.random() < change else torch.from_numpy(array.copy())
    for name, value in call.attributes.items():
        arguments[name] = hostile.attribute(rng, value) if rng.random() < change else value
    if rng.random() < 0.05:
        del arguments[rng.choice(list(arguments))]
    return operator, arguments


def run(case: tuple[str, dict[str, Any]]) -> None:
    """Call the function, and its gradient if one is asked for."""
    operator, arguments = case
    plain = {name: value for name, value in arguments.items() if _has_memory(value)}
    before = {name: value.detach().clone() for name, value in plain.items()}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            results = FUNCTIONS[operator](**arguments)
        finally:
            for name, copied in before.items():
                same = torch.equal(plain[name].nan_to_num(7), copied.nan_to_num(7))
                assert same, f"{operator}: {name} was changed"
        for result in [results] if isinstance(results, torch.Tensor) else results:
            if _has_memory(result):
                result.sum()
                if result.requires_grad:
                    result.sum().backward(retain_graph=True)


def _has_memory(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type == "cpu"


if __name__ == "__main__":
    torch.set_num_threads(1)
    OPERATORS["cummax"](torch.zeros(1), 0)  # the first call imports much, which the children then need not
    sys.exit(main(Fuzzer("torch calls", make, run, (ValueError, TypeError, MemoryError, RuntimeError), 250)))

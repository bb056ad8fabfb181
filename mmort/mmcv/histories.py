"""The histories in checkpoints of MMEngine, allowed in torch's safe loading."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

STATISTICS = ("current", "max", "mean", "min")  # methods of a history that its file names


def allow_histories() -> None:
    """Let ``torch.load(..., weights_only=True)``, its default, read the histories that MMEngine saves beside weights.

    They are arrays and numbers of numpy in a class of MMEngine, and names of four of its methods; nothing else is
    allowed.  Without MMEngine nothing is changed.
    """
    try:
        from mmengine.logging import HistoryBuffer
    except ModuleNotFoundError as error:
        if error.name != "mmengine":
            raise
        return

    def attribute(owner: object, name: str) -> Any:
        if owner is not HistoryBuffer or name not in STATISTICS:
            raise pickle.UnpicklingError(f"getattr({owner!r}, {name!r}) is not allowed in a checkpoint")
        return getattr(owner, name)

    reconstruct, scalar = np.empty(0).__reduce__()[0], np.float64(0).__reduce__()[0]
    functions: list[tuple[Callable[..., Any], str]] = [(attribute, "builtins.getattr")]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):  # before numpy 2, and since
        functions += [(reconstruct, f"{module}._reconstruct"), (scalar, f"{module}.scalar")]  # type: ignore[list-item]
    dtypes = {type(np.dtype(code)) for code in np.typecodes["AllInteger"] + np.typecodes["Float"] + "?"}
    torch.serialization.add_safe_globals([HistoryBuffer, np.ndarray, np.dtype, *dtypes, *functions])

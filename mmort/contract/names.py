"""The names of classes as callers pass them: a sequence of texts, but not one text, whose letters would be names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


def as_names(function: str, names: Iterable[Any]) -> tuple[str, ...]:
    """Return names as a tuple.

    Raises
    ------
    TypeError
        If `names` is one text, or one of them is none.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.contract.names import as_names
    >>> as_names("Predictor", np.array(["cat", "dog"]))
    ('cat', 'dog')
    """
    named = () if isinstance(names, str) else tuple(names.tolist() if isinstance(names, np.ndarray) else names)
    if isinstance(names, str) or not all(isinstance(name, str) for name in named):
        raise TypeError(f"{function}: classes must be a sequence of names, such as ['cat', 'dog'], got {names!r:.80}")
    return named

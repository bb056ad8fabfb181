"""Pictures as inputs of a detector's file, preprocessed as its metadata says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from numpy.typing import NDArray


def prepared(model: str, pictures: Iterable[Any], *, option: str) -> Iterator[list[NDArray[Any]]]:
    """Yield a set of inputs for each picture; `option` is how the command gets inputs of files without metadata."""
    from mmort.predict.network import OnnxNetwork
    from mmort.predict.predictor import fit

    network = OnnxNetwork(model)
    prepare = network.preprocessing
    if prepare is None:
        raise ValueError(f"{model} has no preprocessing in its metadata, which pictures need; {option}")
    optional = *network.session.get_inputs(), *network.session.get_overridable_initializers()
    count = 2 if any(formal.name == "img_shape" for formal in optional) else 1
    for picture in pictures:
        yield list(fit(*prepare.batch([prepare(picture)]), network.input_shape)[:count])

"""Files as inputs of a model: pictures, preprocessed as the model's metadata says, and arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray


def inputs_of(model: str, files: Iterable[str | Path]) -> Iterator[list[NDArray[Any]]]:
    """Yield a set of inputs for each file: an ``.npz`` file of arrays by the names of the inputs, or a picture."""
    from mmort.onnx.verify.command import read_inputs

    given = [Path(file) for file in files]
    pictures = [file for file in given if file.suffix != ".npz"]
    for file in given:
        if file.suffix == ".npz":
            yield read_inputs(model, file)
    if pictures:
        yield from prepared(model, pictures, option="pass arrays in .npz files")


def prepared(
    model: str, pictures: Iterable[str | Path], *, option: str, against: Sequence[str] = ()
) -> Iterator[list[NDArray[Any]]]:
    """Yield a set of inputs for each picture; `option` is how the command gets inputs of files without metadata.

    The sizes of images are left out if the model, or one of those that it is compared `against`, does not take them.
    """
    from mmort.onnx.verify.sessions import open_session
    from mmort.predict.engines.onnxruntime import ADVICE, OnnxNetwork, takes_img_shape
    from mmort.predict.fixed_size import fit

    network = OnnxNetwork(model)
    prepare = network.preprocessing
    if prepare is None:
        raise ValueError(f"{model} has no preprocessing in its metadata, which pictures need; {option}; {ADVICE}")
    sessions = [network.session, *map(open_session, against)]
    count = 2 if all(map(takes_img_shape, sessions)) else 1
    for picture in pictures:
        yield list(fit(*prepare.batch([prepare(picture)]), network.input_shape)[:count])

"""Files as inputs of a model: images, preprocessed as the model's metadata says, and arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort._files.inputs import open_regular
from mmort.limits import MAX_BYTE_EXPANSION, MAX_EXPANDED_BYTES
from mmort.onnx._extras import needed_by


def read_inputs(
    path: str | os.PathLike[str],
    files: Iterable[str | os.PathLike[str]],
    *,
    against: Sequence[str | os.PathLike[str]] = (),
    libraries: Sequence[str | os.PathLike[str]] = (),
) -> Iterator[list[NDArray[Any]]]:
    """Read sets of inputs of a model, one from each file, as `verify`, `accelerate` and `quantize` take them.

    Parameters
    ----------
    path : path
        The ONNX file of the model.
    files : iterable of paths
        ``.npz`` files of arrays by the names of the inputs, and images, which are preprocessed as the metadata of the
        model says: an image is one box of a file of poses, and of windows the one in the middle is taken.
    against : sequence of paths, optional
        Models that the model is compared with: if one of them does not take the sizes of images, they are left out.
    libraries : sequence of paths, optional
        Libraries of custom operators that the files need beside mmort's.

    Yields
    ------
    list of ndarray
        A set of inputs, in the order of the model's inputs.  A file is read when its set is asked for.

    Raises
    ------
    ValueError
        If there are images, but the model has no preprocessing in its metadata, or inputs for words, or arrays do not
        match the inputs or have no names, as in a ``.npy`` file.
    OSError
        If a file cannot be read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, onnx.helper as oh
    >>> import mmort.onnx
    >>> x, y = (oh.make_tensor_value_info(name, 1, ["n"]) for name in "xy")
    >>> model = oh.make_model(oh.make_graph([oh.make_node("Relu", ["x"], ["y"])], "example", [x], [y]),
    ...                       opset_imports=[oh.make_opsetid("", 18)], ir_version=8)
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "relu.onnx").write_bytes(model.SerializeToString())
    >>> np.savez(folder / "inputs.npz", x=np.float32([-1, 2]))
    >>> list(mmort.onnx.read_inputs(folder / "relu.onnx", [folder / "inputs.npz"]))
    [[array([-1.,  2.], dtype=float32)]]
    """
    prepare = None
    for file in files:
        if Path(file).suffix == ".npy":
            raise ValueError(f"an .npz file has the names of the inputs, got {file}: numpy.savez writes one")
        if Path(file).suffix == ".npz":
            yield _read_arrays(path, file, libraries)
        else:
            prepare = prepare or _image_reader(path, against, libraries)
            yield prepare(file)


def _read_arrays(
    path: str | os.PathLike[str], file: str | os.PathLike[str], libraries: Sequence[str | os.PathLike[str]] = ()
) -> list[NDArray[Any]]:
    """Read a set of inputs of a model from an ``.npz`` file that has an array for each input, by its name.

    Raises
    ------
    ValueError
        If an input is missing, an array is no input, or the file is not an ``.npz`` file of numbers, or some bytes that
        become gigabytes.
    """
    with needed_by("mmort.onnx.read_inputs"):
        from mmort.onnx.verify.sessions import open_session

    session = open_session(path, libraries)
    needed = [tensor.name for tensor in session.get_inputs()]
    optional = [tensor.name for tensor in session.get_overridable_initializers()]
    try:
        with open_regular("inputs", file) as content, np.load(content, allow_pickle=False) as arrays:
            size = sum(member.file_size for member in arrays.zip.infolist())
            is_bomb = size > max(MAX_EXPANDED_BYTES, MAX_BYTE_EXPANSION * os.fstat(content.fileno()).st_size)
            by_name = {} if is_bomb else {name: arrays[name] for name in arrays.files}
            if not all(isinstance(array, np.ndarray) for array in by_name.values()):
                raise ValueError("a member is no array")
    except (MemoryError, OSError):
        raise
    except Exception:  # of numpy, zipfile and its decompressors: an .npy file, objects, another file, a damaged one
        raise ValueError(f"inputs must be an .npz file of numbers, got {os.fspath(file)}") from None
    if is_bomb:
        raise ValueError(
            f"arrays of {size} bytes must not be compressed to less than a tenth; write them with np.savez, "
            f"got {os.fspath(file)}"
        )
    names = [name for name in needed + optional if name in by_name]
    if set(names) != set(by_name) or not set(needed) <= set(by_name):
        raise ValueError(f"{os.fspath(file)} must have arrays {', '.join(needed)}, got {', '.join(by_name)}")
    return [by_name[name] for name in names]


def _image_reader(
    path: str | os.PathLike[str],
    against: Sequence[str | os.PathLike[str]],
    libraries: Sequence[str | os.PathLike[str]],
) -> Callable[[str | os.PathLike[str]], list[NDArray[Any]]]:
    """Return a function that reads an image as a set of a model's inputs."""
    from mmort.contract import POSE, Interface, SegmentationFormat
    from mmort.contract.detector import takes_img_shape
    from mmort.images import read_image
    from mmort.onnx.verify.sessions import open_session
    from mmort.predict.engines.network import ADVICE_WITH_CONFIG, task_of
    from mmort.predict.engines.onnxruntime import OnnxRuntime
    from mmort.predict.fixed_size import fit
    from mmort.predict.poses import PosePredictor

    network = OnnxRuntime(path)
    preprocessing = network.preprocessing
    if preprocessing is None:
        raise ValueError(
            f"{os.fspath(path)} has no preprocessing in its metadata, which images need; {ADVICE_WITH_CONFIG}; "
            "or pass arrays in .npz files"
        )
    if network.takes_texts:
        raise ValueError(
            f"{os.fspath(path)} has inputs for words, which images do not fill; pass arrays in .npz files, or a file "
            "that was exported with --texts"
        )
    segmentation = network.contract.metadata.segmentation or SegmentationFormat()
    poses = PosePredictor(network) if task_of(network) is POSE else None
    interfaces = [Interface.of_session(open_session(file, libraries)) for file in against]
    count = 2 if network.contract.takes_img_shape and all(map(takes_img_shape, interfaces)) else 1

    def read(file: str | os.PathLike[str]) -> list[NDArray[Any]]:
        if poses is None:
            prepared = preprocessing(file)
        else:
            pixels = read_image(file)
            ((_, prepared),) = poses.crops(pixels, [[0, 0, *pixels.shape[1::-1]]])
        input, img_shape = preprocessing.batch([prepared])
        windows = segmentation.windows(*input.shape[:1:-1])
        left, top, right, bottom = windows[len(windows) // 2]
        window = np.ascontiguousarray(input[:, :, top:bottom, left:right])
        return list(fit(window, img_shape, network.input_shape)[:count])

    return read

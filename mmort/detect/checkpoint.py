"""Read MMDetection's checkpoints without running code that they may hold, and load their weights strictly.

What a family needs here its modules declare: ``renamed_keys`` (see `Detector`); ``converted_keys``, the same with a
function of the weights after each replacement; ``unused_keys``, regular expressions of the keys of weights that are not
read; and ``class_layers``, the names of layers whose rows are classes, each with the number of its rows that belong to
no class.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterable, Iterator
from textwrap import shorten
from typing import Any, BinaryIO
from zipfile import ZipFile

import torch
from torch import Tensor, nn

from mmort._files.inputs import open_regular
from mmort.configs.layout import DetectorConfig

MAX_LISTED = 10
"""Maximum number of keys of each kind that an error lists."""


def load_checkpoint(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the weights and the metadata of a checkpoint.

    The other content of MMEngine's files (the training's history, the optimiser's state) is skipped, and needs none of
    its packages.  No code from the file runs: a file that asks for other objects than these is refused.

    Parameters
    ----------
    path : path
        A ``.pth`` file of MMDetection 2.x or 3.x, or any ``torch.save`` of a state dict.

    Returns
    -------
    weights : dict of str to Tensor
        On the CPU, in the file's own dtypes, which `load_weights` converts.  The prefix ``module.`` is dropped, and so
        are the copies ``ema_...`` that MMDetection 2's averaging hook keeps.
    meta : dict
        The checkpoint's ``meta``; its ``classes`` are a tuple of str, if the file has them.

    Raises
    ------
    ValueError
        If the file is not a checkpoint, is cut short, or holds code; if a key is not text or occurs twice, a tensor is
        not dense, or the classes are not names.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> import torch
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from mmort.detect.checkpoint import load_checkpoint
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "model.pth")
    ...     torch.save({"state_dict": {"module.weight": torch.ones(1).half()}, "meta": {"CLASSES": ["cat"]}}, path)
    ...     load_checkpoint(path)
    ({'weight': tensor([1.], dtype=torch.float16)}, {'CLASSES': ['cat'], 'classes': ('cat',)})
    """
    if os.fspath(path).endswith(".onnx"):
        raise ValueError(f"checkpoint must be a .pth file, got the ONNX file {os.fspath(path)}")
    with open_regular("checkpoint", path) as file:
        checkpoint = _load(os.fspath(path), file)
    if not isinstance(checkpoint, dict):
        raise ValueError(f"{path}: is not a checkpoint: it holds a {type(checkpoint).__name__}, not a dict of weights")
    weights = checkpoint.get("state_dict", checkpoint)
    if not isinstance(weights, dict) or not weights or not all(isinstance(value, Tensor) for value in weights.values()):
        raise ValueError(f"{path}: is not a checkpoint: it has neither a 'state_dict' nor tensors alone")
    meta = checkpoint.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    classes = _classes(path, meta)
    meta = {key: value for key, value in meta.items() if value != _StandIn()}
    if classes:
        meta["classes"] = classes
    return _own_weights(path, weights), meta


def _classes(path: str | os.PathLike[str], meta: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the classes that the metadata have."""
    data_set = meta.get("dataset_meta")  # MMDetection 3
    candidates = [meta.get("CLASSES")]
    if isinstance(data_set, dict):
        candidates += [data_set.get("classes"), data_set.get("CLASSES")]
    for classes in candidates:
        names = (classes,) if isinstance(classes, str) else classes
        if isinstance(names, _StandIn):
            names = names.texts()
        if names is None:
            continue
        if isinstance(names, (list, tuple)):  # Coco90Dataset has None for the ids that COCO does not use
            texts = [name.text() if isinstance(name, _StandIn) else name for name in names]
            names = [str(label) if name is None else name for label, name in enumerate(texts)]
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{path}: the classes of a checkpoint must be a list of names, got {_description(names)}")
        if names:
            return tuple(names)
    return ()


def _own_weights(path: str | os.PathLike[str], weights: dict[Any, Tensor]) -> dict[str, Tensor]:
    """Return the weights without prefixes and copies."""
    module_weights: dict[str, Tensor] = {}
    for key, value in weights.items():
        if not isinstance(key, str):
            raise ValueError(f"{path}: keys of weights must be text, got {_description(key)}")
        dense = value.layout == torch.strided and value.device.type == "cpu"
        if not dense or value.is_quantized or value.is_nested or value.is_complex():
            raise ValueError(f"{path}: {key} must be a dense tensor of real numbers, got {_description(value)}")
        name = re.sub(r"^module\.", "", key)
        if name in module_weights:
            raise ValueError(f"{path}: holds weights for {name} twice, with and without the prefix module.")
        if not key.startswith("ema_"):
            module_weights[name] = value
    return module_weights


def _description(value: Any) -> str:
    """Return the type of a value, and the value itself if it is short."""
    if isinstance(value, Tensor):
        return f"a tensor of {value.layout} and {value.dtype} on {value.device.type}"
    return f"{value!r}" if isinstance(value, (int, float)) else f"a {type(value).__name__}"


def load_weights(module: nn.Module, weights: dict[str, Tensor], config: dict[str, Any] | None = None) -> None:
    """Load weights into a module strictly: all of its keys, and no others.

    Only ``num_batches_tracked`` may be missing (it matters to training alone).  Keys are renamed as the module, or one
    of its submodules, specifies (``renamed_keys``).

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place.
    weights : dict of str to Tensor
        As `load_checkpoint` returns them.
    config : dict, optional
        The detector's config, for a clearer error if the number of classes differs.

    Raises
    ------
    ValueError
        If keys are missing or unexpected, or shapes differ; the message lists them.

    Examples
    --------
    >>> import torch
    >>> from mmort.detect.checkpoint import load_weights
    >>> load_weights(torch.nn.Linear(2, 1), {"weight": torch.ones(1, 3), "bais": torch.ones(1)})
    Traceback (most recent call last):
      ...
    ValueError: the weights do not fit the config, which must be that of their training:
      missing from the checkpoint: bias
      not in the config's model: bais
      different shapes: weight is [1, 3] in the checkpoint, [1, 2] by the config
    """
    expected = module.state_dict()
    unused: tuple[str, ...] = getattr(module, "unused_weights", ())
    patterns = _declared(module, "unused_keys")
    used = {
        key: value
        for key, value in weights.items()
        if not key.startswith(unused) and not any(re.search(pattern, key) for pattern in patterns)
    }
    weights = _renamed(used, module, expected)
    missing = [key for key in expected.keys() - weights.keys() if not key.endswith("num_batches_tracked")]
    unexpected = weights.keys() - expected.keys()
    different = {key for key in expected.keys() & weights.keys() if expected[key].shape != weights[key].shape}
    class_layers = _class_layers(module)
    for key in sorted(different):
        other_rows = next((rows for prefix, rows in class_layers.items() if key.startswith(prefix)), None)
        if other_rows is not None and weights[key].ndim and expected[key].ndim:
            _check_classes(key, weights[key].shape[0], expected[key].shape[0], other_rows, config or {})
    shapes = [
        f"{key} is {[*weights[key].shape]} in the checkpoint, {[*expected[key].shape]} by the config"
        for key in different
    ]
    lists = {
        "missing from the checkpoint": missing,
        "not in the config's model": unexpected,
        "different shapes": shapes,
    }
    problems = [_listed(heading, keys) for heading, keys in lists.items()]
    if any(problems):
        first = "the weights do not fit the config, which must be that of their training:"
        raise ValueError("\n  ".join(filter(None, [first, *problems])))
    module.load_state_dict(weights, strict=False)


class _StandIn(dict[Any, Any]):
    """Stands for an object that the weights do not need; keeps the entries of one that is a dict, and texts of numpy.

    Attributes
    ----------
    arguments, state : tuple
        What the object was made of.
    """

    arguments: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *_: Any, **__: Any) -> _StandIn:
        return super().__new__(cls)

    def __init__(self, *arguments: Any, **_: Any) -> None:
        super().__init__(*(argument for argument in arguments[:1] if isinstance(argument, dict)))
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def texts(self) -> Any:
        """Return the elements if this is an array of texts in one dimension, otherwise the object itself."""
        if not isinstance(self.state, tuple) or len(self.state) != 5:
            return self
        _, shape, dtype, _, content = self.state
        if isinstance(content, list):  # of objects
            return content
        width, characters = _text_width(dtype), _characters(content)
        if not width or shape != (len(characters) / width,):
            return self
        return [characters[begin : begin + width].rstrip("\0") for begin in range(0, len(characters), width)]

    def text(self) -> Any:
        """Return the text if this is a scalar of numpy, otherwise the object itself."""
        if len(self.arguments) != 2 or not _text_width(self.arguments[0]):
            return self
        return _characters(self.arguments[1]).rstrip("\0") or self

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


def _text_width(dtype: Any) -> int:
    """Return how many characters an element of a numpy dtype of text has; 0 of another dtype."""
    name = dtype.arguments[0] if isinstance(dtype, _StandIn) and dtype.arguments else None
    return int(name[1:]) if isinstance(name, str) and re.fullmatch(r"U[0-9]{1,5}", name) else 0


def _characters(content: Any) -> str:
    """Return the characters of a numpy array of text from its bytes."""
    try:
        return content.decode("utf-32-le") if isinstance(content, bytes) else ""
    except UnicodeDecodeError:
        return ""


# Classes of what MMDetection's checkpoints hold beside tensors: configs, logs with statistics, dates, paths.
_SKIPPED = re.compile(
    r"(addict|argparse|datetime|mmcv|mmdet|mmengine|numpy|pathlib)\..+"
    r"|builtins\.getattr|collections\.(deque|defaultdict)"
)


def _load(path: str, file: BinaryIO) -> Any:
    """Load a file; all that it can call is torch's own constructors of tensors, and stand-ins."""
    with _only_tensors():
        return _load_with_stand_ins(path, _bounded(path, file))


@contextlib.contextmanager
def _only_tensors() -> Iterator[None]:
    """Withdraw what this process has allowed checkpoints to call, `mmort.mmcv` among others, until the block ends."""
    allowed = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        yield
    finally:
        torch.serialization.add_safe_globals(allowed)


def _load_with_stand_ins(path: str, file: BinaryIO) -> Any:
    """Load a file with a stand-in for each object that the weights do not need."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    except Exception:  # not MMEngine's format; torch.load reports what it cannot read
        names = []
    code = sorted(name for name in names if not _SKIPPED.fullmatch(name))
    if code:
        raise ValueError(f"{path}: holds code, which is not run: it asks for {', '.join(code[:5])}")
    file.seek(0)
    try:
        with torch.serialization.safe_globals([(_StandIn, name) for name in names]):
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make an unpickler raise anything
        asked = re.search(r"GLOBAL (\S+)", str(error))
        if asked:
            raise ValueError(f"{path}: holds code, which is not run: it asks for {asked[1]}") from None
        raise ValueError(_damaged(path, error)) from None


def _damaged(path: str, error: Exception) -> str:
    """Return the message about a file that torch cannot read."""
    # torch advises weights_only=False, which would run the file's code, before it names the cause.
    cause = re.search(r"WeightsUnpickler error:\s*(.+)", str(error))
    reason = cause[1] if cause else next(iter(str(error).splitlines()), "") or type(error).__name__
    return f"{path}: is not a checkpoint, or is cut short: {shorten(reason, 200, placeholder=' ...')}"


_ARCHIVE = b"PK\3\4"
"""How a file begins that torch.load reads as an archive."""


def _bounded(path: str, file: BinaryIO) -> BinaryIO:
    """Return the file; refuse an archive whose records are larger than it, as torch.save compresses nothing."""
    is_archive = file.read(len(_ARCHIVE)) == _ARCHIVE
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if not is_archive:
        return file
    try:
        total = sum(_record_sizes(file))
        if total <= size:
            file.seek(0)
            return file if _TELLS_SIZES else _written_again(file)
    except Exception as error:  # damaged bytes make readers raise anything
        raise ValueError(_damaged(path, error)) from None
    raise ValueError(f"{path}: is not a checkpoint of torch.save: its records take {total} bytes, more than the file")


_TELLS_SIZES = hasattr(torch._C.PyTorchFileReader, "get_record_size")  # torch 2.9 does not


def _record_sizes(file: BinaryIO) -> list[int]:
    """Return the sizes of an archive's records as torch finds them; another reader could find others in its bytes.

    torch 2.9 does not tell them, and reads what zipfile finds.
    """
    if not _TELLS_SIZES:
        return [record.file_size for record in ZipFile(file).infolist()]
    reader = torch._C.PyTorchFileReader(file)
    return [reader.get_record_size(name) for name in reader.get_all_records()]


def _written_again(file: BinaryIO) -> BinaryIO:
    """Return an archive of the records that Python's zipfile finds, so that torch 2.9 finds no others in its bytes."""
    archive = io.BytesIO()
    with ZipFile(file) as source, ZipFile(archive, "w") as target:
        for record in source.infolist():
            target.writestr(record.filename, source.read(record))
    archive.seek(0)
    return archive


def _renamed(weights: dict[str, Tensor], module: nn.Module, expected: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights by the keys of `expected`, where ``renamed_keys`` of the module or its submodules lead there."""
    patterns = _declared(module, "renamed_keys", "converted_keys")

    def own_entry(key: str, value: Tensor) -> tuple[str, Tensor]:
        """Return the key of `expected` that a checkpoint's key has become, or else the key, with its value."""
        if key in expected:
            return key, value
        for pattern, replacement, *conversions in patterns:
            name = re.sub(pattern, replacement, key)
            if name in expected:
                return name, conversions[0](value) if conversions and value.shape == expected[name].shape else value
        return key, value

    return dict(own_entry(key, value) for key, value in weights.items())


def _declared(module: nn.Module, *names: str) -> list[Any]:
    """Return the entries that a module and its submodules declare under `names`, each once."""
    entries = (entry for submodule in module.modules() for name in names for entry in getattr(submodule, name, ()))
    return list(dict.fromkeys(entries))


def _class_layers(module: nn.Module) -> dict[str, int]:
    """Return the prefixes of the keys of all ``class_layers``, with their numbers of rows that belong to no class."""
    return {
        f"{name}.{layer}.".lstrip("."): other_rows
        for name, submodule in module.named_modules()
        for layer, other_rows in getattr(submodule, "class_layers", {}).items()
    }


def _check_classes(key: str, rows: int, own_rows: int, other_rows: int, config: dict[str, Any]) -> None:
    """Refuse a class layer with other rows than the model's if the number of classes explains them."""
    wanted = DetectorConfig(config).class_counts
    if len(wanted) != 1:
        return
    (classes,) = wanted
    anchors, rest = divmod(own_rows, classes + other_rows)
    if anchors and not rest and rows != own_rows and rows % anchors == 0:
        raise ValueError(
            f"{key} has {rows} rows = {rows // anchors - other_rows} classes in the checkpoint, "
            f"the config has num_classes={classes}"
        )


def _listed(heading: str, keys: Iterable[str]) -> str:
    """Return a heading and the first keys, one on a line; "" without keys."""
    names = sorted(keys)
    more = [f"... and {len(names) - MAX_LISTED} more"] if len(names) > MAX_LISTED else []
    return f"{heading}: " + "\n    ".join([*names[:MAX_LISTED], *more]) if names else ""

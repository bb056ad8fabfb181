"""Reads MMDetection's checkpoints, without running what may be in them, and loads their weights strictly."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

LISTED = 10  # keys of each kind that an error lists


def load_checkpoint(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a checkpoint's weights and what it says of itself.

    What MMEngine saves beside the weights (the training's history, the optimiser's state) is passed over, and needs
    none of its packages.  Nothing that is in the file is called: a file that asks for anything else is refused.

    Parameters
    ----------
    path : path
        A ``.pth`` file of MMDetection 2.x or 3.x, or any ``torch.save`` of a state dict.

    Returns
    -------
    weights : dict of str to Tensor
        On the CPU; floating-point tensors are float32, whatever the file holds.  The prefix ``module.`` is dropped, and
        so are the copies ``ema_...`` that MMDetection 2's averaging hook keeps.
    meta : dict
        The checkpoint's ``meta``; its ``classes`` are a tuple of str, if the file names them.

    Raises
    ------
    ValueError
        If the file is no checkpoint, is cut short, or holds code.
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
    ({'weight': tensor([1.])}, {'CLASSES': ['cat'], 'classes': ('cat',)})
    """
    with open(path, "rb") as file:
        checkpoint = _load(os.fspath(path), file)
    if not isinstance(checkpoint, dict):
        raise ValueError(f"{path}: is no checkpoint: it holds a {type(checkpoint).__name__}, not a dict of weights")
    weights = checkpoint.get("state_dict", checkpoint)
    if not isinstance(weights, dict) or not weights or not all(isinstance(value, Tensor) for value in weights.values()):
        raise ValueError(f"{path}: is no checkpoint: it has neither a 'state_dict' nor tensors alone")
    meta = checkpoint.get("meta")
    meta = {key: value for key, value in meta.items() if value != _StandIn()} if isinstance(meta, dict) else {}
    data_set = meta.get("dataset_meta")  # MMDetection 3
    classes = meta.get("CLASSES") or (
        isinstance(data_set, dict) and (data_set.get("classes") or data_set.get("CLASSES"))
    )
    if classes:
        meta["classes"] = (classes,) if isinstance(classes, str) else tuple(map(str, classes))
    return {
        re.sub(r"^module\.", "", key): value.float() if value.is_floating_point() else value
        for key, value in weights.items()
        if not key.startswith("ema_")
    }, meta


def load_weights(module: nn.Module, weights: dict[str, Tensor], config: dict[str, Any] | None = None) -> None:
    """Load weights into a module, each into its place, all of them, and no others.

    Only ``num_batches_tracked`` may be missing (it matters to training alone).  Keys that MMDetection has renamed are
    understood.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place.
    weights : dict of str to Tensor
        As `load_checkpoint` returns them.
    config : dict, optional
        The detector's config; an error can then say that the number of classes differs.

    Raises
    ------
    ValueError
        If keys are missing or unexpected, or shapes differ; the text lists them.

    Examples
    --------
    >>> import torch
    >>> from mmort.detect.checkpoint import load_weights
    >>> load_weights(torch.nn.Linear(2, 1), {"weight": torch.ones(1, 3), "bais": torch.ones(1)})
    Traceback (most recent call last):
      ...
    ValueError: the weights do not fit the config:
      missing from the checkpoint: bias
      not in the config's model: bais
      other shapes: weight is [1, 3] in the checkpoint, [1, 2] by the config
    """
    own = module.state_dict()
    weights = {_renamed(key, own): value for key, value in weights.items()}
    missing = [key for key in own.keys() - weights.keys() if not key.endswith("num_batches_tracked")]
    unexpected = weights.keys() - own.keys()
    other = {key for key in own.keys() & weights.keys() if own[key].shape != weights[key].shape}
    for key in sorted(other):
        _check_classes(key, weights[key].shape[:1], own[key].shape[:1], config or {})
    shapes = (f"{key} is {[*weights[key].shape]} in the checkpoint, {[*own[key].shape]} by the config" for key in other)
    lists = {"missing from the checkpoint": missing, "not in the config's model": unexpected, "other shapes": shapes}
    problems = [_listed(what, keys) for what, keys in lists.items()]
    if any(problems):
        raise ValueError("\n  ".join(filter(None, ["the weights do not fit the config:", *problems])))
    module.load_state_dict(weights, strict=False)


class _StandIn(dict[Any, Any]):
    """Takes the place of an object that the weights do not need; keeps the entries of one that is a dict."""

    def __new__(cls, *_: Any, **__: Any) -> _StandIn:
        return super().__new__(cls)

    def __init__(self, *arguments: Any, **_: Any) -> None:
        super().__init__(*(argument for argument in arguments[:1] if isinstance(argument, dict)))

    def __setstate__(self, state: Any) -> None:
        pass

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


# What checkpoints of MMDetection hold beside tensors: configs, logs with their statistics, dates, paths.
_PASSED_OVER = re.compile(
    r"(addict|argparse|datetime|mmcv|mmdet|mmengine|numpy|pathlib)\..+"
    r"|_codecs\.encode|builtins\.getattr|collections\.(deque|defaultdict)"
)


def _load(path: str, file: BinaryIO) -> Any:
    """Load what a file holds; nothing in it can be called but torch's own makers of tensors, and stand-ins."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    except Exception:  # not of the format that MMEngine writes; if it is one at all, torch.load says
        names = []
    code = sorted(name for name in names if not _PASSED_OVER.fullmatch(name))
    if code:
        raise ValueError(f"{path}: holds code, which is not run: it asks for {', '.join(code[:5])}")
    file.seek(0)
    try:
        with torch.serialization.safe_globals([(_StandIn, name) for name in names]):
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # an unpickler stumbles over bytes in every way there is
        asked = re.search(r"GLOBAL (\S+)", str(error))
        if asked:
            raise ValueError(f"{path}: holds code, which is not run: it asks for {asked[1]}") from None
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise ValueError(f"{path}: is no checkpoint, or is cut short: {reason[:200]}") from None


_FORMER = (
    (r"_offset\.(weight|bias)$", r".conv_offset.\1"),  # deformable convolution before MMDetection 2.1
    (r"(transformer\.\w+\.layers\.\d+)\.self_attn\.", r"\1.attentions.0."),  # DETR before MMDetection 2.11
    (r"(transformer\.\w+\.layers\.\d+)\.multihead_attn\.", r"\1.attentions.1."),
    (r"(transformer\.\w+\.layers\.\d+)\.ffn\.", r"\1.ffns.0."),
    (r"(transformer\.decoder)\.norm\.", r"\1.post_norm."),
    (r"^(\w+\.layers\.\d+)\.self_attn\.", r"bbox_head.transformer.\1.attentions.0."),  # DETR of MMDetection 3
    (r"^(\w+\.layers\.\d+)\.cross_attn\.", r"bbox_head.transformer.\1.attentions.1."),
    (r"^(\w+\.layers\.\d+)\.ffn\.", r"bbox_head.transformer.\1.ffns.0."),
    (r"^(encoder|decoder)\.", r"bbox_head.transformer.\1."),
    (r"^query_embedding\.", "bbox_head.query_embedding."),
    (r"^neck\.convs\.0\.conv\.", "bbox_head.input_proj."),
)


def _renamed(key: str, own: dict[str, Tensor]) -> str:
    if key not in own:
        for former, today in _FORMER:
            name = re.sub(former, today, key)
            if name in own:
                return name
    return key


# The layers that tell classes apart, and how many rows they have beside one for each class.
_CLASSIFIERS = {
    r"\.fc_cls\.": 1,
    r"\.cls_convs\.": 1,
    r"\.convs_pred\.": 5,
    r"\.(conv_cls|retina_cls|conv_logits|fc_logits|(tl|br)_heat\..*)\.": 0,
}


def _check_classes(key: str, rows: Iterable[int], own_rows: Iterable[int], config: dict[str, Any]) -> None:
    """Refuse in clear words where the reason for another shape is another number of classes."""
    wanted = set(_numbers_of_classes(config.get("model")))
    extra = next((extra for pattern, extra in _CLASSIFIERS.items() if re.search(pattern, key)), None)
    if extra is None or len(wanted) != 1:
        return
    classes = wanted.pop()
    for count, own_count in zip(rows, own_rows, strict=True):
        anchors, rest = divmod(own_count, classes + extra)
        if anchors and not rest and count != own_count and count % anchors == 0:
            raise ValueError(
                f"{key} has {count} rows = {count // anchors - extra} classes in the checkpoint, "
                f"the config says num_classes={classes}"
            )


def _numbers_of_classes(config: Any) -> Iterable[int]:
    if isinstance(config, dict):
        if isinstance(config.get("num_classes"), int):
            yield config["num_classes"]
        config = list(config.values())
    if isinstance(config, (list, tuple)):
        for value in config:
            yield from _numbers_of_classes(value)


def _listed(what: str, keys: Iterable[str]) -> str:
    names = sorted(keys)
    more = [f"... and {len(names) - LISTED} more"] if len(names) > LISTED else []
    return f"{what}: " + "\n    ".join([*names[:LISTED], *more]) if names else ""

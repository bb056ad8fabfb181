"""RF-Next: convolutions with dilations that a training hook has searched, which the config's network does not show.

Source: S. Gao et al., "RF-Next: Efficient Receptive Field Search for Convolutional Neural Networks", TPAMI 2022; MMCV's
``RFSearchHook``, which MMDetection applies when it tests, too.  Mask AP of MMDetection's Cascade Mask R-CNN with
HRNetV2p-W18 on COCO val2017: 36.4; with one searched dilation a convolution 37.6, with several 38.2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort._files.inputs import open_regular
from mmort.configs.schema import plain_type
from mmort.detect.entries import Schema, at_least, nested, only, read_entries, training_only

Pair = tuple[int, int]

MODES = ("search", "fixed_single_branch", "fixed_multi_branch")
MAX_BYTES = 10_000_000
"""Size of a file of dilations; the published ones have at most 20 kB."""


@dataclass(frozen=True, kw_only=True)
class SearchEntries(Schema):
    """The entries of ``search``: around a dilation, which others are tried, and in which layers."""

    exp_rate: float
    mmin: int = at_least(1)
    mmax: int = at_least(1)
    num_branches: int
    skip_layer: Sequence[str] | None = None
    normlize: str = only("absavg")  # MMCV's spelling, and the only normalization that it has

    ignored: ClassVar = training_only("init_alphas", "max_step", "search_interval", "step")

    def __post_init__(self) -> None:
        if self.num_branches not in (2, 3):
            raise ValueError(f"detect.build: RFSearchHook's num_branches must be 2 or 3, got {self.num_branches}")

    def around(self, dilation: Pair) -> list[Pair]:
        """Return the dilations of the branches of a convolution that has this one, each once."""
        smaller, larger = (
            tuple(min(max(round((1 + sign * self.exp_rate) * size), self.mmin), self.mmax) for size in dilation)
            for sign in (-1, 1)
        )
        middle = [dilation] if self.num_branches % 2 else []
        return list(dict.fromkeys([smaller, *middle, larger]))  # type: ignore[list-item]


@dataclass(frozen=True, kw_only=True)
class ConfigEntries(Schema):
    """The entries of the hook's ``config``."""

    search: SearchEntries = nested(SearchEntries, "RFSearchHook.config.search")

    ignored: ClassVar = {"structure": "read from rfstructure_file"}


@dataclass(frozen=True, kw_only=True)
class HookEntries(Schema):
    """The entries of the hook."""

    config: ConfigEntries = nested(ConfigEntries, "RFSearchHook.config")
    mode: str = "search"
    rfstructure_file: str | None = None

    ignored: ClassVar = {"verbose": "what is printed", **training_only("by_epoch", "priority")}

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"detect.build: RFSearchHook.mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if self.mode != "search" and self.rfstructure_file is None:
            raise ValueError(f"detect.build: RFSearchHook with mode {self.mode} must have rfstructure_file")


class BranchedConv2d(nn.Module):
    """A weighted sum of convolutions that differ in nothing but the dilation, as MMCV's ``Conv2dRFSearchOp``."""

    def __init__(self, layer: nn.Conv2d, search: SearchEntries) -> None:
        super().__init__()
        self.op_layer = layer
        self.branch_weights = nn.Parameter(torch.ones(search.num_branches))
        pairs = search.around(_pair(layer.dilation))
        for axis in (0, 1):
            if layer.kernel_size[axis] % 2 == 0 or layer.kernel_size[axis] == 1:
                pairs = [tuple(layer.dilation[a] if a == axis else pair[a] for a in (0, 1)) for pair in pairs]  # type: ignore[misc]
        self.dilations = pairs

    def forward(self, x: Tensor) -> Tensor:
        layer, shares = self.op_layer, self.branch_weights[: len(self.dilations)].abs()
        branches = [
            F.conv2d(x, layer.weight, layer.bias, layer.stride, _padding(layer, pair), pair, layer.groups)
            for pair in self.dilations
        ]
        if len(branches) == 1:
            return branches[0]
        shares = shares / shares.sum()
        total = shares[0] * branches[0]
        for share, branch in zip(shares[1:], branches[1:], strict=True):
            total = total + share * branch
        return total


def set_receptive_fields(detector: nn.Module, hooks: Any) -> None:
    """Give a detector's convolutions the dilations of the config's ``RFSearchHook``, if it has one.

    Parameters
    ----------
    detector : torch.nn.Module
        Changed in place.
    hooks : list of dict, or None
        The config's ``custom_hooks``.

    Raises
    ------
    ValueError
        If the hook is not supported, or its file cannot be read or lacks a convolution.
    """
    known = hooks if isinstance(hooks, (list, tuple)) else ()
    named = (hook for hook in known if isinstance(hook, dict) and plain_type(hook.get("type")) == "RFSearchHook")
    hook = next(named, None)
    if hook is None:
        return
    entries = read_entries("RFSearchHook", HookEntries, hook)
    search = entries.config.search
    if entries.rfstructure_file is not None:
        dilations = _read_dilations(entries.rfstructure_file)
        for name, _, _, layer in _searched(detector, search):
            if name not in dilations:
                raise ValueError(f"detect.build: {entries.rfstructure_file} has no dilation for {name}")
            layer.dilation = dilations[name]
            layer.padding = _padding(layer, layer.dilation)
    if entries.mode != "fixed_single_branch":
        for _, parent, child, layer in list(_searched(detector, search)):
            setattr(parent, child, BranchedConv2d(layer, search))


def _searched(detector: nn.Module, search: SearchEntries) -> Iterator[tuple[str, nn.Module, str, nn.Conv2d]]:
    """Yield name, parent, name in the parent, and layer of each convolution that the hook changes."""
    for path, parent in detector.named_modules():
        for child, layer in parent.named_children():
            name = ".".join(filter(None, ("module", path, child)))
            if not isinstance(layer, nn.Conv2d) or any(skipped in name for skipped in search.skip_layer or ()):
                continue
            if any(size > 1 and size % 2 for size in layer.kernel_size):
                yield name, parent, child, layer


def _padding(layer: nn.Conv2d, dilation: Pair) -> Pair:
    """Return the padding that the hook gives a convolution."""
    rows, columns = (
        (stride - 1 + step * (size - 1)) // 2
        for size, stride, step in zip(layer.kernel_size, layer.stride, dilation, strict=True)
    )
    return rows, columns


def _read_dilations(path: str) -> dict[str, Pair]:
    """Return the dilations that the hook has written, by the layer's name."""
    try:
        with open_regular("RFSearchHook.rfstructure_file", path) as file:
            content = json.loads(file.read(MAX_BYTES))
        return {name: _pair(value) for name, value in content["structure"].items()}
    except OSError as error:
        raise ValueError(
            f"detect.build: RFSearchHook.rfstructure_file cannot be read: {path}: {error.strerror}. MMDetection's "
            "repository has the published ones; the path is from the current directory, or is given with "
            "--cfg-options custom_hooks.INDEX.rfstructure_file=FILE"
        ) from None
    except (AttributeError, KeyError, TypeError, RecursionError, json.JSONDecodeError, UnicodeDecodeError):
        raise ValueError(
            f"detect.build: RFSearchHook.rfstructure_file must be JSON with dilations in a dict 'structure': {path}"
        ) from None


def _pair(value: Any) -> Pair:
    """Return a dilation of rows and of columns; TypeError if it is neither a number nor two."""
    pair = tuple(value) if isinstance(value, (list, tuple)) else (value, value)
    if len(pair) != 2 or not all(type(size) is int and size > 0 for size in pair):
        raise TypeError
    return pair

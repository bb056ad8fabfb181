"""Random weights with which detections are many and their scores differ, so that errors show.

Every layer is scaled by what it makes of the test's images: hidden layers to outputs of a standard deviation of 1, the
layers that predict to what a case asks for.  The same names get the same numbers in every detector, so that what an
entry of a config changes is the effect of the entry.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Spread = Mapping[str, tuple[float, float]]
"""Mean and standard deviation of the outputs of the layers whose names match a regular expression; the first counts."""

SPREAD: Spread = {
    r"(rpn_reg|fc_reg|conv_reg|atss_reg|retina_reg|fovea_reg)$": (0.0, 0.5),
    r"(fc_cls|rpn_cls|conv_cls|atss_cls|retina_cls|gfl_cls|vfnet_cls|cls_branches\.\d+|cls_embed)$": (-1.0, 1.5),
}

_CONSTANTS = "sampled_basis", "bias_expansion", "freqs_cos", "freqs_sin"
"""Tensors that are saved with the weights of equivariant convolutions and of a ViT, and that no training changes."""


def before(first: Spread, second: Spread) -> Spread:
    """Return both, with the entries of the first before those of the second, which they replace."""
    return {**first, **{pattern: values for pattern, values in second.items() if pattern not in first}}


@lru_cache(maxsize=4000)
def numbers(name: str, shape: tuple[int, ...]) -> Tensor:
    """Return numbers of a normal distribution that depend on a name."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    return torch.from_numpy(random.standard_normal(shape, np.float32))


def initial(name: str, tensor: Tensor) -> Tensor:
    """Return the numbers that a weight has before it is scaled."""
    if not tensor.is_floating_point():
        return tensor
    values = numbers(name, tuple(tensor.shape))
    if name.endswith("init_proposal_bboxes.weight"):  # centres and sizes, by the image's
        return 0.5 + 0.2 * values.tanh()
    if name.endswith("head.log_scale"):  # of GLIP, which divides by its exponential
        return 0.5 * values.tanh() + 1
    if name.endswith("log_scale"):  # of products of 256 channels
        return values.tanh() - 2.5
    if name.endswith("weight_gamma"):  # of ConvAWS, whose weights are normalized
        return 0.05 * (1 + 0.2 * values.tanh())
    if name.endswith("weight_beta"):
        return 0.002 * values
    if re.search(r"\.p\d_w[12]$", name):  # of BiFPN, which adds up the maps whose weights are positive
        return 1 + 0.7 * values
    if name.endswith("running_var"):
        return 1 + 0.3 * values.tanh()
    if name.endswith("in_proj_weight"):
        return 2 * values / tensor.shape[1] ** 0.5  # so that queries do not attend to everything alike
    if tensor.ndim >= 2:
        return values / tensor[0].numel() ** 0.5 if "embed" not in name else 2 * values
    if tensor.ndim == 0 or name.endswith(("weight", "scale", "gamma")):
        return 1 + 0.2 * values.tanh()
    return 0.2 * values


def fill(
    model: nn.Module, run: Callable[[], Any], spread: Spread, scales: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Give a model weights, and return by how much those of each layer were scaled.

    Parameters
    ----------
    model : nn.Module
    run : callable
        Runs the model on the images; not called if there are `scales`.
    spread : mapping
        What the layers that predict are to return, before the defaults of `SPREAD`.
    scales : mapping, optional
        What this function returned for another detector, whose layers of the same names are scaled by the same.
    """
    for name, tensor in model.state_dict().items():
        if not name.endswith(_CONSTANTS):
            tensor.copy_(initial(name, tensor))
    model.train()
    model.eval()  # now MMRotate's equivariant convolutions expand their weights
    layers = {name: layer for name, layer in model.named_modules() if _is_layer(layer)}
    patterns = before(spread, SPREAD)
    for name, layer in layers.items():
        mean = next((mean for pattern, (mean, _) in patterns.items() if re.search(pattern, name)), None)
        if mean is not None and getattr(layer, "bias", None) is not None:
            layer.bias.mul_(0.5).add_(mean)
    if scales is not None:
        for name, layer in layers.items():
            layer.weight.mul_(scales.get(name, 1.0))
        return dict(scales)
    measured: dict[str, float] = {}
    hooks = [
        layer.register_forward_hook(_scaling(name, patterns, measured), with_kwargs=True)
        for name, layer in layers.items()
    ]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return measured


def _is_layer(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    kinds = nn.Embedding, nn.LayerNorm, nn.GroupNorm
    return isinstance(weight, nn.Parameter) and weight.ndim >= 2 and not isinstance(module, kinds)


def _scaling(name: str, patterns: Spread, measured: dict[str, float]) -> Callable[..., Any]:
    """Return a hook that scales a layer's weights when it is called for the first time."""
    wanted = next((deviation for pattern, (_, deviation) in patterns.items() if re.search(pattern, name)), 1.0)

    def scale(layer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> Any:
        if name in measured or not isinstance(output, Tensor) or output.numel() < 2:
            return None
        bias = getattr(layer, "bias", None)
        shift = 0 if bias is None else bias.reshape(-1, *[1] * (min(layer.weight.ndim, 4) - 2))
        centred = output - shift
        deviation = float(centred.std())
        factor = wanted / deviation if deviation > 1e-6 else 1.0
        measured[name] = factor
        with torch.no_grad():
            layer.weight.mul_(factor)
        return layer.forward(*arguments, **keywords)  # which standardizes its weights, if it is a ConvWS

    return scale

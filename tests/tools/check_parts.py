"""Compare backbones, necks and plugins with MMDetection's own modules.  Run by hand, as it needs MMDetection.

    pip install --no-deps --target FOLDER mmdet==3.3.0 mmpretrain==1.2.0 mmengine mmcv-lite addict yapf six einops \
        termcolor terminaltables shapely
    python -m tests.tools.check_parts FOLDER [NAME ...]

Both sides are built from the same config with the same random weights, and run on inputs of odd sizes.  mmcv-lite has
no compiled operators; where a part needs one, mmort's stands in.  Prints a line for each part.  Exit code 1 if names,
shapes or numbers differ.
"""

from __future__ import annotations

import copy
import importlib.abc
import sys
import types
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any

import torch
from torch import Tensor, nn

import mmort.torch
from mmort.detect.checkpoint import load_weights
from mmort.detect.registry import PARTS

BN = {"type": "BN", "requires_grad": True}
PYRAMID = [8, 16, 32, 64]
"""Channels of the small backbones' maps that the necks here take."""


def hr_stage(channels: list[int], block: str = "BASIC") -> dict[str, Any]:
    """Return a stage of HRNet."""
    count = len(channels)
    return {
        "num_modules": 2 if count == 3 else 1,
        "num_branches": count,
        "block": block,
        "num_blocks": [2] * count,
        "num_channels": channels,
    }


DCN = {"type": "DCNv2", "deform_groups": 1, "fallback_on_stride": False}
EVERY_PLUGIN = [
    {"cfg": {"type": "ContextBlock", "ratio": 0.25}, "stages": [False, True, True, True], "position": "after_conv3"},
    {"cfg": {"type": "ContextBlock", "ratio": 0.5, "pooling_type": "avg", "fusion_types": ["channel_mul"]}}
    | {"stages": [True, False, False, False], "position": "after_conv1"},
    {"cfg": {"type": "NonLocal2d"}, "stages": [False, False, False, True], "position": "after_conv2"},
]


def attention(terms: str, **entries: Any) -> list[dict[str, Any]]:
    """Return plugins of empirical attention in the last two stages."""
    config = {"type": "GeneralizedAttention", "spatial_range": -1, "num_heads": 8, "attention_type": terms, **entries}
    return [{"cfg": config, "stages": [False, False, True, True], "position": "after_conv2"}]


def res(kind: str, **entries: Any) -> dict[str, Any]:
    """Return a small relative of ResNet."""
    return {"type": kind, "depth": 50, "base_channels": 16, "norm_cfg": BN, **entries}


HRNET = {
    "stage1": hr_stage([16], "BOTTLENECK"),
    "stage2": hr_stage([8, 16]),
    "stage3": hr_stage([8, 16, 32]),
    "stage4": hr_stage([8, 16, 32, 64]),
}

BACKBONES: dict[str, dict[str, Any]] = {
    "swin": {"type": "SwinTransformer", "embed_dims": 12, "depths": [2, 2, 2], "num_heads": [1, 2, 3]}
    | {"out_indices": [0, 1, 2]},
    "swin_window_12": {"type": "SwinTransformer", "embed_dims": 12, "window_size": 12, "mlp_ratio": 2}
    | {"convert_weights": True},
    "resnet": res("ResNet"),
    "resnet_basic": res("ResNet", depth=18),
    "resnet_caffe": res("ResNet", style="caffe", dilations=[1, 1, 1, 2], strides=[1, 2, 2, 1], out_indices=[3]),
    "resnext": res("ResNeXt", groups=4, base_width=4),
    "resnet_v1d": res("ResNetV1d"),
    "resnet_plugins": res("ResNet", plugins=EVERY_PLUGIN),
    "resnext_plugins": res("ResNeXt", groups=4, plugins=EVERY_PLUGIN),
    **{f"attention_{terms}": res("ResNet", plugins=attention(terms)) for terms in ("0010", "1111", "1011", "0001")},
    "square_attention_0110": res("ResNet", plugins=attention("0110")),
    "attention_strides": res("ResNet", plugins=attention("1101", q_stride=2, kv_stride=1)),
    "res2net": res("Res2Net", base_width=26),
    "resnest": res("ResNeSt", stem_channels=32, reduction_factor=2),
    "resnest_groups": res("ResNeSt", groups=2, base_width=8, radix=1, avg_down_stride=False),
    **{
        f"regnetx_{size}": {"type": "RegNet", "arch": f"regnetx_{size}", "norm_cfg": BN}
        for size in ("400mf", "800mf", "1.6gf", "3.2gf", "4.0gf", "6.4gf", "8.0gf", "12gf")
    },
    "hrnet": {"type": "HRNet", "extra": HRNET},
    "hrnet_one_output": {"type": "HRNet", "extra": HRNET, "multiscale_output": False},
}

NECKS: dict[str, dict[str, Any]] = {
    "fpn": {"type": "FPN", "in_channels": PYRAMID, "out_channels": 16, "num_outs": 5},
    "hrfpn": {"type": "HRFPN", "in_channels": PYRAMID, "out_channels": 16},
    "hrfpn_stride": {"type": "HRFPN", "in_channels": PYRAMID, "out_channels": 16, "stride": 2, "pooling_type": "MAX"},
}


class Operators(types.ModuleType):
    """Stands for ``mmcv.ops``, or a module in it: any name is a class, mmort's if it has one."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(mmort.torch, name, None) or type(name, (nn.Module,), {})
        setattr(self, name, found)
        return found


class OperatorsFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports `Operators` as ``mmcv.ops`` and all modules in it."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith("mmcv.ops") else None

    def create_module(self, spec: ModuleSpec) -> Operators:
        return Operators(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def mmdetection(folder: str) -> Any:
    """Return MMDetection's registry of modules, imported from a folder."""
    sys.path.insert(0, folder)
    sys.meta_path.insert(0, OperatorsFinder())
    import_module("mmdet.models")
    from mmdet.registry import MODELS

    # mmpretrain's packages without what their __init__.py import, which needs further packages.
    for name in ("", ".models", ".models.utils", ".models.backbones"):
        package = types.ModuleType(f"mmpretrain{name}")
        package.__path__ = [f"{folder}/mmpretrain{name.replace('.', '/')}"]
        sys.modules[package.__name__] = package
    from mmpretrain.models.utils import norm

    vars(sys.modules["mmpretrain.models.utils"]).update(vars(norm))
    import_module("mmpretrain.models.backbones.convnext")

    return MODELS


def randomize(module: nn.Module) -> None:
    """Give all weights and statistics values that nothing cancels."""
    generator = torch.Generator().manual_seed(0)
    for name, tensor in module.state_dict().items():
        if not tensor.is_floating_point():
            continue
        if name.endswith("running_var"):
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
        elif tensor.ndim < 2:
            tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.5 + 0.3)
        else:
            scale = tensor[0].numel() ** -0.5
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * scale)


def flat(outputs: Any) -> list[Tensor]:
    """Return the tensors of nested tuples and lists."""
    return [outputs] if isinstance(outputs, Tensor) else [tensor for output in outputs for tensor in flat(output)]


def check(registry: Any, kind: str, config: dict[str, Any], inputs: list[Any]) -> str:
    """Return how a part differs from MMDetection's, "" if it does not."""
    theirs = registry.build(copy.deepcopy(config))
    theirs.eval()  # some of them return None
    randomize(theirs)
    ours = PARTS.build(kind, config).eval()
    try:
        load_weights(ours, theirs.state_dict())
    except ValueError as error:
        return str(error)
    for input in inputs:
        with torch.inference_mode():
            wanted, got = flat(theirs(input)), flat(ours(input))
        shapes = [[*tensor.shape] for tensor in wanted], [[*tensor.shape] for tensor in got]
        if shapes[0] != shapes[1]:
            return f"shapes {shapes[1]}, MMDetection's {shapes[0]}"
        for index, (first, second) in enumerate(zip(got, wanted, strict=True)):
            far, size = float((first - second).abs().max()), float(second.abs().max())
            if not far <= 1e-4 * max(size, 1e-3):
                return f"output {index} differs by {far:.1e} of {size:.1e}"
    return ""


def main(folder: str, *names: str) -> int:
    registry = mmdetection(folder)
    torch.manual_seed(1)
    images = [torch.randn(2, 3, 75, 110), torch.randn(1, 3, 128, 64)]
    pyramids = [
        tuple(torch.randn(2, channels, height >> level, width >> level) for level, channels in enumerate(PYRAMID))
        for height, width in ((32, 48), (64, 32))
    ]
    # What MMDetection's HRNet, and one kind of attention, refuse.
    special = {"hrnet": [torch.randn(2, 3, 64, 96), torch.randn(1, 3, 128, 64)], "square": [torch.randn(2, 3, 96, 96)]}
    cases = [(name, "backbone", config, special.get(name.split("_")[0], images)) for name, config in BACKBONES.items()]
    cases += [(name, "neck", config, pyramids) for name, config in NECKS.items()]
    different = 0
    for name, kind, config, inputs in cases:
        if names and name not in names:
            continue
        problem = check(registry, kind, config, inputs)
        different += bool(problem)
        print(f"{kind} {name}: {problem or 'equal'}")
    return different > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""ResNet and its relatives.

Source: K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; S. Xie et al., "Aggregated Residual
Transformations for Deep Neural Networks", CVPR 2017; T. He et al., "Bag of Tricks for Image Classification", CVPR 2019
(ResNetV1d); MMDetection's ``ResNet``, ``ResNeXt`` and ``ResNetV1d``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmort.detect.layers import convolution, normalization

_BN = {"type": "BN"}


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: the block of ResNet-18 and ResNet-34."""

    expansion = 1

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int = 1,
        dilation: int = 1,
        downsample: nn.Module | None = None,
        conv_cfg: dict[str, Any] | None = None,
        norm_cfg: dict[str, Any] = _BN,
    ) -> None:
        super().__init__()
        self.conv1 = convolution(
            conv_cfg, in_channels, channels, 3, stride=stride, padding=dilation, dilation=dilation, bias=False
        )
        self.norm1 = _add_norm(self, norm_cfg, channels, 1)
        self.conv2 = convolution(conv_cfg, channels, channels, 3, padding=1, bias=False)
        self.norm2 = _add_norm(self, norm_cfg, channels, 2)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        shortcut = x if self.downsample is None else self.downsample(x)
        x = torch.relu(getattr(self, self.norm1)(self.conv1(x)))
        x = getattr(self, self.norm2)(self.conv2(x))
        return torch.relu(x + shortcut)


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 beside a shortcut: the block of the deeper networks.

    `style` says which of the first two has the stride: "pytorch" the 3x3, "caffe" the 1x1.
    """

    expansion = 4

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int = 1,
        dilation: int = 1,
        downsample: nn.Module | None = None,
        conv_cfg: dict[str, Any] | None = None,
        norm_cfg: dict[str, Any] = _BN,
        style: str = "pytorch",
        dcn: dict[str, Any] | None = None,
        *,
        width: int,
        groups: int = 1,
    ) -> None:
        super().__init__()
        first, second = (stride, 1) if style == "caffe" else (1, stride)
        self.conv1 = convolution(conv_cfg, in_channels, width, 1, stride=first, bias=False)
        self.norm1 = _add_norm(self, norm_cfg, width, 1)
        self.conv2 = convolution(
            dcn if dcn is not None else conv_cfg,
            width,
            width,
            3,
            stride=second,
            padding=dilation,
            dilation=dilation,
            groups=groups,
            bias=False,
        )
        self.norm2 = _add_norm(self, norm_cfg, width, 2)
        self.conv3 = convolution(conv_cfg, width, channels * self.expansion, 1, bias=False)
        self.norm3 = _add_norm(self, norm_cfg, channels * self.expansion, 3)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        shortcut = x if self.downsample is None else self.downsample(x)
        x = torch.relu(getattr(self, self.norm1)(self.conv1(x)))
        x = torch.relu(getattr(self, self.norm2)(self.conv2(x)))
        x = getattr(self, self.norm3)(self.conv3(x))
        return torch.relu(x + shortcut)


_BLOCKS: dict[int, tuple[Any, tuple[int, ...]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
    152: (Bottleneck, (3, 8, 36, 3)),
}


class ResNet(nn.Module):
    """ResNet in the styles of PyTorch and Caffe, with deformable convolutions where `dcn` says so.

    With `groups` it is ResNeXt, with `deep_stem` and `avg_down` ResNetV1d.  Parameters have the names of the config's
    entries.
    """

    def __init__(
        self,
        depth: int,
        in_channels: int = 3,
        stem_channels: int | None = None,
        base_channels: int = 64,
        num_stages: int = 4,
        strides: Sequence[int] = (1, 2, 2, 2),
        dilations: Sequence[int] = (1, 1, 1, 1),
        out_indices: Sequence[int] = (0, 1, 2, 3),
        style: str = "pytorch",
        deep_stem: bool = False,
        avg_down: bool = False,
        conv_cfg: dict[str, Any] | None = None,
        norm_cfg: dict[str, Any] = _BN,
        dcn: dict[str, Any] | None = None,
        stage_with_dcn: Sequence[bool] = (False, False, False, False),
        groups: int = 1,
        base_width: int = 4,
    ) -> None:
        super().__init__()
        if depth not in _BLOCKS:
            raise ValueError(f"detect.build: backbone.depth must be one of {', '.join(map(str, _BLOCKS))}, got {depth}")
        if style not in ("pytorch", "caffe"):
            raise ValueError(f"detect.build: backbone.style must be 'pytorch' or 'caffe', got {style!r}")
        block, counts = _BLOCKS[depth]
        if dcn is not None and block is BasicBlock:
            raise ValueError(f"detect.build: backbone.dcn must be None for depth {depth}: its blocks cannot have it")
        self.out_indices = tuple(out_indices)
        self.stages = num_stages
        self.deep_stem = deep_stem
        channels = base_channels if stem_channels is None else stem_channels
        if deep_stem:
            self.stem = _deep_stem(in_channels, channels, conv_cfg, norm_cfg)
        else:
            self.conv1 = convolution(conv_cfg, in_channels, channels, 7, stride=2, padding=3, bias=False)
            self.norm1 = _add_norm(self, norm_cfg, channels, 1)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        for stage in range(num_stages):
            width = base_channels * 2**stage
            deformable = dcn if dcn and stage_with_dcn[stage] and not dcn.get("fallback_on_stride") else None
            common: dict[str, Any] = {"dilation": dilations[stage], "conv_cfg": conv_cfg, "norm_cfg": norm_cfg}
            if block is Bottleneck:
                inner = width if groups == 1 else int(width * (base_width / base_channels)) * groups
                common |= {"style": style, "dcn": deformable, "width": inner, "groups": groups}
            blocks: list[nn.Module] = []
            for stride in (strides[stage],) + (1,) * (counts[stage] - 1):
                out = width * block.expansion
                shortcut = None
                if not blocks and (stride != 1 or channels != out):
                    shortcut = _shortcut(channels, out, stride, avg_down, conv_cfg, norm_cfg)
                blocks.append(block(channels, width, stride=stride, downsample=shortcut, **common))
                channels = out
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:  # noqa: D102
        x = self.stem(x) if self.deep_stem else torch.relu(getattr(self, self.norm1)(self.conv1(x)))
        x = self.maxpool(x)  # [N, C, H/4, W/4]
        outputs = []
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)  # [N, C, H/4, W/4] and half of it with each stage
            if stage in self.out_indices:
                outputs.append(x)
        return tuple(outputs)


def _add_norm(module: nn.Module, norm_cfg: dict[str, Any], channels: int, number: int) -> str:
    """Give `module` a normalization and return its name, such as "bn1"."""
    name, norm = normalization(norm_cfg, channels)
    module.add_module(f"{name}{number}", norm)
    return f"{name}{number}"


def _deep_stem(
    in_channels: int, channels: int, conv_cfg: dict[str, Any] | None, norm_cfg: dict[str, Any]
) -> nn.Sequential:
    layers: list[nn.Module] = []
    for out, stride in ((channels // 2, 2), (channels // 2, 1), (channels, 1)):
        layers.append(convolution(conv_cfg, in_channels, out, 3, stride=stride, padding=1, bias=False))
        layers += [normalization(norm_cfg, out)[1], nn.ReLU()]
        in_channels = out
    return nn.Sequential(*layers)


def _shortcut(
    in_channels: int,
    channels: int,
    stride: int,
    average: bool,
    conv_cfg: dict[str, Any] | None,
    norm_cfg: dict[str, Any],
) -> nn.Sequential:
    layers: list[nn.Module] = []
    if average:
        layers.append(nn.AvgPool2d(stride, stride, ceil_mode=True, count_include_pad=False))
        stride = 1
    layers += [
        convolution(conv_cfg, in_channels, channels, 1, stride=stride, bias=False),
        normalization(norm_cfg, channels)[1],
    ]
    return nn.Sequential(*layers)

"""SparseInst: a fixed number of maps of where instances are; what a map highlights gives its class and its mask.

Source: T. Cheng et al., "Sparse Instance Activation for Real-Time Instance Segmentation", CVPR 2022; MMDetection's
``projects/SparseInst``.  Mask AP of the project's R-50 model on COCO val2017: 32.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.contract import WITH_MASKS, MaskFormat
from mmort.detect.detector import Detector, ModelEntries
from mmort.detect.entries import PARTS, Parts, Schema, at_least, default, only, part, training_only
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.image_masks import mask_boxes, of_rows
from mmort.detect.parts.layers import activation
from mmort.detect.parts.positions import coordinates

POOLED_SIZES = (1, 2, 3, 6)
FEATURE_STRIDE = 8
"""Pixels of the input for each cell of the encoder's map, with three maps of strides 8, 16 and 32."""


class PyramidPooling(nn.Module):
    """A map beside averages of it over parts of the image, of several sizes."""

    def __init__(self, channels: int, act_cfg: Config) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(size), nn.Conv2d(channels, channels // 4, 1)) for size in POOLED_SIZES
        )
        self.bottleneck = nn.Conv2d(channels + len(POOLED_SIZES) * (channels // 4), channels, 1)
        self.act = activation(act_cfg)

    def forward(self, x: Tensor) -> Tensor:
        pooled = [functional.interpolate(self.act(stage(x)), x.shape[2:], mode="bilinear") for stage in self.stages]
        return self.act(self.bottleneck(torch.cat([*pooled, x], 1)))


class InstanceContextEncoder(nn.Module):
    """A pyramid from coarse to fine, joined at the finest map's size."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: tuple[int, int, int]
        out_channels: int = 256
        with_ppm: bool = True
        act_cfg: Config = default({"type": "ReLU"})

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        channels = self.out_channels = entries.out_channels
        self.fpn_laterals = nn.ModuleList(nn.Conv2d(count, channels, 1) for count in reversed(entries.in_channels))
        self.fpn_outputs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in entries.in_channels)
        self.ppm = PyramidPooling(channels, entries.act_cfg) if entries.with_ppm else nn.Identity()
        self.fusion = nn.Conv2d(len(entries.in_channels) * channels, channels, 1)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Return the map [N, C, h, w] of the finest of the last three levels."""
        count = len(self.fpn_laterals)
        if len(features) < count:
            raise ValueError(f"detect: the backbone must have at least {count} maps (out_indices), got {len(features)}")
        pairs = zip(self.fpn_laterals, reversed(features[-count:]), strict=True)
        coarsest, *finer = (lateral(x) for lateral, x in pairs)
        levels = [self.ppm(coarsest)]
        for x in finer:
            levels.append(x + functional.interpolate(levels[-1], scale_factor=2.0))
        outputs = [conv(x) for conv, x in zip(self.fpn_outputs, levels, strict=True)]
        size = outputs[-1].shape[2:]
        coarser = [functional.interpolate(x, size, mode="bilinear") for x in reversed(outputs[:-1])]
        return self.fusion(torch.cat([outputs[-1], *coarser], 1))


@dataclass(frozen=True, kw_only=True)
class DecoderEntries(Schema):
    """The entries of ``decoder``."""

    in_channels: int
    num_classes: int
    ins_dim: int = 256
    ins_conv: int = 4
    mask_dim: int = 256
    mask_conv: int = 4
    kernel_dim: int = 128
    scale_factor: float = 2.0
    num_masks: int = at_least(1, default=100)
    act_cfg: Config = default({"type": "ReLU"})

    ignored: ClassVar = {"output_iam": "no detection is made of these maps"}

    @property
    def groups(self) -> int:
        """The number of maps for each instance."""
        return 1

    def check(self, name: str) -> None:
        """Raise a ValueError if a cell of a mask is no whole number of pixels."""
        if self.scale_factor not in (1, 2, 4, 8):
            raise ValueError(f"detect.build: scale_factor of {name} must be 1, 2, 4 or 8, got {self.scale_factor}")


def _convs(in_channels: int, channels: int, count: int, act_cfg: Config) -> nn.Sequential:
    """Return convolutions with an activation after each; the keys of the weights number both."""
    inputs = [in_channels] + [channels] * (count - 1)
    pairs = ((nn.Conv2d(inner, channels, 3, padding=1), activation(act_cfg)) for inner in inputs[:count])
    return nn.Sequential(*(layer for pair in pairs for layer in pair))


class InstanceBranch(nn.Module):
    """For each instance the logits of the classes and of being one, and the weights that make its mask."""

    def __init__(self, entries: DecoderEntries) -> None:
        super().__init__()
        groups, self.num_masks = entries.groups, entries.num_masks
        dims = groups * entries.ins_dim
        self.inst_convs = _convs(entries.in_channels, entries.ins_dim, entries.ins_conv, entries.act_cfg)
        self.iam_conv = nn.Conv2d(entries.ins_dim, groups * entries.num_masks, 3, padding=1, groups=groups)
        self.cls_score = nn.Linear(dims, entries.num_classes)
        self.mask_kernel = nn.Linear(dims, entries.kernel_dim)
        self.objectness = nn.Linear(dims, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.inst_convs(x)
        shares = self.shares(self.iam_conv(x).flatten(2))  # [N, maps, h * w]
        instances = self.joined(shares @ x.flatten(2).transpose(1, 2))  # [N, Q, D]
        return self.cls_score(instances), self.objectness(instances), self.mask_kernel(instances)

    def shares(self, logits: Tensor) -> Tensor:
        """Return the share of each cell in what a map highlights; those of a map add up to 1."""
        # The sigmoid; ONNX Runtime's own is off by 6e-8, which matters in a map of low logits only: shares are ratios.
        highlights = 1 / (1 + (-logits).exp())
        return highlights / highlights.sum(2, keepdim=True).clamp(min=1e-6)

    def joined(self, features: Tensor) -> Tensor:
        """Return the features [N, Q, D] of instances, of what all maps highlight, [N, maps, C]."""
        return features


class GroupInstanceBranch(InstanceBranch):
    """Several maps for each instance, each made of a part of the features."""

    parts = 4
    """The project has this number where that of the groups is meant: with others, features of instances are mixed."""

    def __init__(self, entries: DecoderEntries) -> None:
        super().__init__(entries)
        dims = entries.groups * entries.ins_dim
        self.fc = nn.Linear(dims, dims)

    def joined(self, features: Tensor) -> Tensor:
        parts = torch.unflatten(features.flatten(1), 1, (self.parts, self.num_masks, -1))
        joined: Tensor = self.fc(parts.transpose(1, 2).flatten(2))
        return joined.relu()


class GroupInstanceSoftBranch(GroupInstanceBranch):
    """As `GroupInstanceBranch`; the cells of a map compete."""

    def __init__(self, entries: DecoderEntries) -> None:
        super().__init__(entries)
        self.parts = entries.groups
        self.softmax_bias = nn.Parameter(torch.ones(1))

    def shares(self, logits: Tensor) -> Tensor:
        return (logits + self.softmax_bias).softmax(2)


class MaskBranch(nn.Module):
    """The features that masks are made of."""

    def __init__(self, entries: DecoderEntries) -> None:
        super().__init__()
        self.mask_convs = _convs(entries.in_channels, entries.mask_dim, entries.mask_conv, entries.act_cfg)
        self.projection = nn.Conv2d(entries.mask_dim, entries.kernel_dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.projection(self.mask_convs(x))


class BaseIAMDecoder(nn.Module):
    """For each instance the logits of the classes and of being one, and a mask."""

    Entries = DecoderEntries
    instance_branch: ClassVar[type[InstanceBranch]] = InstanceBranch

    def __init__(self, entries: DecoderEntries) -> None:
        super().__init__()
        self.in_channels, self.scale_factor = entries.in_channels, float(entries.scale_factor)
        self.inst_branch = self.instance_branch(entries)
        self.mask_branch = MaskBranch(entries)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits of the classes [N, Q, C] and of being an instance [N, Q, 1], and mask logits [N, Q, h, w]."""
        x = torch.cat([coordinates(x), x], 1)
        logits, objectness, kernels = self.inst_branch(x)
        features = self.mask_branch(x)
        masks = torch.unflatten(kernels @ features.flatten(2), 2, features.shape[2:])
        return logits, objectness, functional.interpolate(masks, scale_factor=self.scale_factor, mode="bilinear")


class GroupIAMDecoder(BaseIAMDecoder):
    """A decoder with several maps for each instance."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(DecoderEntries):
        num_groups: int = at_least(1, default=4)

        @property
        def groups(self) -> int:
            """The number of maps for each instance."""
            return self.num_groups

    instance_branch = GroupInstanceBranch


class GroupIAMSoftDecoder(GroupIAMDecoder):
    """A decoder with several maps for each instance, in which cells compete."""

    instance_branch = GroupInstanceSoftBranch


@dataclass(frozen=True, kw_only=True)
class SparseInstTestCfg(Schema):
    """The entries of ``test_cfg``."""

    score_thr: float
    mask_thr_binary: float = at_least(0)


@PARTS.register("detector", "BaseIAMDecoder", "GroupIAMDecoder", "GroupIAMSoftDecoder")
class SparseInst(Detector):
    """SparseInst.  The project's boxes are 0; here they are those of the masks, for users."""

    @dataclass(frozen=True, kw_only=True)
    class Model(ModelEntries):
        types = ("SparseInst",)

        neck: None = only(None)
        encoder: InstanceContextEncoder = part("encoder", types={"InstanceContextEncoder": InstanceContextEncoder})
        decoder: BaseIAMDecoder = part(
            "decoder",
            types={
                "BaseIAMDecoder": BaseIAMDecoder,
                "GroupIAMDecoder": GroupIAMDecoder,
                "GroupIAMSoftDecoder": GroupIAMSoftDecoder,
            },
        )

        ignored: ClassVar = {**ModelEntries.ignored, **training_only("criterion")}

        def check(self, name: str) -> None:
            """Raise a ValueError if the decoder does not read the encoder's map and two coordinates."""
            inputs = self.encoder.out_channels + 2
            if self.decoder.in_channels != inputs:
                raise ValueError(
                    "detect.build: in_channels of decoder must be out_channels of encoder and two coordinates more, "
                    f"{inputs}, got {self.decoder.in_channels}"
                )

    family = "SparseInst"
    heads = head_entries = ("decoder",)
    TestCfg = SparseInstTestCfg
    test_cfg: SparseInstTestCfg
    encoder: InstanceContextEncoder
    decoder: BaseIAMDecoder

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.output_names = WITH_MASKS
        stride = FEATURE_STRIDE // int(self.decoder.scale_factor)
        self.mask_format = MaskFormat("image", self.test_cfg.mask_thr_binary, stride, "fit", boxes="masks")

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the decoder's outputs."""
        return "pred_logits", "pred_scores", "pred_masks"

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the decoder's outputs."""
        return self.decoder(self.encoder(self.levels(input)))

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        logits, objectness, masks = self.raw(input)
        threshold = self.test_cfg.mask_thr_binary
        scores, labels = (logits.sigmoid() * objectness.sigmoid()).sqrt().max(2)  # [N, Q]
        kept = scores > self.test_cfg.score_thr
        masks = masks.sigmoid()
        inside = (masks > threshold).to(masks.dtype)
        scores = scores * ((masks * inside).sum((2, 3)) / (inside.sum((2, 3)) + 1e-6))  # the mean inside the mask
        scores, order = torch.where(kept, scores, -1).topk(scores.shape[1])
        used = scores >= 0
        masks = torch.where(used[..., None, None], of_rows(masks, order), 0)
        cells = image_limits(input, None) / image_limits(masks, None)  # their pixels
        boxes = mask_boxes(masks, threshold, cells, image_limits(input, img_shape))
        dets = torch.cat([boxes, scores.clamp(min=0)[..., None]], 2)
        return dets, torch.where(used, labels.gather(1, order), -1), masks

"""Detectors whose queries have a class and a mask of the whole image: segments or instances, boxed by their masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.contract import WITH_MASKS, MaskFormat
from mmort.detect.detector import Detector, ModelEntries
from mmort.detect.entries import Parts, Schema, at_least, default, nested, only, training_only
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.image_masks import mask_boxes, of_rows
from mmort.detect.parts.positions import SinePositionalEncoding
from mmort.detect.parts.transformer import DecoderEntries, EncoderEntries
from mmort.detections import PanopticFormat

MASK_STRIDE = 4
POSITIONS: Config = {"num_feats": 128, "normalize": True}
"""MMDetection's default of a ``positional_encoding``."""

CHUNK = 10
"""Masks that are enlarged at the same time, for less memory."""


@dataclass(frozen=True, kw_only=True)
class MaskQueryEntries(Schema):
    """The entries of ``panoptic_head`` that its kinds share."""

    in_channels: tuple[int, ...]
    feat_channels: int
    out_channels: int
    num_things_classes: int = 80
    num_stuff_classes: int = 53
    num_queries: int = at_least(1, default=100)
    pixel_decoder: Any
    enforce_decoder_input_project: bool = False
    transformer_decoder: DecoderEntries = nested(DecoderEntries, "panoptic_head.transformer_decoder")
    positional_encoding: SinePositionalEncoding.Entries = nested(
        SinePositionalEncoding.Entries, "panoptic_head.positional_encoding", default=POSITIONS
    )

    ignored: ClassVar = training_only("strides")

    @classmethod
    def respelled(cls, name: str, config: Config) -> Config:
        """Give the pixel decoder the head's numbers of channels, as MMDetection does."""
        decoder = config.get("pixel_decoder")
        if not isinstance(decoder, dict):
            return config
        channels = {key: config[key] for key in ("in_channels", "feat_channels", "out_channels") if key in config}
        return {**config, "pixel_decoder": {**decoder, **channels}}

    def check(self, name: str) -> None:
        """Raise a ValueError if not all parts have the same channels."""
        numbers = {
            "embed_dims of panoptic_head.transformer_decoder": self.transformer_decoder.embed_dims,
            "2 * num_feats of panoptic_head.positional_encoding": 2 * self.positional_encoding.num_feats,
        }
        for entry, number in numbers.items():
            if number != self.feat_channels:
                raise ValueError(
                    f"detect.build: {entry} must be feat_channels of panoptic_head, {self.feat_channels}, got {number}"
                )


@dataclass(frozen=True, kw_only=True)
class PixelDecoderEntries(Schema):
    """The entries of ``panoptic_head.pixel_decoder`` that its kinds share; the head sets the numbers of channels."""

    in_channels: Sequence[int]
    feat_channels: int
    out_channels: int
    norm_cfg: Config | None = default({"type": "GN", "num_groups": 32})
    act_cfg: Config | None = default({"type": "ReLU"})


@dataclass(frozen=True, kw_only=True)
class EncoderPixelDecoderEntries(PixelDecoderEntries):
    """The entries of a pixel decoder that has an encoder."""

    encoder: EncoderEntries = nested(EncoderEntries, "pixel_decoder.encoder")
    positional_encoding: SinePositionalEncoding.Entries = nested(
        SinePositionalEncoding.Entries, "pixel_decoder.positional_encoding", default=POSITIONS
    )

    def check(self, name: str) -> None:
        """Raise a ValueError if the encoder has other channels."""
        if not self.encoder.embed_dims == 2 * self.positional_encoding.num_feats == self.feat_channels:
            raise ValueError(
                "detect.build: embed_dims of pixel_decoder.encoder and 2 * num_feats of "
                f"pixel_decoder.positional_encoding must be feat_channels, {self.feat_channels}, got "
                f"{self.encoder.embed_dims} and {2 * self.positional_encoding.num_feats}"
            )


@dataclass(frozen=True, kw_only=True)
class FusionEntries(Schema):
    """The entries of ``panoptic_fusion_head``, whose numbers of classes must be the head's."""

    types = ("MaskFormerFusionHead",)

    num_things_classes: int = 80
    num_stuff_classes: int = 53


@dataclass(frozen=True, kw_only=True)
class MaskQueryTestCfg(Schema):
    """The entries of ``test_cfg``."""

    instance_on: bool = False
    panoptic_on: bool = True
    semantic_on: bool = only(False)
    max_per_image: int = at_least(1, default=100)
    object_mask_thr: float = 0.8
    iou_thr: float = 0.8
    filter_low_score: bool = False

    def check(self, name: str) -> None:
        """Raise a ValueError if nothing is detected."""
        if not (self.instance_on or self.panoptic_on):
            raise ValueError(
                f"detect.build: {name}.panoptic_on and {name}.instance_on are false, so nothing is detected; "
                "set model.test_cfg.panoptic_on=True or model.test_cfg.instance_on=True"
            )


@dataclass(frozen=True, kw_only=True)
class MaskQueryModelEntries(ModelEntries):
    """The entries of ``model``."""

    types = ("MaskFormer", "Mask2Former")

    panoptic_head: Any
    panoptic_fusion_head: FusionEntries | None = nested(FusionEntries, "panoptic_fusion_head", default=None)

    def check(self, name: str) -> None:
        """Raise a ValueError if the fusion head's classes are not the head's."""
        head, fusion = self.panoptic_head, self.panoptic_fusion_head
        if fusion is None:
            return
        numbers = {
            "num_things_classes": (fusion.num_things_classes, head.things),
            "num_stuff_classes": (fusion.num_stuff_classes, head.classes - head.things),
        }
        for entry, (number, expected) in numbers.items():
            if number != expected:
                raise ValueError(
                    f"detect.build: {entry} of panoptic_fusion_head must be that of panoptic_head, {expected}, "
                    f"got {number}"
                )


def used_maps(maps: Sequence[Tensor], count: int) -> Sequence[Tensor]:
    """Return the first `count` maps, which a pixel decoder reads; ValueError if there are fewer."""
    if len(maps) < count:
        raise ValueError(
            f"detect: in_channels of panoptic_head must have at most {len(maps)} entries, as many as there are maps, "
            f"got {count}"
        )
    return maps[:count]


def mask_embedding(channels: int, out_channels: int) -> nn.Sequential:
    """Return the layers from a query to the factors of its mask's features."""
    hidden = [layer for _ in range(2) for layer in (nn.Linear(channels, channels), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(channels, out_channels))


def mask_logits(embeddings: Tensor, features: Tensor) -> Tensor:
    """Return masks [N, Q, h, w] of what `mask_embedding` makes of queries [N, Q, C], and of features [N, C, h, w]."""
    return torch.unflatten(embeddings @ features.flatten(2), 2, features.shape[2:])


class MaskQueryDetector(Detector):
    """Base of such detectors; a family's `Model` has the types of `panoptic_head`.

    The head has attributes `classes` and `things`, their numbers, the things first.  It is called with the backbone's
    maps, the input and the images' limits.  It returns class logits [N, Q, C + 1], the background last, and mask logits
    [N, Q, h, w].
    """

    entries: MaskQueryModelEntries
    TestCfg: ClassVar[type[Schema]] = MaskQueryTestCfg
    test_cfg: MaskQueryTestCfg
    panoptic_head: Any
    heads = head_entries = ("panoptic_head",)

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.output_names = WITH_MASKS
        self.mask_format = MaskFormat(
            "image",
            0.0,
            MASK_STRIDE,
            "fit",
            boxes="masks",
            scores="output" if self.test_cfg.panoptic_on else "masks",
            panoptic=self._panoptic_format() if self.test_cfg.panoptic_on else None,
        )

    def _panoptic_format(self) -> PanopticFormat:
        """Return how segments are made of the masks."""
        head, test_cfg = self.panoptic_head, self.test_cfg
        return PanopticFormat("queries", head.things, head.classes, test_cfg.iou_thr, test_cfg.filter_low_score)

    def prepare_for_export(self, *, flip: bool) -> tuple[str, ...]:
        """Name the instances, if the config has them and a panoptic segmentation, among what is left out."""
        left_out = super().prepare_for_export(flip=flip)
        if not (self.test_cfg.panoptic_on and self.test_cfg.instance_on):
            return left_out
        return *left_out, "the instances, which model.test_cfg.panoptic_on=False gives instead of the segments"

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of class and mask logits."""
        return "cls_pred", "mask_pred"

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Run the head for images that fill the input."""
        return self._raw(input, image_limits(input, None))

    def _raw(self, input: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Run the head for images that end at `limits`, [N, 1, 4]."""
        return self.panoptic_head(self.levels(input), input, limits)

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        limits = image_limits(input, img_shape)
        logits, masks = self._raw(input, limits)
        if self.test_cfg.panoptic_on:
            return self._segments(logits, masks, limits)
        return self._instances(logits, masks, limits, input)

    def _segments(self, logits: Tensor, masks: Tensor, limits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the candidates for the pixels of a panoptic segmentation: a row for each query, in their order."""
        scores, labels = logits.softmax(2).max(2)  # [N, Q]
        kept = (labels < self.panoptic_head.classes) & (scores > self.test_cfg.object_mask_thr)
        scores, labels = torch.where(kept, scores, 0), torch.where(kept, labels, -1)
        masks = torch.where(kept[..., None, None], masks, 0)
        boxes = mask_boxes(masks, 0.0, MASK_STRIDE, limits)
        return torch.cat([boxes, scores[..., None]], 2), labels, masks

    def _instances(self, logits: Tensor, masks: Tensor, limits: Tensor, input: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the things among the best pairs of query and class."""
        classes, things = self.panoptic_head.classes, self.panoptic_head.things
        scores = logits.softmax(2)[..., :-1].flatten(1)  # [N, Q * C]
        scores, pairs = scores.topk(min(self.test_cfg.max_per_image, scores.shape[1]))  # [N, K]
        labels = pairs % classes
        masks = of_rows(masks, pairs // classes)  # [N, K, h, w]
        scores = scores * torch.cat([_quality(chunk, limits, input) for chunk in torch.split(masks, CHUNK, 1)], 1)
        if things < classes:
            scores, labels = torch.where(labels < things, scores, 0), torch.where(labels < things, labels, -1)
        scores, order = scores.topk(scores.shape[1])
        labels, masks = labels.gather(1, order), of_rows(masks, order)
        masks = torch.where((labels >= 0)[..., None, None], masks, 0)
        boxes = mask_boxes(masks, 0.0, MASK_STRIDE, limits)
        return torch.cat([boxes, scores[..., None]], 2), labels, masks


def _quality(masks: Tensor, limits: Tensor, input: Tensor) -> Tensor:
    """Return the means [N, K] of the probabilities inside masks, of logits [N, K, h, w], in the images' pixels."""
    enlarged = functional.interpolate(masks, input.shape[2:], mode="bilinear")
    columns = torch.arange(input.shape[3], device=input.device) < limits[..., 0, None]  # [N, 1, W]
    rows = torch.arange(input.shape[2], device=input.device) < limits[..., 1, None]  # [N, 1, H]
    inside = ((enlarged > 0) & rows[..., None] & columns[:, :, None]).to(masks.dtype)
    return (enlarged.sigmoid() * inside).sum((2, 3)) / (inside.sum((2, 3)) + 1e-6)

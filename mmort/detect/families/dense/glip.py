"""GLIP: ATSS over DyHead's blocks that finds what words describe: it compares each location with each word.

In all models but the smallest, image and words also change each other before each block.  The words are constants of
the detector, as in Grounding DINO.

Source: L. H. Li et al., "Grounded Language-Image Pre-training", CVPR 2022; MMDetection's ``ATSSVLFusionHead``.  Box AP
of MMDetection's models on COCO val2017 without training on it: 43.0 (Swin-T A) to 51.3 (Swin-L).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.captions import Prompt
from mmort.configs.layout import DetectorConfig
from mmort.detect.detector import level_names
from mmort.detect.entries import PARTS, Parts, Schema, at_least, part, training_only
from mmort.detect.parts.bert import BASE, DTYPES, Bert, BertLayer, Text, layer_keys, sizes_of
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.fusion import MAX_LOGIT, FusionEntries, FusionLayer
from mmort.detect.parts.layers import Scale
from mmort.detect.parts.necks.dyhead import DyHeadBlock, DynamicReLU
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.selection import detections, merged
from mmort.detect.parts.single_stage import DenseDetector, DenseHead, SingleStageModel
from mmort.detect.parts.test_cfg import DenseEntries

LEVELS = 5
"""The maps that the head has a scale for, and the fusion takes."""

MAX_TOKENS = 256
"""Tokens of a caption among which names are looked for, whatever the config has."""

FUSION = FusionEntries(v_dim=256, l_dim=768, embed_dim=2048, num_heads=8)
"""The sizes of the fusion, whatever the config has."""

_HEAD = r"^bbox_head\.head\."
_BLOCK = _HEAD + r"dyhead_tower\.(\d+)\."


@dataclass(frozen=True)
class EncodedCaption:
    """A caption of T tokens as the detector reads it; numbers are there for both dtypes that it may compute in.

    Attributes
    ----------
    features : dict of dtype to Tensor, [1, T, D]
    shares : dict of dtype to Tensor, [T, C]
        For each class the weight of each token's score.
    """

    features: Mapping[torch.dtype, Tensor]
    shares: Mapping[torch.dtype, Tensor]

    @classmethod
    def of(cls, text: Text, features: Tensor) -> EncodedCaption:
        """Return the words of a text, with features in float64."""
        return cls({dtype: features.to(dtype) for dtype in DTYPES}, {dtype: text.shares.to(dtype) for dtype in DTYPES})


class LinearDynamicReLU(DynamicReLU):
    """DyHead's activation with layers of other names and shapes."""

    def __init__(self, channels: int) -> None:
        nn.Module.__init__(self)
        self.fc = nn.Sequential(nn.Linear(channels, channels // 4), nn.ReLU(), nn.Linear(channels // 4, channels * 4))

    def of_means(self, means: Tensor) -> Tensor:
        return self.fc(means.flatten(1))[..., None, None]


class Block(DyHeadBlock):
    """A block of DyHead, whose convolutions have a bias here."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, bias=True)
        self.task_attn_module = LinearDynamicReLU(channels)


class GLIPHead(DenseHead):
    """For each location the logits of words, a box and a centerness."""

    activation = "none"  # what the words' logits become are probabilities
    raw_kinds: ClassVar = ("cls_score", "bbox_pred", "centerness")
    renamed_keys = (
        (_BLOCK + r"dyconvs\.0\.conv\.", r"bbox_head.dyhead_tower.\1.spatial_conv_high.conv."),
        (_BLOCK + r"dyconvs\.1\.conv\.", r"bbox_head.dyhead_tower.\1.spatial_conv_mid.conv."),
        (_BLOCK + r"dyconvs\.2\.conv\.", r"bbox_head.dyhead_tower.\1.spatial_conv_low.conv."),
        (_BLOCK + r"dyconvs\.0\.bn\.", r"bbox_head.dyhead_tower.\1.spatial_conv_high.norm."),
        (_BLOCK + r"dyconvs\.1\.bn\.", r"bbox_head.dyhead_tower.\1.spatial_conv_mid.norm."),
        (_BLOCK + r"dyconvs\.2\.bn\.", r"bbox_head.dyhead_tower.\1.spatial_conv_low.norm."),
        (_BLOCK + r"offset\.", r"bbox_head.dyhead_tower.\1.spatial_conv_offset."),
        (_BLOCK + r"attnconv\.", r"bbox_head.dyhead_tower.\1.scale_attn_module."),
        (_BLOCK + r"relu\.", r"bbox_head.dyhead_tower.\1.task_attn_module."),
        (_BLOCK + r"b_attn\.", r"bbox_head.dyhead_tower.\1."),
        *layer_keys(_BLOCK, r"bbox_head.dyhead_tower.\1."),
        (_HEAD, "bbox_head."),
    )

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        types = ("ATSSVLFusionHead",)
        ignored: ClassVar = {
            "num_classes": "the words are the classes",
            **dict.fromkeys(("stacked_convs", "conv_cfg", "norm_cfg", "pred_kernel_size"), "the blocks are DyHead's"),
            **training_only("reg_decoded_bbox", "use_checkpoint"),
        }

        in_channels: int
        feat_channels: int = 256
        early_fuse: bool = False
        num_dyhead_blocks: int = at_least(1, default=6)
        lang_model_name: str = BASE[0]
        anchor_generator: Priors = part("prior generator")
        bbox_coder: BoxCoder = part("box coder", default={"type": "DeltaXYWHBBoxCoder"})

        def check(self, name: str) -> None:
            """Raise a ValueError if blocks, fusion and priors do not fit each other."""
            if self.in_channels != self.feat_channels:
                raise ValueError(
                    f"detect.build: in_channels of {name} must be feat_channels, got {self.in_channels} and "
                    f"{self.feat_channels}"
                )
            if self.early_fuse and self.feat_channels != FUSION.v_dim:
                raise ValueError(
                    f"detect.build: feat_channels of {name} with early_fuse must be {FUSION.v_dim}, "
                    f"got {self.feat_channels}"
                )
            priors = self.anchor_generator
            if tuple(priors.num_base_priors) != (1,) * LEVELS:
                raise ValueError(
                    f"detect.build: anchor_generator of {name} must have one anchor on each of {LEVELS} levels, got "
                    f"{', '.join(map(str, priors.num_base_priors))}"
                )

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes = 0  # the words'
        self.priors, self.coder, self.early_fuse = entries.anchor_generator, entries.bbox_coder, entries.early_fuse
        sizes, channels = sizes_of("lang_model_name of bbox_head", entries.lang_model_name), entries.feat_channels
        self.text_dims = sizes.hidden_size
        if self.early_fuse and self.text_dims != FUSION.l_dim:
            raise ValueError(
                f"detect.build: the language model of bbox_head with early_fuse must have {FUSION.l_dim} channels, "
                f"got {self.text_dims} in {entries.lang_model_name}"
            )
        layers: list[nn.Module] = []
        for _ in range(entries.num_dyhead_blocks):
            if self.early_fuse:
                layers += [FusionLayer(FUSION), BertLayer(sizes)]
            layers.append(Block(channels))
        self.dyhead_tower = nn.ModuleList(layers)
        self.bbox_pred, self.centerness = nn.Conv2d(channels, 4, 1), nn.Conv2d(channels, 1, 1)
        self.dot_product_projection_text = nn.Linear(self.text_dims, channels)
        self.log_scale, self.bias0 = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
        self.bias_lang = nn.Parameter(torch.zeros(self.text_dims))
        self.scales = nn.ModuleList(Scale() for _ in range(LEVELS))

    def forward(  # type: ignore[override]
        self, features: Sequence[Tensor], chunks: Sequence[EncodedCaption]
    ) -> tuple[Tensor, ...]:
        """Return for each chunk of words the logits of words [N, h*w, T] by level, and maps as `DenseHead` does."""
        outputs: list[Tensor] = []
        maps = features if self.early_fuse else self._tower(features)
        boxes = () if self.early_fuse else self._boxes(maps)
        for words in chunks:
            text = words.features[features[0].dtype].expand(features[0].shape[0], -1, -1)
            if self.early_fuse:
                maps, text = self._fused(features, text)
                boxes = self._boxes(maps)
            text = F.normalize(text, dim=-1)
            tokens = self.dot_product_projection_text(text / 2).transpose(1, 2)  # [N, C, T]
            bias = (text @ self.bias_lang + self.bias0)[:, None]
            logits = (x.flatten(2).transpose(1, 2) @ tokens / self.log_scale.exp() + bias for x in maps)
            outputs += (level.clamp(-MAX_LOGIT, MAX_LOGIT) for level in logits)
            outputs += boxes
        return tuple(outputs)

    def _boxes(self, maps: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the regressed numbers by level, then the centerness."""
        regressed = (scale(self.bbox_pred(x)) for scale, x in zip(self.scales, maps, strict=True))
        return (*regressed, *map(self.centerness, maps))

    def _tower(self, maps: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the maps that the blocks make of those of the neck."""
        for block in self.dyhead_tower:
            maps = block(maps)
        return maps

    def _fused(self, maps: Sequence[Tensor], text: Tensor) -> tuple[Sequence[Tensor], Tensor]:
        """Return the maps and the words [N, T, D] that the blocks make of both."""
        layers = iter(self.dyhead_tower)
        for fusion, text_layer, block in zip(layers, layers, layers, strict=True):
            sizes = [x.shape[2:] for x in maps]
            cells, text = fusion(torch.cat([x.flatten(2).transpose(1, 2) for x in maps], 1), text)
            by_level = cells.transpose(1, 2).split([height * width for height, width in sizes], 2)
            text = text_layer(text)
            maps = block([torch.unflatten(x, 2, size) for x, size in zip(by_level, sizes, strict=True)])
        return maps, text

    def with_factor(self, scores: Tensor, factor: Tensor) -> Tensor:
        return (scores * factor).sqrt()


@dataclass(frozen=True, kw_only=True)
class GLIPTestCfg(DenseEntries):
    """The entries of ``test_cfg``."""

    chunked_size: int = -1


@PARTS.register("detector", "ATSSVLFusionHead")
class GLIP(DenseDetector):
    """GLIP.

    Attributes
    ----------
    words : tuple of EncodedCaption
        Of each chunk of the names; empty until `set_texts`.
    """

    family = "GLIP"
    takes_texts = inclusive_boxes = True
    head = GLIPHead
    TestCfg = GLIPTestCfg
    bbox_head: GLIPHead
    test_cfg: GLIPTestCfg
    language_model: Bert

    @dataclass(frozen=True, kw_only=True)
    class Model(SingleStageModel):
        types = ("GLIP",)

        language_model: Bert = part("language model")

        def check(self, name: str) -> None:
            """Raise a ValueError if the language model knows sub-sentences."""
            if self.language_model.entries.use_sub_sentence_represent:
                raise ValueError(f"detect.build: use_sub_sentence_represent of {name}.language_model must be False")

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        if self.language_model.dims != self.bbox_head.text_dims:
            raise ValueError(
                "detect.build: language_model and lang_model_name of bbox_head must have the same channels, got "
                f"{self.language_model.dims} and {self.bbox_head.text_dims}"
            )
        self.words: tuple[EncodedCaption, ...] = ()

    def set_texts(self, prompt: Prompt, vocabulary: str | os.PathLike[str] | None = None) -> None:
        words, limits = [], self.language_model.limits(self.test_cfg.chunked_size)
        for text in self.language_model.texts(prompt, vocabulary, limits):
            if len(text.tokens.ids) > MAX_TOKENS:
                raise ValueError(
                    f"texts must have at most {MAX_TOKENS} tokens together (GLIP looks for no more), got "
                    f"{len(text.tokens.ids)}"
                )
            words.append(EncodedCaption.of(text, text.last if self.bbox_head.early_fuse else text.features))
        self.words, self.classes = tuple(words), prompt.names

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the head's maps, for each chunk of the names."""
        names = level_names(self.bbox_head.raw_kinds, LEVELS)
        if len(self.words) == 1:
            return names
        return tuple(f"{name}_{chunk}" for chunk in range(len(self.words)) for name in names)

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the head's logits of words [N, h*w, T] by level, and maps, for each chunk."""
        if not self.words:
            raise ValueError("detect: texts must be set before GLIP detects: set_texts")
        return self.bbox_head(self.levels(input), self.words)

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        limits, maps, chunks = image_limits(input, img_shape), self.raw(input), []
        count = len(maps) // len(self.words)
        for index, words in enumerate(self.words):
            logits, maps_of_boxes = maps[index * count :][:LEVELS], maps[index * count :][LEVELS:count]
            shares = words.shares[input.dtype]
            scores = [
                torch.unflatten((level.sigmoid() @ shares).transpose(1, 2), 2, regressed.shape[2:])
                for level, regressed in zip(logits, maps_of_boxes[:LEVELS], strict=True)
            ]
            boxes, of_boxes, _ = self.candidates([*scores, *maps_of_boxes], limits, shares.shape[1])
            chunks.append((*detections(boxes, of_boxes, self.test_cfg), shares.shape[1]))
        return merged(chunks)

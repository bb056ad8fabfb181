"""Co-DETR: DINO or Deformable DETR, trained with further heads; better detections may suppress or weaken others.

Source: Z. Zong et al., "DETRs with Collaborative Hybrid Assignments Training", ICCV 2023, its authors' code for
MMDetection 2, and ``projects/CO-DETR`` of MMDetection 3.  Box AP of Co-DINO on COCO val2017: 52.0 with R-50 and 5
scales; of Swin-L, trained on Objects365 before: 64.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.contract import WITH_MASKS, MaskFormat
from mmort.detect.entries import PARTS, Parts, at_least, nested, only, part, training_only
from mmort.detect.families.query.deformable_detr import (
    DeformableDETR,
    DeformableDETRHead,
    DeformableHeadWithTransformer,
    Transformer,
    keys_of_transformer,
)
from mmort.detect.families.query.dino import DINO, DINOHead
from mmort.detect.families.query.refine_masks import NormedMaskIoUHead, RefineMaskHead, refined
from mmort.detect.families.two_stage.mask_scoring_rcnn import rescored
from mmort.detect.parts.backbones.vit import RotaryViT
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.deformable_transformer import DeformableDecoderEntries, DeformableEncoderEntries
from mmort.detect.parts.heads.mask_head import own_class
from mmort.detect.parts.queries import QueryModelEntries, QueryTestCfg
from mmort.detect.parts.roi_extractor import RoIExtractor
from mmort.detect.parts.test_cfg import NMS, NO_SUPPRESSION, check_size_of_original
from mmort.detect.parts.two_stage import to_rows, used_rows
from mmort.torch import multiclass_nms


@dataclass(frozen=True, kw_only=True)
class CoTransformer(Transformer):
    """The entries of ``query_head.transformer``."""

    types = ("CoDinoTransformer", "CoDeformableDetrTransformer")
    ignored: ClassVar = {
        "as_two_stage": "the head sets it",
        "mixed_selection": "the head sets it",
        "two_stage_num_proposals": "the head's num_query, which it must be",
        **training_only("num_co_heads", "with_coord_feat", "with_pos_coord"),
    }


@dataclass(frozen=True, kw_only=True)
class QueryHead(DeformableHeadWithTransformer):
    """The entries of ``query_head`` that MMDetection's detectors without further heads have in the model."""

    ignored: ClassVar = {
        "embed_dims": "the transformer's",
        "in_channels": "the neck's",
        "num_feature_levels": "the transformer's",
        "share_pred_layer": "layers are never shared",
        "num_pred_layer": "the decoder's",
        **training_only("dn_cfg", "lambda_1", "max_pos_coords", "use_zero_padding"),
    }

    transformer: CoTransformer = nested(CoTransformer, "query_head.transformer")

    @property
    def queries(self) -> int:
        return self.num_query


@dataclass(frozen=True, kw_only=True)
class DINOQueryHead(QueryHead):
    """Those of Co-DINO."""

    types = ("CoDINOHead",)
    ignored: ClassVar = {**QueryHead.ignored, "mixed_selection": "queries are always learned"}

    num_query: int = at_least(1, default=900)
    with_box_refine: bool = only(True)
    as_two_stage: bool = only(True, required=True)


@dataclass(frozen=True, kw_only=True)
class DeformableQueryHead(QueryHead):
    """Those of Co-Deformable-DETR."""

    types = ("CoDeformDETRHead",)

    mixed_selection: bool = False

    def check(self, name: str) -> None:
        """Refuse queries that are made of proposals alone, which the authors' code has no more."""
        if self.as_two_stage and not self.mixed_selection:
            raise ValueError(f"detect.build: mixed_selection of {name} must be True with as_two_stage, got False")


@dataclass(frozen=True, kw_only=True)
class EncoderEntries(DeformableEncoderEntries):
    """The entries of ``query_head.transformer.encoder``."""

    ignored: ClassVar = {**DeformableEncoderEntries.ignored, **training_only("with_cp")}

    post_norm_cfg: Config | None = None  # of a layer that begins with a normalization, which is refused


@dataclass(frozen=True, kw_only=True)
class CoTestCfg(QueryTestCfg):
    """The entries of the first ``test_cfg``."""

    score_thr: float = 0.0
    nms: NMS | None = nested(NMS, default=None)
    mask_thr_binary: float | None = None  # of those beside the queries', where there is a mask head

    def check(self, name: str) -> None:
        """Refuse what the network cannot know."""
        if self.nms is not None:
            check_size_of_original("nms.offset", self.nms.offset)


@dataclass(frozen=True, kw_only=True)
class CoModel(DeformableDETR.Model):
    """The entries of ``model`` that both have."""

    query_head: ClassVar[type[QueryHead]]

    backbone: nn.Module = part("backbone", types=PARTS.replacing("backbone", ViT=RotaryViT))
    mask_roi_extractor: RoIExtractor | None = part("RoI extractor", default=None)
    mask_head: RefineMaskHead | None = part("mask_head", types={"SimpleRefineMaskHead": RefineMaskHead}, default=None)
    mask_iou_head: NormedMaskIoUHead | None = part(
        "mask_iou_head", types={"MaskIoUHead": NormedMaskIoUHead}, default=None
    )
    encoder: EncoderEntries = nested(EncoderEntries, "query_head.transformer.encoder")
    with_attn_mask: bool = True
    eval_module: str = only("detr")

    def check(self, name: str) -> None:
        """Raise a ValueError if a mask head lacks what it needs."""
        super().check(name)
        if self.mask_head is None:
            return
        if self.mask_roi_extractor is None:
            raise ValueError(f"detect.build: {name} with a mask_head must have a mask_roi_extractor")
        strides = len(self.mask_roi_extractor.roi_layers)
        if strides > self.num_feature_levels:
            raise ValueError(
                f"detect.build: featmap_strides of {name}.mask_roi_extractor must have at most num_feature_levels = "
                f"{self.num_feature_levels} elements, got {strides}"
            )

    @classmethod
    def respelled(cls, name: str, config: Config) -> Config:
        """Take the transformer out of ``query_head``; the other heads, ``bbox_head`` too, are the training's."""
        head = config.get("query_head")
        if not isinstance(head, dict):
            return config
        rest = {key: value for key, value in config.items() if key != "query_head"}
        return {**rest, **cls.query_head.of_model("query_head", head)}


@dataclass(frozen=True, kw_only=True)
class DecoderEntries(DeformableDecoderEntries):
    """The entries of ``query_head.transformer.decoder``."""

    types = ("DinoTransformerDecoder",)


@dataclass(frozen=True, kw_only=True)
class DeformableDETRDecoderEntries(DeformableDecoderEntries):
    """Those of Co-Deformable-DETR."""

    types = ("CoDeformableDetrTransformerDecoder",)
    ignored: ClassVar = {**DeformableDecoderEntries.ignored, **training_only("look_forward_twice")}


class CoDINOHead(DINOHead):
    """The head of DINO."""

    eps = 1e-3

    @dataclass(frozen=True, kw_only=True)
    class Entries(DINOHead.Entries):
        """The entries of ``query_head`` but for those of `QueryHead`."""

        types = ("CoDINOHead",)


class CoDeformDETRHead(DeformableDETRHead):
    """The head of Deformable DETR."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(DeformableDETRHead.Entries):
        """The entries of ``query_head`` but for those of `QueryHead`."""

        types = ("CoDeformDETRHead",)


_IGNORED = {
    "eval_index": "of the heads beside the queries'",
    "use_lsj": "MMDetection changes a copy of what it means to change",
    **training_only("rpn_head", "roi_head", "with_pos_coord"),
}
_UNUSED_KEYS = (
    r"^(rpn_head|roi_head|bbox_head\.\d+)\.",
    r"^query_head\.(downsample|dn_generator|label_embedding)\.",
    r"^query_head\.transformer\.(aux_pos_trans|pos_feats_|head_pos_embed)",
)


class Collaborative(DeformableDETR):
    """Base of both: how they select detections."""

    head_entries = ("query_head",)
    earlier_heads = "rpn_head", "roi_head", "bbox_head", "mask_head"  # those beside the queries'
    entries: CoModel
    TestCfg = CoTestCfg
    test_cfg: CoTestCfg
    mask_roi_extractor: RoIExtractor
    mask_head: RefineMaskHead
    mask_iou_head: NormedMaskIoUHead

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        # The authors' code suppresses among as many detections as there are queries, MMDetection's among max_per_img.
        by_authors = config.version == 2 and self.test_cfg.nms is not None
        self.candidates = self.queries if by_authors else self.max_per_image
        threshold = self.test_cfg.mask_thr_binary
        if self.entries.mask_head is not None:
            if threshold is None:
                raise ValueError(
                    "detect.build: the second test_cfg must have mask_thr_binary, as model has a mask_head"
                )
            self.output_names = WITH_MASKS
            self.mask_format = MaskFormat(threshold=threshold)

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        limits = image_limits(input, img_shape if self.entries.with_attn_mask else None)  # or the padding is image too
        features = self.levels(input)
        memory, pyramid = self.encoded(features, input, limits)
        dets, labels = self.detections(*self.decode(memory, pyramid), limits)
        if self.entries.mask_head is None:
            return dets, labels
        counts = [map.shape[2] * map.shape[3] for map in features]
        maps = [
            torch.unflatten(cells.transpose(1, 2), 2, map.shape[2:])
            for cells, map in zip(torch.split(memory, counts, 1), features, strict=True)
        ]
        return self.with_masks(maps, dets, labels)

    def with_masks(self, maps: list[Tensor], dets: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """Return detections and their masks [N, K, h, w] for the encoder's maps [N, D, h, w].

        As in Mask Scoring R-CNN, a detection has one score, the product of its own and of its mask's.
        """
        rows, rois, classes = used_rows(dets, labels)
        pooled = self.mask_roi_extractor(maps, rois)
        logits = self.mask_head(pooled, maps[0], rois, classes)
        masks = to_rows(refined(logits).sigmoid(), rows, labels)
        if self.entries.mask_iou_head is None:
            return dets, labels, masks
        overlaps = own_class(self.mask_iou_head(pooled, logits[1].sigmoid()), classes)
        return rescored(dets, labels, to_rows(overlaps, rows, labels), masks)

    def detections(self, logits: Tensor, boxes: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        dets, labels = self.best(logits, boxes, limits, self.candidates)
        scores = torch.where(dets[..., 4] > self.test_cfg.score_thr, dets[..., 4], 0)  # [N, K]
        classes = torch.arange(self.entries.bbox_head.num_classes, device=labels.device)
        of_classes = torch.where(labels[..., None] == classes, scores[..., None], 0)  # [N, K, C]
        nms = self.test_cfg.nms or NO_SUPPRESSION
        results: tuple[Tensor, ...] = multiclass_nms(
            dets[..., :4], of_classes, 0.0, max_per_image=self.max_per_image, **nms.arguments
        )
        return results[0], results[1]


@PARTS.register("detector", "CoDeformDETRHead")
class CoDeformableDETR(Collaborative):
    """Co-Deformable-DETR, of the authors' code."""

    family = "Co-Deformable-DETR"
    head_class = CoDeformDETRHead
    entries: Model

    @dataclass(frozen=True, kw_only=True)
    class Model(CoModel):
        """The entries of ``model``, and those of its ``query_head`` that Deformable DETR has there."""

        types = ("CoDETR",)
        query_head = DeformableQueryHead
        ignored: ClassVar = {**DeformableDETR.Model.ignored, **_IGNORED}

        decoder: DeformableDETRDecoderEntries = nested(DeformableDETRDecoderEntries, "query_head.transformer.decoder")
        bbox_head: CoDeformDETRHead.Entries = nested(CoDeformDETRHead.Entries, "query_head")

    renamed_keys = (
        *keys_of_transformer("query_head"),
        (r"^query_head\.(cls|reg)_branches\.", r"bbox_head.\1_branches."),
    )
    unused_keys: ClassVar = _UNUSED_KEYS

    def build_queries(self, model: QueryModelEntries) -> None:
        super().build_queries(model)
        if self.two_stages:
            self.query_embedding = nn.Embedding(self.queries, model.encoder.embed_dims)

    def proposed_queries(self, references: Tensor) -> tuple[Tensor, Tensor]:
        positions, x = super().proposed_queries(references)
        return positions, self.query_embedding.weight[: x.shape[1]].expand_as(x)


@PARTS.register("detector", "CoDINOHead")
class CoDINO(Collaborative, DINO):
    """Co-DINO."""

    family = "Co-DINO"
    head_class = CoDINOHead
    entries: Model

    @dataclass(frozen=True, kw_only=True)
    class Model(CoModel, DINO.Model):
        """The entries of ``model``, and those of its ``query_head`` that DINO has there."""

        types = ("CoDETR",)
        query_head = DINOQueryHead
        ignored: ClassVar = {**DINO.Model.ignored, **_IGNORED}

        decoder: DecoderEntries = nested(DecoderEntries, "query_head.transformer.decoder")
        bbox_head: CoDINOHead.Entries = nested(CoDINOHead.Entries, "query_head")

    renamed_keys = (
        *keys_of_transformer("query_head"),
        (r"^query_head\.transformer\.query_embed\.", "query_embedding."),
        (r"^query_head\.transformer\.decoder\.ref_point_head\.0\.", "decoder.ref_point_head.layers.0."),
        (r"^query_head\.transformer\.decoder\.ref_point_head\.2\.", "decoder.ref_point_head.layers.1."),
        (r"^query_head\.transformer\.decoder\.norm\.", "decoder.norm."),
        (r"^query_head\.(cls|reg)_branches\.", r"bbox_head.\1_branches."),
    )
    unused_keys: ClassVar = _UNUSED_KEYS

    def build_queries(self, model: QueryModelEntries) -> None:
        self.query_embedding = nn.Embedding(model.num_queries, model.encoder.embed_dims)

"""DINO: a deformable transformer whose queries are the best cells of the encoder, with boxes that every layer moves.

Source: H. Zhang et al., "DINO: DETR with Improved DeNoising Anchor Boxes for End-to-End Object Detection", ICLR 2023.
Box AP of MMDetection's R-50 model with 4 scales on COCO val2017: 49.0; of Swin-L with 5 scales: 57.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from mmort.detect.entries import PARTS, nested, only, training_only
from mmort.detect.families.query.deformable_detr import DeformableDETR, DeformableDETRHead
from mmort.detect.parts.deformable_transformer import DeformableDecoder, DeformableDecoderEntries, Pyramid
from mmort.detect.parts.positions import waves_of_coordinates, waves_of_references
from mmort.detect.parts.queries import MLP, QueryModelEntries, moved


class DINODecoder(DeformableDecoder):
    """Decoder layers, what encodes the boxes of the queries, and a normalization for the head."""

    def __init__(self, entries: DeformableDecoderEntries) -> None:
        super().__init__(entries)
        dims = self.embed_dims
        self.ref_point_head = MLP(2 * dims, dims, dims)
        self.norm = nn.LayerNorm(dims)

    def positions(self, boxes: Tensor) -> Tensor:
        """Return the position embeddings [N, Q, D] of queries with boxes [N, Q, 4]."""
        return self.ref_point_head(waves_of_references(boxes, self.embed_dims // 2))


class Denoising(nn.Module):
    """Holds the weights of what only the training does, as checkpoints have them."""

    class_layers: ClassVar = {"label_embedding": 0}

    def __init__(self, classes: int, dims: int) -> None:
        super().__init__()
        self.label_embedding = nn.Embedding(classes, dims)


class DINOHead(DeformableDETRHead):
    """The head of Deformable DETR."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(DeformableDETRHead.Entries):
        types = ("DINOHead",)


@PARTS.register("detector", "DINOHead")
class DINO(DeformableDETR):
    """DINO."""

    family = "DINO"
    decoder_class = DINODecoder
    head_class: ClassVar[type[DeformableDETRHead]] = DINOHead
    decoder: DINODecoder

    @dataclass(frozen=True, kw_only=True)
    class Model(DeformableDETR.Model):
        types = ("DINO",)
        ignored: ClassVar = {**DeformableDETR.Model.ignored, **training_only("dn_cfg")}

        with_box_refine: bool = only(True, required=True)
        as_two_stage: bool = only(True, required=True)
        bbox_head: DINOHead.Entries = nested(DINOHead.Entries, "bbox_head")

    def build_queries(self, model: QueryModelEntries) -> None:
        self.query_embedding = nn.Embedding(model.num_queries, model.encoder.embed_dims)
        self.dn_query_generator = Denoising(model.bbox_head.num_classes, model.encoder.embed_dims)

    def decode(self, memory: Tensor, pyramid: Pyramid) -> tuple[Tensor, Tensor]:
        boxes = self.best_proposals(memory, pyramid)  # [N, Q, 4]
        x = self.queries_of(boxes)
        last = len(self.decoder.layers) - 1
        for index, layer in enumerate(self.decoder.layers):
            positions = self.decoder.positions(pyramid.references(boxes)[:, :, 0])
            x = layer(x, positions, memory, pyramid, boxes)
            if index < last:  # MMDetection's head has another `eps`, and sees normalized queries
                boxes = moved(boxes, self.bbox_head.reg_branches[index](x), eps=1e-3)
        return self.bbox_head(self.decoder.norm(x), boxes, last)

    def queries_of(self, boxes: Tensor) -> Tensor:
        """Return the contents [N, Q, D] of queries with boxes [N, Q, 4]."""
        return self.query_embedding.weight[: boxes.shape[1]].expand(boxes.shape[0], -1, -1)

    def proposal_scores(self, logits: Tensor) -> Tensor:
        return logits.amax(2)


class AlignDETRHead(DINOHead):
    """The head of DINO, trained with other targets."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(DINOHead.Entries):
        types = ("AlignDETRHead",)
        ignored: ClassVar = {
            **DINOHead.Entries.ignored,
            **training_only("all_layers_num_gt_repeat", "alpha", "gamma", "tau"),
        }


@PARTS.register("detector", "AlignDETRHead")
class AlignDETR(DINO):
    """Align-DETR, of MMDetection's ``projects/AlignDETR``."""

    family = "Align-DETR"
    head_class = AlignDETRHead

    @dataclass(frozen=True, kw_only=True)
    class Model(DINO.Model):
        bbox_head: AlignDETRHead.Entries = nested(AlignDETRHead.Entries, "bbox_head")


class HybridDINOHead(DINOHead):
    """The head of DINO, trained with more targets for some of the queries."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(DINOHead.Entries):
        types = ("HybridDINOHead",)
        ignored: ClassVar = {**DINOHead.Entries.ignored, **training_only("k_one2many")}

        num_query_one2one: int


@PARTS.register("detector", "HybridDINOHead")
class HDINO(DINO):
    """H-DINO, of MMDetection's ``projects/HDINO``: queries are made of their boxes."""

    family = "H-DINO"
    head_class = HybridDINOHead

    @dataclass(frozen=True, kw_only=True)
    class Model(DINO.Model):
        types = ("HDINO",)

        bbox_head: HybridDINOHead.Entries = nested(HybridDINOHead.Entries, "bbox_head")

        def check(self, name: str) -> None:
            """Raise a ValueError if no queries are left, of which the project then detects in no image."""
            super().check(name)
            if self.bbox_head.num_query_one2one >= self.num_queries:
                raise ValueError(
                    f"detect.build: num_query_one2one of {name}.bbox_head must be less than num_queries, got "
                    f"{self.bbox_head.num_query_one2one} and {self.num_queries}"
                )

    def build_queries(self, model: QueryModelEntries) -> None:
        dims = model.encoder.embed_dims
        self.pos_trans_fc, self.pos_trans_norm = nn.Linear(2 * dims, dims), nn.LayerNorm(dims)
        self.dn_query_generator = Denoising(model.bbox_head.num_classes, dims)

    def queries_of(self, boxes: Tensor) -> Tensor:
        waves = waves_of_coordinates(boxes, self.decoder.embed_dims // 2).flatten(2)
        return self.pos_trans_norm(self.pos_trans_fc(waves))

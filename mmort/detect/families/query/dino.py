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
from mmort.detect.parts.positions import waves_of_references
from mmort.detect.parts.queries import MLP, QueryHeadEntries, QueryModelEntries, moved


class DINODecoder(DeformableDecoder):
    """Decoder layers, what encodes the boxes of the queries, and a normalization for the head."""

    def __init__(self, entries: DeformableDecoderEntries) -> None:
        super().__init__(entries)
        dims = self.embed_dims
        self.ref_point_head = MLP(2 * dims, dims, dims)
        self.norm = nn.LayerNorm(dims)

    def positions(self, boxes: Tensor) -> Tensor:
        """Return what is added to queries with boxes [N, Q, 4] where they are compared, [N, Q, D]."""
        positions: Tensor = self.ref_point_head(waves_of_references(boxes, self.embed_dims // 2))
        return positions


class Denoising(nn.Module):
    """Holds the weights of what only the training does, as checkpoints have them."""

    class_layers: ClassVar = {"label_embedding": 0}

    def __init__(self, classes: int, dims: int) -> None:
        super().__init__()
        self.label_embedding = nn.Embedding(classes, dims)


class DINOHead(DeformableDETRHead):
    """The head of Deformable DETR."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(QueryHeadEntries):
        """The entries of ``bbox_head``."""

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
        """The entries of ``model``."""

        types = ("DINO",)
        ignored: ClassVar = {**DeformableDETR.Model.ignored, **training_only("dn_cfg")}

        with_box_refine: bool = only(True, required=True)
        as_two_stage: bool = only(True, required=True)
        bbox_head: DINOHead.Entries = nested(DINOHead.Entries, "bbox_head")  # type: ignore[assignment]

    def build_queries(self, model: QueryModelEntries) -> None:
        self.query_embedding = nn.Embedding(model.num_queries, model.encoder.embed_dims)
        self.dn_query_generator = Denoising(model.bbox_head.num_classes, model.encoder.embed_dims)

    def decode(self, memory: Tensor, pyramid: Pyramid) -> tuple[Tensor, Tensor]:
        boxes = self.best_proposals(memory, pyramid)  # [N, Q, 4]
        x = self.query_embedding.weight[: boxes.shape[1]].expand(memory.shape[0], -1, -1)
        last = len(self.decoder.layers) - 1
        for index, layer in enumerate(self.decoder.layers):
            positions = self.decoder.positions(pyramid.references(boxes)[:, :, 0])
            x = layer(x, positions, memory, pyramid, boxes)
            if index < last:  # MMDetection's head has another `eps`, and sees normalized queries
                boxes = moved(boxes, self.bbox_head.reg_branches[index](x), eps=1e-3)
        results: tuple[Tensor, Tensor] = self.bbox_head(self.decoder.norm(x), boxes, last)
        return results

    def proposal_scores(self, logits: Tensor) -> Tensor:
        return logits.amax(2)

"""Deformable DETR: a set of boxes from a transformer that samples several feature maps at a few points.

Source: X. Zhu et al., "Deformable DETR", ICLR 2021.  Box AP of MMDetection's R-50 models on COCO val2017: 44.3; 46.2
with refined boxes; 47.0 with two stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import Parts, Schema, at_least, read_entries
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.deformable_transformer import DeformableDecoder, DeformableEncoder, Pyramid
from mmort.detect.parts.positions import SinePositionalEncoding, waves_of_coordinates
from mmort.detect.parts.queries import QueryDetector, best_pairs_of_queries, moved
from mmort.detect.parts.selection import take_rows
from mmort.detect.versions import Config, test_config


class DeformableDETRHead(nn.Module):
    """For each query the logits of the classes, and a box relative to a reference; layers for each decoder layer."""

    class_layers: ClassVar = {"cls_branches": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``bbox_head``."""

        ignored: ClassVar[Mapping[str, str]] = {
            **dict.fromkeys(
                ("num_query", "transformer", "positional_encoding", "with_box_refine", "as_two_stage"),
                "read by the detector, as MMDetection 3 has them in the model",
            ),
            "in_channels": "the neck's",
            "embed_dims": "the encoder's",
            "sync_cls_avg_factor": "training only",
        }

        num_classes: int
        num_reg_fcs: int = 2

    def __init__(self, entries: Entries, dims: int, count: int, *, shared: bool) -> None:
        super().__init__()
        made = 1 if shared else count

        def boxes() -> nn.Sequential:
            hidden = [layer for _ in range(entries.num_reg_fcs) for layer in (nn.Linear(dims, dims), nn.ReLU())]
            return nn.Sequential(*hidden, nn.Linear(dims, 4))

        # Shared layers have a key in the state_dict for each of their uses, as in MMDetection.
        self.cls_branches = nn.ModuleList([nn.Linear(dims, entries.num_classes) for _ in range(made)] * (count // made))
        self.reg_branches = nn.ModuleList([boxes() for _ in range(made)] * (count // made))

    def forward(self, x: Tensor, references: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Return class logits [N, Q, C] and boxes [N, Q, 4] for queries [N, Q, D] and references of a layer."""
        return self.cls_branches[layer](x), moved(references, self.reg_branches[layer](x))


class DeformableDETR(QueryDetector):
    """Deformable DETR."""

    @dataclass(frozen=True, kw_only=True)
    class TestCfg(Schema):
        """The entries of ``test_cfg``."""

        max_per_img: int | None = at_least(1, default=None)  # by default the number of queries

    family = "Deformable DETR"
    head_class: ClassVar[type[DeformableDETRHead]] = DeformableDETRHead
    decoder_class: ClassVar[type[DeformableDecoder]] = DeformableDecoder
    decoder: DeformableDecoder
    # MMDetection 3 took the transformer out of the head.
    model_entries = (
        *QueryDetector.model_entries,
        *("num_queries", "num_query", "num_feature_levels", "with_box_refine", "as_two_stage"),
        *("encoder", "decoder", "positional_encoding"),
    )
    renamed_keys = (
        # MMDetection 2
        (r"^bbox_head\.transformer\.(\w+coder\.layers\.\d+)\.attentions\.0\.", r"\1.self_attn."),
        (r"^bbox_head\.transformer\.(\w+coder\.layers\.\d+)\.attentions\.1\.", r"\1.cross_attn."),
        (r"^bbox_head\.transformer\.(\w+coder\.layers\.\d+)\.ffns\.0\.", r"\1.ffn."),
        (r"^bbox_head\.transformer\.(\w+coder\.layers\.\d+\.norms\.)", r"\1"),
        (r"^bbox_head\.transformer\.level_embeds$", "level_embed"),
        (r"^bbox_head\.transformer\.reference_points\.", "reference_points_fc."),
        (r"^bbox_head\.transformer\.enc_output\.", "memory_trans_fc."),
        (r"^bbox_head\.transformer\.enc_output_norm\.", "memory_trans_norm."),
        (r"^bbox_head\.transformer\.pos_trans\.", "pos_trans_fc."),
        (r"^bbox_head\.transformer\.pos_trans_norm\.", "pos_trans_norm."),
        (r"^bbox_head\.query_embedding\.", "query_embedding."),
    )

    def __init__(self, config: Config, parts: Parts) -> None:
        super().__init__()
        model = config["model"]
        head = model["bbox_head"]
        if not head.get("loss_cls", {}).get("use_sigmoid", False):
            raise ValueError("detect.build: bbox_head.loss_cls.use_sigmoid must be true: softmax is not supported")
        version_2 = "transformer" in head
        transformer, settings = (head["transformer"], head) if version_2 else (model, model)
        self.queries: int = settings.get("num_query" if version_2 else "num_queries") or 100
        self.refines = bool(settings.get("with_box_refine", False))
        self.two_stages = bool(settings.get("as_two_stage", False))
        self.backbone: nn.Module = parts.build("backbone", model["backbone"])
        self.neck: nn.Module = parts.build("neck", model["neck"])
        self.positional_encoding: SinePositionalEncoding = parts.build(
            "positional_encoding",
            {"type": "SinePositionalEncoding", **settings["positional_encoding"]},
            {"SinePositionalEncoding": SinePositionalEncoding},
        )
        self.encoder = DeformableEncoder(transformer["encoder"])
        self.decoder = self.decoder_class(transformer["decoder"])
        dims, layers = self.encoder.embed_dims, len(self.decoder.layers)
        levels: int = transformer.get("num_feature_levels", 4)
        self.level_embed = nn.Parameter(torch.zeros(levels, dims))
        self.bbox_head = self.head_class(
            read_entries("bbox_head", self.head_class.Entries, head),
            dims,
            layers + self.two_stages,
            shared=not self.refines,
        )
        if self.two_stages:
            self.memory_trans_fc, self.memory_trans_norm = nn.Linear(dims, dims), nn.LayerNorm(dims)
        self.build_queries(dims)
        test_cfg = read_entries("test_cfg", self.TestCfg, test_config(config))
        self.max_per_image: int = test_cfg.max_per_img or self.queries

    def build_queries(self, dims: int) -> None:
        """Create the layers that queries are made with."""
        if self.two_stages:
            self.pos_trans_fc, self.pos_trans_norm = nn.Linear(2 * dims, 2 * dims), nn.LayerNorm(2 * dims)
        else:
            self.query_embedding = nn.Embedding(self.queries, 2 * dims)
            self.reference_points_fc = nn.Linear(dims, 2)

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        limits = image_limits(input, img_shape)  # [N, 1, 4]
        logits, boxes = self._raw(input, limits)
        return best_pairs_of_queries(logits, boxes, limits, self.max_per_image)

    def _raw(self, input: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return what `raw` does, for images that end at `limits`, [N, 1, 4]."""
        features = self.neck(self.backbone(input))
        pyramid = Pyramid.of(features, input, limits, self.positional_encoding, self.level_embed)
        return self.decode(self.encoder(pyramid), pyramid)

    def decode(self, memory: Tensor, pyramid: Pyramid) -> tuple[Tensor, Tensor]:
        """Return class logits and boxes for what the encoder made of a pyramid, [N, P, D]."""
        if self.two_stages:
            references = self.best_proposals(memory, pyramid)
            embedded = waves_of_coordinates(references, memory.shape[2] // 2).flatten(2)
            positions, x = self.pos_trans_norm(self.pos_trans_fc(embedded)).chunk(2, 2)
        else:
            positions, x = self.query_embedding.weight.expand(memory.shape[0], -1, -1).chunk(2, 2)
            references = self.reference_points_fc(positions).sigmoid()
        last = len(self.decoder.layers) - 1
        for index, layer in enumerate(self.decoder.layers):
            x = layer(x, positions, memory, pyramid, references)
            if self.refines and index < last:
                references = moved(references, self.bbox_head.reg_branches[index](x))
        found: tuple[Tensor, Tensor] = self.bbox_head(x, references, last)
        return found

    def best_proposals(self, memory: Tensor, pyramid: Pyramid) -> Tensor:
        """Return the boxes [N, Q, 4] that the head predicts for the best cells, by descending score."""
        cells, proposals = self.proposals(memory, pyramid)
        scores = self.proposal_scores(self.bbox_head.cls_branches[-1](cells))  # [N, P]
        best = scores.topk(min(self.queries, scores.shape[1])).indices  # [N, Q]
        deltas = self.bbox_head.reg_branches[-1](take_rows(cells, best))
        return (deltas + take_rows(proposals, best)).sigmoid()

    def proposals(self, memory: Tensor, pyramid: Pyramid) -> tuple[Tensor, Tensor]:
        """Return what the head reads to propose boxes [N, P, D], and the logits of the boxes it moves [N, P, 4]."""
        proposals, usable = pyramid.proposals()
        return self.memory_trans_norm(self.memory_trans_fc(torch.where(usable, memory, 0))), proposals

    def proposal_scores(self, logits: Tensor) -> Tensor:
        """Return by what cells are chosen, [N, P], for class logits: here there is one class, the first."""
        return logits[..., 0]

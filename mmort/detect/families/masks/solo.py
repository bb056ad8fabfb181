"""SOLO: for every cell of a grid over the image the classes of the object whose middle it has, and its mask.

Source: X. Wang et al., "SOLO: Segmenting Objects by Locations", ECCV 2020; MMDetection's ``SOLOHead``, and
``DecoupledSOLOHead``, whose masks are products of one for the cell's column and one for its row.  Mask AP of
MMDetection's R-50 model on COCO val2017: 33.1.
"""

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
from mmort.detect.detector import Detector, ModelEntries, level_names
from mmort.detect.entries import PARTS, Parts, Schema, at_least, default, only, part, training_only
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.image_masks import mask_boxes, of_rows
from mmort.detect.parts.layers import tower
from mmort.detect.parts.positions import coordinates

MASK_STRIDE = 4


@dataclass(frozen=True, kw_only=True)
class SOLOEntries(Schema):
    """The entries of ``mask_head``."""

    num_classes: int
    in_channels: int
    feat_channels: int = 256
    stacked_convs: int = 4
    strides: Sequence[int] = (4, 8, 16, 32, 64)
    num_grids: Sequence[int] = (40, 36, 24, 16, 12)
    cls_down_index: int = only(0)
    norm_cfg: Config | None = default({"type": "GN", "num_groups": 32})

    ignored: ClassVar = training_only("pos_scale", "scale_ranges")


def grid_tower(entries: SOLOEntries, more_inputs: int = 0, **convs: Any) -> nn.Sequential:
    """Return a tower that reads some channels besides the features."""
    inputs = entries.in_channels + more_inputs
    return tower(inputs, entries.feat_channels, entries.stacked_convs, norm_cfg=entries.norm_cfg, **convs)


class GridHead(nn.Module):
    """Base of the heads: class logits for every cell of every level's grid."""

    raw_kinds: ClassVar[tuple[str, ...]]

    def __init__(self, entries: SOLOEntries, cls_convs: nn.Sequential) -> None:
        super().__init__()
        self.grids, self.strides, self.classes = tuple(entries.num_grids), tuple(entries.strides), entries.num_classes
        self.cls_convs = cls_convs
        self.conv_cls = nn.Conv2d(entries.feat_channels, entries.num_classes, 3, padding=1)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the maps that `masks` reads, and logits of the classes [N, C, grid, grid] by level, the last."""
        raise NotImplementedError

    def class_maps(self, features: Sequence[Tensor]) -> list[Tensor]:
        """Return logits of the classes by level, from features of the grids' sizes."""
        return [self.conv_cls(self.cls_convs(x)) for x in features]

    def masks(self, maps: Sequence[Tensor], cells: Sequence[Tensor]) -> Tensor:
        """Return probabilities [N, K, h, w] of the masks of some cells of each level, one level after another."""
        raise NotImplementedError

    def scores(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Return probabilities [N, cells, C] by level; 0 where a neighbour to the left or above has a higher one."""
        levels = []
        for map in maps[-len(self.grids) :]:
            scores = map.sigmoid()
            highest = functional.max_pool2d(scores, 2, stride=1, padding=1)[:, :, :-1, :-1]
            levels.append(torch.where(highest == scores, scores, 0).flatten(2).transpose(1, 2))
        return levels


def resized_features(features: Sequence[Tensor]) -> list[Tensor]:
    """Return features with half of the first map's size, and the last map as large as the one before."""
    first, *middle, last = features
    return [
        functional.interpolate(first, scale_factor=0.5, mode="bilinear"),
        *middle,
        functional.interpolate(last, features[-2].shape[2:], mode="bilinear"),
    ]


def with_coordinates(x: Tensor) -> Tensor:
    """Append two channels to a map: x and y from -1 in its first column or row to 1 in its last."""
    return torch.cat([x, coordinates(x)], 1)


def on_grids(features: Sequence[Tensor], grids: Sequence[int]) -> list[Tensor]:
    """Resize each level's features to its grid."""
    return [functional.interpolate(x, (grid, grid), mode="bilinear") for x, grid in zip(features, grids, strict=True)]


class SOLOHead(GridHead):
    """A mask for each cell, from a convolution of its own."""

    raw_kinds = ("mask_feat", "cls_score")
    Entries = SOLOEntries

    def __init__(self, entries: SOLOEntries) -> None:
        super().__init__(entries, grid_tower(entries))
        self.mask_convs = grid_tower(entries, 2)
        self.conv_mask_list = nn.ModuleList(nn.Conv2d(entries.feat_channels, grid**2, 1) for grid in self.grids)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        features = resized_features(features)
        masks = [_doubled(self.mask_convs(with_coordinates(x))) for x in features]
        return (*masks, *self.class_maps(on_grids(features, self.grids)))

    def masks(self, maps: Sequence[Tensor], cells: Sequence[Tensor]) -> Tensor:
        masks, size = [], maps[0].shape[2:]
        for conv, x, of_level in zip(self.conv_mask_list, maps, cells, strict=False):  # maps of the classes follow
            weights = conv.get_parameter("weight").flatten(1).index_select(0, of_level)  # [K, C]
            biases = conv.get_parameter("bias").index_select(0, of_level)
            logits = torch.unflatten(weights @ x.flatten(2) + biases[:, None], 2, x.shape[2:])
            masks.append(functional.interpolate(logits.sigmoid(), size, mode="bilinear"))
        return torch.cat(masks, 1)


def _doubled(x: Tensor) -> Tensor:
    """Return a map of twice the size."""
    return functional.interpolate(x, scale_factor=2.0, mode="bilinear")


class DecoupledSOLOHead(GridHead):
    """Two towers for the masks: one for columns, one for rows."""

    raw_kinds = ("mask_x", "mask_y", "cls_score")
    Entries = SOLOEntries

    def __init__(self, entries: SOLOEntries) -> None:
        super().__init__(entries, grid_tower(entries))
        self.mask_convs_x, self.mask_convs_y = grid_tower(entries, 1), grid_tower(entries, 1)
        self.conv_mask_list_x, self.conv_mask_list_y = _predictors(entries), _predictors(entries)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        features = resized_features(features)
        located = [with_coordinates(x) for x in features]
        columns = [self.mask_convs_x(x[:, :-1]) for x in located]
        rows = [self.mask_convs_y(torch.cat([x[:, :-2], x[:, -1:]], 1)) for x in located]
        return self._maps(columns, rows, features)

    def _maps(
        self, columns: Sequence[Tensor], rows: Sequence[Tensor], features: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Return all maps, from features for masks of columns and rows, and of all levels."""
        x = [predict(_doubled(map)) for predict, map in zip(self.conv_mask_list_x, columns, strict=True)]
        y = [predict(_doubled(map)) for predict, map in zip(self.conv_mask_list_y, rows, strict=True)]
        return (*x, *y, *self.class_maps(on_grids(features, self.grids)))

    def masks(self, maps: Sequence[Tensor], cells: Sequence[Tensor]) -> Tensor:
        levels, size, masks = len(self.grids), maps[0].shape[2:], []
        for level, (grid, of_level) in enumerate(zip(self.grids, cells, strict=True)):
            x, y = (
                functional.interpolate(map.sigmoid(), size, mode="bilinear")
                for map in (maps[level], maps[levels + level])
            )
            masks.append(x.index_select(1, of_level % grid) * y.index_select(1, of_level // grid))
        return torch.cat(masks, 1)


def _predictors(entries: SOLOEntries) -> nn.ModuleList:
    """Return a convolution for each level, with an output for each column or row of its grid."""
    return nn.ModuleList(nn.Conv2d(entries.feat_channels, grid, 3, padding=1) for grid in entries.num_grids)


class DecoupledSOLOLightHead(DecoupledSOLOHead):
    """One tower for columns and rows."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(SOLOEntries):
        dcn_cfg: Config | None = None

    def __init__(self, entries: Entries) -> None:
        GridHead.__init__(self, entries, grid_tower(entries, last_conv_cfg=entries.dcn_cfg))
        self.mask_convs = grid_tower(entries, 2, last_conv_cfg=entries.dcn_cfg)
        self.conv_mask_list_x, self.conv_mask_list_y = _predictors(entries), _predictors(entries)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        features = resized_features(features)
        shared = [self.mask_convs(with_coordinates(x)) for x in features]
        return self._maps(shared, shared, features)


def matrix_nms(masks: Tensor, scores: Tensor, labels: Tensor, kernel: str, sigma: float) -> Tensor:
    """Return scores [N, P], lowered where masks of the same label and higher scores overlap.

    Parameters
    ----------
    masks : Tensor, [N, P, cells]
        1 inside each mask, 0 outside.
    scores, labels : Tensor, [N, P]
    kernel : {"gaussian", "linear"}
    sigma : float
        Of the kernel "gaussian".
    """
    areas = masks.sum(2)
    shared = masks @ masks.transpose(1, 2)  # [N, P, P]
    overlaps = shared / (areas[:, :, None] + areas[:, None] - shared).clamp(min=1)
    rank = torch.arange(scores.shape[1], device=scores.device)
    higher = (scores[:, :, None] > scores[:, None]) | ((scores[:, :, None] == scores[:, None]) & (rank[:, None] < rank))
    overlaps = torch.where(higher & (labels[:, :, None] == labels[:, None]), overlaps, 0)  # of higher with lower
    suppression = overlaps.amax(1)[:, :, None]  # how far a higher one is itself suppressed
    if kernel == "gaussian":
        decay = torch.exp(-sigma * overlaps**2) / torch.exp(-sigma * suppression**2)
    else:
        decay = (1 - overlaps) / (1 - suppression)
    return scores * decay.amin(1)


def _used(scores: Tensor) -> Tensor:
    """Return the columns [K] of scores [N, P] that are positive in any image, and the first, so that there is one."""
    return torch.nonzero((scores > 0).any(0) | (torch.arange(scores.shape[1], device=scores.device) == 0))[:, 0]


def _best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` best of scores [N, P] and their indices; 0 and any index if there are fewer."""
    best, indices = torch.cat([scores, scores.new_zeros(scores.shape[0], count)], 1).topk(count)
    return best, indices.clamp(max=scores.shape[1] - 1)


@dataclass(frozen=True, kw_only=True)
class SOLOTestCfg(Schema):
    """The entries of ``test_cfg``."""

    nms_pre: int = at_least(1, default=500)
    score_thr: float = 0.1
    mask_thr: float = 0.5
    filter_thr: float = 0.05
    kernel: str = "gaussian"
    sigma: float = 2.0
    max_per_img: int = at_least(1, default=100)

    def __post_init__(self) -> None:
        if self.kernel not in ("gaussian", "linear"):
            raise ValueError(f"detect.build: test_cfg.kernel must be 'gaussian' or 'linear', got {self.kernel!r}")


@PARTS.register("detector", "SOLOHead", "DecoupledSOLOHead", "DecoupledSOLOLightHead")
class SOLO(Detector):
    """SOLO and its variants.

    MMDetection's boxes of SOLO are 0; here they are those of the masks, for users.
    """

    @dataclass(frozen=True, kw_only=True)
    class Model(ModelEntries):
        neck: nn.Module = part("neck")
        mask_head: GridHead = part(
            "mask_head",
            types={
                "SOLOHead": SOLOHead,
                "DecoupledSOLOHead": DecoupledSOLOHead,
                "DecoupledSOLOLightHead": DecoupledSOLOLightHead,
            },
        )

    family = "SOLO"
    head_entries, earlier_heads = ("mask_head",), ()
    heads = ("mask_head",)
    TestCfg = SOLOTestCfg
    test_cfg: SOLOTestCfg
    mask_head: GridHead

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.output_names = WITH_MASKS
        self.mask_format = MaskFormat("image", self.test_cfg.mask_thr, MASK_STRIDE, boxes="masks")

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the head's maps: its `raw_kinds` with the level."""
        return level_names(self.mask_head.raw_kinds, len(self.mask_head.grids))

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the head's maps."""
        return self.mask_head(self.levels(input))

    def _candidates(self, maps: Sequence[Tensor], limit: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores and labels [N, P] of the best pairs of cell and class, at most `limit`, and their masks.

        Only cells with a class above ``score_thr`` in any image have masks: few in most images.
        """
        head, test_cfg = self.mask_head, self.test_cfg
        scores_of_levels = [torch.where(scores > test_cfg.score_thr, scores, 0) for scores in head.scores(maps)]
        cells = [_used(scores.amax(2)) for scores in scores_of_levels]
        masks = head.masks(maps, cells)  # [N, K, h, w]
        inside = (masks > test_cfg.mask_thr).to(masks.dtype)
        areas = inside.sum((2, 3))
        quality = (masks * inside).sum((2, 3)) / areas.clamp(min=1)  # the mean inside the mask
        # Masks of as many pixels as their level's stride, or fewer, are dropped.
        strides = torch.cat([torch.full_like(*pair) for pair in zip(cells, head.strides, strict=True)])
        quality = torch.where(areas > strides, quality, 0)
        scores = torch.cat([x.index_select(1, rows) for x, rows in zip(scores_of_levels, cells, strict=True)], 1)
        scores, pairs = _best((scores * quality[..., None]).flatten(1), limit)
        columns = _used(scores)
        scores, pairs = scores.index_select(1, columns), pairs.index_select(1, columns)
        return scores, pairs % head.classes, of_rows(masks, pairs // head.classes)

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        head, test_cfg = self.mask_head, self.test_cfg
        limit = min(test_cfg.nms_pre, head.classes * sum(grid**2 for grid in head.grids))
        scores, labels, masks = self._candidates(self.raw(input), limit)
        binary = (masks > test_cfg.mask_thr).to(masks.dtype).flatten(2)  # [N, P, h * w]
        scores = matrix_nms(binary, scores, labels, test_cfg.kernel, test_cfg.sigma)
        # NaN, which the linear kernel gives to the third of three equal masks, is not at least anything.
        scores = torch.where((scores > 0) & (scores >= test_cfg.filter_thr), scores, 0)
        scores, chosen = _best(scores, min(test_cfg.max_per_img, limit))  # [N, K]
        used = scores > 0
        masks = torch.where(used[..., None, None], of_rows(masks, chosen), 0)
        boxes = mask_boxes(masks, test_cfg.mask_thr, MASK_STRIDE, image_limits(input, img_shape))
        dets = torch.cat([boxes, torch.where(used, scores, 0)[..., None]], 2)
        return dets, torch.where(used, labels.gather(1, chosen), -1), masks

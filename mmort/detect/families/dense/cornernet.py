"""CornerNet: boxes as pairs of corners that are detected separately.

Source: H. Law and J. Deng, "CornerNet: Detecting Objects as Paired Keypoints", ECCV 2018.  Box AP of MMDetection's
Hourglass-104 model on COCO val2017, with the flip test: 41.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.configs.test_pipeline import CenterPad
from mmort.detect.detector import Detector, ModelEntries
from mmort.detect.entries import PARTS, Parts, Schema, at_least, nested
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.selection import take_rows
from mmort.detect.parts.test_cfg import NMS
from mmort.torch import corner_pool, multiclass_nms

_Edge = Literal["top", "bottom", "left", "right"]

_MAX_PAIRS = 1000
"""Maximum number of pairs that go into the suppression; a constant of MMDetection."""


class BiCornerPool(nn.Module):
    """Two convolutions, each pooled towards one edge; their sum, with a shortcut."""

    def __init__(self, channels: int, modes: tuple[_Edge, _Edge]) -> None:
        super().__init__()
        norm, inner = {"type": "BN"}, 128
        self.modes = modes
        self.direction1_conv = ConvModule(channels, inner, 3, padding=1, norm_cfg=norm)
        self.direction2_conv = ConvModule(channels, inner, 3, padding=1, norm_cfg=norm)
        self.aftpool_conv = ConvModule(inner, channels, 3, padding=1, norm_cfg=norm, act_cfg=None)
        self.conv1 = ConvModule(channels, channels, 1, norm_cfg=norm, act_cfg=None)
        self.conv2 = ConvModule(channels, channels, 3, padding=1, norm_cfg=norm)

    def forward(self, x: Tensor) -> Tensor:
        first = corner_pool(self.direction1_conv(x), self.modes[0])
        second = corner_pool(self.direction2_conv(x), self.modes[1])
        return self.conv2(torch.relu(self.aftpool_conv(first + second) + self.conv1(x)))


class CornerHead(nn.Module):
    """Heatmaps of the corners by class, and at each location an embedding and the offset to the exact corner.

    There are branches for each of the backbone's stacks; only those of the last that has both detect.
    """

    class_layers: ClassVar = {"tl_heat": 0, "br_heat": 0}
    embedding_channels: ClassVar = 1

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_classes: int
        in_channels: int
        num_feat_levels: int = at_least(1, default=2)
        corner_emb_channels: int = 1

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        in_channels = entries.in_channels
        if entries.corner_emb_channels != self.embedding_channels:
            raise ValueError(
                f"detect.build: bbox_head.corner_emb_channels must be {self.embedding_channels}, "
                f"got {entries.corner_emb_channels}"
            )
        self.classes = entries.num_classes
        levels = range(entries.num_feat_levels)
        self.tl_pool = nn.ModuleList(BiCornerPool(in_channels, ("top", "left")) for _ in levels)
        self.br_pool = nn.ModuleList(BiCornerPool(in_channels, ("bottom", "right")) for _ in levels)
        self.tl_heat = nn.ModuleList(branch(in_channels, self.classes) for _ in levels)
        self.br_heat = nn.ModuleList(branch(in_channels, self.classes) for _ in levels)
        if self.embedding_channels:
            self.tl_emb = nn.ModuleList(branch(in_channels, self.embedding_channels) for _ in levels)
            self.br_emb = nn.ModuleList(branch(in_channels, self.embedding_channels) for _ in levels)
        self.tl_off = nn.ModuleList(branch(in_channels, 2) for _ in levels)
        self.br_off = nn.ModuleList(branch(in_channels, 2) for _ in levels)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the maps of the last stack [N, in_channels, h, w] that has branches; see `maps`."""
        last = min(len(features), len(self.tl_pool)) - 1
        return self.maps(features[last], last)

    def maps(self, x: Tensor, level: int) -> tuple[Tensor, ...]:
        """Return heat [N, C, h, w], embedding [N, 1, h, w], offset [N, 2, h, w], each of top left and bottom right."""
        tl, br = self.tl_pool[level](x), self.br_pool[level](x)  # [N, in_channels, h, w]
        branches = (self.tl_heat, self.br_heat), (self.tl_emb, self.br_emb), (self.tl_off, self.br_off)
        return tuple(branch[level](pooled) for pair in branches for branch, pooled in zip(pair, (tl, br), strict=True))


def branch(in_channels: int, channels: int) -> nn.Sequential:
    """Build the two convolutions of a branch."""
    return nn.Sequential(ConvModule(in_channels, 256, 3, padding=1), ConvModule(256, channels, 1, act_cfg=None))


class Corners(NamedTuple):
    """The best corners of one kind, by descending score."""

    scores: Tensor  # [N, K]
    classes: Tensor  # of int64, [N, K]
    points: Tensor  # x, y in cells of the heatmap, [N, K, 2]
    features: Tensor  # what pairs them, the embedding, [N, K, E]


@dataclass(frozen=True, kw_only=True)
class CornerNetTestCfg(Schema):
    """The entries of ``test_cfg``."""

    max_per_img: int = at_least(1)
    nms: NMS | None = nested(NMS, default=None)
    nms_cfg: NMS | None = nested(NMS, default=None)  # an older name
    corner_topk: int = at_least(1, default=100)
    local_maximum_kernel: int = 3
    distance_threshold: float = 0.5

    ignored: ClassVar = {"score_thr": "MMDetection does not read it either"}


@PARTS.register("detector", "CornerHead")
class CornerNet(Detector):
    """CornerNet.

    The published test pipeline puts an image in the middle of a canvas (``RandomCenterCropPad``).  Canvases of
    different sizes are batched as other images are: each in the upper left corner of the input.  ``img_shape`` is still
    the size of the image itself; its position in the canvas follows from that size and the config.  Boxes are in pixels
    of the input: subtract the border of the canvas for boxes in the image.  They are clipped to the upper left corner
    of the image, without ``img_shape`` to that of the input.

    Attributes
    ----------
    flip_test : bool, default False
        Detect in the images and in their mirror images, and suppress all boxes together, as MMDetection does with
        ``flip=True`` in the test pipeline.

    Notes
    -----
    In a batch coordinates are scaled by the size of the input, as in MMDetection 3.  MMDetection 2 scales by that of
    each canvas although the heatmaps cover the input, and so misplaces boxes in the smaller canvases.

    As in MMDetection 2 the border is not mirrored with the image.  If it is one pixel wider on the right, boxes of the
    mirror image are off by that pixel.
    """

    family = "CornerNet"
    head: ClassVar[type[CornerHead]] = CornerHead
    entries: Model
    TestCfg = CornerNetTestCfg
    test_cfg: CornerNetTestCfg

    @dataclass(frozen=True, kw_only=True)
    class Model(ModelEntries):
        types = ("CornerNet",)

        type: str
        bbox_head: Config

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.bbox_head: CornerHead = parts.construct("bbox_head", self.head, self.entries.bbox_head)
        nms = self.test_cfg.nms or self.test_cfg.nms_cfg
        if nms is None:
            raise ValueError("detect.build: test_cfg must have nms")
        self.nms = nms
        self.pad_or = _pad_or(config)

    def prepare_for_export(self, *, flip: bool) -> tuple[str, ...]:
        """Detect in the mirror images too if the test pipeline does."""
        self.flip_test = flip
        return ()

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the head's maps."""
        return "tl_heat", "br_heat", "tl_emb", "br_emb", "tl_off", "br_off"

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the head's maps, as `CornerHead` does."""
        return self.bbox_head(self.levels(input))

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        size = image_limits(input, None)  # width, height, width, height of the input, [N, 1, 4]
        image = image_limits(input, img_shape)  # of each image
        canvas = size if img_shape is None else torch.minimum(self.canvas(image), size)  # of each with its border
        if self.flip_test:
            input = torch.cat([input, _mirrored(input, canvas)])
        return self.detect(self.raw(input), size, image, canvas)

    def canvas(self, image: Tensor) -> Tensor:
        """Return the size of the canvas that the test pipeline puts an image on, from its size, both [N, 1, 4]."""
        step = self.pad_or + 1  # a power of two: all bits below it are set
        return torch.floor(image / step) * step + self.pad_or

    def detect(self, maps: tuple[Tensor, ...], size: Tensor, image: Tensor, canvas: Tensor) -> tuple[Tensor, Tensor]:
        """Return dets and labels of the head's maps.

        Parameters
        ----------
        maps : tuple of Tensor
            As `raw` returns them; with `flip_test` the second half is that of the mirror images.
        size, image, canvas : Tensor, [N, 1, 4]
            Width, height, width, height of the area of the maps, of the images, and of the images with their borders.
        """
        origin = torch.floor((canvas - image) / 2)  # x, y, x, y of each image's corner, [N, 1, 4]
        if self.flip_test:
            batch = size.shape[0]
            boxes, *rest = self.pairs(tuple(map[:batch] for map in maps), size, origin)
            mirrored, *also_found = self.pairs(tuple(map[batch:] for map in maps), size, origin)
            x1, y1, x2, y2 = mirrored.unbind(2)
            ends = (2 * origin + image)[..., 0]  # the sum of the x of a point and of its mirror image, [N, 1]
            mirrored = torch.stack([ends - x2, y1, ends - x1, y2], 2)
            boxes = torch.cat([boxes, mirrored], 1)
            scores, labels = (torch.cat(both, 1) for both in zip(rest, also_found, strict=True))
        else:
            boxes, scores, labels = self.pairs(maps, size, origin)  # [N, P, 4], [N, P], [N, P]
        of_class = labels[..., None] == torch.arange(self.bbox_head.classes, device=labels.device)
        by_class = torch.where(of_class & (scores >= 0)[..., None], scores[..., None], 0)  # [N, P, C]
        dets, labels, _ = multiclass_nms(
            boxes, by_class, 0.0, max_per_image=self.test_cfg.max_per_img, **self.nms.arguments
        )
        return dets, labels

    def pairs(self, maps: tuple[Tensor, ...], size: Tensor, origin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best pairs: boxes [N, P, 4], scores [N, P] (-1 if the corners do not fit) and labels [N, P]."""
        tl_heat, br_heat, tl_features, br_features, tl_off, br_off = maps
        height, width = tl_heat.shape[2:]
        extent = torch.stack([torch.scalar_tensor(width), torch.scalar_tensor(height)]).to(size)  # [2]
        scale, min_xy = (size[..., :2] / extent), origin[..., :2]  # [N, 1, 2]
        tl = self.corners(tl_heat, tl_features, tl_off)
        br = self.corners(br_heat, br_features, br_off)

        def pixels(points: Tensor) -> Tensor:
            """Return points in pixels of cells' x, y, [N, K, 2]."""
            return torch.maximum(points * scale, min_xy)

        first, last = pixels(tl.points), pixels(br.points)
        misfit = (
            (tl.classes[:, :, None] != br.classes[:, None])
            | self.apart(tl, br, pixels)
            | (last[:, None] <= first[:, :, None]).any(3)
        )  # [N, K, K]
        scores = torch.where(misfit, -1, (tl.scores[:, :, None] + br.scores[:, None]) / 2).flatten(1)
        shape = misfit.shape  # [N, K, K]
        boxes = torch.cat([first[:, :, None].expand(*shape, 2), last[:, None].expand(*shape, 2)], 3)
        labels = tl.classes[:, :, None].expand(shape)
        scores, indices = scores.topk(min(_MAX_PAIRS, scores.shape[1]))  # [N, P]
        return take_rows(boxes.flatten(1, 2), indices), scores, labels.flatten(1).gather(1, indices)

    def apart(self, tl: Corners, br: Corners, pixels: Callable[[Tensor], Tensor]) -> Tensor:
        """Return which pairs of corners do not belong to one object, [N, K, K]; `pixels` converts points."""
        distance = (tl.features[:, :, None] - br.features[:, None]).abs()[..., 0]
        return distance > self.test_cfg.distance_threshold

    def corners(self, heat: Tensor, features: Tensor, offset: Tensor) -> Corners:
        """Return the best corners of one kind, of any class."""
        heat = heat.sigmoid()
        kernel = self.test_cfg.local_maximum_kernel
        highest = nn.functional.max_pool2d(heat, kernel, stride=1, padding=(kernel - 1) // 2)
        heat = torch.where(heat == highest, heat, 0).flatten(2).transpose(1, 2)  # [N, h*w, C]
        y, x = (torch.arange(size, device=heat.device) for size in offset.shape[2:])
        cells = torch.stack(torch.meshgrid(x, y, indexing="xy"))  # [2, h, w]
        points, features = (map.flatten(2).transpose(1, 2) for map in (cells + offset, features))  # [N, h*w, ...]
        scores = heat.flatten(1)
        scores, indices = scores.topk(min(self.test_cfg.corner_topk, scores.shape[1]))  # [N, K]
        cell = indices // self.bbox_head.classes
        return Corners(scores, indices % self.bbox_head.classes, take_rows(points, cell), take_rows(features, cell))


def _mirrored(input: Tensor, canvas: Tensor) -> Tensor:
    """Return the canvases in an input [N, C, H, W], each mirrored left to right; pixels beside them stay."""
    columns = torch.arange(input.shape[3], device=input.device)  # [W]
    last = canvas[:, :, 0].to(columns.dtype) - 1  # [N, 1]
    sources = torch.where(columns <= last, last - columns, columns)  # [N, W]
    return input.gather(3, sources[:, None, None].expand(-1, input.shape[1], input.shape[2], -1))


def _pad_or(config: DetectorConfig) -> int:
    """Return the number of ``test_pad_mode=("logical_or", number)`` in the test pipeline; 0 without such padding."""
    steps = config.test_pipeline.steps if config.has_test_pipeline else ()
    step = next((step for _, step in steps if isinstance(step, CenterPad)), None)
    if step is None:
        return 0
    if step.pad_or & (step.pad_or + 1) or step.test_pad_add_pix:
        raise ValueError(
            "detect.build: RandomCenterCropPad must have test_pad_mode ('logical_or', 2**n - 1) and no "
            f"test_pad_add_pix, got {step.pad_or} and {step.test_pad_add_pix}"
        )
    return step.pad_or

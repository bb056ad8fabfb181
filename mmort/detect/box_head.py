"""The heads that say of a region's features which class it is and where its object lies.

Source: MMDetection's ``BBoxHead`` and ``ConvFCBBoxHead``.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from mmort.detect.boxes import build_box_coder
from mmort.detect.detector import Config, construct, require
from mmort.detect.layers import tower
from mmort.detect.selection import detections

_BOX_CODER = {"type": "DeltaXYWHBBoxCoder", "target_means": [0.0] * 4, "target_stds": [0.1, 0.1, 0.2, 0.2]}


class BoxHead(nn.Module):
    """Shared layers, then layers for the classes and for the boxes, then one linear layer for each.

    The arguments are the entries of the config's ``bbox_head``.
    """

    def __init__(
        self,
        num_shared_convs: int = 0,
        num_shared_fcs: int = 0,
        num_cls_convs: int = 0,
        num_cls_fcs: int = 0,
        num_reg_convs: int = 0,
        num_reg_fcs: int = 0,
        conv_out_channels: int = 256,
        fc_out_channels: int = 1024,
        conv_cfg: Config | None = None,
        norm_cfg: Config | None = None,
        with_avg_pool: bool = False,
        roi_feat_size: int = 7,
        in_channels: int = 256,
        num_classes: int = 80,
        bbox_coder: Config = _BOX_CODER,
        reg_class_agnostic: bool = False,
        cls_predictor_cfg: Config = {"type": "Linear"},  # noqa: B006 - never written to
        reg_predictor_cfg: Config = {"type": "Linear"},  # noqa: B006
    ) -> None:
        super().__init__()
        require("bbox_head.cls_predictor_cfg", cls_predictor_cfg["type"], "Linear")
        require("bbox_head.reg_predictor_cfg", reg_predictor_cfg["type"], "Linear")
        self.classes = num_classes
        self.class_agnostic = reg_class_agnostic
        self.average = with_avg_pool
        self.coder = build_box_coder(bbox_coder)

        def convolutions(count: int, channels: int) -> tuple[nn.Sequential, int]:  # and how many channels come out
            layers = tower(channels, conv_out_channels, count, conv_cfg=conv_cfg, norm_cfg=norm_cfg)
            return layers, conv_out_channels if count else channels

        def linears(count: int, features: int) -> tuple[nn.ModuleList, int]:  # and how many features come out
            inputs = [features, *[fc_out_channels] * count]
            return nn.ModuleList(nn.Linear(one, fc_out_channels) for one in inputs[:-1]), inputs[-1]

        pixels = 1 if with_avg_pool else roi_feat_size**2  # of what is flattened
        self.shared_convs, channels = convolutions(num_shared_convs, in_channels)
        self.shared_fcs, shared = linears(num_shared_fcs, channels * pixels)
        self.cls_convs, cls_channels = convolutions(num_cls_convs, channels)
        self.reg_convs, reg_channels = convolutions(num_reg_convs, channels)
        self.cls_fcs, cls_features = linears(num_cls_fcs, shared if num_shared_fcs else cls_channels * pixels)
        self.reg_fcs, reg_features = linears(num_reg_fcs, shared if num_shared_fcs else reg_channels * pixels)
        self.fc_cls = nn.Linear(cls_features, num_classes + 1)
        self.fc_reg = nn.Linear(reg_features, 4 if reg_class_agnostic else 4 * num_classes)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Give logits [R, classes + 1] (background last) and deltas [R, 4 or classes * 4], of features [R, C, h, w]."""
        x = self.shared_convs(features)
        if self.shared_fcs:
            shared = _fully_connect(self.shared_fcs, self._flat(x))
            return (
                self.fc_cls(_fully_connect(self.cls_fcs, shared)),
                self.fc_reg(_fully_connect(self.reg_fcs, shared)),
            )
        return (
            self.fc_cls(_fully_connect(self.cls_fcs, self._flat(self.cls_convs(x)))),
            self.fc_reg(_fully_connect(self.reg_fcs, self._flat(self.reg_convs(x)))),
        )

    def refine(self, boxes: Tensor, logits: Tensor, deltas: Tensor, limits: Tensor) -> Tensor:
        """Move boxes [N, P, 4] by the deltas of their best class [N, P, 4 or classes * 4], clipped to `limits`."""
        if not self.class_agnostic:
            best = logits[..., :-1].argmax(-1)[..., None, None].expand(-1, -1, 1, 4)  # [N, P, 1, 4]
            deltas = deltas.reshape(*deltas.shape[:2], self.classes, 4).gather(2, best)[:, :, 0]
        return self.coder.decode(boxes, deltas, limits)  # type: ignore[no-any-return]

    def detect(
        self, boxes: Tensor, used: Tensor, logits: Tensor, deltas: Tensor, limits: Tensor, test_cfg: Config
    ) -> tuple[Tensor, Tensor]:
        """Choose detections.

        Parameters
        ----------
        boxes : Tensor, [N, P, 4]
            What the regions are.
        used : Tensor of bool, [N, P]
            Which of them count.
        logits, deltas : Tensor, [N, P, classes + 1], [N, P, 4 or classes * 4]
        limits : Tensor, [N, 1, 4]
        test_cfg : dict
            ``test_cfg.rcnn``.

        Returns
        -------
        dets, labels : Tensor, [N, K, 5], [N, K]
            As the detector's.
        """
        scores = torch.where(used[..., None], logits.softmax(-1)[..., :-1], 0)  # [N, P, classes]
        if not self.class_agnostic:
            deltas = deltas.reshape(*deltas.shape[:2], self.classes, 4)
            boxes, limits = boxes[:, :, None], limits[:, None]
        boxes = self.coder.decode(boxes, deltas, limits)  # [N, P, 4] or [N, P, classes, 4]
        return detections(boxes, torch.where(scores > test_cfg["score_thr"], scores, 0), test_cfg)

    def _flat(self, x: Tensor) -> Tensor:
        return x.mean((2, 3)) if self.average else x.flatten(1)


def build_box_head(config: Config) -> BoxHead:
    """Build the RoI head's ``bbox_head``."""
    # Other losses bring scores of their own instead of a softmax.
    require("bbox_head.loss_cls", config.get("loss_cls", {}).get("type", "CrossEntropyLoss"), "CrossEntropyLoss")
    head: BoxHead = construct(
        "bbox_head",
        config,
        {
            "BBoxHead": BoxHead,
            "ConvFCBBoxHead": BoxHead,
            "Shared2FCBBoxHead": partial(BoxHead, num_shared_fcs=2),
            "Shared4Conv1FCBBoxHead": partial(BoxHead, num_shared_convs=4, num_shared_fcs=1),
        },
    )
    return head


def _fully_connect(layers: nn.ModuleList, x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x).relu()
    return x

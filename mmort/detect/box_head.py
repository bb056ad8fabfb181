"""The heads that say of a region's features which class it is and where its object lies.

Source: MMDetection's ``BBoxHead`` and ``ConvFCBBoxHead``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mmort.detect.boxes import build_box_coder
from mmort.detect.detector import require
from mmort.detect.layers import ConvModule
from mmort.detect.selection import nms_arguments
from mmort.torch import multiclass_nms

_PRESETS: dict[str, dict[str, int]] = {
    "BBoxHead": {},
    "ConvFCBBoxHead": {},
    "Shared2FCBBoxHead": {"num_shared_fcs": 2},
    "Shared4Conv1FCBBoxHead": {"num_shared_convs": 4, "num_shared_fcs": 1},
}


class BoxHead(nn.Module):
    """Shared layers, then layers for the classes and for the boxes, then one linear layer for each.

    Parameters
    ----------
    config : dict
        ``bbox_head`` of the RoI head.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        config = {**config, **_PRESETS[require("box head", config["type"], *_PRESETS)]}
        for layer in ("cls_predictor_cfg", "reg_predictor_cfg"):
            require(f"bbox_head.{layer}", config.get(layer, {}).get("type", "Linear"), "Linear")
        # Others bring scores of their own instead of a softmax.
        require("bbox_head.loss_cls", config.get("loss_cls", {}).get("type", "CrossEntropyLoss"), "CrossEntropyLoss")
        self.classes: int = config.get("num_classes", 80)
        self.class_agnostic: bool = config.get("reg_class_agnostic", False)
        self.average: bool = config.get("with_avg_pool", False)
        self.coder = build_box_coder(config.get("bbox_coder", _BOX_CODER))

        channels = config.get("in_channels", 256)
        self.shared_convs, channels = _convolutions(config, "num_shared_convs", channels)
        self.cls_convs, cls_channels = _convolutions(config, "num_cls_convs", channels)
        self.reg_convs, reg_channels = _convolutions(config, "num_reg_convs", channels)
        size = config.get("roi_feat_size", 7)
        height, width = (size, size) if isinstance(size, int) else size
        pixels = 1 if self.average else height * width  # of what is flattened
        self.shared_fcs, shared = _linears(config, "num_shared_fcs", channels * pixels)
        self.cls_fcs, in_cls = _linears(config, "num_cls_fcs", shared if self.shared_fcs else cls_channels * pixels)
        self.reg_fcs, in_reg = _linears(config, "num_reg_fcs", shared if self.shared_fcs else reg_channels * pixels)
        self.fc_cls = nn.Linear(in_cls, self.classes + 1)
        self.fc_reg = nn.Linear(in_reg, 4 if self.class_agnostic else 4 * self.classes)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Give logits [R, classes + 1] (background last) and deltas [R, 4 or classes * 4], of features [R, C, h, w]."""
        x = _apply(self.shared_convs, features)
        if self.shared_fcs:
            shared = _fully_connect(self.shared_fcs, self._flat(x))
            return (
                self.fc_cls(_fully_connect(self.cls_fcs, shared)),
                self.fc_reg(_fully_connect(self.reg_fcs, shared)),
            )
        return (
            self.fc_cls(_fully_connect(self.cls_fcs, self._flat(_apply(self.cls_convs, x)))),
            self.fc_reg(_fully_connect(self.reg_fcs, self._flat(_apply(self.reg_convs, x)))),
        )

    def refine(self, boxes: Tensor, logits: Tensor, deltas: Tensor, limits: Tensor) -> Tensor:
        """Move boxes [N, P, 4] by the deltas of their best class [N, P, 4 or classes * 4], clipped to `limits`."""
        if not self.class_agnostic:
            best = logits[..., :-1].argmax(-1)[..., None, None].expand(-1, -1, 1, 4)  # [N, P, 1, 4]
            deltas = deltas.unflatten(-1, (self.classes, 4)).gather(2, best)[:, :, 0]
        return self.coder.decode(boxes, deltas, limits)

    def detect(
        self, boxes: Tensor, used: Tensor, logits: Tensor, deltas: Tensor, limits: Tensor, test_cfg: dict[str, Any]
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
            boxes, deltas, limits = boxes[:, :, None], deltas.unflatten(-1, (self.classes, 4)), limits[:, None]
        boxes = self.coder.decode(boxes, deltas, limits)  # [N, P, 4] or [N, P, classes, 4]
        dets, labels, _ = multiclass_nms(
            boxes,
            scores,
            test_cfg["score_thr"],
            max_per_image=test_cfg["max_per_img"],
            **nms_arguments(test_cfg["nms"]),
        )
        return dets, labels

    def _flat(self, x: Tensor) -> Tensor:
        return x.mean((2, 3)) if self.average else x.flatten(1)


_BOX_CODER = {"type": "DeltaXYWHBBoxCoder", "target_means": [0.0] * 4, "target_stds": [0.1, 0.1, 0.2, 0.2]}


def _convolutions(config: dict[str, Any], count: str, channels: int) -> tuple[nn.ModuleList, int]:
    """Build so many 3x3 convolutions as config[count] says; also return how many channels come out."""
    layers = nn.ModuleList()
    for _ in range(config.get(count, 0)):
        out_channels = config.get("conv_out_channels", 256)
        layers.append(
            ConvModule(
                channels, out_channels, 3, padding=1, conv_cfg=config.get("conv_cfg"), norm_cfg=config.get("norm_cfg")
            )
        )
        channels = out_channels
    return layers, channels


def _linears(config: dict[str, Any], count: str, features: int) -> tuple[nn.ModuleList, int]:
    """Build so many linear layers as config[count] says; also return how many features come out."""
    layers = nn.ModuleList()
    for _ in range(config.get(count, 0)):
        layers.append(nn.Linear(features, config.get("fc_out_channels", 1024)))
        features = layers[-1].out_features
    return layers, features


def _apply(layers: nn.ModuleList, x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def _fully_connect(layers: nn.ModuleList, x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x).relu()
    return x

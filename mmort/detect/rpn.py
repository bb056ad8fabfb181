"""The region proposal network: the first stage of every two-stage detector.

Source: S. Ren et al., "Faster R-CNN", NeurIPS 2015; MMDetection's ``RPNHead``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mmort.detect.boxes import build_box_coder
from mmort.detect.detector import Config, construct
from mmort.detect.layers import tower
from mmort.detect.priors import build_priors
from mmort.detect.selection import best_places, larger, nms_arguments
from mmort.torch import multiclass_nms


class RPNHead(nn.Module):
    """One objectness and one box for every anchor; the best boxes are proposals.

    The arguments are the entries of the config's ``rpn_head`` and, as `test_cfg`, its ``test_cfg.rpn``.
    """

    def __init__(
        self,
        in_channels: int,
        anchor_generator: Config,
        bbox_coder: Config,
        test_cfg: Config,
        feat_channels: int = 256,
        num_convs: int = 1,
        num_classes: int = 1,
    ) -> None:
        super().__init__()
        self.priors = build_priors(anchor_generator)
        self.coder = build_box_coder(bbox_coder)
        if num_convs == 1:
            self.rpn_conv: nn.Module = nn.Conv2d(in_channels, feat_channels, 3, padding=1)
        else:
            self.rpn_conv = tower(in_channels, feat_channels, num_convs)
        anchors = self.priors.num_base_priors[0]
        self.rpn_cls = nn.Conv2d(feat_channels, anchors, 1)
        self.rpn_reg = nn.Conv2d(feat_channels, anchors * 4, 1)
        self.nms_pre: int = test_cfg.get("nms_pre", -1)
        self.max_per_image: int = test_cfg["max_per_img"]
        self.nms: Config = test_cfg["nms"]
        self.min_size: float = test_cfg.get("min_bbox_size", -1)

    def raw(self, features: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the objectness logits [N, A, h, w] and the deltas [N, A*4, h, w] of each level."""
        hidden = [torch.relu(self.rpn_conv(level)) for level in features]
        return [self.rpn_cls(level) for level in hidden], [self.rpn_reg(level) for level in hidden]

    def forward(self, features: list[Tensor], limits: Tensor) -> tuple[Tensor, Tensor]:
        """Propose.

        Parameters
        ----------
        features : list of Tensor, [N, C, h, w]
            By level, finest first.
        limits : Tensor, [N, 1, 4]
            What boxes are clipped to, as `image_limits` returns it.

        Returns
        -------
        proposals : Tensor, [N, P, 4]
            The best boxes by descending score; zeros in rows that are not used.  P is ``max_per_img``.
        used : Tensor of bool, [N, P]
        """
        scores, priors, deltas, levels = [], [], [], []
        for index, (logits, offsets) in enumerate(zip(*self.raw(features), strict=True)):
            # Only the order of scores matters, and logits have it without the rounding of a sigmoid: MMDetection's
            # makes ties of large ones, ONNX Runtime's of all below -18.
            score = logits.permute(0, 2, 3, 1).flatten(1)  # [N, h*w*A]
            offsets = offsets.permute(0, 2, 3, 1).reshape(offsets.shape[0], -1, 4)  # [N, h*w*A, 4]
            places = best_places(score, self.nms_pre)  # [N, K]
            scores.append(score.gather(1, places))
            priors.append(self.priors.level(index, logits)[places])  # [N, K, 4]
            deltas.append(offsets.gather(1, places[..., None].expand(-1, -1, 4)))
            levels.append(torch.full_like(places, index))
        boxes = self.coder.decode(torch.cat(priors, 1), torch.cat(deltas, 1), limits)  # [N, all levels' K, 4]
        valid = larger(boxes, self.min_size)
        # Boxes of one level suppress each other, as those of one class do elsewhere.
        own = torch.cat(levels, 1)[..., None] == torch.arange(len(features), device=boxes.device)
        by_level = torch.where(valid & own, torch.cat(scores, 1)[..., None], -torch.inf)  # [N, all levels' K, levels]
        dets, kept, _ = multiclass_nms(
            boxes, by_level, _LOWEST, max_per_image=self.max_per_image, **nms_arguments(self.nms)
        )
        return dets[..., :4], kept >= 0


_LOWEST = torch.finfo(torch.float32).min


def build_rpn_head(config: Config, test_cfg: Config) -> RPNHead:
    """Build the model's ``rpn_head``."""
    if not config.get("loss_cls", {}).get("use_sigmoid", True):
        raise ValueError("detect.build: rpn_head.loss_cls.use_sigmoid must be true: scores are no softmax here")
    head: RPNHead = construct("rpn_head", {**config, "test_cfg": test_cfg}, {"RPNHead": RPNHead})
    return head

"""The head that says which pixels of a box belong to its object.

Source: K. He et al., "Mask R-CNN", ICCV 2017; MMDetection's ``FCNMaskHead``.
"""

from __future__ import annotations

from torch import Tensor, nn

from mmort.detect.detector import Config, construct, require
from mmort.detect.layers import tower


class FCNMaskHead(nn.Module):
    """Convolutions, an upsampling layer, and one mask for each class.

    The arguments are the entries of the config's ``mask_head``.
    """

    def __init__(
        self,
        num_convs: int = 4,
        roi_feat_size: int = 14,  # unused, as in MMDetection
        in_channels: int = 256,
        conv_kernel_size: int = 3,
        conv_out_channels: int = 256,
        num_classes: int = 80,
        class_agnostic: bool = False,
        upsample_cfg: Config = {"type": "deconv", "scale_factor": 2},  # noqa: B006 - never written to
        conv_cfg: Config | None = None,
        norm_cfg: Config | None = None,
        predictor_cfg: Config = {"type": "Conv"},  # noqa: B006
    ) -> None:
        super().__init__()
        require("mask_head.predictor_cfg", predictor_cfg["type"], "Conv", "Conv2d")
        require("mask_head.upsample_cfg", upsample_cfg["type"], "deconv")
        self.convs = tower(
            in_channels, conv_out_channels, num_convs, conv_kernel_size, conv_cfg=conv_cfg, norm_cfg=norm_cfg
        )
        channels = conv_out_channels if num_convs else in_channels
        factor = upsample_cfg["scale_factor"]
        self.upsample = nn.ConvTranspose2d(channels, conv_out_channels, factor, stride=factor)
        self.conv_logits = nn.Conv2d(conv_out_channels, 1 if class_agnostic else num_classes, 1)

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        """Return the logits of each region's own class, [R, h, w], from features [R, C, h', w'] and classes [R]."""
        x = self.upsample(self.convs(features)).relu()
        return own_class(self.conv_logits(x), classes)


def build_mask_head(config: Config) -> FCNMaskHead:
    """Build the RoI head's ``mask_head``."""
    head: FCNMaskHead = construct("mask_head", config, {"FCNMaskHead": FCNMaskHead})
    return head


def own_class(logits: Tensor, classes: Tensor) -> Tensor:
    """Choose each region's class in logits [R, C, ...], giving [R, ...]; the only one if C is 1."""
    if logits.shape[1] == 1:
        return logits[:, 0]
    index = classes.reshape(-1, *[1] * (logits.ndim - 1)).expand(-1, 1, *logits.shape[2:])
    return logits.gather(1, index)[:, 0]

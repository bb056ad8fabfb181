"""The head that says which pixels of a box belong to its object.

Source: K. He et al., "Mask R-CNN", ICCV 2017; MMDetection's ``FCNMaskHead``.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from mmort.detect.detector import require
from mmort.detect.layers import ConvModule


class FCNMaskHead(nn.Module):
    """Convolutions, an upsampling layer, and one mask for each class.

    Parameters
    ----------
    config : dict
        ``mask_head`` of the RoI head.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        require("mask_head.predictor_cfg", config.get("predictor_cfg", {}).get("type", "Conv"), "Conv", "Conv2d")
        upsample = config.get("upsample_cfg", {})
        require("mask_head.upsample_cfg", upsample.get("type", "deconv"), "deconv")
        self.class_agnostic: bool = config.get("class_agnostic", False)
        channels, width = config.get("in_channels", 256), config.get("conv_out_channels", 256)
        self.convs = nn.ModuleList()
        for _ in range(config.get("num_convs", 4)):
            kernel = config.get("conv_kernel_size", 3)
            layer = {"conv_cfg": config.get("conv_cfg"), "norm_cfg": config.get("norm_cfg")}
            self.convs.append(ConvModule(channels, width, kernel, padding=(kernel - 1) // 2, **layer))
            channels = width
        factor = upsample.get("scale_factor", 2)
        self.upsample = nn.ConvTranspose2d(channels, width, factor, stride=factor)
        self.conv_logits = nn.Conv2d(width, 1 if self.class_agnostic else config.get("num_classes", 80), 1)

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        """Return the logits of each region's own class, [R, h, w], from features [R, C, h', w'] and classes [R]."""
        x = features
        for conv in self.convs:
            x = conv(x)
        return own_class(self.conv_logits(self.upsample(x).relu()), classes)


def own_class(logits: Tensor, classes: Tensor) -> Tensor:
    """Choose each region's class in logits [R, C, ...], giving [R, ...]; the only one if C is 1."""
    if logits.shape[1] == 1:
        return logits[:, 0]
    index = classes.reshape(-1, *[1] * (logits.ndim - 1)).expand(-1, 1, *logits.shape[2:])
    return logits.gather(1, index)[:, 0]

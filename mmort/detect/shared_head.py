"""The last stage of a ResNet, run on each region: what "C4" detectors, which have no pyramid, put before their heads.

Source: MMDetection's ``ResLayer``.
"""

from __future__ import annotations

from torch import Tensor, nn

from mmort.detect.backbones.resnet import ResNet
from mmort.detect.detector import Config, construct

_BN = {"type": "BN"}


class ResLayer(nn.Module):
    """One stage of a ResNet.

    The arguments are the entries of the config's ``shared_head``.
    """

    def __init__(
        self,
        depth: int,
        stage: int = 3,
        stride: int = 2,
        dilation: int = 1,
        style: str = "pytorch",
        norm_cfg: Config = _BN,
    ) -> None:
        super().__init__()
        self.name = f"layer{stage + 1}"
        whole = ResNet(depth, strides=[stride] * 4, dilations=[dilation] * 4, style=style, norm_cfg=norm_cfg)
        self.add_module(self.name, getattr(whole, self.name))

    def forward(self, features: Tensor) -> Tensor:  # noqa: D102
        return getattr(self, self.name)(features)  # type: ignore[no-any-return]


def build_shared_head(config: Config | None) -> nn.Module:
    """Build the RoI head's ``shared_head``; None hands features on."""
    if config is None:
        return nn.Identity()
    head: nn.Module = construct("shared_head", config, {"ResLayer": ResLayer})
    return head

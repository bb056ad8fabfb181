"""NAS-FCOS: FCOS whose towers were searched for; two of their four layers are deformable.

Source: N. Wang et al., "NAS-FCOS: Fast Neural Architecture Search for Object Detection", CVPR 2020; MMDetection's
``NASFCOSHead``.
"""

from __future__ import annotations

from torch import nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS
from mmort.detect.families.dense.fcos import FCOS, FCOSHead
from mmort.detect.parts.heads.anchor_free_head import AnchorFreeHead
from mmort.detect.parts.layers import ConvModule

_DEFORMABLE: Config = {"type": "DCNv2", "deform_groups": 2}

_LAYERS: tuple[tuple[int, Config | None, bool], ...] = (
    (3, _DEFORMABLE, True),
    (3, None, False),
    (3, _DEFORMABLE, True),
    (1, None, False),
)
"""Size and ``conv_cfg`` of the layers of a tower, and whether they have a bias."""


class NASFCOSHead(FCOSHead):
    """FCOS's head with the towers that the search found."""

    def build_towers(self, entries: AnchorFreeHead.Entries) -> tuple[nn.Sequential, nn.Sequential]:
        """Return the towers for the classes and for the boxes."""
        return self._tower(entries), self._tower(entries)

    def _tower(self, entries: AnchorFreeHead.Entries) -> nn.Sequential:
        """Return one of them."""
        inputs = [entries.in_channels, *[entries.feat_channels] * (len(_LAYERS) - 1)]
        return nn.Sequential(
            *(
                ConvModule(
                    channels,
                    entries.feat_channels,
                    size,
                    padding=size // 2,
                    bias=bias,
                    conv_cfg=conv_cfg,
                    norm_cfg=entries.norm_cfg,
                )
                for channels, (size, conv_cfg, bias) in zip(inputs, _LAYERS, strict=True)
            )
        )


@PARTS.register("detector", "NASFCOSHead")
class NASFCOS(FCOS):
    """NAS-FCOS."""

    family = "NAS-FCOS"
    head = NASFCOSHead

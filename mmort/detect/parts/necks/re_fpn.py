"""ReFPN: a feature pyramid whose convolutions are equivariant to rotations.

Source: J. Han et al., "ReDet: A Rotation-equivariant Detector for Aerial Object Detection", CVPR 2021; MMRotate's
``ReFPN``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmort.detect.entries import PARTS, Schema
from mmort.detect.parts.equivariant import ORIENTATIONS
from mmort.detect.parts.necks.fpn import FPN, UpsampleEntries


@PARTS.register("neck", "ReFPN")
class ReFPN(FPN):
    """An `FPN` without further convolutions."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``neck``."""

        in_channels: Sequence[int]
        out_channels: int
        num_outs: int

        def check(self, name: str) -> None:
            """Raise a ValueError if channels cannot be divided among the orientations."""
            for channels in self.in_channels:
                if channels % ORIENTATIONS:
                    raise ValueError(
                        f"detect.build: in_channels of {name} must be multiples of {ORIENTATIONS}, the orientations, "
                        f"got {[*self.in_channels]}"
                    )

    def __init__(self, entries: Entries) -> None:
        super().__init__(
            FPN.Entries(
                in_channels=entries.in_channels,
                out_channels=entries.out_channels,
                num_outs=entries.num_outs,
                conv_cfg={"type": "R2Conv"},
                upsample_cfg=UpsampleEntries(),
            )
        )

"""What a flip test costs: detectors that also detect in the mirror image of each image."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from mmort.detect.detector import Detector

SIDE = 127  # pixels; the ratio hardly depends on it, and CornerNet's sides are odd


def price(detector: Detector) -> str:
    """Return what a detector's flip test multiplies the work by, counted for one image."""

    def operations(flip_test: bool) -> int:
        detector.flip_test = flip_test
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            detector(torch.zeros(1, 3, SIDE, SIDE))
        return counter.get_total_flops()

    ratio = 1 / operations(False) * operations(True)
    return (
        "flip test: the file also detects in the mirror images, as the config's test pipeline asks; that is "
        f"{ratio:.1f} times the work of a file made with --no-flip"
    )

"""How the maps of kernels that a text detection's file gives become polygons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from mmort.contract.format import Format
from mmort.contract.text_detection_format import Shape

Growth = Literal["pse", "pan"]
"""How texts grow from their kernels."""

GROWTHS: tuple[str, ...] = get_args(Growth)


@dataclass(frozen=True)
class TextKernelsFormat(Format):
    """How kernels grow to texts, as MMOCR's ``PSEPostprocessor`` and ``PANPostprocessor`` have it.

    Parameters
    ----------
    growth : {"pse", "pan"}
        "pse": the last map has the kernels, which grow over all pixels of texts.  "pan": the second map has the
        kernels, which grow over pixels whose embedding is like theirs.
    shape : {"poly", "quad"}, default "poly"
        What stands for a text: its outline, or the smallest rectangle around it, which may be turned.
    min_text : float, default 0.5
        Of "pan": pixels with a higher probability belong to a text.
    min_kernel : float, default 0.5
        Pixels with a higher probability belong to a kernel; of "pse", to a text.
    min_score : float, default 0.3
        Texts with a lower mean probability are left out; of "pse", small ones.
    min_kernel_area : int, default 0
        Of "pse": kernels with fewer pixels are left out.
    min_text_area : int, default 16
        Texts with fewer pixels are left out; of "pse", those with a low score.
    max_distance : float, default 3
        Of "pan": between the embedding of a pixel and the kernel's.
    scale : float, default 0.25
        The pixels of the maps to each of the input.
    """

    growth: Growth
    shape: Shape = "poly"
    min_text: float = 0.5
    min_kernel: float = 0.5
    min_score: float = 0.3
    min_kernel_area: int = 0
    min_text_area: int = 16
    max_distance: float = 3.0
    scale: float = 0.25

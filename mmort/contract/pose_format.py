"""How a file's outputs say where the keypoints of a pose are, in a part of an image that is cut out around a box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from mmort.contract.format import Format
from mmort.detections.skeleton import Skeleton

Codec = Literal["simcc", "heatmaps", "dark", "udp", "megvii", "points"]
"""The kinds of outputs: see `PoseFormat`."""

WORDS = {"codec": get_args(Codec)}
"""The values of `PoseFormat`'s fields that are words."""


@dataclass(frozen=True)
class PoseFormat(Format):
    """The part of an image that a file looks at, and how its outputs become keypoints.

    Parameters
    ----------
    codec : {"simcc", "heatmaps", "dark", "udp", "megvii", "points"}
        "simcc": a score for each column and for each row, ``simcc_x`` and ``simcc_y``.  The next four have
        ``heatmaps``: "heatmaps" moves from the largest value a quarter of a pixel towards the larger neighbour, "dark"
        and "udp" to the top of a curve through blurred values, "udp" with corners of pixels aligned; "megvii" does what
        "heatmaps" does with blurred values, whose largest are near 255, and half a pixel further.  "points":
        coordinates, ``points``.
    names : tuple of str
        Of the keypoints.
    padding : float, default 1.25
        By how much the part is larger than the box.
    aligned : bool, default False
        Whether the middles of the corner pixels stay where they are when the part is cut out and resized, as in UDP.
    bins : float, default 2.0
        Of "simcc": columns, and rows, for each pixel of the input.
    blur : int, default 11
        Of "dark", "udp" and "megvii": the side of the Gaussian in pixels of heatmaps, an odd number.
    links, colours, link_colours : tuple, optional
        As for `Skeleton`.
    sigmas : tuple of float, optional
        The spread of each keypoint among annotators, by which COCO's AP of keypoints scales distances.

    Examples
    --------
    >>> from mmort.contract import PoseFormat
    >>> PoseFormat("simcc", names=("hip", "knee"), links=((0, 1),)).skeleton
    Skeleton(names=('hip', 'knee'), links=((0, 1),), colours=(), link_colours=())
    """

    codec: Codec
    names: tuple[str, ...]
    padding: float = 1.25
    aligned: bool = False
    bins: float = 2.0
    blur: int = 11
    links: tuple[tuple[int, int], ...] = ()
    colours: tuple[tuple[int, int, int], ...] = ()
    link_colours: tuple[tuple[int, int, int], ...] = ()
    sigmas: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.codec not in WORDS["codec"]:
            raise ValueError(f"pose: codec must be one of {', '.join(WORDS['codec'])}, got {self.codec!r}")
        for name in ("padding", "bins"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"pose: {name} must be positive, got {getattr(self, name)}")
        if self.blur < 1 or self.blur % 2 == 0:
            raise ValueError(f"pose: blur must be a positive odd number, got {self.blur}")
        count = len(self.skeleton.names)  # names, links and colours are checked as those of a skeleton
        if self.sigmas and len(self.sigmas) != count:
            raise ValueError(f"pose: sigmas must be {count}, one for each keypoint, got {len(self.sigmas)}")

    @property
    def skeleton(self) -> Skeleton:
        """Names, links and colours of the keypoints."""
        return Skeleton(self.names, self.links, self.colours, self.link_colours)

"""The keypoints of a pose: their names, which of them are linked, and their colours."""

from __future__ import annotations

from dataclasses import dataclass

Rgb = tuple[int, int, int]
"""Red, green, blue."""


@dataclass(frozen=True)
class Skeleton:
    """The keypoints of a pose, and the links between them.

    Parameters
    ----------
    names : tuple of str
        The name of each keypoint.
    links : tuple of (int, int), optional
        The indices of keypoints between which a line is drawn.
    colours, link_colours : tuple of (int, int, int), optional
        Red, green and blue of each keypoint and of each link; none for the colours of classes.

    Raises
    ------
    ValueError
        If a link has an end that is no keypoint, or there is not a colour for each.

    Examples
    --------
    >>> from mmort.predict import Skeleton
    >>> Skeleton(("hip", "knee", "ankle"), links=((0, 1), (1, 2))).links
    ((0, 1), (1, 2))
    """

    names: tuple[str, ...]
    links: tuple[tuple[int, int], ...] = ()
    colours: tuple[Rgb, ...] = ()
    link_colours: tuple[Rgb, ...] = ()

    def __post_init__(self) -> None:
        wrong = [end for link in self.links for end in link if not 0 <= end < len(self.names)]
        if wrong:
            raise ValueError(
                f"Skeleton: links must be between keypoints 0 to {len(self.names) - 1}, got keypoint {wrong[0]}"
            )
        for name, colours, count in (
            ("colours", self.colours, len(self.names)),
            ("link_colours", self.link_colours, len(self.links)),
        ):
            if colours and len(colours) != count:
                raise ValueError(f"Skeleton: {name} must be {count}, one for each, got {len(colours)}")

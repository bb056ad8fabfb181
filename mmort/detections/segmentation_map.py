"""The class of each pixel of one image, as a semantic segmentation has them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mmort.detections.drawable import Drawable

if TYPE_CHECKING:
    import pandas

SHOWN = 5
"""Classes in a repr."""


@dataclass(frozen=True, eq=False)
class SegmentationMap(Drawable):
    """The class of each pixel of an image, at the image's own size.

    Parameters
    ----------
    map : ndarray of uint8 or uint16, (H, W)
        The label of each pixel.
    class_names : tuple of str
        The name of each label.
    palette : tuple of (int, int, int), optional
        The colour of each label, red, green, blue.  By default mmort's colours of classes.

    Raises
    ------
    ValueError
        If the map has not two dimensions or a label has no name.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.predict import SegmentationMap
    >>> segmentation = SegmentationMap(np.array([[0, 0, 1, 1], [0, 0, 0, 1]], np.uint8), ("road", "sky"))
    >>> segmentation
    <SegmentationMap: 2 x 4 pixels: road 62.5 %, sky 37.5 %>
    >>> segmentation.mask("sky").tolist()
    [[False, False, True, True], [False, False, False, True]]
    """

    map: NDArray[np.uint8 | np.uint16]
    class_names: tuple[str, ...]
    palette: tuple[tuple[int, int, int], ...] | None = None

    def __post_init__(self) -> None:
        labels = np.asarray(self.map)
        object.__setattr__(self, "map", labels)
        if labels.ndim != 2 or labels.dtype not in (np.uint8, np.uint16):
            raise ValueError(
                f"SegmentationMap: map must be [H, W] of uint8 or uint16, got {[*labels.shape]} of {labels.dtype}"
            )
        if labels.max(initial=0) >= len(self.class_names):
            raise ValueError(
                f"SegmentationMap: class_names must have a name for each label, got {len(self.class_names)} names and "
                f"label {labels.max()}"
            )
        if self.palette is not None and len(self.palette) != len(self.class_names):
            raise ValueError(
                f"SegmentationMap: palette must have a colour for each class, {len(self.class_names)}, got "
                f"{len(self.palette)}"
            )

    def __repr__(self) -> str:
        height, width = self.image_size
        shown = zip(self.names[:SHOWN], self.shares[:SHOWN].tolist(), strict=True)
        listed = ", ".join(f"{name} {share:.1%}".replace("%", " %") for name, share in shown)
        more = ", ..." if len(self.labels) > SHOWN else ""
        return f"<SegmentationMap: {height} x {width} pixels: {listed}{more}>"

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the image."""
        height, width = self.map.shape
        return height, width

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many pixels each class has, by label."""
        counts: NDArray[np.int64] = np.bincount(self.map.ravel(), minlength=len(self.class_names))
        return counts

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The classes that have pixels, those with most of them first."""
        order = np.argsort(-self.counts, kind="stable")
        return order[self.counts[order] > 0]

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.class_names[label] for label in self.labels.tolist())

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of the image's pixels that each of them has."""
        shares: NDArray[np.float64] = self.counts[self.labels] / max(1, self.map.size)
        return shares

    def mask(self, name: str | int) -> NDArray[np.bool_]:
        """Return the pixels of a class, by its name or label, (H, W).

        Raises
        ------
        ValueError
            If no class is called so, or has this label.
        """
        if isinstance(name, str):
            if name not in self.class_names:
                raise ValueError(
                    f"SegmentationMap: no class is called {name!r}; classes: {', '.join(self.class_names)}"
                )
            name = self.class_names.index(name)
        elif not 0 <= name < len(self.class_names):
            raise ValueError(
                f"SegmentationMap: labels of classes are from 0 to {len(self.class_names) - 1}, got {name}"
            )
        mask: NDArray[np.bool_] = self.map == name
        return mask

    def colours(self) -> NDArray[np.uint8]:
        """Return the map in the palette's colours, (H, W, 3): blue, green, red."""
        if self.palette is None:
            from mmort.detections.drawing import class_colour

            levels: Sequence[tuple[int, int, int]] = [class_colour(label) for label in range(len(self.class_names))]
        else:
            levels = [(blue, green, red) for red, green, blue in self.palette]
        return np.array(levels, np.uint8)[self.map]

    def to_dict(self) -> dict[str, Any]:
        """Return the dict that `to_json` writes.

        Returns
        -------
        dict
            ``image_size`` (height, width) and ``classes``: a list of dicts with ``label``, ``name``, ``pixels`` and
            ``share``, of those that have pixels.  The map itself is what `to_png` writes.
        """
        entries = [
            {"label": label, "name": name, "pixels": int(self.counts[label]), "share": round(share, 6)}
            for label, name, share in zip(self.labels.tolist(), self.names, self.shares.tolist(), strict=True)
        ]
        return {"image_size": list(self.image_size), "classes": entries}

    def to_json(self) -> str:
        """Return the classes and their shares as JSON in one line; see `to_dict`."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table of the classes that have pixels: ``label``, ``name``, ``pixels`` and ``share``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError:
            raise ImportError("to_pandas needs pandas: pip install pandas") from None
        return pandas.DataFrame(self.to_dict()["classes"], columns=["label", "name", "pixels", "share"])

    def to_png(self, path: str | os.PathLike[str]) -> None:
        """Write the labels as a grey PNG file, of 8 bits, or of 16 if the map is uint16, as data sets have them.

        Raises
        ------
        ValueError
            If the path has another suffix.
        OSError
            If the file cannot be written.
        ImportError
            If OpenCV is not installed.
        """
        from mmort.images import write_image

        if not os.fspath(path).endswith(".png"):
            raise ValueError(f"to_png: path must end in .png, got {os.fspath(path)}")
        write_image(path, self.map)  # type: ignore[arg-type]

    def plot(self, image: NDArray[np.uint8] | str | os.PathLike[str], *, scale: float = 1.0) -> NDArray[np.uint8]:
        """Tint a copy of the image with the colours of its classes, and name the larger ones.  See `Drawable.plot`."""
        from mmort.detections.drawing import draw_segmentation

        return draw_segmentation(image, self, scale=scale)

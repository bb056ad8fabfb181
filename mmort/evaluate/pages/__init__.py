"""HTML reports: each one file, without scripts, that loads nothing from elsewhere; and the images in them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mmort.images import Image, opencv

if TYPE_CHECKING:
    from mmort.detections.drawable import Drawable

DRAWN_SIDE = 800
"""The longer side of a drawn image, in pixels: sharp on a screen, and about 100 kB."""

NO_BOXES = np.zeros((0, 4))


@dataclass(frozen=True)
class Side:
    """One of two versions of an image: drawn, as a data URI, and boxes (x, y, width, height) to outline."""

    caption: str
    kind: str
    """``missing`` or ``extra``, which decides about the outlines' colour."""
    uri: str
    size: tuple[int, int]
    boxes: tuple[tuple[float, float, float, float], ...]

    @classmethod
    def drawn(
        cls, caption: str, kind: str, image: Image, result: Drawable, outlined: NDArray[np.floating[Any]] = NO_BOXES
    ) -> Side:
        """Draw a result on its image, to be shown with outlines around the boxes `outlined`, (N, 4)."""
        height, width = image.shape[:2]
        boxes = outlined.astype(float)
        outlines = np.column_stack([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]]).tolist()
        canvas = result.plot(image, scale=DRAWN_SIDE / max(height, width))
        return cls(caption, kind, _data_uri(canvas), (width, height), tuple(map(tuple, outlines)))


def render(template: str, values: Mapping[str, Any], *, command: str) -> str:
    """Fill a template of this folder.

    Raises
    ------
    ImportError
        If Jinja2 is not installed; the message names the command.
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ModuleNotFoundError:
        raise ImportError(f"{command} needs Jinja2 for its report: pip install 'mmort[evaluate]'") from None
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = "{:,}".format
    return environment.get_template(template).render(values)


def _data_uri(image: Image) -> str:
    """Encode an image, blue, green, red, as an address that holds the image itself."""
    cv2 = opencv()
    encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 88])[1]
    return "data:image/jpeg;base64," + base64.b64encode(encoded.tobytes()).decode()

"""The content of a detector's output ``masks``, and how MMDetection makes masks of the original image from it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from mmort.contract.preprocessing import Prepared, require_fields
from mmort.detections.masks import BoxMasks, ImageMasks, Masks
from mmort.detections.panoptic import PanopticFormat
from mmort.images import resize_mask
from mmort.limits import MAX_ENLARGED_PIXELS, MAX_ENLARGEMENT

Area = Literal["box", "image"]
Rescaling = Literal["crop", "edges", "fit", "scale", "stretch"]
Origin = Literal["output", "masks"]
Alignment = Literal["centres", "corners"]

WORDS: dict[str, tuple[str, ...]] = {
    "area": get_args(Area),
    "rescaling": get_args(Rescaling),
    "boxes": get_args(Origin),
    "scores": get_args(Origin),
    "alignment": get_args(Alignment),
}
"""The values of `MaskFormat`'s fields that are words."""


class Stored(NamedTuple):
    """The masks of an image in its original size, and the factors of their scores there, (K,)."""

    masks: Masks
    score_factors: NDArray[np.float32]


def covered_area(shape: tuple[int, ...], canvas: tuple[int, int]) -> Literal["box", "image"]:
    """Return the area of masks in a file that does not state it: the whole input, if they have its size."""
    return "image" if shape == canvas else "box"


@dataclass(frozen=True)
class MaskFormat:
    """The format of an output ``masks`` (N, K, h, w); a file's metadata ``masks`` holds it.

    Parameters
    ----------
    area : {"box", "image"}, default "box"
        What a mask covers: its box, or the whole input.
    threshold : float, default 0.5
        Pixels of the mask have values of at least `threshold` after interpolation; if masks cover the input, greater
        ones.  Values are probabilities, or logits with another threshold.
    stride : int, default 1
        Pixels of the input for each cell of a mask, if masks cover the input.
    rescaling : {"crop", "edges", "fit", "scale", "stretch"}, default "crop"
        What makes a mask of the original image of one that covers the input.  "crop": the part that the image takes up
        is resized to the original size.  "edges": the same, of a mask that is enlarged only as far as the image's edges
        need to lie between its cells, as ultralytics does.  "fit": of one that is enlarged to exactly the input's size,
        also where that is no multiple of `stride`, as MaskFormer's are.  "scale": the whole is resized by
        1 / ``scale_factor`` and then cropped, as RTMDet-Ins does.  "stretch": the mask, whatever its size, becomes that
        of the original image, which must fill the input, as YOLACT's do.
    boxes : {"output", "masks"}, default "output"
        What gives the boxes in the original image: the output ``dets``, or the masks, for detectors that predict masks
        only.  Their boxes in ``dets`` are those of the masks before they are enlarged.
    scores : {"output", "masks"}, default "output"
        What gives the scores in the original image: the output ``dets``, or also the masks.  The scores in ``dets``
        then have the mean probability of the input's pixels inside the mask as a factor, of masks of logits, and are
        given that of the original image's pixels instead.
    alignment : {"centres", "corners"}, default "centres"
        Where a cell's value is when the mask is enlarged: in the middle of its pixels, or at the one `stride` // 2 from
        the first, half a pixel further, as CondInst has it.
    panoptic : PanopticFormat, optional
        How segments are made of the masks, if they are those of a panoptic segmentation.
    inside_boxes : bool, default False
        Whether masks that cover the input end at the boxes in the original image, and detections whose mask has no
        pixels are left out, as ultralytics does.
    inside_input_boxes : bool, default False
        Whether masks that cover the input end at the boxes in the input, before they are resized to the original size,
        as those of MMYOLO's YOLOv5 do; for "crop" only.

    Examples
    --------
    >>> from mmort.predict import MaskFormat
    >>> logits = MaskFormat("image", threshold=0, stride=8, rescaling="scale")
    >>> logits.to_dict()["stride"], MaskFormat.from_dict(logits.to_dict()) == logits
    (8, True)
    """

    area: Area = "box"
    threshold: float = 0.5
    stride: int = 1
    rescaling: Rescaling = "crop"
    boxes: Origin = "output"
    scores: Origin = "output"
    alignment: Alignment = "centres"
    panoptic: PanopticFormat | None = None
    inside_boxes: bool = False
    inside_input_boxes: bool = False

    def __post_init__(self) -> None:
        if self.inside_input_boxes and self.rescaling != "crop":
            raise ValueError(f"MaskFormat: inside_input_boxes is for rescaling 'crop' only, got {self.rescaling!r}")
        for name, words in WORDS.items():
            if getattr(self, name) not in words:
                choices = " or ".join(map(repr, words))
                raise ValueError(f"MaskFormat: {name} must be {choices}, got {getattr(self, name)!r}")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> MaskFormat:
        """Return the format that `to_dict` returned.

        Raises
        ------
        ValueError
            If there is an unknown entry: a later mmort may have written it, and without it masks would differ.
        """
        require_fields("masks", values, cls)
        if values.get("panoptic") is None:
            return cls(**values)
        require_fields("masks.panoptic", values["panoptic"], PanopticFormat)
        return cls(**{**values, "panoptic": PanopticFormat(**values["panoptic"])})

    def to_dict(self) -> dict[str, Any]:
        """Return the format as words and numbers, ready for JSON."""
        return asdict(self)

    def store(
        self,
        output: NDArray[Any],
        boxes: NDArray[np.float32],
        image: Prepared,
        canvas: tuple[int, int] | None = None,
        input_boxes: NDArray[np.float32] | None = None,
    ) -> Stored:
        """Return the masks of an image in its original size, and the change of their scores.

        Parameters
        ----------
        output : ndarray of float32, or of bool if masks cover the input, (K, h, w)
            The output ``masks`` of the image, its used rows.
        boxes : ndarray of float32, (K, 4)
            The boxes in the original image.
        image : Prepared
            The preprocessed image.
        canvas : (int, int), optional
            Height and width of the batch that the image was in.  By default the image's own.
        input_boxes : ndarray of float32, (K, 4), optional
            The boxes in the input, which masks with `inside_input_boxes` need.
        """
        if not output[:1].size and len(output):
            raise ValueError(f"masks must have pixels, got masks of {output.shape[1]} x {output.shape[2]}")
        factors = np.ones(len(output), np.float32)
        if self.area == "box":
            return Stored(BoxMasks(output, boxes, self.threshold), factors)

        def pixels(index: int) -> NDArray[np.bool_]:
            mask = output[index].astype(np.float32, copy=False)  # MMDeploy's files have bools
            part, resized = self.rescaled(mask, image, canvas, None if input_boxes is None else input_boxes[index])
            inside = resized > self.threshold
            if self.inside_boxes:
                inside &= _inside(boxes[index], *inside.shape)
                factors[index] = inside.any()
            if self.scores == "masks":
                before, after = _mean_probability(part[part > self.threshold]), _mean_probability(resized[inside])
                factors[index] = after / before if before else 1.0
            return inside

        return Stored(ImageMasks.from_arrays(map(pixels, range(len(output)))), factors)

    def rescaled(
        self,
        mask: NDArray[np.float32],
        image: Prepared,
        canvas: tuple[int, int] | None = None,
        box: NDArray[np.float32] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the part of a mask (h, w) that the image covers, and this part in its original size; see `store`.

        The box is that in the input.
        """
        if not mask.size:
            raise ValueError(f"masks must have pixels, got masks of {mask.shape[0]} x {mask.shape[1]}")
        if self.rescaling == "stretch":
            return mask, resize_mask(mask, image.ori_shape[1], image.ori_shape[0])
        if self.rescaling == "scale":
            return self._scaled(mask, image, canvas or image.pad_shape)
        (top, left), (height, width) = image.offset, image.img_shape
        if self.rescaling == "edges":
            return self._between_edges(mask, image, canvas or image.pad_shape)
        if self.rescaling == "fit":
            rows, columns = canvas or image.pad_shape
            enlarged = resize_mask(mask, columns, rows)
        else:
            enlarged = self._enlarged(mask, canvas or image.pad_shape)
        if self.inside_input_boxes:
            if box is None:
                raise ValueError("masks that end at the boxes in the input need these boxes")
            enlarged = np.where(_inside(box, *enlarged.shape), enlarged, np.float32(0))
        part = np.ascontiguousarray(enlarged[top : top + height, left : left + width])
        return part, resize_mask(part, image.ori_shape[1], image.ori_shape[0])

    def _between_edges(
        self, mask: NDArray[np.float32], image: Prepared, size: tuple[int, int]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return a mask's part with the image, enlarged until the image's edges are edges of cells, and in its size."""
        # Cells of the largest size of which the image begins and ends at a multiple.
        cell = math.gcd(self.stride, *image.offset, *image.img_shape)
        rows, columns = (side // cell for side in size)
        _require_proportion(rows, columns, size[0] * size[1])
        enlarged = mask if mask.shape == (rows, columns) else resize_mask(mask, columns, rows)
        (top, left), (height, width) = image.offset, image.img_shape
        part = enlarged[top // cell : (top + height) // cell, left // cell : (left + width) // cell]
        return part, resize_mask(np.ascontiguousarray(part), image.ori_shape[1], image.ori_shape[0])

    def _scaled(
        self, mask: NDArray[np.float32], image: Prepared, size: tuple[int, int]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return an enlarged mask, and the part of it in the original scale that has the original size."""
        (height, width), canvas = image.ori_shape, self._enlarged(mask, size)
        # MMDetection's scales are not rounded to float32, which matters where the size below is nearly an integer.
        x_scale = round(float(image.scale_factor[0]) * width) / width
        y_scale = round(float(image.scale_factor[1]) * height) / height
        # MMDetection exchanges the two scales, which shifts masks by up to a pixel.
        rows, columns = math.ceil(canvas.shape[0] * (1 / x_scale)), math.ceil(canvas.shape[1] * (1 / y_scale))
        _require_proportion(rows, columns, height * width)
        return canvas, resize_mask(canvas, columns, rows)[:height, :width]

    def _enlarged(self, mask: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
        """Return a mask with a value for each pixel of the input, whose height and width are `size`."""
        _require_proportion(mask.shape[0] * self.stride, mask.shape[1] * self.stride, size[0] * size[1])
        if self.alignment == "corners":
            wide = np.ascontiguousarray(_from_corners(np.ascontiguousarray(mask.T), self.stride).T)
            return _from_corners(wide, self.stride)
        return resize_mask(mask, mask.shape[1] * self.stride, mask.shape[0] * self.stride)


def _require_proportion(rows: int, columns: int, pixels: int) -> None:
    """Refuse to enlarge a mask to a multiple of the pixels that it is of."""
    if rows * columns > max(MAX_ENLARGEMENT * pixels, MAX_ENLARGED_PIXELS):
        raise ValueError(
            f"masks would become {rows} x {columns} pixels for {pixels} of the image; the stride or the padding in the "
            "file's metadata does not fit its masks"
        )


def _inside(box: NDArray[np.float32], height: int, width: int) -> NDArray[np.bool_]:
    """Return which pixels of an image, by their upper left corner, lie in a box, (height, width)."""
    x1, y1, x2, y2 = box
    rows, columns = np.arange(height), np.arange(width)
    inside: NDArray[np.bool_] = ((rows >= y1) & (rows < y2))[:, None] & ((columns >= x1) & (columns < x2))
    return inside


def _mean_probability(logits: NDArray[np.float32]) -> float:
    """Return the mean probability of positive logits, 0 without any."""
    return float((1 / (1 + np.exp(-logits))).sum()) / (logits.size + 1e-6)


def _from_corners(mask: NDArray[np.float32], factor: int) -> NDArray[np.float32]:
    """Return a mask with `factor` times as many rows, each `factor` // 2 rows from where the row's pixels begin."""
    following, begin = np.concatenate([mask[1:], mask[-1:]]), factor // 2
    enlarged = np.empty((begin + len(mask) * factor, mask.shape[1]), np.float32)
    enlarged[:begin] = mask[0]
    for step in range(factor):
        share = np.float32(step / factor)
        enlarged[begin + step :: factor] = mask * (1 - share) + following * share
    return enlarged[: len(mask) * factor]

"""The ground truth of COCO's format, normalised once: arrays, whose images and categories have numbers of our own.

A file's ids may be integers, floats, text, negative or 0, of which libraries take some for "no match" or count wrongly.
Numbers from 1 on are none of these.  They keep the order of the ids, by which equal scores are ranked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.evaluate import coco_format
from mmort.evaluate.coco_metrics import coco_library
from mmort.evaluate.image_objects import ImageObjects

Id = int | float | str


@dataclass(frozen=True, eq=False)
class CocoTruth:
    """Annotated objects of the images and categories to evaluate, in the file's order.

    Attributes
    ----------
    image_numbers : ndarray of int64, (I,)
        The number of each image, in the file's order.
    image_sizes : ndarray of int64, (I, 2)
        Height and width; 0 if the file does not have them.
    category_numbers : ndarray of int64, (C,)
        The number of each label's category; a category may have several labels.
    indices : ndarray of int64, (N,)
        The position of each object in the file's list, for messages.
    images, categories : ndarray of int64, (N,)
        The numbers of each object's image and category.
    boxes : ndarray of float64, (N, 4)
        x, y, width, height.
    areas : ndarray of float64, (N,)
        The file's, or else that of the mask or the box.
    crowds : ndarray of bool, (N,)
    segmentations : tuple, (N,)
        As the file has them; None for an object without one.
    filled_areas : int
        The objects whose area the file does not have.
    """

    image_numbers: NDArray[np.int64]
    image_sizes: NDArray[np.int64]
    category_numbers: NDArray[np.int64]
    indices: NDArray[np.int64]
    images: NDArray[np.int64]
    categories: NDArray[np.int64]
    boxes: NDArray[np.float64]
    areas: NDArray[np.float64]
    crowds: NDArray[np.bool_]
    segmentations: tuple[Any, ...]
    filled_areas: int

    @classmethod
    def of(cls, annotations: Mapping[str, Any], category_ids: Sequence[Id]) -> CocoTruth:
        """Normalise checked annotations; objects of other categories and of images that are not listed are left out.

        Parameters
        ----------
        annotations : dict
            As `coco_format.read_annotations` returns it.
        category_ids : sequence of id
            The category of each label, which the file need not have.
        """
        image_keys = [coco_format.id_key(image["id"]) for image in annotations["images"]]
        category_keys = [coco_format.id_key(category) for category in category_ids]
        of_image, of_category = _numbered(image_keys), _numbered(category_keys)
        sizes = [
            [coco_format.number(image.get(side)) or 0 for side in ("height", "width")]
            for image in annotations["images"]
        ]
        image_sizes = np.array(sizes, np.int64).reshape(-1, 2)
        size_of = dict(zip(image_keys, image_sizes.tolist(), strict=True))
        entries = [
            (index, entry)
            for index, entry in enumerate(annotations.get("annotations", ()))
            if coco_format.id_key(entry["image_id"]) in of_image
            and coco_format.id_key(entry["category_id"]) in of_category
        ]
        objects = [entry for _, entry in entries]
        boxes = np.array([entry["bbox"] for entry in objects], np.float64)  # numpy reads numbers that are text, too
        areas = [coco_format.number(entry.get("area")) for entry in objects]
        return cls(
            image_numbers=np.array([of_image[key] for key in image_keys], np.int64),
            image_sizes=image_sizes,
            category_numbers=np.array([of_category[key] for key in category_keys], np.int64),
            indices=np.array([index for index, _ in entries], np.int64),
            images=np.array([of_image[coco_format.id_key(entry["image_id"])] for entry in objects], np.int64),
            categories=np.array([of_category[coco_format.id_key(entry["category_id"])] for entry in objects], np.int64),
            boxes=boxes.reshape(-1, 4),
            areas=np.array(
                [
                    _area(entry, size_of[coco_format.id_key(entry["image_id"])]) if area is None else area
                    for entry, area in zip(objects, areas, strict=True)
                ],
                np.float64,
            ),
            crowds=np.array([bool(coco_format.flag(entry.get("iscrowd"))) for entry in objects], bool),
            segmentations=tuple(entry.get("segmentation") for entry in objects),
            filled_areas=areas.count(None),
        )

    @cached_property
    def label_of(self) -> dict[int, int]:
        """The label of each category, the first of several."""
        return {number: label for label, number in reversed([*enumerate(self.category_numbers.tolist())])}

    def objects(self) -> list[ImageObjects]:
        """Return the objects of each image, in the file's order."""
        labels = np.array([self.label_of[number] for number in self.categories.tolist()], np.int64)
        corners = np.concatenate([self.boxes[:, :2], self.boxes[:, :2] + self.boxes[:, 2:]], axis=1)
        order = np.argsort(self.images, kind="stable")
        starts = np.searchsorted(self.images[order], [self.image_numbers, self.image_numbers + 1])
        rows = [order[first:last] for first, last in starts.T.tolist()]
        return [
            ImageObjects(
                corners[of_image],
                labels[of_image],
                self.crowds[of_image],
                self.crowds[of_image],
                decode_masks=self._decoder(of_image),
            )
            for of_image in rows
        ]

    def _decoder(self, rows: NDArray[np.int64]) -> Callable[[int, int], list[NDArray[np.bool_]]] | None:
        """Return a function that draws the masks of some objects; None if not all of them have one."""
        segmentations = [self.segmentations[row] for row in rows.tolist()]
        if not segmentations or any(segmentation is None for segmentation in segmentations):
            return None

        def decode(height: int, width: int) -> list[NDArray[np.bool_]]:
            library = coco_library().mask
            return [
                np.zeros((height, width), bool)
                if coco_format.segmentation_problem(segmentation, height, width) is not None
                else library.decode(_lengths(segmentation, (height, width))).astype(bool)
                for segmentation in segmentations
            ]

        return decode

    def annotations(self, *, masks: bool) -> dict[str, Any]:
        """Return the objects in COCO's format, in its plain form: all ids are integers from 1 on."""
        objects = [
            {"id": number, "image_id": image, "category_id": category, "bbox": box, "area": area, "iscrowd": int(crowd)}
            for number, (image, category, box, area, crowd) in enumerate(
                zip(
                    *(self.images.tolist(), self.categories.tolist(), self.boxes.tolist(), self.areas.tolist()),
                    self.crowds.tolist(),
                    strict=True,
                ),
                1,
            )
        ]
        if masks:
            for entry, segmentation in zip(objects, self.segmentations, strict=True):
                entry["segmentation"] = segmentation
        images = zip(self.image_numbers.tolist(), self.image_sizes.tolist(), strict=True)
        return {
            "images": [{"id": number, "height": height, "width": width} for number, (height, width) in images],
            "categories": [{"id": number} for number in np.unique(self.category_numbers).tolist()],
            "annotations": objects,
        }


def _numbered(keys: Sequence[Id]) -> dict[Id, int]:
    """Give ids numbers from 1 on, in their order: numbers, then text."""
    return {key: number for number, key in enumerate(sorted(set(keys), key=coco_format.id_order), 1)}


def _area(entry: Mapping[str, Any], size: Sequence[int]) -> float:
    """Return the area of an object's mask, or of its box if it has no mask."""
    segmentation = entry.get("segmentation")
    if segmentation is None or not all(size) or coco_format.segmentation_problem(segmentation, *size) is not None:
        width, height = map(coco_format.number, entry["bbox"][2:])
        return float((width or 0) * (height or 0))
    return float(coco_library().mask.area(_lengths(segmentation, size)))


def _lengths(segmentation: Any, size: Sequence[int]) -> Any:
    """Return the compressed run lengths of a segmentation in one of COCO's three forms."""
    masks = coco_library().mask
    if not isinstance(segmentation, dict):
        return masks.merge(masks.frPyObjects(segmentation, *size))
    return masks.frPyObjects(segmentation, *size) if isinstance(segmentation["counts"], list) else segmentation

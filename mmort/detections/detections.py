"""The detections in one image, and the formats in which other programs take them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmort.detections.boxes import bounding_boxes, corners
from mmort.detections.drawable import Drawable
from mmort.detections.masks import Masks, Region, join, put
from mmort.detections.panoptic import SegmentIds
from mmort.detections.skeleton import Skeleton

if TYPE_CHECKING:
    import pandas
    import supervision


SHOWN = 5  # detections in a repr
_PARTS = "x", "y", "score"  # of a keypoint


class RunLengths(TypedDict):
    """A mask as COCO's compressed run lengths."""

    size: list[int]
    """Height and width."""
    counts: str


@dataclass(frozen=True, eq=False)
class Detections(Drawable):
    """The detections in an image, in its own pixels, by descending score.

    Those of a panoptic segmentation are its segments, of things and of stuff, whose masks do not overlap.

    Masks are stored in little memory and made when asked for: `mask` makes one of them, `masks` all.

    Parameters
    ----------
    boxes : ndarray of float32, (N, 4)
        x1, y1, x2, y2 in pixels of the image.  As in MMDetection, they are not clipped to the image.  Those of
        rotated boxes lie around them; see `of_rotated`.
    scores : ndarray of float32, (N,)
    labels : ndarray of int64, (N,)
        Indices of classes.
    names : tuple of str, N
        The class name of each detection; the label as text if the classes have no names.
    image_size : (int, int)
        Height and width of the image.
    stored_masks : BoxMasks or ImageMasks, optional
        The masks as they are stored.
    segments : SegmentIds, optional
        The ids of the segments, if these are those of a panoptic segmentation.
    rotated_boxes : ndarray of float32, (N, 5), optional
        Of detectors of rotated boxes: x, y of the centre, width, height, and an angle in radians, clockwise on screen.
    keypoints : ndarray of float32, (N, P, 3), optional
        Of detectors of poses: x, y and score of each point.
    skeleton : Skeleton, optional
        What the keypoints are, and which of them are linked.

    Raises
    ------
    ValueError
        If the shapes do not match, or labels are fractions.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort import Detections
    >>> boxes, scores, labels = np.array([[1, 2, 5, 8], [0, 0, 4, 4]]), np.array([0.9, 0.4]), np.array([1, 0])
    >>> detections = Detections(boxes, scores, labels, ("dog", "cat"), (10, 12))
    >>> detections
    <Detections: 2 objects in 10 x 12 pixels: dog 0.90, cat 0.40>
    >>> detections.above(0.5).to_coco(image_id=7, category_ids=[17, 18])
    [{'image_id': 7, 'category_id': 18, 'bbox': [1.0, 2.0, 4.0, 6.0], 'score': 0.8999999761581421}]
    >>> detections[1:].to_json()
    '{"image_size": [10, 12], "detections": [{"label": 0, "name": "cat", "score": 0.4, "box": [0.0, 0.0, 4.0, 4.0]}]}'
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    labels: NDArray[np.int64]
    names: tuple[str, ...]
    image_size: tuple[int, int]
    stored_masks: Masks | None = None
    segments: SegmentIds | None = None
    rotated_boxes: NDArray[np.float32] | None = None
    keypoints: NDArray[np.float32] | None = None
    skeleton: Skeleton | None = None

    @classmethod
    def of_rotated(
        cls,
        rotated_boxes: ArrayLike,
        scores: ArrayLike,
        labels: ArrayLike,
        names: tuple[str, ...],
        image_size: tuple[int, int],
    ) -> Detections:
        """Return detections of rotated boxes; their `boxes` are the upright ones around these.

        Raises
        ------
        ValueError
            If `rotated_boxes` are not [N, 5].

        Examples
        --------
        >>> from mmort import Detections
        >>> ship = Detections.of_rotated([[50, 40, 20, 10, 1.5707964]], [0.9], [0], ("ship",), (80, 100))
        >>> ship.boxes.round(3).tolist()
        [[45.0, 30.0, 55.0, 50.0]]
        """
        rows = np.asarray(rotated_boxes, np.float32)
        if rows.size and (rows.ndim != 2 or rows.shape[1] != 5):
            raise ValueError(f"Detections.of_rotated: rotated_boxes must be [N, 5], got {[*rows.shape]}")
        rows = rows.reshape(-1, 5)
        boxes, scores, labels = bounding_boxes(rows), np.asarray(scores), np.asarray(labels)
        return cls(boxes, scores, labels, names, image_size, rotated_boxes=rows)

    @classmethod
    def empty(cls, image_size: tuple[int, int]) -> Detections:
        """Return the detections in an image, of this height and width, in which there is nothing.

        Examples
        --------
        >>> from mmort import Detections
        >>> Detections.empty((10, 12))
        <Detections: 0 objects in 10 x 12 pixels>
        """
        return cls(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), (), image_size)

    @classmethod
    def merge(cls, parts: Sequence[Detections]) -> Detections:
        """Return the detections of several detectors in an image, by descending score; nothing is suppressed.

        Labels stay as they are, so the detectors should have the same classes.  ``+`` merges two.

        Parameters
        ----------
        parts : sequence of Detections
            Of the same image.  Those without detections may have no masks and no rotated boxes, even if others do.

        Raises
        ------
        ValueError
            If there are no parts, their image sizes differ, only some have masks, rotated boxes, as many keypoints or
            the same skeleton, or one is a panoptic segmentation, whose segments must not overlap.
        TypeError
            If a part is something else.

        Examples
        --------
        >>> from mmort import Detections
        >>> cats = Detections([[1, 2, 5, 8]], [0.4], [1], ("cat",), (10, 12))
        >>> dogs = Detections([[0, 0, 4, 4]], [0.9], [0], ("dog",), (10, 12))
        >>> cats + dogs
        <Detections: 2 objects in 10 x 12 pixels: dog 0.90, cat 0.40>
        """
        if not parts:
            raise ValueError("Detections.merge: parts must have at least one, got none")
        for part in parts:
            if not isinstance(part, Detections):
                raise TypeError(f"Detections.merge: parts must be Detections, got {type(part).__name__}")
        if any(part.segments is not None for part in parts):
            raise ValueError("Detections.merge: segments of panoptic segmentations must not overlap, so none is merged")
        sizes = {tuple(part.image_size) for part in parts}
        if len(sizes) > 1:
            raise ValueError(f"Detections.merge: parts must be of one image, got image sizes {sorted(sizes)}")
        filled = [part for part in parts if len(part)] or [parts[0]]
        for name, kinds in (
            ("masks", {part.has_masks for part in filled}),
            ("rotated boxes", {part.rotated_boxes is not None for part in filled}),
            ("as many keypoints", {None if part.keypoints is None else part.keypoints.shape[1] for part in filled}),
            ("the same skeleton", {part.skeleton for part in filled}),
        ):
            if len(kinds) > 1:
                raise ValueError(f"Detections.merge: all parts must have {name}, or none")
        rotated = [part.rotated_boxes for part in filled if part.rotated_boxes is not None]
        masks = [part.stored_masks for part in filled if part.stored_masks is not None]
        keypoints = [part.keypoints for part in filled if part.keypoints is not None]
        joined = cls(
            np.concatenate([part.boxes for part in filled]),
            np.concatenate([part.scores for part in filled]),
            np.concatenate([part.labels for part in filled]),
            tuple(name for part in filled for name in part.names),
            parts[0].image_size,
            join(masks, *parts[0].image_size) if masks else None,
            rotated_boxes=np.concatenate(rotated) if rotated else None,
            keypoints=np.concatenate(keypoints) if keypoints else None,
            skeleton=filled[0].skeleton,
        )
        return joined[np.argsort(-joined.scores, kind="stable")]

    def __add__(self, other: Detections) -> Detections:
        if not isinstance(other, Detections):
            return NotImplemented
        return Detections.merge([self, other])

    def __post_init__(self) -> None:
        labels = np.asarray(self.labels)
        if labels.dtype.kind == "f" and not all(map(float.is_integer, labels.ravel().tolist())):
            raise ValueError(f"Detections: labels must be integers, got {labels}")
        for name, dtype in (("boxes", np.float32), ("scores", np.float32), ("labels", np.int64)):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype))
        if self.boxes.shape == (0,):  # an empty list
            object.__setattr__(self, "boxes", self.boxes.reshape(0, 4))
        count = len(self.boxes)
        shapes = self.boxes.shape, self.scores.shape, self.labels.shape
        if shapes != ((count, 4), (count,), (count,)):
            raise ValueError(f"Detections: boxes, scores and labels must be (N, 4), (N,) and (N,), got {shapes}")
        if self.rotated_boxes is not None:
            object.__setattr__(self, "rotated_boxes", np.asarray(self.rotated_boxes, np.float32))
            if self.rotated_boxes.shape != (count, 5):
                raise ValueError(f"Detections: rotated_boxes must be ({count}, 5), got {self.rotated_boxes.shape}")
        if self.keypoints is not None:
            object.__setattr__(self, "keypoints", np.asarray(self.keypoints, np.float32))
            if self.keypoints.ndim != 3 or self.keypoints.shape[::2] != (count, 3):
                raise ValueError(f"Detections: keypoints must be ({count}, P, 3), got {self.keypoints.shape}")
        if self.skeleton is not None and (
            self.keypoints is None or self.keypoints.shape[1] != len(self.skeleton.names)
        ):
            raise ValueError(
                f"Detections: skeleton must have a name for each keypoint, got {len(self.skeleton.names)} names"
            )
        if len(self.names) != count or (self.stored_masks is not None and len(self.stored_masks) != count):
            raise ValueError(f"Detections: names and masks must be as many as boxes, {count}")
        if self.segments is not None and (self.stored_masks is None or len(self.segments.values) != count):
            raise ValueError(f"Detections: segments must have masks, and be as many as boxes, {count}")

    def __repr__(self) -> str:
        named = [f"{name} {score:.2f}" for name, score in zip(self.names[:SHOWN], self.scores[:SHOWN], strict=True)]
        listed = ", ".join([*named, "..."] if len(self) > SHOWN else named)
        kind = ("segment" if self.segments is not None else "object") + "s" * (len(self) != 1)
        kind += " with masks" * (self.segments is None and self.has_masks)
        height, width = self.image_size
        return f"<Detections: {len(self)} {kind} in {height} x {width} pixels{listed and ': '}{listed}>"

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, index: int | slice | NDArray[Any] | Sequence[int]) -> Detections:
        """Return some of the detections, selected as the rows of an array are; an integer selects one.

        Raises
        ------
        TypeError
            If `index` is True or False, as a comparison of the tuple `names` is.
        """
        if isinstance(index, (bool, np.bool_)):
            raise TypeError(f"Detections: index must not be {index}; np.array(detections.names) can be compared")
        indices = np.atleast_1d(np.arange(len(self))[index])
        return Detections(
            self.boxes[indices],
            self.scores[indices],
            self.labels[indices],
            tuple(self.names[index] for index in indices),
            self.image_size,
            None if self.stored_masks is None else self.stored_masks.select(indices),
            None if self.segments is None else self.segments.select(indices),
            None if self.rotated_boxes is None else self.rotated_boxes[indices],
            None if self.keypoints is None else self.keypoints[indices],
            self.skeleton,
        )

    def above(self, score_threshold: float) -> Detections:
        """Return the detections whose score is at least `score_threshold`."""
        return self[self.scores >= score_threshold]

    @property
    def xywh(self) -> NDArray[np.float32]:
        """The boxes as x, y of the top left corner, width and height, (N, 4)."""
        return np.concatenate([self.boxes[:, :2], self.boxes[:, 2:] - self.boxes[:, :2]], axis=1)

    @property
    def polygons(self) -> NDArray[np.float32]:
        """The four corners of each box, rotated or not, (N, 4, 2): x, y, clockwise on screen."""
        if self.rotated_boxes is None:
            return self.boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
        points: NDArray[np.float32] = corners(self.rotated_boxes)
        return points

    @property
    def has_masks(self) -> bool:
        """Whether the detector makes masks."""
        return self.stored_masks is not None

    @property
    def masks(self) -> NDArray[np.bool_] | None:
        """All masks, (N, H, W): N times as many bytes as the image has pixels.  None if the detector makes none."""
        if self.stored_masks is None:
            return None
        masks = np.zeros((len(self), *self.image_size), bool)
        for index, canvas in enumerate(masks):
            put(canvas, self.mask_region(index))
        return masks

    @property
    def panoptic_map(self) -> NDArray[np.int32] | None:
        """The id of the segment of each pixel, (H, W), as in MMDetection; the number of classes where there is none.

        None if the detector makes no panoptic segmentation.
        """
        if self.segments is None:
            return None
        map = np.full(self.image_size, self.segments.classes, np.int32)
        for index, segment in enumerate(self.segments.values.tolist()):
            top, left, mask = self.mask_region(index)
            map[top : top + mask.shape[0], left : left + mask.shape[1]][mask] = segment
        return map

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Return the mask of a detection, (H, W).

        Raises
        ------
        ValueError
            If the detector makes no masks.
        """
        canvas = np.zeros(self.image_size, bool)
        put(canvas, self.mask_region(index))
        return canvas

    def mask_region(self, index: int) -> Region:
        """Return the part of the image that a mask covers: ``top``, ``left`` and ``mask``, an array (h, w).

        Raises
        ------
        ValueError
            If the detector makes no masks.
        """
        if self.stored_masks is None:
            raise ValueError("Detections: the detector makes no masks; has_masks is False")
        return self.stored_masks.region(index, *self.image_size)

    def rle(self) -> list[RunLengths]:
        """Return the masks as COCO's compressed run lengths.

        Raises
        ------
        ValueError
            If the detector makes no masks.
        ImportError
            If faster-coco-eval is not installed.
        """
        try:
            from faster_coco_eval.core import mask as coco
        except ModuleNotFoundError:
            raise ImportError("run lengths of masks need faster-coco-eval: pip install 'mmort[predict]'") from None
        encoded = []
        for index in range(len(self)):
            lengths = coco.encode(np.asfortranarray(self.mask(index), np.uint8))
            encoded.append(RunLengths(size=list(lengths["size"]), counts=lengths["counts"].decode()))
        return encoded

    def to_coco(
        self, image_id: int | str, category_ids: Sequence[int] | Mapping[int, int] | None = None
    ) -> list[dict[str, Any]]:
        """Return the detections as entries of a COCO results file.

        Parameters
        ----------
        image_id : int or str
            The image's ``id`` in the annotations.
        category_ids : sequence or mapping of int, optional
            The category of each label.  By default a label is its category.

        Returns
        -------
        list of dict
            ``image_id``, ``category_id``, ``bbox`` (x, y, width, height), ``score``, ``keypoints`` (x, y and score of
            each, in one list) of poses, and ``segmentation`` (run lengths) if the detector makes masks.

        Raises
        ------
        ValueError
            If a label has no category.
        ImportError
            If there are masks, and faster-coco-eval is not installed.
        """
        if category_ids is not None:
            known = category_ids if isinstance(category_ids, Mapping) else range(len(category_ids))
            if missing := sorted({*self.labels.tolist()} - {*known}):
                raise ValueError(f"to_coco: category_ids must have an id for each label, got none for {missing[0]}")
        if isinstance(image_id, np.integer):  # which JSON does not have
            image_id = int(image_id)
        entries: list[dict[str, Any]] = []
        for (x1, y1, x2, y2), score, label in zip(
            self.boxes.tolist(), self.scores.tolist(), self.labels.tolist(), strict=True
        ):
            category = label if category_ids is None else int(category_ids[label])
            box = [x1, y1, x2 - x1, y2 - y1]
            entries.append({"image_id": image_id, "category_id": category, "bbox": box, "score": score})
        if self.keypoints is not None:
            for entry, points in zip(entries, self.keypoints, strict=True):
                entry["keypoints"] = points.ravel().tolist()
        return self._with_segmentation(entries)

    def to_dict(self) -> dict[str, Any]:
        """Return the dict that `to_json` writes.

        Returns
        -------
        dict
            ``image_size`` (height, width) and ``detections``: a list of dicts with ``label``, ``name``, ``score``,
            ``box`` (x1, y1, x2, y2), ``rotated_box`` (centre x, y, width, height, angle) if the detector's boxes are
            rotated, ``keypoints`` (a list of x, y, score) if it detects poses, and ``segmentation`` (run lengths) if it
            makes masks.  Numbers have the digits that float32 needs.
            Segments of a panoptic segmentation also have ``id``, ``is_thing`` and ``area`` (pixels).

        Raises
        ------
        ImportError
            If there are masks, and faster-coco-eval is not installed.
        """
        entries = [
            {"label": label, "name": name, "score": float(str(score)), "box": [float(str(edge)) for edge in box]}
            for label, name, score, box in zip(self.labels.tolist(), self.names, self.scores, self.boxes, strict=True)
        ]
        if self.segments is not None:
            for index, (entry, segment) in enumerate(zip(entries, self.segments.values.tolist(), strict=True)):
                area = int(self.mask_region(index).mask.sum())
                entry |= {"id": segment, "is_thing": entry["label"] < self.segments.things, "area": area}
        if self.rotated_boxes is not None:
            for entry, box in zip(entries, self.rotated_boxes, strict=True):
                entry["rotated_box"] = [float(str(number)) for number in box]
        if self.keypoints is not None:
            for entry, points in zip(entries, self.keypoints, strict=True):
                entry["keypoints"] = [[float(str(number)) for number in point] for point in points]
        return {"image_size": list(self.image_size), "detections": self._with_segmentation(entries)}

    def to_json(self) -> str:
        """Return the detections as JSON in one line; see `to_dict`."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with a row for each detection.

        Its columns are ``label``, ``name``, ``score``, ``x1``, ``y1``, ``x2``, ``y2``, of detectors of rotated boxes
        also ``x``, ``y``, ``width``, ``height``, ``angle``, and of poses three for each keypoint, by its name, such as
        ``nose_x``, ``nose_y``, ``nose_score``, or by its index: ``keypoint_0_x``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError:
            raise ImportError("to_pandas needs pandas: pip install pandas") from None
        columns: dict[str, Any] = {"label": self.labels, "name": list(self.names), "score": self.scores}
        columns |= dict(zip(("x1", "y1", "x2", "y2"), self.boxes.T, strict=True))
        if self.rotated_boxes is not None:
            columns |= dict(zip(("x", "y", "width", "height", "angle"), self.rotated_boxes.T, strict=True))
        if self.keypoints is not None:
            names = () if self.skeleton is None else self.skeleton.names
            if len(set(names)) != self.keypoints.shape[1]:
                names = tuple(f"keypoint_{index}" for index in range(self.keypoints.shape[1]))
            values = self.keypoints.reshape(len(self), -1).T
            columns |= dict(zip((f"{name}_{part}" for name in names for part in _PARTS), values, strict=True))
        return pandas.DataFrame(columns)

    def to_supervision(self) -> supervision.Detections:
        """Return the detections as an object of the supervision library, with the names as ``class_name``.

        Corners of rotated boxes are its ``xyxyxyxy``, which its oriented annotators and metrics read.  It has no
        keypoints: ``supervision.KeyPoints(xy=detections.keypoints[..., :2])`` is an object of these.

        Raises
        ------
        ImportError
            If supervision is not installed.
        """
        try:
            import supervision
        except ModuleNotFoundError:
            raise ImportError("to_supervision needs the supervision library: pip install supervision") from None
        data: dict[str, NDArray[Any] | list[Any]] = {"class_name": np.array(self.names, str)}
        if self.rotated_boxes is not None:
            data["xyxyxyxy"] = self.polygons
        return supervision.Detections(
            xyxy=self.boxes.copy(),
            mask=self.masks,
            confidence=self.scores.copy(),
            class_id=self.labels.copy(),
            data=data,
        )

    def plot(self, image: NDArray[np.uint8] | str | os.PathLike[str], *, scale: float = 1.0) -> NDArray[np.uint8]:
        """Draw the detections on a copy of their image, as `mmort.predict.draw` does.  See `Drawable.plot`.

        Examples
        --------
        >>> from mmort import Predictor
        >>> from mmort.demo import IMAGES, MODEL
        >>> Predictor(MODEL, score_threshold=0.5)(IMAGES[0]).plot(IMAGES[0], scale=4).shape
        (448, 640, 3)
        """
        from mmort.detections.drawing import draw

        return draw(image, self, scale=scale)

    def _with_segmentation(self, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Add each detection's mask to its entry, if the detector makes masks."""
        if self.has_masks:
            for entry, lengths in zip(entries, self.rle(), strict=True):
                entry["segmentation"] = lengths
        return entries

"""`PosePredictor`: keypoints in boxes, which a detector finds, or which are given; images in, `Detections` out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmort.contract import DETECTION, POSE, PoseFormat, Prepared, Preprocessing
from mmort.contract.names import as_names
from mmort.detections.detections import Detections
from mmort.images import Image, as_image, decode_image, opencv
from mmort.predict.engines.network import DetectorFile, Network, task_of
from mmort.predict.engines.onnxruntime import OnnxRuntime
from mmort.predict.pose_decoding import decode
from mmort.predict.predictor import ImageSource, Predictor

NAME = "pose"
"""The name of a pose in an image without a detector."""

PERSON = "person"
"""The class of a detector that gets poses, if it has this and others."""

BATCH = 64
"""Boxes that run together."""


@dataclass(frozen=True)
class Photo:
    """An image in memory, with the boxes in it or what a detector needs to find them.

    Attributes
    ----------
    pixels : ndarray of uint8, (H, W, 3)
    prepared : Prepared, optional
        The detector's input.
    """

    pixels: Image
    prepared: Prepared | None = None


@dataclass(frozen=True)
class Crop:
    """The part of an image around a box, with the proportions of a network's input.

    Attributes
    ----------
    centre, sides : ndarray of float32, (2,)
        x and y; width and height.
    size : (int, int)
        Width and height of the input.
    """

    centre: NDArray[np.float32]
    sides: NDArray[np.float32]
    size: tuple[int, int]

    @classmethod
    def around(cls, box: NDArray[np.float32], padding: float, size: tuple[int, int]) -> Crop:
        """Return the part around a box (4,), which is enlarged first, and then in one direction."""
        width, height = (box[2:] - box[:2]) * np.float32(padding)
        ratio = np.float32(size[0] / size[1])
        sides = (width, width / ratio) if width > height * ratio else (height * ratio, height)
        return cls((box[2:] + box[:2]) * np.float32(0.5), np.array(sides, np.float32), size)

    def matrix(self, *, aligned: bool) -> NDArray[Any]:
        """Return the matrix (2, 3) that maps the image to the input, in MMPose's arithmetic, on which pixels depend."""
        (x, y), (width, height) = self.centre, self.sides
        if aligned:
            right, down = (self.size[0] - 1) / width, (self.size[1] - 1) / height
            half = np.float32(0.5)
            left, top = right * (half * width - half * (x * 2)), down * (half * height - half * (y * 2))
            return np.array([[right, 0, left], [0, down, top]], np.float32)
        start = np.float32(np.float64(x) - np.float64(width) * 0.5)
        image = np.array([[x, y], [start, y], [start, y + (x - start)]], np.float32)
        middle, halfway = self.size[0] * 0.5, self.size[1] * 0.5
        input = np.array([[middle, halfway], [0, halfway], [0, halfway + middle]], np.float32)
        matrix: NDArray[Any] = opencv().getAffineTransform(image, input)
        return matrix

    def of(self, image: Image, *, aligned: bool) -> Image:
        """Return this part of an image, resized; what is outside the image is black."""
        cv2 = opencv()
        cut: Image = cv2.warpAffine(image, self.matrix(aligned=aligned), self.size, flags=cv2.INTER_LINEAR)
        return cut

    def in_image(self, points: NDArray[Any]) -> NDArray[Any]:
        """Map points (..., 2) of the input to the image."""
        mapped: NDArray[Any] = points / self.size * self.sides + self.centre - 0.5 * self.sides
        return mapped


class PosePredictor(Predictor):
    """A file of poses, with the detector that finds whom they are of: images in, `Detections` with keypoints out.

    Parameters
    ----------
    network : path or Network
        A file of ``mmort export --original`` of a top-down model of MMPose.
    detector : path or Predictor, optional
        Finds the boxes: any file of a detector that mmort runs.  Without it, an image is one box.
    pose_classes : sequence of str, optional
        The detector's classes that get poses.  By default "person", if the detector has that among others, and
        otherwise all.
    preprocessing : Preprocessing, optional
        By default that in the file's metadata.
    score_threshold : float, default 0.3
        Leave out boxes that the detector gives a lower score.  That of a detector which is a `Predictor` counts, too.

    Raises
    ------
    ValueError
        If the file is not one of poses, the detector none of detections, or a class is not one of its.
    OSError
        If there is no such file.
    ImportError
        If ONNX Runtime is not installed.

    Examples
    --------
    >>> from mmort.predict import PosePredictor
    >>> predict = PosePredictor("rtmpose.onnx", "rtmdet.onnx")  # doctest: +SKIP
    >>> detections = predict("photo.jpg")  # doctest: +SKIP
    >>> detections.keypoints.shape, detections.skeleton.names[0]  # doctest: +SKIP
    ((3, 17, 3), 'nose')
    """

    _takes_boxes: ClassVar[bool] = True

    def __init__(
        self,
        network: str | os.PathLike[str] | Network,
        detector: str | os.PathLike[str] | Predictor | None = None,
        *,
        pose_classes: Sequence[str] | None = None,
        preprocessing: Preprocessing | None = None,
        score_threshold: float = 0.3,
    ) -> None:
        if isinstance(network, (str, os.PathLike)):
            network = OnnxRuntime(network)
        super().__init__(network, preprocessing=preprocessing, score_threshold=score_threshold)
        if not isinstance(network, DetectorFile) or task_of(network) is not POSE:
            raise ValueError(f"PosePredictor: network must be a file of poses, got one for {task_of(network).name}")
        format = network.contract.metadata.pose
        if format is None:
            raise ValueError(f"PosePredictor: {network.path} does not state how it becomes keypoints")
        if self.preprocessing.size is None:
            raise ValueError("PosePredictor: preprocessing of poses must have a size, got None")
        require_plain_images("PosePredictor", self.preprocessing)
        self.format: PoseFormat = format
        self.size: tuple[int, int] = self.preprocessing.size
        if isinstance(detector, (str, os.PathLike)):
            detector = Predictor(detector, score_threshold=score_threshold)
        if detector is not None and detector.task is not DETECTION:
            raise ValueError(f"PosePredictor: detector must be one of detections, got one of {detector.task.name}")
        self.detector = detector
        self.pose_classes = _classes_of(detector, pose_classes)

    def poses(self, image: ImageSource, boxes: ArrayLike | Detections) -> Detections:
        """Return the poses in boxes of an image.

        Parameters
        ----------
        image : ndarray of uint8, (H, W, 3), or path, or bytes
        boxes : array_like of shape (N, 4), or Detections
            x1, y1, x2, y2 in pixels of the image.

        Returns
        -------
        Detections
            One for each box, in their order.

        Raises
        ------
        ValueError
            If `boxes` are not (N, 4), one is not finite or has no area, they are of an image of another size, or the
            image cannot be decoded.
        """
        pixels = self._pixels(image)
        if not isinstance(boxes, Detections):
            rows = np.asarray(boxes, np.float32)
            if rows.size and (rows.ndim != 2 or rows.shape[1] != 4):
                raise ValueError(f"PosePredictor: boxes must be (N, 4), got {rows.shape}")
            rows, count = rows.reshape(-1, 4), len(rows)
            scores, labels = np.ones(count, np.float32), np.zeros(count, np.int64)
            boxes = Detections(rows, scores, labels, (NAME,) * count, pixels.shape[:2])
        if tuple(boxes.image_size) != pixels.shape[:2]:
            raise ValueError(
                f"PosePredictor: boxes must be of an image of {pixels.shape[:2]} pixels, got {tuple(boxes.image_size)}"
            )
        return self._poses(pixels, boxes)

    def crops(self, image: Image, boxes: ArrayLike) -> list[tuple[Crop, Prepared]]:
        """Return the part of an image around each box (N, 4), and the network's input of it."""
        parts = [Crop.around(box, self.format.padding, self.size) for box in np.asarray(boxes, np.float32)]
        return [(crop, self.preprocessing(crop.of(image, aligned=self.format.aligned))) for crop in parts]

    def run(self, images: Sequence[Any]) -> list[Detections]:
        """Return the poses in images that `Predictor.predict` has read, all boxes of an image in one batch."""
        if self.detector is None:
            return [self.poses(photo.pixels, [[0, 0, *photo.pixels.shape[1::-1]]]) for photo in images]
        found: list[Detections] = self.detector.run([photo.prepared for photo in images])
        return [self._poses(photo.pixels, self._with_pose(boxes)) for photo, boxes in zip(images, found, strict=True)]

    def _prepare(self, image: ImageSource) -> Any:
        """Read an image, and preprocess it for the detector."""
        pixels = self._pixels(image)
        return Photo(pixels, None if self.detector is None else self.detector.preprocessing(pixels))

    def _pixels(self, image: ImageSource) -> Image:
        """Return an image's pixels."""
        if isinstance(image, bytes):
            return decode_image(image)
        return as_image("PosePredictor", image)

    def _with_pose(self, boxes: Detections) -> Detections:
        """Return the detections that get poses: those of some classes, with an area."""
        is_wanted = np.array([not self.pose_classes or name in self.pose_classes for name in boxes.names], bool)
        return boxes[is_wanted & (boxes.xywh[:, 2:] > 0).all(axis=1) & (boxes.scores >= self.score_threshold)]

    def _poses(self, pixels: Image, boxes: Detections) -> Detections:
        """Return detections with their keypoints."""
        wrong = ~(np.isfinite(boxes.boxes).all(axis=1) & (boxes.xywh[:, 2:] > 0).all(axis=1))
        if wrong.any():
            raise ValueError(f"PosePredictor: boxes must be finite and have an area, got {boxes.boxes[wrong][0]}")
        keypoints = np.zeros((len(boxes), len(self.format.names), 3), np.float32)
        number = self.network.input_shape[0] or BATCH
        for start in range(0, len(boxes), number):
            crops, parts = zip(*self.crops(pixels, boxes.boxes[start : start + number]), strict=True)
            input, img_shape = self.input_of(parts)
            outputs = self.network(input, img_shape)
            self.task.check_arrays(outputs, len(input))
            points, scores = decode(self.format, self.size, [output[: len(crops)] for output in outputs])
            if points.shape[1] != keypoints.shape[1]:
                raise ValueError(
                    f"PosePredictor: the model has {points.shape[1]} keypoints, but there are names for "
                    f"{keypoints.shape[1]}"
                )
            for row, crop, of_box, of_points in zip(keypoints[start:], crops, points, scores, strict=False):
                row[:, :2], row[:, 2] = crop.in_image(of_box), of_points
        return replace(boxes, keypoints=keypoints, skeleton=self.format.skeleton)


def require_plain_images(caller: str, preprocessing: Preprocessing) -> None:
    """Raise ValueError if preprocessing reads other images than those of which poses are cut out."""
    for name, default in (("color_type", "color"), ("to_float32", False)):
        if (value := getattr(preprocessing, name)) != default:
            raise ValueError(f"{caller}: preprocessing of poses must have {name}={default!r}, got {value!r}")


def _classes_of(detector: Predictor | None, classes: Sequence[str] | None) -> tuple[str, ...]:
    """Return the classes of a detector that get poses; none if all do."""
    known = () if detector is None else detector.classes
    if classes is None:
        return (PERSON,) if PERSON in known and len(known) > 1 else ()
    if detector is None:
        raise ValueError("PosePredictor: pose_classes are for a detector, and there is none")
    classes = as_names("PosePredictor", classes)
    if unknown := [name for name in classes if name not in known]:
        raise ValueError(
            f"PosePredictor: pose_classes must be among the detector's, got {unknown[0]!r}; its classes: "
            f"{', '.join(known[:10])}{', ...' if len(known) > 10 else ''}"
        )
    return classes

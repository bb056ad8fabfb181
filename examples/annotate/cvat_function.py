"""A function of CVAT: a detector draws shapes in a task, which annotators then correct."""

import cv2
import cvat_sdk.auto_annotation as cvataa
import numpy as np
from cvat_sdk.masks import encode_mask
from cvat_sdk.models import LabeledShapeRequest
from PIL.Image import Image

from mmort import Predictor


class Detector:
    """The task needs labels by the names of the detector's classes."""

    def __init__(self, model: str) -> None:
        self.predict = Predictor(model, score_threshold=0)  # CVAT passes its own
        labels = [cvataa.label_spec(name, number) for number, name in enumerate(self.predict.classes)]
        self.spec = cvataa.DetectionFunctionSpec(labels=labels)

    def detect(self, context: cvataa.DetectionFunctionContext, image: Image) -> list[LabeledShapeRequest]:
        """Return masks, polygons if CVAT asks for them, or boxes if the detector makes no masks."""
        detections = self.predict(np.asarray(image.convert("RGB"))[..., ::-1])
        detections = detections.above(0.3 if context.conf_threshold is None else context.conf_threshold)
        shapes = []
        for index, (label, box) in enumerate(zip(detections.labels.tolist(), detections.boxes.tolist(), strict=True)):
            if not detections.has_masks:
                shapes.append(cvataa.rectangle(label, box))
            elif context.conv_mask_to_poly:
                contours, _ = cv2.findContours(
                    detections.mask(index).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE
                )
                shapes += [cvataa.polygon(label, contour.ravel().tolist()) for contour in contours if len(contour) >= 3]
            elif detections.mask(index).any():
                shapes.append(cvataa.mask(label, encode_mask(detections.mask(index))))
        return shapes


create = Detector

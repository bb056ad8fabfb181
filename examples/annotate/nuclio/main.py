"""A function of CVAT's server: nuclio calls it with an image, and CVAT shows what the detector finds."""

import base64
import json
from typing import Any

import cv2
import numpy as np

from mmort import Predictor

MODEL = "/opt/nuclio/detector.onnx"


def init_context(context: Any) -> None:
    """Load the detector, once for each worker."""
    context.user_data.predict = Predictor(MODEL, score_threshold=0)  # CVAT passes its own


def handler(context: Any, event: Any) -> Any:
    """Return a mask for each detection, or a rectangle if the detector makes no masks."""
    detections = context.user_data.predict(base64.b64decode(event.body["image"]))
    detections = detections.above(float(event.body.get("threshold", 0.3)))
    shapes = []
    for index, (name, score, box) in enumerate(
        zip(detections.names, detections.scores.tolist(), detections.boxes.tolist(), strict=True)
    ):
        shape = {"confidence": str(score), "label": name, "type": "rectangle", "points": box}
        if detections.has_masks:
            mask = detections.mask(index).astype(np.uint8)
            contours, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
            contour = max(contours, key=cv2.contourArea, default=np.empty(0))
            if len(contour) < 3:  # no polygon, which CVAT asks for beside the mask
                continue
            x, y, width, height = cv2.boundingRect(mask)
            pixels = mask[y : y + height, x : x + width].ravel().tolist()
            mask_of_box = [*pixels, x, y, x + width - 1, y + height - 1]
            shape |= {"type": "mask", "points": contour.ravel().tolist(), "mask": mask_of_box}
        shapes.append(shape)
    return context.Response(body=json.dumps(shapes), content_type="application/json", status_code=200)

"""An ML backend of Label Studio: ``MODEL=detector.onnx python label_studio_backend.py`` serves predictions."""

import os
import sys
from typing import Any

from label_studio_ml.api import init_app
from label_studio_ml.model import LabelStudioMLBase

from mmort import Predictor

if "MODEL" not in os.environ:
    sys.exit("name the detector's file: MODEL=detector.onnx python label_studio_backend.py")
PREDICT = Predictor(os.environ["MODEL"])


class Detector(LabelStudioMLBase):
    """The project's labeling interface needs RectangleLabels, with the names of the detector's classes."""

    def predict(self, tasks: list[dict[str, Any]], **kwargs: Any) -> list[dict[str, Any]]:
        """Return the boxes in the image of each task, in percent of its size."""
        control, tag = next(
            (name, tag) for name, tag in self.parsed_label_config.items() if tag["type"] == "RectangleLabels"
        )
        predictions = []
        for task in tasks:
            detections = PREDICT(self.get_local_path(task["data"][tag["inputs"][0]["value"]]))
            height, width = detections.image_size
            results = []
            for name, score, box in zip(detections.names, detections.scores.tolist(), detections.xywh, strict=True):
                x, y, w, h = (100 * box / [width, height, width, height]).tolist()
                results.append(
                    {
                        "from_name": control,
                        "to_name": tag["to_name"][0],
                        "type": "rectanglelabels",
                        "original_width": width,
                        "original_height": height,
                        "score": score,
                        "value": {"x": x, "y": y, "width": w, "height": h, "rectanglelabels": [name]},
                    }
                )
            predictions.append(
                {"result": results, "score": float(detections.scores.mean()) if len(detections) else 0.0}
            )
        return predictions


if __name__ == "__main__":
    init_app(Detector).run(port=9090)

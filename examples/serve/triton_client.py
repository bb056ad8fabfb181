"""Detections from a Triton server as from a file: triton_client.py HOST:PORT MODEL PICTURE...

`mmort triton-repository` has written the model's folder on the server.  Preprocessing, class names and masks are in the
model's configuration, so the client needs no file.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import tritonclient.http as triton
from numpy.typing import NDArray

from mmort import Predictor
from mmort.predict import MaskFormat, Preprocessing


class TritonNetwork:
    """What `Predictor` calls to run a batch: the server."""

    input_shape = (None, None, None)

    def __init__(self, server: str, model: str) -> None:
        self._client, self._model = triton.InferenceServerClient(server), model
        config = self._client.get_model_config(model)
        entries = {key: json.loads(value["string_value"]) for key, value in config["parameters"].items()}
        self.classes = entries["classes"]
        self.preprocessing = Preprocessing.from_dict(entries["preprocessing"])
        self.mask_format = MaskFormat.from_dict(entries.get("masks") or {})
        names = [output["name"] for output in config["output"]]
        self._outputs = [name for name in ("dets", "labels", "masks", "semantic") if name in names]

    def __call__(self, input: NDArray[np.float32], img_shape: NDArray[np.int64]) -> Sequence[NDArray[Any]]:
        tensors = []
        for name, array, word in (("input", input, "FP32"), ("img_shape", img_shape, "INT64")):
            tensors.append(triton.InferInput(name, array.shape, word))
            tensors[-1].set_data_from_numpy(array)
        answer = self._client.infer(self._model, tensors)
        return [answer.as_numpy(name) for name in self._outputs]


def main(server: str, model: str, *images: str) -> None:
    network = TritonNetwork(server, model)
    predictor = Predictor(network, classes=network.classes, preprocessing=network.preprocessing, score_threshold=0.3)
    for path, detections in zip(images, predictor.predict(images), strict=True):
        print(path, *(f"{name} {score:.2f}" for name, score in zip(detections.names, detections.scores, strict=True)))


if __name__ == "__main__":
    main(*sys.argv[1:])

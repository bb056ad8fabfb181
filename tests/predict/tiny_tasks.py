"""Small files of each task but detection, with one convolution and inputs of one size."""

import numpy as np
import onnx
import onnx.helper as oh

from mmort.contract import (
    CLASSIFICATION,
    POSE,
    SEGMENTATION,
    TEXT_DETECTION,
    TEXT_RECOGNITION,
    Metadata,
    PoseFormat,
    Preprocessing,
    RecognitionFormat,
    write_entries,
)

NAMES = "cat", "dog", "owl"
SIZE = 24, 32

OUTPUTS = {
    CLASSIFICATION: (
        "scores",
        ["batch", 3],
        [("ReduceMean", {"axes": [2, 3], "keepdims": 0}), ("Softmax", {"axis": 1})],
    ),
    SEGMENTATION: ("logits", ["batch", 3, *SIZE], []),
    POSE: ("heatmaps", ["batch", 3, *SIZE], []),
    TEXT_DETECTION: ("probability", ["batch", *SIZE], [("ReduceMean", {"axes": [1], "keepdims": 0}), ("Sigmoid", {})]),
    TEXT_RECOGNITION: (
        *("characters", ["batch", SIZE[1], 3]),
        [
            ("ReduceMean", {"axes": [2], "keepdims": 0}),
            ("Transpose", {"perm": [0, 2, 1]}),
            ("Softmax", {"axis": 2}),
        ],
    ),
}
"""The output of a small file of each task, its sizes, and what makes it of three channels."""


def write(path, task, bias=0.0, **stated):
    """Write a file that convolves; the bias is the first channel's; `stated` are entries of the metadata."""
    name, sizes, operators = OUTPUTS[task]
    weights = np.eye(3, dtype=np.float32)[:, :, None, None] / 60
    numbers = {"weights": weights, "bias": np.array([bias, 0, 0], np.float32)}
    nodes, value = [oh.make_node("Conv", ["input", "weights", "bias"], ["0"])], "0"
    for index, (operator, attributes) in enumerate((*operators, ("Identity", {})), 1):
        output = name if operator == "Identity" else str(index)
        nodes.append(oh.make_node(operator, [value], [output], **attributes))
        value = output
    graph = oh.make_graph(
        *(nodes, task.name.replace(" ", "_")),
        [oh.make_tensor_value_info("input", 1, ["batch", 3, *SIZE])],
        [oh.make_tensor_value_info(name, 1, sizes)],
        [onnx.numpy_helper.from_array(array, key) for key, array in numbers.items()],
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    stated = {"preprocessing": Preprocessing(size=SIZE[::-1], keep_ratio=False, mean=(128, 128, 128)), **stated}
    metadata = Metadata(
        task=task.name,
        classes=NAMES if task in (CLASSIFICATION, SEGMENTATION) else None,
        pose=PoseFormat("heatmaps", NAMES) if task is POSE else None,
        recognition=RecognitionFormat("attention", tuple("abc")) if task is TEXT_RECOGNITION else None,
        **stated,
    )
    oh.set_model_props(model, write_entries(metadata))
    onnx.save(model, path)

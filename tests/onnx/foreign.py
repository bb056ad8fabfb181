"""Tiny files with the names, metadata and shapes of other exporters, whose outputs are any arrays."""

import numpy as np
import onnx
import onnx.helper as oh

HEIGHT, WIDTH = 64, 96
CLASSES = ["cat", "dog", "owl"]


def write(path, outputs, image=("n", 3, HEIGHT, WIDTH), metadata=None, opset=17, name="images", dtype=1, gain=0.0):
    """Write a file whose outputs are these arrays, for each image of a batch, plus `gain` times the input's mean."""
    batched = len(image) == 4
    axes = [1, 2, 3] if batched else [0, 1, 2]
    mean = (
        oh.make_node("ReduceMean", [name], ["mean"], axes=axes, keepdims=0)
        if opset < 18
        else oh.make_node("ReduceMean", [name, "axes"], ["mean"], keepdims=0)
    )
    nodes = [mean, oh.make_node("Mul", ["mean", "zero"], ["nothing"])]
    tensors = {"zero": np.array(gain, np.float32), "axes": np.array(axes)}
    infos = []
    for key, array in outputs.items():
        tensors[f"{key}/rows"] = array.astype(np.float32)
        shape, rank = [*array.shape], array.ndim
        if batched:
            tensors[f"{key}/shape"] = np.array([-1] + [1] * rank)
            shape = [image[0], *shape]
        else:
            shape[0] = f"{key}_count"
            tensors[f"{key}/shape"] = np.array([1] * rank)
        nodes += [
            oh.make_node("Reshape", ["nothing", f"{key}/shape"], [f"{key}/zero"]),
            oh.make_node("Add", [f"{key}/zero", f"{key}/rows"], [f"{key}/sum"]),
            oh.make_node("Cast", [f"{key}/sum"], [key], to=7 if array.dtype == np.int64 else 1),
        ]
        infos.append(oh.make_tensor_value_info(key, 7 if array.dtype == np.int64 else 1, shape))
    weights = [onnx.numpy_helper.from_array(array, key) for key, array in tensors.items()]
    graph = oh.make_graph(nodes, "foreign", [oh.make_tensor_value_info(name, dtype, [*image])], infos, weights)
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset)], ir_version=8)
    oh.set_model_props(model, metadata or {})
    onnx.save(model, path)
    return path


def ultralytics(**entries):
    """Return the metadata that ultralytics writes."""
    common = {"description": "Ultralytics YOLO11n model", "docs": "https://docs.ultralytics.com", "task": "detect"}
    names = dict(enumerate(CLASSES))
    return common | {"stride": "32", "imgsz": f"[{HEIGHT}, {WIDTH}]", "names": str(names)} | entries


def write_yolo(path):
    """Write a file as ultralytics does, for images of 640 x 640, that detects nothing."""
    rows = np.concatenate([np.full((4, 2), 100.0), np.zeros((3, 2))])
    write(path, {"output0": rows}, image=(1, 3, 640, 640), metadata=ultralytics())

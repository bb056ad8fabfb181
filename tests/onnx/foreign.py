"""Tiny files with the names, metadata and shapes of other exporters, whose outputs are any arrays; and their boxes."""

import numpy as np
import onnx
import onnx.helper as oh

import mmort

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


def add_input(path, name, shape, element_type=1, *, factor=None, output=None):
    """Add an input (N, 2) or (N, 3), of which columns `factor` are multiplied with an output (N, boxes, 4)."""
    model = onnx.load(path)
    model.graph.input.append(oh.make_tensor_value_info(name, element_type, shape))
    if output is not None:
        for node in model.graph.node:
            if output in node.output:
                node.output[:] = ["plain/output"]
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(factor), "factor/columns"))
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1, 1, 4]), "factor/shape"))
        model.graph.node.extend(
            [
                oh.make_node("Cast", [name], ["factor/float"], to=1),
                oh.make_node("Gather", ["factor/float", "factor/columns"], ["factor/gathered"], axis=1),
                oh.make_node("Reshape", ["factor/gathered", "factor/shape"], ["factor/rows"]),
                oh.make_node("Mul", ["plain/output", "factor/rows"], [output]),
            ]
        )
    onnx.save(model, path)


def ultralytics(**entries):
    """Return the metadata that ultralytics writes."""
    common = {"description": "Ultralytics YOLO11n model", "docs": "https://docs.ultralytics.com", "task": "detect"}
    names = dict(enumerate(CLASSES))
    return common | {"stride": "32", "imgsz": f"[{HEIGHT}, {WIDTH}]", "names": str(names)} | entries


def write_yolo(path):
    """Write a file as ultralytics does, for images of 640 x 640, that detects nothing."""
    rows = np.concatenate([np.full((4, 2), 100.0), np.zeros((3, 2))])
    write(path, {"output0": rows}, image=(1, 3, 640, 640), metadata=ultralytics())


def corners(boxes):
    """Return boxes cx, cy, w, h as two corners."""
    return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)


def iou(box, boxes):
    """Return the IoU of a box with boxes."""
    sides = np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])
    inner = np.prod(np.maximum(sides, 0), 1)
    return inner / (np.prod(box[2:] - box[:2]) + np.prod(boxes[:, 2:] - boxes[:, :2], 1) - inner)


def suppressed(boxes, scores, labels, threshold):
    """Return the indices of the boxes that greedy suppression within classes keeps, best first."""
    kept = []
    for index in np.argsort(-scores, kind="stable"):
        same = [other for other in kept if labels[other] == labels[index]]
        if not same or (iou(boxes[index], boxes[same]) <= threshold).all():
            kept.append(index)
    return np.array(kept, int)


def detect(path, image=None):
    """Return the detections of a file; without an image, in one of the input's size, so that pixels are the same."""
    return mmort.Predictor(path, score_threshold=0)(np.zeros((HEIGHT, WIDTH, 3), np.uint8) if image is None else image)


def assert_detects(detections, boxes, scores, labels):
    """Check detections against rows in any order."""
    order = np.argsort(-np.asarray(scores), kind="stable")
    np.testing.assert_allclose(detections.scores, np.asarray(scores)[order], rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(detections.labels, np.asarray(labels)[order])
    np.testing.assert_allclose(detections.boxes, np.asarray(boxes)[order], rtol=1e-4, atol=1e-3)

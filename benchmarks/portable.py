"""Time the definitions in standard operators against the kernels, both in ONNX Runtime on one thread.

python benchmarks/portable.py     # a minute; prints the table of docs/portable.md
"""

import statistics
import time

import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime

import mmort.ort
from mmort import schemas
from mmort.onnx import make_portable

rng = np.random.default_rng(0)


def random(*shape: int) -> np.ndarray:
    return rng.random(shape, np.float32)


def boxes(count: int) -> np.ndarray:
    """[count, 4], spread over an image."""
    corners = 900 * random(count, 2)
    return np.concatenate([corners, corners + 20 + 180 * random(count, 2)], axis=1)


def rois(count: int) -> np.ndarray:
    return np.concatenate([np.zeros((count, 1), np.float32), boxes(count)], axis=1)


def rotated(count: int) -> np.ndarray:
    """[count, 5], spread over an image, at all angles."""
    sizes = 20 + 180 * random(count, 2)
    return np.concatenate([900 * random(count, 2), sizes, 6 * random(count, 1)], axis=1)


def attention() -> tuple[np.ndarray, ...]:
    """Four maps, 300 queries, 8 heads of 32 channels."""
    shapes = np.array([[64, 64], [32, 32], [16, 16], [8, 8]])
    sizes = shapes.prod(axis=1)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return random(1, sizes.sum(), 8, 32), shapes, starts, random(1, 300, 8, 4, 4, 2), random(1, 300, 8, 4, 4)


ROWS = [
    ("nms", "1000 boxes", (boxes(1000), random(1000)), {"iou_threshold": 0.5}),
    ("nms", "1000 boxes, offset 1", (boxes(1000), random(1000)), {"iou_threshold": 0.5, "offset": 1}),
    ("nms", "1000 boxes in 80 classes", (boxes(1000), random(1000), rng.integers(0, 80, 1000)), {"iou_threshold": 0.5}),
    ("soft_nms", "1000 boxes", (boxes(1000), random(1000)), {"method": 1}),
    ("filter_scores", "6400 boxes, 80 classes", (random(1, 6400, 80),), {"score_threshold": 0.9, "nms_pre": 30000}),
    ("multiclass_nms", "1000 boxes, 80 classes", (boxes(1000)[None], random(1, 1000, 80)), {"score_threshold": 0.9}),
    ("multiclass_nms", "1000 boxes, 80 classes, soft_nms_linear", (boxes(1000)[None], random(1, 1000, 80)),
     {"score_threshold": 0.9, "method": "soft_nms_linear"}),
    ("roi_align", "256 RoIs, 256 x 64 x 64", (random(1, 256, 64, 64), rois(256)),
     {"output_height": 7, "output_width": 7, "spatial_scale": 0.0625, "sampling_ratio": 2}),
    ("roi_align", "256 RoIs, 256 x 64 x 64, max, adaptive", (random(1, 256, 64, 64), rois(256)),
     {"output_height": 7, "output_width": 7, "spatial_scale": 0.0625, "sampling_ratio": 0, "mode": "max"}),
    ("roi_align_rotated", "256 RoIs, 256 x 64 x 64",
     (random(1, 256, 64, 64), np.concatenate([np.zeros((256, 1), np.float32), rotated(256)], axis=1)),
     {"output_height": 7, "output_width": 7, "spatial_scale": 0.0625, "sampling_ratio": 2}),
    ("rotated_feature_align", "256 x 64 x 64, 5 points",
     (random(1, 256, 64, 64), rotated(4096).reshape(1, 64, 64, 5)), {"points": 5}),
    ("nms_match_pairs", "1000 boxes, 10 classes",
     (boxes(1000)[None], random(1, 10, 1000), np.float32([0.5]), np.float32([0.3])), {}),
    ("nms_rotated", "1000 boxes", (rotated(1000), random(1000)), {"iou_threshold": 0.1}),
    ("grid_sample", "64 x 128 x 128, as many points", (random(1, 64, 128, 128), 2 * random(1, 128, 128, 2) - 1), {}),
    ("deform_conv2d", "64 to 64 channels, 3 x 3, 64 x 64",
     (random(1, 64, 64, 64), 4 * random(1, 18, 64, 64) - 2, random(64, 64, 3, 3)), {"padding": [1, 1]}),
    ("modulated_deform_conv2d", "64 to 64 channels, 3 x 3, 64 x 64",
     (random(1, 64, 64, 64), 4 * random(1, 18, 64, 64) - 2, random(1, 9, 64, 64), random(64, 64, 3, 3), random(64)),
     {"padding": [1, 1]}),
    ("multi_scale_deformable_attention", "300 queries, 4 maps from 64 x 64", attention(), {}),
    ("carafe", "256 x 50 x 76 enlarged twice, kernel_size 5",
     (random(1, 256, 50, 76), random(1, 25, 100, 152)), {"kernel_size": 5, "group_size": 1, "scale_factor": 2}),
    ("corner_pool", "left, 128 x 128 x 128", (random(1, 128, 128, 128),), {"mode": 2}),
    ("cummax", "dim 2, 128 x 128 x 128", (random(1, 128, 128, 128),), {"dim": 2}),
    ("cummin", "dim 3, 128 x 128 x 128", (random(1, 128, 128, 128),), {"dim": 3}),
    ("group_norm", "256 x 64 x 64, 32 groups", (random(1, 256, 64, 64), random(256), random(256)), {"num_groups": 32}),
]  # fmt: skip


def model_of(operator: schemas.Operator, attributes: dict, count: int) -> onnx.ModelProto:
    names = [tensor.name for tensor in operator.inputs][:count]
    outputs = [tensor.name for tensor in operator.outputs]
    types = {tensor.name: getattr(onnx.TensorProto, {"float32": "FLOAT", "int64": "INT64"}[tensor.type])
             for tensor in operator.inputs + operator.outputs}  # fmt: skip
    node = oh.make_node(operator.type, names, outputs, domain=operator.domain, **attributes)
    tensors = {name: oh.make_tensor_value_info(name, types[name], None) for name in names + outputs}
    graph = oh.make_graph([node], "row", [tensors[name] for name in names], [tensors[name] for name in outputs])
    opsets = [oh.make_opsetid("", 18), oh.make_opsetid(operator.domain, 1)]
    return oh.make_model(graph, opset_imports=opsets, ir_version=8)


def median(session: onnxruntime.InferenceSession, feeds: dict[str, np.ndarray]) -> float:
    times: list[float] = []
    session.run(None, feeds)
    while len(times) < 7 or (sum(times) < 1 and len(times) < 100):
        start = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return options


def main() -> None:
    print("| operator | | kernel | definition | |\n|-|-|-|-|-|")
    for kernel, text, arrays, attributes in ROWS:
        operator = next(operator for operator in schemas.operators() if operator.kernel == kernel)
        model = model_of(operator, attributes, len(arrays))
        make_portable(model)
        content = model.SerializeToString()
        feeds = {tensor.name: array for tensor, array in zip(operator.inputs, arrays, strict=False)}
        ours = mmort.ort.session(content, sess_options=options())
        stock = onnxruntime.InferenceSession(content, options(), providers=["CPUExecutionProvider"])
        times = [1e3 * median(session, feeds) for session in (ours, stock)]
        print(f"| `{kernel}` | {text} | {times[0]:.2f} ms | {times[1]:.2f} ms | {times[1] / times[0]:.1f} |")


if __name__ == "__main__":
    main()

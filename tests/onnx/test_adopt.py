"""Adoption of other exporters' files: tiny graphs with their names, metadata and shapes, judged by plain numpy."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from torch.nn import functional

import mmort
import mmort.onnx
from mmort.contract.padding import Padding
from mmort.predict import Preprocessing, write_image
from mmort.predict.fixed_size import FixedSizeWarning
from tests import old_export
from tests.cli.running import misused, refused, run
from tests.onnx.foreign import (
    CLASSES,
    HEIGHT,
    WIDTH,
    assert_detects,
    corners,
    detect,
    suppressed,
    ultralytics,
    write,
)

RNG = np.random.default_rng(7)


def random_boxes(count):
    """Return boxes cx, cy, w, h in pixels, many of which overlap."""
    return np.concatenate([RNG.uniform(20, 44, (count, 2)), RNG.uniform(15, 30, (count, 2))], 1)


@pytest.mark.parametrize("opset", [11, 12, 13, 17])
def test_ultralytics_detect(tmp_path, opset):
    boxes, scores = random_boxes(200), RNG.uniform(0, 1, (200, 3))
    rows = np.concatenate([boxes, scores], 1).T
    path = write(tmp_path / "yolo.onnx", {"output0": rows}, metadata=ultralytics(), opset=opset)
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx")
    assert str(adoption).splitlines()[0] == "file of  ultralytics"
    expected = np.clip(corners(boxes), 0, [WIDTH, HEIGHT] * 2)
    best, labels = scores.max(1), scores.argmax(1)
    kept = suppressed(corners(boxes), best, labels, 0.7)
    detections = detect(tmp_path / "a.onnx")
    assert 20 < len(kept) < 180
    assert_detects(detections, expected[kept], best[kept], labels[kept])
    assert set(detections.names) <= set(CLASSES)


@pytest.mark.parametrize("entries", [{"args": "{'nms': True}"}, {"end2end": "True"}])
def test_ultralytics_selected(tmp_path, entries):
    rows = np.array([[10, 10, 30, 40, 0.9, 2], [5, 8, 60, 50, 0.4, 0], [0, 0, 0, 0, 0, 0]], float)
    path = write(tmp_path / "yolo.onnx", {"output0": rows}, metadata=ultralytics(**entries))
    mmort.onnx.adopt(path, tmp_path / "a.onnx")
    assert_detects(detect(tmp_path / "a.onnx"), rows[:2, :4], rows[:2, 4], [2, 0])


def probabilistic_iou(first, second):
    """Return 1 less the Hellinger distance of the normal distributions of two boxes x, y, width, height, angle."""

    def gaussian(box):
        turn = np.array([[np.cos(box[4]), -np.sin(box[4])], [np.sin(box[4]), np.cos(box[4])]])
        return box[:2], turn @ np.diag(box[2:4] ** 2 / 12) @ turn.T

    (mean1, covariance1), (mean2, covariance2) = gaussian(first), gaussian(second)
    mean = (covariance1 + covariance2) / 2
    difference = mean1 - mean2
    determinants = np.sqrt(np.linalg.det(covariance1) * np.linalg.det(covariance2))
    distance = difference @ np.linalg.inv(mean) @ difference / 8 + np.log(np.linalg.det(mean) / determinants) / 2
    return 1 - np.sqrt(1 - np.exp(-distance))


@pytest.mark.parametrize("selected", [False, True])
@pytest.mark.parametrize("opset", [11, 18])
def test_ultralytics_rotated(tmp_path, selected, opset):
    """A box suppresses worse ones of its class, even if it is suppressed itself."""
    boxes = np.concatenate([random_boxes(70), RNG.uniform(0, 3, (70, 1))], 1)
    scores = RNG.uniform(0.1, 1, (70, 3))
    best, labels = scores.max(1), scores.argmax(1)
    order = np.argsort(-best)
    kept, greedy = [], []
    for rank, index in enumerate(order):
        similar = [
            other
            for other in order[:rank]
            if labels[other] == labels[index] and probabilistic_iou(boxes[index], boxes[other]) > 0.7
        ]
        kept += [index] * (not similar)
        greedy += [index] * (not set(similar) & set(greedy))
    assert kept != greedy
    if selected:
        rows = np.concatenate([boxes[:, :4], best[:, None], labels[:, None], boxes[:, 4:]], 1)[kept]
    else:
        rows = np.concatenate([boxes[:, :4], scores, boxes[:, 4:]], 1).T
    metadata = ultralytics(task="obb", args=f"{{'nms': {selected}}}")
    path = write(tmp_path / "yolo.onnx", {"output0": rows}, metadata=metadata, opset=opset)
    assert f"turned by output0[{6 if selected else 7}]" in str(mmort.onnx.adopt(path, tmp_path / "a.onnx"))
    # An image of half the size: boxes shrink and keep their angle.
    detections = detect(tmp_path / "a.onnx", np.zeros((HEIGHT // 2, WIDTH // 2, 3), np.uint8))
    np.testing.assert_allclose(detections.scores, best[kept], rtol=1e-5)
    np.testing.assert_array_equal(detections.labels, labels[kept])
    np.testing.assert_allclose(detections.rotated_boxes, boxes[kept] * [0.5, 0.5, 0.5, 0.5, 1], rtol=1e-4)


def test_the_class_is_that_of_the_highest_logit(tmp_path):
    """Sigmoids of both are 1."""
    rows = np.array([[10, 10, 30, 40, 30, 40, -5], [50, 20, 90, 60, 60, 50, 55]], float)
    path = write(tmp_path / "model.onnx", {"found": rows})
    layout = {"boxes": "found[:4]", "box_format": "xyxy", "scores": "found[4:]", "activation": "sigmoid"}
    mmort.onnx.adopt(
        path, tmp_path / "a.onnx", layout | {"preprocessing": {"size": [WIDTH, HEIGHT], "keep_ratio": False}}
    )
    assert detect(tmp_path / "a.onnx").labels.tolist() == [1, 0]


def test_thousands_of_rotated_boxes(tmp_path):
    """All take part: boxes are suppressed by better ones that are near or far in the order, the worst by none."""
    boxes = np.tile([30.0, 30, 20, 10, 0.5], (1600, 1))
    boxes[[900, 910, 1598]] = [60, 20, 8, 12, 1]  # the first of which stays
    boxes[[1500, 1599]] = [[80, 50, 9, 14, 2], [10, 55, 12, 9, 0]]
    scores = np.zeros((1600, 3))
    scores[:, 1] = np.linspace(0.9, 0.1, 1600)
    rows = np.concatenate([boxes[:, :4], scores, boxes[:, 4:]], 1).T
    path = write(tmp_path / "yolo.onnx", {"output0": rows}, metadata=ultralytics(task="obb"))
    mmort.onnx.adopt(path, tmp_path / "a.onnx")
    detections = detect(tmp_path / "a.onnx")
    kept = [0, 900, 1500, 1599]
    np.testing.assert_allclose(detections.scores, scores[kept, 1], rtol=1e-5)
    np.testing.assert_allclose(detections.rotated_boxes, boxes[kept], rtol=1e-4)


def test_no_rotated_box_passes_the_threshold(tmp_path):
    rows = np.concatenate([random_boxes(9), np.zeros((9, 3)), np.ones((9, 1))], 1).T
    path = write(tmp_path / "yolo.onnx", {"output0": rows}, metadata=ultralytics(task="obb"))
    mmort.onnx.adopt(path, tmp_path / "a.onnx")
    assert len(detect(tmp_path / "a.onnx")) == 0


@pytest.mark.parametrize("selected", [False, True])
@pytest.mark.parametrize("columns", [2, 3])
def test_ultralytics_pose(tmp_path, selected, columns):
    boxes, scores, points = random_boxes(60), RNG.uniform(0.1, 1, (60, 1)), RNG.uniform(-9, 110, (60, 4, 3))
    points[..., 2] = RNG.uniform(0, 1, (60, 4)) if columns == 3 else 1
    further = points[..., :columns].reshape(60, -1)
    kept = suppressed(corners(boxes), scores[:, 0], np.zeros(60), 0.7)
    if selected:
        rows = np.concatenate([corners(boxes), scores, np.zeros((60, 1)), further], 1)[kept]
    else:
        rows = np.concatenate([boxes, scores, further], 1).T
    metadata = ultralytics(task="pose", args=f"{{'nms': {selected}}}", names="{0: 'cat'}", kpt_shape=f"[4, {columns}]")
    path = write(tmp_path / "yolo.onnx", {"output0": rows}, metadata=metadata)
    adoption = str(mmort.onnx.adopt(path, tmp_path / "a.onnx"))
    begin = 6 if selected else 5
    assert f"output0[{begin}:{begin + 4 * columns}]: {'x, y, score' if columns == 3 else 'x, y'}\n" in adoption
    # Two rows of 16 columns are added on the left, and points are clipped to the image as boxes are.
    detections = detect(tmp_path / "a.onnx", np.zeros((HEIGHT, WIDTH - 32, 3), np.uint8))
    expected = np.concatenate([np.clip(points[..., :2] - [16, 0], 0, [WIDTH - 32, HEIGHT]), points[..., 2:]], 2)
    np.testing.assert_allclose(detections.keypoints, expected[kept], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(detections.scores, scores[kept, 0], rtol=1e-5)


def mask_of(prototypes, coefficients, box):
    """Return the sum of prototypes with cells of 4 pixels as ultralytics cuts it, in an image of the input's size."""
    logits = torch.from_numpy(np.tensordot(coefficients, prototypes, 1).astype(np.float32))
    enlarged = functional.interpolate(logits[None, None], (HEIGHT, WIDTH), mode="bilinear")[0, 0].numpy()
    x1, y1, x2, y2 = box
    rows, columns = np.arange(HEIGHT)[:, None], np.arange(WIDTH)
    return (enlarged > 0) & (rows >= y1) & (rows < y2) & (columns >= x1) & (columns < x2)


@pytest.mark.parametrize("selected", [False, True])
def test_ultralytics_segment(tmp_path, selected):
    """The mask of a box is the sum of prototypes, cut at the box; without pixels in it there is no detection."""
    boxes, scores = random_boxes(60), RNG.uniform(0.1, 1, (60, 3))
    coefficients, prototypes = RNG.normal(0, 1, (60, 8)), RNG.normal(0, 1, (8, HEIGHT // 4, WIDTH // 4))
    coefficients[0], prototypes[0], scores[0] = np.eye(8)[0], -1, 1  # the best, a mask without pixels
    best, labels = scores.max(1), scores.argmax(1)
    kept = suppressed(corners(boxes), best, labels, 0.7)
    if selected:
        rows = np.concatenate([corners(boxes), best[:, None], labels[:, None], coefficients], 1)[kept]
    else:
        rows = np.concatenate([boxes, scores, coefficients], 1).T
    metadata = ultralytics(task="segment", args=f"{{'nms': {selected}}}")
    path = write(tmp_path / "yolo.onnx", {"output0": rows, "output1": prototypes}, metadata=metadata)
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx")
    assert "times output1, over the input, above 0, cut at the boxes" in str(adoption)
    assert adoption.left_out == ()
    detections = detect(tmp_path / "a.onnx")
    shown = np.clip(corners(boxes), 0, [WIDTH, HEIGHT] * 2)
    masks = {index: mask_of(prototypes, coefficients[index], shown[index].astype(np.float32)) for index in kept}
    filled = np.array([index for index in kept if masks[index].any()])
    assert 0 in kept
    assert 0 not in filled
    assert_detects(detections, shown[filled], best[filled], labels[filled])
    for index, mask in zip(filled, detections.masks, strict=True):
        assert (mask != masks[index]).sum() <= 1
    (entry,) = json.loads(detections[:1].to_json())["detections"]
    assert entry["segmentation"]["size"] == [HEIGHT, WIDTH]


@pytest.mark.parametrize("single", [False, True])
def test_a_mask_for_each_box(tmp_path, single):
    boxes, scores = corners(random_boxes(6)), RNG.uniform(0.5, 0.8, (6, 1))
    masks = RNG.uniform(0, 1, (6, 1, HEIGHT, WIDTH) if single else (6, HEIGHT, WIDTH))
    image = (3, HEIGHT, WIDTH) if single else ("n", 3, HEIGHT, WIDTH)
    path = write(tmp_path / "any.onnx", {"b": boxes, "s": scores, "m": masks}, image=image, gain=0.15 / 255)
    layout = {"boxes": "b", "box_format": "xyxy", "scores": "s", "masks": "m"} | STRETCHED
    with pytest.raises(ValueError, match="masks must come with mask_format"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", layout)
    layout["mask_format"] = {"area": "image", "rescaling": "stretch"}
    mmort.onnx.adopt(path, tmp_path / "a.onnx", layout)
    images = [np.full((HEIGHT, WIDTH, 3), level, np.uint8) for level in (0, 255)]
    order = np.argsort(-scores[:, 0])
    for added, detections in enumerate(
        mmort.Predictor(tmp_path / "a.onnx", score_threshold=0).predict(images, 1 if single else 2)
    ):
        expected = masks.reshape(6, HEIGHT, WIDTH)[order] + 0.15 * added > 0.5
        assert (detections.masks != expected).sum() <= 1


@pytest.mark.parametrize("entries", [{"head": "RTDETRDecoder"}, {"description": "Ultralytics rtdetr-l model"}])
def test_rt_detr_of_ultralytics_has_relative_boxes_and_stretched_images(tmp_path, entries):
    rows = np.array([[0.5, 0.5, 0.25, 0.5, 0.9, 2], [0.25, 0.25, 0.5, 0.5, 0.4, 1]])
    path = write(tmp_path / "rtdetr.onnx", {"output0": rows}, metadata=ultralytics(**entries))
    mmort.onnx.adopt(path, tmp_path / "a.onnx")
    image = np.zeros((200, 80, 3), np.uint8)
    expected = corners(rows[:, :4]) * [80, 200, 80, 200]
    assert_detects(detect(tmp_path / "a.onnx", image), expected, rows[:, 4], [2, 1])


def test_boxes_in_a_letterbox(tmp_path):
    rows = np.array([[40, 20, 56, 60, 0.9, 0]], float)
    path = write(tmp_path / "yolo.onnx", {"output0": rows}, metadata=ultralytics(args="{'nms': True}"))
    mmort.onnx.adopt(path, tmp_path / "a.onnx")
    # 32 x 32 becomes 64 x 64 in 96 x 64: 16 columns on each side.
    detections = detect(tmp_path / "a.onnx", np.zeros((32, 32, 3), np.uint8))
    np.testing.assert_allclose(detections.boxes, [[12, 10, 20, 30]])


@pytest.mark.parametrize("background", [False, True])
def test_transformers(tmp_path, background):
    boxes, logits = RNG.uniform(0.2, 0.5, (20, 4)), RNG.normal(0, 2, (20, 3 + background))
    path = write(tmp_path / "detr.onnx", {"logits": logits, "pred_boxes": boxes}, name="pixel_values")
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"id2label": {str(i): name for i, name in enumerate(CLASSES)}}))
    size = {"height": HEIGHT, "width": WIDTH}
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"size": size, "do_normalize": False, "do_rescale": True, "rescale_factor": 1 / 255, "resample": 2})
    )
    mmort.onnx.adopt(path, tmp_path / "a.onnx", config=folder)
    pixels = corners(boxes) * [WIDTH, HEIGHT, WIDTH, HEIGHT]
    if background:
        exponents = np.exp(logits)
        probabilities = (exponents / exponents.sum(1, keepdims=True))[:, :-1]
        assert_detects(detect(tmp_path / "a.onnx"), pixels, probabilities.max(1), probabilities.argmax(1))
    else:
        probabilities = (1 / (1 + np.exp(-logits))).ravel()
        best = np.argsort(-probabilities)[:20]  # as many as there are queries
        assert_detects(detect(tmp_path / "a.onnx"), pixels[best // 3], probabilities[best], best % 3)


@pytest.mark.parametrize(
    ("kind", "queries", "count"),
    [
        ("ConditionalDetrImageProcessor", 20, 60),
        ("ConditionalDetrImageProcessorFast", 50, 100),
        ("DeformableDetrImageProcessorPil", 310, 100),
        ("RTDetrImageProcessor", 310, 310),
        ("OwlViTImageProcessor", 20, 20),
    ],
)
def test_best_pairs_of_transformers(tmp_path, kind, queries, count):
    """The best 100 of all queries and classes, of which a query may have several, or as many as there are queries.

    OWL-ViT has one class for each query.
    """
    boxes, logits = RNG.uniform(0.2, 0.5, (queries, 4)), RNG.normal(0, 2, (queries, 3))
    path = write(tmp_path / "detr.onnx", {"logits": logits, "pred_boxes": boxes}, name="pixel_values")
    settings = {"image_processor_type": kind, "size": {"height": HEIGHT, "width": WIDTH}, "do_normalize": False}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {str(i): name for i, name in enumerate(CLASSES)}}))
    mmort.onnx.adopt(path, tmp_path / "a.onnx", config=tmp_path)
    probabilities = 1 / (1 + np.exp(-logits))
    if kind == "OwlViTImageProcessor":
        probabilities = np.where(probabilities == probabilities.max(1, keepdims=True), probabilities, 0)
    probabilities = probabilities.ravel()
    best = np.argsort(-probabilities)[:count]
    pixels = corners(boxes[best // 3]) * [WIDTH, HEIGHT, WIDTH, HEIGHT]
    assert_detects(detect(tmp_path / "a.onnx"), pixels, probabilities[best], best % 3)


def test_a_file_of_transformers_needs_its_config(tmp_path):
    rows = {"logits": RNG.normal(0, 2, (20, 3)), "pred_boxes": RNG.uniform(0.2, 0.5, (20, 4))}
    path = write(tmp_path / "detr.onnx", rows, name="pixel_values")
    code, _, message = run("adopt", path, "--output", tmp_path / "a.onnx")
    assert code == 2
    assert "pass --config DIR, the folder with config.json and preprocessor_config.json" in message
    assert "\n  --preset rtdetr-transformers  RT-DETR or D-FINE of transformers: red, green, blue; stretched" in message
    mmort.onnx.adopt(path, tmp_path / "a.onnx", STRETCHED | {"activation": "sigmoid"})


def test_queries_of_transformers_that_the_file_does_not_state(tmp_path):
    """The size is open where torch's exporter cannot follow shapes, as in D-FINE; a run says it."""
    boxes, logits = RNG.uniform(0.2, 0.5, (310, 4)), RNG.normal(0, 2, (310, 3))
    path = write(tmp_path / "detr.onnx", {"logits": logits, "pred_boxes": boxes}, name="pixel_values")
    model = onnx.load(path)
    for output in model.graph.output:
        output.type.tensor_type.shape.dim[1].dim_param = "queries"
    onnx.save(model, path)
    settings = {"size": {"height": HEIGHT, "width": WIDTH}, "do_normalize": False}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {str(i): name for i, name in enumerate(CLASSES)}}))
    mmort.onnx.adopt(path, tmp_path / "a.onnx", config=tmp_path)
    assert len(detect(tmp_path / "a.onnx")) == 310


@pytest.mark.parametrize(
    ("kind", "resample", "expected"),
    [
        ("DetrImageProcessorFast", 2, ("torchvision", "bilinear")),
        ("YolosImageProcessor", 3, ("torchvision", "bicubic")),
        ("DetrImageProcessorPil", 3, ("pillow", "bicubic")),
    ],
)
def test_interpolation_of_transformers(tmp_path, kind, resample, expected):
    rows = {"logits": RNG.normal(0, 2, (20, 3)), "pred_boxes": RNG.uniform(0.2, 0.5, (20, 4))}
    path = write(tmp_path / "detr.onnx", rows, name="pixel_values")
    settings = {"image_processor_type": kind, "resample": resample, "size": {"height": HEIGHT, "width": WIDTH}}
    settings |= {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {str(i): name for i, name in enumerate(CLASSES)}}))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    mmort.onnx.adopt(path, tmp_path / "a.onnx", config=tmp_path)
    prepare = mmort.Predictor(tmp_path / "a.onnx", score_threshold=0).preprocessing
    assert (prepare.resize_backend, prepare.interpolation) == expected
    # As transformers scales them: float32 by float32.
    assert prepare.mean == tuple((torch.tensor([0.485, 0.456, 0.406]) * (1.0 / (1 / 255))).tolist())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings | {"resample": 1}))
    with pytest.raises(ValueError, match="resample must be 2, bilinear, or 3, bicubic, got 1"):
        mmort.onnx.adopt(path, tmp_path / "b.onnx", config=tmp_path)


def test_outputs_with_the_names_of_mmort(tmp_path):
    boxes, logits = RNG.uniform(0.2, 0.5, (10, 4)), RNG.normal(0, 2, (10, 4))
    path = write(tmp_path / "rfdetr.onnx", {"dets": boxes, "labels": logits})
    prepare = mmort.onnx.adopt(path, tmp_path / "a.onnx").layout.prepare
    assert prepare.resize_backend == "torchvision"
    assert prepare.to_float32
    probabilities = (1 / (1 + np.exp(-logits))).ravel()
    order = np.argsort(-probabilities)[:10]
    pixels = corners(boxes) * [WIDTH, HEIGHT, WIDTH, HEIGHT]
    assert_detects(detect(tmp_path / "a.onnx"), pixels[order // 4], probabilities[order], order % 4)
    # Images are stretched; the file has one size only.
    assert len(detect(tmp_path / "a.onnx", np.zeros((31, 200, 3), np.uint8)).scores) == 10


@pytest.mark.parametrize("count", [0, 5])
def test_torchvision(tmp_path, count):
    boxes = np.sort(RNG.uniform(0, 60, (count, 2, 2)), 1).reshape(count, 4)
    scores, labels = RNG.uniform(0.1, 1, count), RNG.integers(1, 4, count)
    outputs = {"boxes": boxes, "scores": scores, "labels": labels}
    path = write(tmp_path / "tv.onnx", outputs, image=(3, "h", "w"), name="image")
    mmort.onnx.adopt(path, tmp_path / "a.onnx")
    detections = detect(tmp_path / "a.onnx", np.zeros((77, 131, 3), np.uint8))
    assert_detects(detections, boxes, scores, labels - 1)  # label 0 is the background


def test_yolox_is_decoded_on_its_grids(tmp_path):
    cells = []
    for stride in (8, 16, 32):
        for y in range(HEIGHT // stride):
            for x in range(WIDTH // stride):
                cells.append((x, y, stride))
    x, y, stride = np.array(cells, float).T
    offsets, logs = RNG.uniform(0, 1, (len(cells), 2)), RNG.uniform(-0.5, 0.8, (len(cells), 2))
    objectness, classes = RNG.uniform(0, 1, (len(cells), 1)), RNG.uniform(0, 1, (len(cells), 3))
    rows = np.concatenate([offsets, logs, objectness, classes], 1)
    path = write(tmp_path / "yolox.onnx", {"output": rows}, image=(1, 3, HEIGHT, WIDTH))
    mmort.onnx.adopt(path, tmp_path / "a.onnx", {"classes": CLASSES}, preset="yolox")
    centres = np.stack([(offsets[:, 0] + x) * stride, (offsets[:, 1] + y) * stride], 1)
    boxes = corners(np.concatenate([centres, np.exp(logs) * stride[:, None]], 1))
    scores = (objectness * classes).max(1)
    labels = classes.argmax(1)
    kept = suppressed(boxes, scores, labels, 0.65)
    kept = kept[scores[kept] > 0.001]
    assert len(kept) > 50
    assert_detects(detect(tmp_path / "a.onnx"), boxes[kept], scores[kept], labels[kept])


@pytest.mark.parametrize("agnostic", [False, True])
@pytest.mark.parametrize("multi_label", [False, True])
def test_any_layout(tmp_path, agnostic, multi_label):
    boxes, scores = corners(random_boxes(60)), RNG.uniform(0, 1, (60, 3))
    path = write(tmp_path / "any.onnx", {"b": boxes, "s": scores})
    layout = {"boxes": "b", "box_format": "xyxy", "scores": "s", "iou_threshold": 0.5, "score_threshold": 0.2}
    layout |= {"multi_label": multi_label, "class_agnostic": agnostic, "max_detections": 25}
    layout |= {"preprocessing": {"size": [WIDTH, HEIGHT], "keep_ratio": False}}
    if agnostic and multi_label:
        with pytest.raises(ValueError, match="class_agnostic must be false with multi_label"):
            mmort.onnx.adopt(path, tmp_path / "a.onnx", layout)
        return
    mmort.onnx.adopt(path, tmp_path / "a.onnx", layout)
    rows, labels, values = np.arange(60), scores.argmax(1), scores.max(1)
    if multi_label:
        rows, labels, values = np.repeat(rows, 3), np.tile(np.arange(3), 60), scores.ravel()
    kept = suppressed(boxes[rows], values, labels * (not agnostic), 0.5)
    kept = kept[values[kept] > 0.2][:25]
    assert_detects(detect(tmp_path / "a.onnx"), boxes[rows[kept]], values[kept], labels[kept])


def test_batches(tmp_path):
    boxes, scores = random_boxes(50), RNG.uniform(0, 1, (50, 3))
    rows = np.concatenate([boxes, scores], 1).T
    path = write(tmp_path / "yolo.onnx", {"output0": rows}, metadata=ultralytics())
    mmort.onnx.adopt(path, tmp_path / "a.onnx")
    images = [np.zeros((HEIGHT, WIDTH, 3), np.uint8)] * 3
    alone, *together = (
        detect(tmp_path / "a.onnx"),
        *mmort.Predictor(tmp_path / "a.onnx", score_threshold=0).predict(images, 3),
    )
    for detections in together:
        np.testing.assert_array_equal(detections.boxes, alone.boxes)
        np.testing.assert_array_equal(detections.labels, alone.labels)


def test_a_batch_gives_what_single_images_give(tmp_path):
    """Images of different sizes run apart: an exporter does not pad them, and padding would change the scores."""
    boxes, scores = corners(random_boxes(20)), RNG.uniform(0.1, 0.4, (20, 3))
    path = write(tmp_path / "any.onnx", {"b": boxes, "s": scores}, image=("n", 3, "h", "w"), gain=0.5 / 255)
    layout = {"boxes": "b", "box_format": "xyxy", "scores": "s", "preprocessing": {}}
    mmort.onnx.adopt(path, tmp_path / "a.onnx", layout)
    predict = mmort.Predictor(tmp_path / "a.onnx", score_threshold=0)
    sizes = (64, 96), (200, 64), (64, 96), (31, 40)
    images = [np.full((*size, 3), level, np.uint8) for size, level in zip(sizes, (255, 200, 90, 140), strict=True)]
    for together in (list(predict.predict(images, 4)), predict(images)):
        for image, detections in zip(images, together, strict=True):
            alone = predict(image)
            np.testing.assert_array_equal(detections.scores, alone.scores)
            np.testing.assert_array_equal(detections.boxes, alone.boxes)
            assert detections.image_size == image.shape[:2]


def test_the_ap_of_a_batch_is_that_of_single_images(tmp_path):
    """Boxes move with the mean of the input, which padding to the largest image of a batch would change."""
    draw = np.random.default_rng(8)
    boxes = np.concatenate([draw.uniform(20, 40, (9, 2)), draw.uniform(15, 30, (9, 2))], 1)
    rows = np.concatenate([boxes, draw.uniform(0.2, 0.7, (9, 3))], 1).T
    write(tmp_path / "yolo.onnx", {"output0": rows}, ("n", 3, "h", "w"), ultralytics(), gain=12.0)
    mmort.onnx.adopt(tmp_path / "yolo.onnx", tmp_path / "a.onnx", {"activation": "sigmoid"})
    predict = mmort.Predictor(tmp_path / "a.onnx", score_threshold=0)
    images, objects = [], []
    for number, (height, width) in enumerate(((64, 96), (96, 64), (80, 80), (50, 120)), 1):
        image = draw.integers(0, 256, (height, width, 3), np.uint8) // number
        write_image(tmp_path / f"{number}.png", image)
        images.append({"id": number, "file_name": f"{number}.png", "height": height, "width": width})
        found = predict(image)
        for (x1, y1, x2, y2), label in zip(found.boxes.tolist(), found.labels.tolist(), strict=True):
            box = {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1), "iscrowd": 0}
            objects.append(box | {"id": len(objects) + 1, "image_id": number, "category_id": label})
    categories = [{"id": label, "name": name} for label, name in enumerate(CLASSES)]
    (tmp_path / "ann.json").write_text(json.dumps({"images": images, "annotations": objects, "categories": categories}))
    command = ("test", tmp_path / "a.onnx", "--ann", tmp_path / "ann.json", "--img-dir", tmp_path, "--eval", "bbox")
    for size in (1, 2, 4):
        code, text, _ = run(*command, "--batch-size", size)
        assert code == 0
        assert "bbox_mAP: 1.0000" in text


@pytest.mark.parametrize("image", [(4000, 3, 640, 640), (1, 3, 30_000, 30_000), (2**31, 3, 2**31, 2**31)])
@pytest.mark.parametrize("is_output_stated", [True, False])
def test_sizes_that_a_small_file_states(tmp_path, image, is_output_stated):
    rows = np.concatenate([random_boxes(50), RNG.uniform(0, 1, (50, 3))], 1).T
    path = write(tmp_path / "yolo.onnx", {"output0": rows}, image, ultralytics(imgsz=str([*image[2:]])))
    if not is_output_stated:
        model = onnx.load(path)
        model.graph.output[0].type.tensor_type.ClearField("shape")
        onnx.save(model, path)
    with pytest.raises(ValueError, match=r"pixels|elements|product"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx")


def test_outputs_that_are_left_out_are_named(tmp_path):
    boxes, ones = corners(random_boxes(4)), np.ones(4)
    outputs = {"boxes": boxes, "labels": ones.astype(np.int64), "scores": ones / 2, "keypoints": np.zeros((4, 5, 3))}
    path = write(tmp_path / "tv.onnx", outputs, image=(3, "h", "w"), name="image")
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx")
    assert adoption.left_out == ("keypoints",)
    assert str(adoption).splitlines()[-1].split() == ["left", "out", "keypoints"]


@pytest.mark.parametrize("count", [0, 3])
def test_masks_of_torchvision(tmp_path, count):
    """Those of the whole image; the order of the outputs differs by model."""
    boxes, masks = corners(random_boxes(count)), RNG.uniform(0, 1, (count, 1, HEIGHT, WIDTH))
    scores = np.sort(RNG.uniform(0.5, 1, count))[::-1]
    labels = np.full(count, 2)
    outputs = {"masks": masks, "scores": scores, "labels": labels, "boxes": boxes}
    path = write(tmp_path / "tv.onnx", outputs, image=(3, "h", "w"), name="image")
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx")
    assert "masks" in str(adoption)
    assert adoption.left_out == ()
    detections = detect(tmp_path / "a.onnx")
    assert_detects(detections, boxes, scores, labels - 1)
    np.testing.assert_array_equal(detections.masks, masks[:, 0].astype(np.float32) > 0.5)


def test_yolox_whose_boxes_are_decoded(tmp_path):
    """The shape is the same as of raw boxes."""
    count = sum((HEIGHT // stride) * (WIDTH // stride) for stride in (8, 16, 32))
    boxes, scores = random_boxes(count), RNG.uniform(0.1, 1, (count, 4))
    path = write(tmp_path / "yolox.onnx", {"output": np.concatenate([boxes, scores], 1)}, image=(1, 3, HEIGHT, WIDTH))
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx", {"iou_threshold": None}, preset="yolox")
    assert (adoption.exporter, adoption.layout.strides) == ("YOLOX", None)
    best = (scores[:, :1] * scores[:, 1:]).max(1)
    order = np.argsort(-best)
    detections = detect(tmp_path / "a.onnx")
    np.testing.assert_allclose(detections.boxes, corners(boxes)[order][: len(best)], rtol=1e-4, atol=1e-3)
    with pytest.raises(ValueError, match="the file may decode them itself, which strides=null states"):
        mmort.onnx.adopt(path, tmp_path / "b.onnx", {"strides": [8, 16, 32]}, preset="yolox")


def test_distances_without_a_distribution(tmp_path):
    distances, scores = RNG.uniform(0, 3, (8 * 12, 4)), RNG.uniform(0.1, 1, (8 * 12, 2))
    path = write(tmp_path / "any.onnx", {"d": distances, "s": scores}, image=(1, 3, HEIGHT, WIDTH))
    layout = {"boxes": "d", "box_format": "ltrb", "scores": "s"} | STRETCHED
    with pytest.raises(ValueError, match="box_format must be cxcywh or ltrb with strides, and ltrb has strides"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", layout)
    with pytest.raises(ValueError, match=r"boxes must be a multiple of 4 columns with box_format ltrb, got 3"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", layout | {"strides": [8], "boxes": "d[:3]"})
    mmort.onnx.adopt(path, tmp_path / "a.onnx", layout | {"strides": [8]})
    y, x = (index.ravel() + 0.5 for index in np.indices((8, 12)))
    boxes = 8 * (np.stack([x, y, x, y], 1) + distances * [-1, -1, 1, 1])
    assert_detects(detect(tmp_path / "a.onnx"), boxes, scores.max(1), scores.argmax(1))


@pytest.mark.parametrize("masks", [False, True])
def test_detectron2(tmp_path, masks):
    """As it traces its R-CNNs: label 0 is a class, masks cover their boxes, and the image's size comes last."""
    boxes, scores = corners(random_boxes(4)), np.array([0.9, 0.8, 0.7, 0.6])
    labels, maps = np.array([2, 0, 1, 2]), RNG.uniform(0, 1, (4, 1, 28, 28))
    outputs = {"1": boxes, "2": labels, "3": maps, "4": scores, "5": np.array([HEIGHT, WIDTH])}
    if not masks:
        del outputs["3"]
    path = write(tmp_path / "d2.onnx", outputs, image=(3, HEIGHT, WIDTH), name="x")
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx")
    assert (adoption.exporter, adoption.left_out) == ("detectron2", ("5",))
    detections = detect(tmp_path / "a.onnx")
    assert_detects(detections, boxes, scores, labels)
    if masks:
        x1, y1, x2, y2 = boxes[0].round().astype(int)
        assert not detections.masks[0][:, : x1 - 1].any()
        assert 0.2 < detections.masks[0][y1:y2, x1:x2].mean() < 0.8


@pytest.mark.parametrize("element_type", [onnx.TensorProto.INT64, onnx.TensorProto.BOOL])
def test_pixel_mask(tmp_path, element_type):
    """The file sees which pixels are an image's, and boxes are shares of the image, which is padded."""
    rows, logits = np.array([[0.5, 0.5, 0.25, 0.5]]), np.array([[2.0, -9.0]])
    path = write(
        tmp_path / "detr.onnx", {"logits": logits, "pred_boxes": rows}, ("n", 3, "h", "w"), name="pixel_values"
    )
    model = onnx.load(path)
    model.graph.input.append(onnx.helper.make_tensor_value_info("pixel_mask", element_type, ["n", "h", "w"]))
    model.graph.node.extend(
        [  # the first logit is the share of the batch's pixels that are an image's
            onnx.helper.make_node("Cast", ["pixel_mask"], ["mask/float"], to=1),
            onnx.helper.make_node("ReduceMean", ["mask/float"], ["share"], axes=[1, 2], keepdims=1),
            onnx.helper.make_node("Add", ["logits/old", "share"], ["logits"]),
        ]
    )
    for node in model.graph.node:
        if node.op_type == "Cast" and node.output[0] == "logits":
            node.output[0] = "logits/old"
    onnx.save(model, path)
    padding = {"size": [80, 80]}
    layout = {"activation": "sigmoid", "preprocessing": {"padding": padding}, "classes": ["cat", "dog"]}
    mmort.onnx.adopt(path, tmp_path / "a.onnx", layout)
    images = [np.zeros((40, 80, 3), np.uint8), np.zeros((80, 80, 3), np.uint8)]
    wide, square = mmort.Predictor(tmp_path / "a.onnx", score_threshold=0).predict(images, 2)
    np.testing.assert_allclose(wide.boxes, [[30, 10, 50, 30]], rtol=1e-5)
    np.testing.assert_allclose(square.boxes, [[30, 20, 50, 60]], rtol=1e-5)
    for detections, share in ((wide, 0.5), (square, 1.0)):
        np.testing.assert_allclose(detections.scores, 1 / (1 + np.exp(-2 - share)), rtol=1e-5)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_resizing_with_torchvision(interpolation):
    """Equal to torch's own resizing of uint8, which torchvision calls."""
    rng = np.random.default_rng(2)
    for height, width, rows, columns in [
        (37, 53, 20, 90),
        (200, 31, 7, 3),
        (1, 9, 50, 9),
        (64, 64, 63, 65),
        (9, 2, 3, 5),
    ]:
        for image in (rng.integers(0, 256, (height, width, 3), np.uint8), 255 * rng.integers(0, 2, (height, width, 3))):
            settings = Preprocessing(
                size=(columns, rows), keep_ratio=False, resize_backend="torchvision", interpolation=interpolation
            )
            pixels = torch.from_numpy(image.astype(np.uint8).transpose(2, 0, 1)[None].copy())
            expected = functional.interpolate(pixels, (rows, columns), mode=interpolation, antialias=True)
            np.testing.assert_array_equal(settings(image.astype(np.uint8)).input, expected[0].numpy())


@pytest.mark.parametrize("std", [(58.395, 57.12, 57.375), (255.0,) * 3])
def test_interpolation_of_floats_with_torchvision(std):
    """Equal to what torch makes of levels from 0 to 1, as RF-DETR's package prepares images."""
    rng = np.random.default_rng(2)
    settings = {"mean": (123.675, 116.28, 103.53), "std": std, "divide": True, "to_rgb": True, "keep_ratio": False}
    mean, scale = (torch.tensor(settings[name], dtype=torch.float64).div(255).float() for name in ("mean", "std"))
    for height, width, rows, columns in [
        (37, 53, 20, 90),
        (200, 31, 7, 3),
        (1, 9, 50, 9),
        (9, 9, 9, 9),
        (300, 451, 96, 96),
    ]:
        image = rng.integers(0, 256, (height, width, 3), np.uint8)
        prepare = Preprocessing(size=(columns, rows), resize_backend="torchvision", to_float32=True, **settings)
        pixels = torch.from_numpy(image[..., ::-1].transpose(2, 0, 1)[None].copy()).float().div(255)
        resized = functional.interpolate(pixels, (rows, columns), mode="bilinear", antialias=False)
        expected = resized.sub(mean[:, None, None]).div(scale[:, None, None])[0].numpy()
        if "AVX" in torch.backends.cpu.get_cpu_capability():
            np.testing.assert_array_equal(prepare(image).input, expected)
        np.testing.assert_allclose(prepare(image).input, expected, atol=2e-6)
    with pytest.raises(ValueError, match=r"interpolation must be 'bilinear' with to_float32 and .*'torchvision'"):
        Preprocessing(resize_backend="torchvision", to_float32=True, interpolation="bicubic")


def test_a_factor_after_resizing_with_torchvision_is_a_float32():
    """Equal to the rescaling of transformers' image processors, which torch computes."""
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, 2)
    settings = Preprocessing(std=(255.0,) * 3, resize_backend="torchvision")
    expected = torch.from_numpy(levels.transpose(2, 0, 1)) * (1 / 255)
    np.testing.assert_array_equal(settings(levels).input, expected.numpy())


def test_two_columns_after_the_boxes_of_two_classes_are_asked_for(tmp_path):
    rows = np.array([[0.5, 0.5, 0.25, 0.5, 0.9, 1], [0.25, 0.25, 0.5, 0.5, 0.4, 0]])
    metadata = ultralytics(head="RTDETRDecoder", names="{0: 'cat', 1: 'dog'}")
    path = write(tmp_path / "rtdetr.onnx", {"output0": rows}, metadata=metadata)
    with pytest.raises(ValueError, match="does not say what scores is"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx")
    mmort.onnx.adopt(path, tmp_path / "a.onnx", {"scores": "output0[4]", "labels": "output0[5]"})
    np.testing.assert_array_equal(detect(tmp_path / "a.onnx").labels, [1, 0])


BASE = {"boxes": "b", "box_format": "xyxy", "scores": "s", "classes": CLASSES}
STRETCHED = {"preprocessing": {"size": [WIDTH, HEIGHT], "keep_ratio": False}}


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (
            {},
            r"what boxes, box_format \(xyxy, xywh, cxcywh, ltrb, yxyx\), scores, preprocessing are; pass --layout",
        ),
        (BASE, "does not say what preprocessing is; pass --layout FILE.json or --set NAME=VALUE"),
        (BASE | STRETCHED | {"box_fromat": "xyxy"}, r"no entry box_fromat \(did you mean box_format\?\)"),
        (BASE | STRETCHED | {"box_format": "xxyy"}, "box_format must be xyxy or xywh or .* or yxyx, got 'xxyy'"),
        (BASE | STRETCHED | {"boxes": "nope"}, "boxes must name an output, b, s, got 'nope'"),
        (BASE | STRETCHED | {"boxes": "b[2:1]"}, "boxes must have an end above its first column"),
        (BASE | STRETCHED | {"boxes": f"b[{'9' * 5000}]"}, r"boxes must name an output, b, s, got 'b\[9{1,99}'$"),
        (BASE | STRETCHED | {"boxes": " + ".join("b" * 17_000)}, "boxes must be of at most 32 outputs, got 17000"),
        (BASE | STRETCHED | {"max_detections": 10**20}, "max_detections must be at most 2147483647"),
        (BASE | STRETCHED | {"box_format": "x" * 100_000}, r"box_format must be xyxy or .{1,200}$"),
        (BASE | STRETCHED | {"scores": "l"}, "scores must name an output"),
        (BASE | STRETCHED | {"boxes": "b[1:]"}, r"boxes must be 4 columns, got 'b\[1:\]', which is 3"),
        (BASE | STRETCHED | {"scores": "s[2:4]"}, r"scores must be among the 3 columns of s, got 's\[2:4\]'"),
        (BASE | STRETCHED | {"objectness": "s[:2]"}, r"objectness must be 1 column, got 's\[:2\]', which is 2"),
        (BASE | STRETCHED | {"iou_threshold": 2.0}, "iou_threshold must be a number from 0 to 1, got 2.0"),
        (BASE | STRETCHED | {"prototypes": "s"}, "masks must come with mask_format, and prototypes with both"),
        (
            BASE | STRETCHED | {"masks": "s", "mask_format": {"area": "image"}},
            "masks must be a whole output with a map for each box, or with prototypes of masks, got 's' with 3",
        ),
        (
            BASE | STRETCHED | {"masks": "s", "prototypes": "nope", "mask_format": {}},
            "prototypes must name an output, b, s, got 'nope'",
        ),
        (BASE | STRETCHED | {"angle": "s[0]"}, "with angle, box_format must be cxcywh, box_unit pixels"),
        (
            BASE | STRETCHED | {"box_format": "cxcywh", "angle": "s[0]", "keypoints": "s"},
            "with angle there are no masks and no keypoints",
        ),
        (BASE | STRETCHED | {"keypoints": "s", "masks": "s", "mask_format": {}}, "with keypoints there are no masks"),
        (BASE | STRETCHED | {"keypoints": "s", "keypoint_columns": 4}, "keypoint_columns must be 2 or 3"),
        (BASE | STRETCHED | {"keypoints": "s[:2]"}, r"keypoints must be 3 columns for each, got 's\[:2\]', which is 2"),
        (BASE | STRETCHED | {"masks": "s", "mask_format": {"aera": "box"}}, "masks has no entry aera; its entries"),
        (BASE | {"preprocessing": {"sise": [1, 1]}}, "preprocessing has no entry sise"),
        (BASE | {"preprocessing": {"size": [32, 32], "keep_ratio": False}}, "must make inputs of height 64, .* got 32"),
        (
            BASE | STRETCHED | {"classes": ["cat"]},
            "name for each of the 3 classes that scores has, got 1; columns_first",
        ),
        (BASE | STRETCHED | {"classes": ["a", "b", "c", "d"]}, "for each of the 3 classes that scores has, got 4"),
        (BASE | STRETCHED | {"box_unit": "relative"}, "reach .* times the input; box_unit may be pixels"),
        (BASE | STRETCHED | {"boxes": "b[]"}, r"boxes must be OUTPUT, OUTPUT\[COLUMN\] or .*, got 'b\[\]'"),
        (BASE | STRETCHED | {"box_format": "ltrb", "strides": [8, 0]}, r"strides must be positive, got \[8, 0\]"),
        (BASE | STRETCHED | {"strides": [8]}, "box_format must be cxcywh or ltrb with strides"),
        (
            BASE | STRETCHED | {"box_format": "ltrb"},
            "box_format must be cxcywh or ltrb with strides, and ltrb has strides",
        ),
        (BASE | STRETCHED | {"box_unit": "original", "keypoints": "s"}, "with box_unit original there are no masks"),
        (
            BASE | STRETCHED | {"batch_index": "s[0]", "row_counts": "s"},
            "batch_index and row_counts exclude each other",
        ),
        (
            BASE | STRETCHED | {"multi_label": True, "class_agnostic": True},
            "class_agnostic must be false with multi_label",
        ),
        (BASE | STRETCHED | {"labels": "s[0]", "multi_label": True}, "with labels there is one score for each box"),
        (BASE | STRETCHED | {"labels": "s[0]", "activation": "softmax"}, "with labels there is one score for each box"),
    ],
)
def test_what_is_missing_or_wrong_is_named(tmp_path, layout, message):
    boxes, scores = corners(random_boxes(40)) * 20, RNG.uniform(0, 1, (40, 3))
    path = write(tmp_path / "any.onnx", {"b": boxes, "s": scores})
    with pytest.raises(ValueError, match=message):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", layout)
    assert [file.name for file in tmp_path.iterdir()] == ["any.onnx"]


@pytest.mark.parametrize(
    ("boxes", "scores", "message"),
    [
        (random_boxes(40), RNG.uniform(0, 1, (40, 3)), "end before they begin; box_format may be another than xyxy"),
        (corners(random_boxes(40)), RNG.normal(0, 3, (40, 3)), "scores must be from 0 to 1.*activation may be"),
        (corners(random_boxes(40)), RNG.uniform(-9, -5, (40, 3)), "scores must be from 0 to 1, got -"),
        (corners(random_boxes(40)), np.full((40, 3), np.nan), "scores must be from 0 to 1, got nan"),
        (corners(random_boxes(40)) / 64, RNG.uniform(0, 1, (40, 3)), "within .* pixels; box_unit may be relative"),
    ],
)
def test_a_trial_contradicts_the_layout(tmp_path, boxes, scores, message):
    path = write(tmp_path / "any.onnx", {"b": boxes, "s": scores})
    with pytest.raises(ValueError, match=message):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", BASE | STRETCHED)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("names", "7", "names of ultralytics' metadata must be a name for each of the labels 0, 1, ..., got '7'"),
        ("names", "{0: 'cat', 2: 'owl'}", "names of ultralytics' metadata must be a name for each of the labels"),
        ("names", "{0: 'cat', 'x': 'owl'}", "names of ultralytics' metadata must be a name for each of the labels"),
        ("names", "[]", "names of ultralytics' metadata must be a name for each of the labels"),
        ("names", None, "metadata of ultralytics must have names, stride, imgsz; missing: names"),
        ("imgsz", None, "metadata of ultralytics must have names, stride, imgsz; missing: imgsz"),
        ("imgsz", "640", "imgsz of ultralytics' metadata must be two positive integers, got '640'"),
        ("stride", "(", r"stride of ultralytics' metadata must be a positive integer, got '\('"),
        ("names", "[" + "0," * 2**21 + "]", r"names of ultralytics' metadata must be a name .*, got '\[0,"),
        ("task", "classify", "task 'classify' are not supported; supported: detect, segment, obb, pose"),
        ("task", "pose", "metadata of ultralytics must have names, stride, imgsz, kpt_shape; missing: kpt_shape"),
        ("stride", "0", "stride of ultralytics' metadata must be a positive integer, got '0'"),
        ("args", "{'nms'", """args of ultralytics' metadata must be a dict, got "{'nms'\""""),
        ("args", "[1]", r"args of ultralytics' metadata must be a dict, got '\[1\]'"),
    ],
)
def test_metadata_of_ultralytics_that_is_malformed(tmp_path, key, text, message):
    metadata = ultralytics(**{key: text})
    metadata = {name: value for name, value in metadata.items() if value is not None}
    rows = np.concatenate([random_boxes(40).T, RNG.uniform(0, 1, (3, 40))])
    path = write(tmp_path / "any.onnx", {"output0": rows}, image=("n", 3, "h", "w"), metadata=metadata)
    with pytest.raises(ValueError, match=message):
        mmort.onnx.adopt(path, tmp_path / "a.onnx")


def test_metadata_of_ultralytics_without_a_description(tmp_path):
    """The entry docs names the exporter, too."""
    metadata = ultralytics()
    del metadata["description"]
    rows = np.concatenate([random_boxes(40).T, RNG.uniform(0, 1, (3, 40))])
    path = write(tmp_path / "any.onnx", {"output0": rows}, metadata=metadata)
    assert mmort.onnx.adopt(path, tmp_path / "a.onnx").exporter == "ultralytics"


def test_the_outputs_of_a_file_that_is_not_recognized_are_named(tmp_path):
    outputs = {"map": np.zeros((1, 8, 9)), "more": np.zeros((5, 2))}
    path = write(tmp_path / "text.onnx", outputs, image=("n", 3, "h", 96))
    with pytest.raises(ValueError, match=r"are; pass --layout .*; its outputs: map \[1, 1, 8, 9\], more \[1, 5, 2\]"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx")


def test_a_config_that_is_not_read_is_refused(tmp_path):
    path = write(tmp_path / "any.onnx", {"output0": np.ones((7, 4))}, metadata=ultralytics())
    with pytest.raises(FileNotFoundError, match=r"config does not exist: .*nowhere"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", config=tmp_path / "nowhere")
    with pytest.raises(
        ValueError,
        match=r"transformers, MMDetection and MMDeploy, .* and of PaddleDetection, infer_cfg.yml or .* of ultralytics",
    ):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", config=tmp_path)


DETECTOR_CONFIG = """
pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="MultiScaleFlipAug", img_scale=(208, 160), flip=False, transforms=[
        dict(type="Resize", keep_ratio=True),
        dict(type="Normalize", mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True),
        dict(type="Pad", size_divisor=32),
        dict(type="ImageToTensor", keys=["img"]),
        dict(type="Collect", keys=["img"])])]
data = dict(test=dict(type="CocoDataset", classes=classes, pipeline=pipeline))
"""


def detector_config(folder, classes=CLASSES):
    """Write MMDetection 2's config of a detector of classes, and return its path."""
    path = folder / "detector_config.py"
    path.write_text(f"classes = {tuple(classes)!r}\n{DETECTOR_CONFIG}")
    return path


def test_mmdetections_own_file_gets_what_its_config_says(tmp_path):
    image = np.random.default_rng(4).integers(0, 256, (100, 130, 3), np.uint8)
    classes, preprocessing = old_export.CLASSES, old_export.PREPROCESSING
    expected = mmort.Predictor(old_export.MODEL, classes=classes, preprocessing=preprocessing, score_threshold=0)(image)
    config, adopted, report = detector_config(tmp_path, classes), tmp_path / "a.onnx", tmp_path / "report.html"
    command = ("adopt", old_export.MODEL, "-o", adopted)
    assert "does not say how images become its input; pass --config CONFIG.py" in misused(*command)
    code, text, _ = run(*command, "--config", config)
    assert code == 0
    first, *_, masks, _, wrote, _ = text.splitlines()
    assert (first, masks) == ("file of  MMDetection or MMDeploy", "masks    masks, over the input, above 0.5")
    assert wrote == f"wrote {adopted}"
    detections = mmort.Predictor(adopted, score_threshold=0)(image)
    assert len(detections) > 20
    assert detections.names == expected.names
    np.testing.assert_array_equal(detections.boxes, expected.boxes)
    np.testing.assert_array_equal(detections.scores, expected.scores)
    np.testing.assert_array_equal(np.array(detections.masks), np.array(expected.masks))
    mmort.onnx.upgrade(adopted, tmp_path / "b.onnx")
    write_image(tmp_path / "image.png", image)
    code, text, _ = run("parity", adopted, tmp_path / "b.onnx", tmp_path / "image.png", "--report", report)
    assert code == 0
    assert f"{len(detections)} of {len(detections)} detections in 1 image are equal" in text


@pytest.mark.parametrize("size", [(14, 14), (160, 224)])
def test_masks_of_a_detector_cover_boxes_or_the_input(tmp_path, size):
    """A file of one size, to which images are padded."""
    dets, labels = np.array([[10, 20, 60, 90, 0.9], [0, 0, 0, 0, 0]]), np.array([2, -1])
    masks = np.zeros((2, *size))
    masks[:, size[0] // 2 :] = 1
    path = write(tmp_path / "old.onnx", {"dets": dets, "labels": labels, "masks": masks}, image=(1, 3, 160, 224))
    mmort.onnx.adopt(path, tmp_path / "a.onnx", config=detector_config(tmp_path))
    image = np.zeros((160, 160, 3), np.uint8)
    with pytest.warns(FixedSizeWarning):
        (mask,) = mmort.Predictor(tmp_path / "a.onnx", score_threshold=0)(image).masks
    expected = np.zeros((160, 160), bool)
    expected[55:90, 10:60] = size[0] == 14
    expected[80:] |= size[0] != 14
    assert (mask != expected).sum() <= 4  # the corners of a box, where its mask ends


def test_a_detector_of_rotated_boxes(tmp_path):
    rows = np.array([[40, 50, 30, 10, 0.5, 0.9], [80, 60, 20, 12, -0.3, 0.4]])
    path = write(tmp_path / "old.onnx", {"dets": rows, "labels": np.array([1, 0])}, image=("n", 3, "h", "w"))
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx", config=detector_config(tmp_path))
    assert "cxcywh in pixels of the input, turned by dets[4]" in str(adoption)
    detections = mmort.Predictor(tmp_path / "a.onnx", score_threshold=0)(np.zeros((160, 192, 3), np.uint8))
    assert detections.names == ("dog", "cat")
    np.testing.assert_allclose(detections.rotated_boxes, rows[:, :5], rtol=1e-6)


def test_what_a_detectors_config_must_have(tmp_path):
    rows = np.array([[40, 50, 60, 80, 0.9]])
    path = write(tmp_path / "old.onnx", {"dets": rows, "labels": np.array([2])}, image=("n", 3, "h", "w"))
    for arguments, message in (
        ({"config": tmp_path}, f"config must be the detector's config, a file, .*, got {tmp_path}"),
        ({"config": detector_config(tmp_path, ["cat", "dog"])}, "classes must have a name for each label, got 2 names"),
        ({"layout": {"boxes": "dets"}}, "only classes and preprocessing can be set, got boxes"),
        ({"layout": {"preprocessing": {"sise": [1, 1]}}}, "sise"),
    ):
        with pytest.raises(ValueError, match=message):
            mmort.onnx.adopt(path, tmp_path / "a.onnx", **arguments)
        assert not (tmp_path / "a.onnx").exists()
    named = mmort.onnx.adopt(path, tmp_path / "a.onnx", STRETCHED | {"classes": ["a", "b", "c"]})
    assert "classes  3: a, b, c" in str(named)
    config = detector_config(tmp_path)
    changed = {"classes": ["a", "b", "c"], "preprocessing": {"to_rgb": False}}
    text = str(mmort.onnx.adopt(path, tmp_path / "b.onnx", changed, config=config))
    assert "blue, green, red; fitted into 208 x 160; minus (123.675, " in text
    assert "classes  3: a, b, c" in text


def test_an_entry_can_be_taken_back_on_the_command_line(tmp_path):
    boxes, scores = corners(random_boxes(40)), RNG.uniform(0.5, 1, (40, 3))
    path = write(tmp_path / "any.onnx", {"b": boxes, "s": scores})
    layout = BASE | STRETCHED | {"iou_threshold": 0.5}
    (tmp_path / "layout.json").write_text(json.dumps(layout))
    command = ("adopt", path, "-o", tmp_path / "a.onnx", "--layout", tmp_path / "layout.json", "--set")
    for word in ("null", "None"):
        assert "no suppression" in run(*command, f"iou_threshold={word}", "--force")[1]


def test_command(tmp_path):
    boxes, scores = corners(random_boxes(40)), RNG.uniform(0.5, 1, (40, 3))
    path = write(tmp_path / "any.onnx", {"b": boxes, "s": scores})
    write_image(tmp_path / "image.png", np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    advice = "mmort adopt MODEL.onnx --output FILE.onnx lets mmort run detectors of other exporters"
    assert advice in refused("predict", path, tmp_path / "image.png")
    annotations = tmp_path / "annotations.json"
    annotations.write_text(json.dumps({"images": [], "annotations": [], "categories": []}))
    assert advice in refused("test", path, "--ann", annotations, "--img-dir", tmp_path, "--eval", "bbox")
    with pytest.raises(ValueError, match=advice):  # as quantize and verify read images
        next(mmort.onnx.read_inputs(path, [tmp_path / "image.png"]))
    (tmp_path / "layout.json").write_text(json.dumps(BASE | STRETCHED | {"classes": ["a"]}))
    adopt = ("adopt", path, "--output", tmp_path / "a.onnx", "--layout", tmp_path / "layout.json")
    assert "each of the 3 classes that scores has, got 1" in refused(*adopt)
    code, text, _ = run(*adopt, "--set", "classes=cat,dog,owl", "max_detections=7")
    assert code == 0
    assert "at most 7 detections" in text
    assert f"wrote {tmp_path / 'a.onnx'}" in text
    code, text, _ = run("predict", tmp_path / "a.onnx", tmp_path / "image.png", "--json")
    assert code == 0
    assert len(json.loads(text)["detections"]) == 7
    assert "is a file of mmort already" in refused("adopt", tmp_path / "a.onnx", "-o", tmp_path / "b.onnx")


@pytest.mark.parametrize(
    ("height", "width"), [(333, 641), (640, 640), (1000, 30), (33, 66), (101, 64), (512, 333), (256, 163)]
)
def test_letterbox(height, width):
    """Halves are rounded to even numbers, and an odd pixel of the padding goes to the right or below."""
    cv2 = pytest.importorskip("cv2")
    image = RNG.integers(0, 256, (height, width, 3), np.uint8)
    padding = Padding(value=114.0, size=(320, 256), centred=True)
    prepare = Preprocessing(size=(320, 256), turn_size=False, padding=padding, std=(255,) * 3, to_rgb=True, divide=True)
    scale = min(256 / height, 320 / width)
    resized = cv2.resize(image, (round(width * scale), round(height * scale)), interpolation=cv2.INTER_LINEAR)
    rows, columns = 256 - resized.shape[0], 320 - resized.shape[1]
    around = ((rows // 2, rows - rows // 2), (columns // 2, columns - columns // 2), (0, 0))
    expected = np.pad(resized, around, constant_values=114)[..., ::-1].transpose(2, 0, 1).astype(np.float32) / 255
    np.testing.assert_array_equal(prepare(image).input, expected)
    # Pixel columns 0 and `width` of the image go there and back.
    left, right = columns // 2, columns // 2 + resized.shape[1]
    box = np.array([[left, rows // 2, right, rows // 2 + resized.shape[0]]], np.float32)
    np.testing.assert_allclose(prepare(image).boxes_in_image(box), [[0, 0, width, height]], rtol=1e-5)
    beyond = np.array([[0, 0, 320, 256]], np.float32)
    clipped = replace(prepare, clip_boxes=True)(image).boxes_in_image(beyond)
    np.testing.assert_allclose(clipped, [[0, 0, width, height]], rtol=1e-6)
    assert (clipped <= [width, height] * 2).all()


@pytest.mark.parametrize(
    ("image", "expected"),
    [  # of transformers' get_size_with_aspect_ratio((height, width), 800, 1333), as (width, height)
        ((1080, 810), (800, 1066)),
        ((641, 333), (692, 1333)),
        ((720, 1280), (1333, 750)),
        ((97, 211), (1332, 613)),
        ((800, 900), (900, 800)),
    ],
)
def test_sizes_of_transformers(image, expected):
    prepare = Preprocessing(size=(1333, 800), rounding="down")
    assert prepare.resized_size(image[1], image[0]) == expected


def test_sizes_of_yolox():
    prepare = Preprocessing(size=(416, 320), turn_size=False, rounding="down")
    assert prepare.resized_size(333, 641) == (166, 320)
    assert prepare.resized_size(1279, 333) == (416, 108)

"""`PosePredictor`: boxes of a detector, of the caller, or the whole image; keypoints in the image; skeletons drawn."""

import json
from dataclasses import replace

import cv2
import numpy as np
import onnx
import onnx.helper as oh
import pytest

from mmort import Detections, Predictor, evaluate
from mmort.cli import main
from mmort.contract import Metadata, PoseFormat, write_entries
from mmort.evaluate import TestOptions as Options
from mmort.evaluate.poses import PoseDataset
from mmort.predict import PosePredictor, PredictOptions, Preprocessing, Skeleton, draw, predict
from tests.predict import tiny_detector

SIZE = 12, 16
FORMAT = PoseFormat("heatmaps", ("spot",), padding=1.0, colours=((255, 0, 0),), sigmas=(0.1,))


def write(path, *, format=FORMAT, number="N"):
    """Write a file whose heatmap is the red channel of its input, so that a red spot is a keypoint."""
    float32 = onnx.TensorProto.FLOAT
    first = onnx.numpy_helper.from_array(np.array([0]), "first")
    graph = oh.make_graph(
        [oh.make_node("Gather", ["input", "first"], ["heatmaps"], axis=1)],
        "spots",
        [oh.make_tensor_value_info("input", float32, [number, 3, *SIZE[::-1]])],
        [oh.make_tensor_value_info("heatmaps", float32, [number, 1, *SIZE[::-1]])],
        [first],
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8)
    preprocessing = Preprocessing(size=SIZE, keep_ratio=False, to_rgb=True)
    metadata = Metadata(task="keypoints", classes=("pose",), preprocessing=preprocessing, pose=format)
    oh.set_model_props(model, write_entries(metadata))
    onnx.save(model, path)
    return str(path)


@pytest.fixture
def spots(tmp_path):
    return write(tmp_path / "spots.onnx")


@pytest.fixture
def image():
    """Return an image of two spots."""
    x, y = np.meshgrid(np.arange(80), np.arange(60))
    red = sum(250 * np.exp(-((x - right) ** 2 + (y - down) ** 2) / 50) for right, down in ((20, 31), (62, 15)))
    return np.stack([np.zeros_like(red), np.zeros_like(red), red], axis=2).astype(np.uint8)


def test_keypoints_are_in_the_image(spots, image):
    predictor = PosePredictor(spots)
    detections = predictor.poses(image, [[8, 16, 32, 48], [50, 0, 74, 32]])
    np.testing.assert_allclose(detections.keypoints[:, 0, :2], [(20, 31), (62, 15)], atol=1)
    assert (detections.keypoints[:, 0, 2] > 230).all()
    assert detections.skeleton == Skeleton(("spot",), colours=((255, 0, 0),))
    assert (detections.names, detections.image_size) == (("pose", "pose"), (60, 80))
    assert len(predictor.poses(image, np.zeros((0, 4)))) == 0
    assert detections[1:].skeleton == detections.skeleton
    assert Detections.merge([detections, detections]).skeleton == detections.skeleton


def test_boxes_get_the_proportions_of_the_input(spots, image):
    """A box that is too narrow or too low is looked at with what is beside it; outside the image it is black."""
    predictor = PosePredictor(spots)
    for box in ([18, 16, 22, 48], [8, 31, 32, 33], [-30, -20, 40, 60]):
        ((x, y, _),) = predictor.poses(image, [box]).keypoints[0]
        assert np.abs(x - 20) <= 6, box
        assert np.abs(y - 31) <= 6, box


def test_many_boxes_and_files_for_one(spots, image, tmp_path):
    boxes = [[8 + shift, 16, 32 + shift, 48] for shift in np.linspace(-3, 3, 70)]
    many = PosePredictor(spots).poses(image, boxes)
    single = PosePredictor(write(tmp_path / "single.onnx", number=1)).poses(image, boxes)
    np.testing.assert_array_equal(many.keypoints, single.keypoints)
    np.testing.assert_allclose(many.keypoints[:, 0, :2], [(20, 31)] * 70, atol=1.5)


def test_boxes_of_other_images_and_shapes(spots, image):
    predictor = PosePredictor(spots)
    with pytest.raises(ValueError, match=r"boxes must be \(N, 4\), got \(4, 5\)"):
        predictor.poses(image, np.arange(20).reshape(4, 5))  # with scores
    found = predictor.poses(image, [[8, 16, 32, 48]])
    with pytest.raises(ValueError, match=r"boxes must be of an image of \(30, 40\) pixels, got \(60, 80\)"):
        predictor.poses(image[::2, ::2], found)


def test_images_that_are_read_otherwise(spots):
    """Boxes would be in an image that is turned another way or has other channels, and levels would be rounded."""
    for name, value in (("color_type", "color_ignore_orientation"), ("color_type", "unchanged"), ("to_float32", True)):
        settings = Preprocessing(size=SIZE, keep_ratio=False, **{name: value})
        with pytest.raises(
            ValueError, match=f"PosePredictor: preprocessing of poses must have {name}=.* got {value!r}"
        ):
            PosePredictor(spots, preprocessing=settings)
    with pytest.raises(ValueError, match="PosePredictor: preprocessing of poses must have a size, got None"):
        PosePredictor(spots, preprocessing=Preprocessing())


def test_what_is_measured_of_detections_only(spots, image, tmp_path):
    cv2.imwrite(str(tmp_path / "a.png"), image)
    figure = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [8, 16, 24, 32], "keypoints": [20, 31, 2]}
    content = {"images": [{"id": 1, "file_name": "a.png", "height": 60, "width": 80}], "annotations": [figure]}
    (tmp_path / "a.json").write_text(json.dumps(content | {"categories": [{"id": 1, "name": "spot"}]}))
    data = PoseDataset(tmp_path / "a.json", tmp_path)
    assert evaluate.test(spots, data, options=Options(metrics=["keypoints"])).metrics.figures["coco/AP"] == 1
    for options, message in ((Options(classes=["spot"]), "classes is for"), (Options(tta=True), "tta is for")):
        with pytest.raises(ValueError, match=f"test: {message} detections, got a data set for keypoints"):
            evaluate.test(spots, data, {"test_pipeline": []}, options)
    line = json.dumps({"image": str(tmp_path / "a.png"), **PosePredictor(spots)(image).to_dict()})
    (tmp_path / "detections.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError, match="saved results are those of detections, got a data set for keypoints"):
        evaluate.score_results(tmp_path / "detections.jsonl", data, options=Options(metrics=["keypoints"]))


def test_files_without_sigmas(image, tmp_path):
    """PCK is measured without them, and AP is refused before anything is predicted."""
    spots = write(tmp_path / "spots.onnx", format=replace(FORMAT, sigmas=()))
    cv2.imwrite(str(tmp_path / "a.png"), image)
    figure = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [8, 16, 24, 32], "keypoints": [20, 31, 2]}
    content = {"images": [{"id": 1, "file_name": "a.png", "height": 60, "width": 80}], "annotations": [figure]}
    (tmp_path / "a.json").write_text(json.dumps(content | {"categories": [{"id": 1, "name": "spot"}]}))
    data = PoseDataset(tmp_path / "a.json", tmp_path)
    assert evaluate.test(spots, data, options=Options(metrics=["pck"])).metrics.figures == {"PCK": 1}
    (tmp_path / "a.png").unlink()
    with pytest.raises(ValueError, match="does not state the sigmas of its keypoints, by which AP is measured"):
        evaluate.test(spots, data, options=Options(metrics=["pck", "keypoints"]))


@pytest.mark.parametrize(
    ("other", "recall"),
    [
        ({}, 1),
        ({"area": 0}, 0.5),  # which no distance is small for
        ({"num_keypoints": 0}, 0.5),  # it is not looked for, but counts
        ({"keypoints": [62, 15, 0]}, 1),  # and the other way round
        ({"keypoints": [0, 0, 2]}, 0.5),
        ({"keypoints": [0, 0, 0], "num_keypoints": 1}, 1),
    ],
)
def test_annotations_that_contradict_themselves(spots, image, tmp_path, other, recall):
    """What MMPose measures of them; a second figure is changed."""
    cv2.imwrite(str(tmp_path / "a.png"), image)
    figure = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [8, 16, 24, 32], "keypoints": [20, 31, 2]}
    second = {**figure, "id": 2, "bbox": [50, 0, 24, 32], "keypoints": [62, 15, 2], **other}
    content = {"images": [{"id": 1, "file_name": "a.png", "height": 60, "width": 80}], "annotations": [figure, second]}
    (tmp_path / "a.json").write_text(json.dumps(content | {"categories": [{"id": 1, "name": "spot"}]}))
    data = PoseDataset(tmp_path / "a.json", tmp_path)
    figures = evaluate.test(spots, data, options=Options(metrics=["keypoints"])).metrics.figures
    assert figures["coco/AR .5"] == recall


@pytest.mark.parametrize("box", [[4, 4, 4, 8], [4, 4, 8, 2], [np.nan, 0, 1, 1]])
def test_boxes_without_an_area(spots, image, box):
    with pytest.raises(ValueError, match="boxes must be finite and have an area"):
        PosePredictor(spots).poses(image, [box])


def test_a_detector_finds_the_boxes(spots, image, tmp_path):
    """The tiny one finds a box of class b in the corner, with a score of 0.5."""
    detector = tiny_detector.write(tmp_path / "tiny.onnx")
    predictor = PosePredictor(spots, detector)
    found, expected = predictor(image), Predictor(detector)(image)
    assert (found.names, found.scores.tolist()) == (("b",), [0.5])
    np.testing.assert_array_equal(found.boxes, expected.boxes)
    np.testing.assert_array_equal(found.keypoints, predictor.poses(image, expected.boxes).keypoints)
    assert len(PosePredictor(spots, detector, pose_classes=["a"])(image)) == 0
    all_boxes = Predictor(detector, score_threshold=0)
    assert [len(PosePredictor(spots, all_boxes, score_threshold=score)(image)) for score in (0.4, 0.6)] == [1, 0]
    with pytest.raises(ValueError, match="pose_classes must be among the detector's, got 'c'; its classes: a, b"):
        PosePredictor(spots, detector, pose_classes=["c"])
    with pytest.raises(ValueError, match="detector must be one of detections, got one of keypoints"):
        PosePredictor(spots, predictor)
    with pytest.raises(ValueError, match="network must be a file of poses, got one for detection"):
        PosePredictor(detector)
    with pytest.raises(ValueError, match=r"spots\.onnx finds the keypoints of what is in boxes: PosePredictor"):
        Predictor(spots)


def test_persons_get_poses(spots, image, tmp_path):
    metadata = tiny_detector.METADATA | {"classes": json.dumps(["dog", "person"])}
    detector = tiny_detector.write(tmp_path / "tiny.onnx", metadata=metadata)
    predictor = PosePredictor(spots, detector)
    assert (predictor.pose_classes, len(predictor(image))) == (("person",), 1)


def test_the_command(spots, image, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cv2.imwrite("photo.png", image)
    detector = str(tiny_detector.write(tmp_path / "tiny.onnx"))
    assert main(["predict", spots, "photo.png", "--detector", detector, "--output", "out", "--show-dir", "shown"]) == 0
    assert capsys.readouterr().err.startswith("note: poses of all that the detector finds\n")
    (line,) = (tmp_path / "out/detections.jsonl").read_text().splitlines()
    (found,) = json.loads(line)["detections"]
    expected = PosePredictor(spots, detector)("photo.png")
    np.testing.assert_allclose(found["keypoints"], expected.keypoints[0])
    np.testing.assert_array_equal(cv2.imread("shown/photo.png"), expected.plot(image))
    other = str(tiny_detector.write(tmp_path / "other.onnx", names=("dets", "labels"), shape=("N", 3, 16, 32)))
    assert main(["predict", spots, "photo.png", "--detector", other, "--output", "out"]) == 1
    assert "of a run with another detector" in capsys.readouterr().err
    assert main(["predict", detector, "photo.png", "--detector", detector]) == 2
    assert "--detector is for a file of poses" in capsys.readouterr().err
    result = predict(PosePredictor(spots), "photo.png", PredictOptions(output=tmp_path / "whole"))
    assert result.processed == 1


def test_links_are_drawn_between_visible_keypoints():
    skeleton = Skeleton(("a", "b", "c"), ((0, 1), (1, 2)), ((255, 0, 0),) * 3, ((0, 255, 0), (0, 0, 255)))
    keypoints = np.array([[[10, 10, 0.9], [40, 10, 0.8], [40, 40, 0.1]]])
    detections = Detections([[5, 5, 45, 45]], [0.9], [0], ("x",), (50, 60), keypoints=keypoints, skeleton=skeleton)
    drawn = draw(np.zeros((50, 60, 3), np.uint8), detections)
    assert drawn[9:11, 25, 1].max() > 128
    assert drawn[9:11, 25, [0, 2]].max() == 0
    assert drawn[9, 9].tolist() == [0, 0, 255]  # blue, green, red
    assert drawn[25, 38:42].max() == 0  # as the last one is not visible
    with pytest.raises(ValueError, match="skeleton must have a name for each keypoint, got 1 names"):
        Detections([[5, 5, 45, 45]], [0.9], [0], ("x",), (50, 60), keypoints=keypoints, skeleton=Skeleton(("a",)))

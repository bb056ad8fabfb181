"""Parity of files of other tasks than detection: what counts as equal, and two files that differ a little."""

import json

import numpy as np
import pytest

from mmort import Detections
from mmort.cli import main
from mmort.contract import CLASSIFICATION, POSE, SEGMENTATION, TEXT_DETECTION, TEXT_RECOGNITION
from mmort.evaluate import ClassificationDataset, UnlabelledDataset
from mmort.evaluate.dataset import DatasetImage
from mmort.evaluate.parity import Column, Parity, ParityOptions, ResultComparison, parity
from mmort.evaluate.parity.task_comparison import MEASURES
from mmort.images import write_image
from mmort.predict import Classes, OnnxRuntime, Predictor, RecognizedText, SegmentationMap, TextRegions
from tests.predict.tiny_tasks import NAMES, SIZE, write


def counts(task, reference, found):
    """Return how many results of an image the reference has, the model has, are equal, and the distances."""
    difference = MEASURES[task.name].compare(reference, found)
    return (*difference[:3], np.round(difference.distances, 6).tolist())


def classes(*scores):
    return Classes.of_scores(np.array(scores, np.float32), NAMES, SIZE)


def test_classes():
    reference = classes(0.2, 0.5, 0.3)
    assert counts(CLASSIFICATION, reference, classes(0.2001, 0.4999, 0.3)) == (1, 1, 1, [0.0001])
    assert counts(CLASSIFICATION, reference, classes(0.19, 0.51, 0.3)) == (1, 1, 0, [0.01])
    tied = classes(0.49995, 0.5, 0.00005)
    assert counts(CLASSIFICATION, tied, classes(0.5, 0.49995, 0.00005)) == (1, 1, 0, [0.00005])  # another class
    with pytest.raises(ValueError, match="must have the same classes, got 3 and 2"):
        counts(CLASSIFICATION, reference, Classes.of_scores(np.array([0.5, 0.5]), NAMES[:2], SIZE))


def test_maps():
    labels = np.zeros((4, 5), np.uint8)
    other = labels.copy()
    other[1, :2] = 1
    pair = (SegmentationMap(array, NAMES) for array in (labels, other))
    assert counts(SEGMENTATION, *pair) == (20, 20, 18, [])


def poses(points):
    points = np.array(points, np.float32)
    count = len(points)
    return Detections(
        np.tile([0, 0, 9, 9], (count, 1)), np.ones(count), [0] * count, ("a",) * count, SIZE, keypoints=points
    )


def test_poses():
    reference = poses([[[3, 4, 0.9], [100, 4, 0.5]], [[3, 4, 0.9], [5, 4, 0.5]]])
    moved = poses([[[3.09, 4, 0.9], [100, 4, 0.5]], [[3.09, 4, 0.9], [5, 4, 0.51]]])
    # 0.1 % of 100 pixels is less than the first has moved, of 5 more; a score differs by 2 %
    assert counts(POSE, reference, moved) == (4, 4, 2, [0.09, 0, 0.09, 0])
    with pytest.raises(ValueError, match=r"as many keypoints, got \(2, 2\) and \(2, 1\)"):
        counts(POSE, reference, poses([[[3, 4, 0.9]], [[3, 4, 0.9]]]))


def test_words():
    def text(text, *scores):
        return RecognizedText(text, np.array(scores, np.float32), SIZE)

    reference = text("two", 0.5, 0.75, 1)
    assert counts(TEXT_RECOGNITION, reference, text("two", 0.5, 0.75, 1)) == (1, 1, 1, [0])
    assert counts(TEXT_RECOGNITION, reference, text("two", 0.5, 0.75, 0.7)) == (1, 1, 0, [0.1])
    assert counts(TEXT_RECOGNITION, reference, text("twp", 0.5, 0.75, 1)) == (1, 1, 0, [])


def regions(*entries):
    outlines = [[[x, y], [x + 10, y], [x + 10, y + 4], [x, y + 4]] for x, y, _ in entries]
    return TextRegions(tuple(map(np.array, outlines)), np.array([score for *_, score in entries]), (40, 60))


def test_text_regions():
    pytest.importorskip("shapely")
    reference = regions((2, 3, 0.9), (30, 3, 0.8), (2, 20, 0.7))
    assert counts(TEXT_DETECTION, reference, reference[[2, 0, 1]]) == (3, 3, 3, [0, 0, 0])
    moved = regions((2.01, 3, 0.9), (31, 3, 0.8), (2, 20, 0.6), (40, 30, 0.5), (6, 20, 0.4))
    assert counts(TEXT_DETECTION, reference, moved) == (3, 5, 1, [0, 0, 0.1])
    twice = regions((2, 3, 0.9), (2, 3, 0.9))
    assert counts(TEXT_DETECTION, twice, reference[[0]]) == (2, 1, 1, [0])
    assert counts(TEXT_DETECTION, reference[[]], reference[[]]) == (0, 0, 0, [])
    assert counts(TEXT_DETECTION, reference, reference[[]]) == (3, 0, 0, [])


def test_sums(tmp_path):
    comparison = ResultComparison("other", 1, measure=MEASURES[TEXT_RECOGNITION.name])
    for index, found in enumerate(("a", "b", "c")):
        texts = (RecognizedText(text, np.array([0.5]), SIZE) for text in ("a", found))
        comparison.add(DatasetImage(index, tmp_path / f"{index}.png", f"{index}.png"), *texts)
    assert (comparison.images, comparison.differing_images, comparison.matched) == (3, 2, 1)
    assert [example.image.name for example in comparison.examples] == ["1.png"]
    result = Parity("file", {}, (Column({}, {}, comparison),))
    assert not result.ok
    assert str(result).endswith(
        "other differs from file: 1 of 3 texts in 3 images are equal (33.33%), 2 differ. 99.9% are required. "
        "The scores of the same texts differ by 0, 0, 0 (median, 95%, largest)."
    )


def test_percent():
    """Metrics up to 100 may differ by as many digits as those up to 1."""
    comparison = ResultComparison("other", measure=MEASURES[SEGMENTATION.name])
    column = Column({"mIoU": 60.0, "aAcc": 80.0}, {"mIoU": 0.04, "aAcc": 0.06}, comparison, max_figure=100.0)
    assert column.differing_metrics == ["aAcc"]


@pytest.fixture
def photos(tmp_path):
    """Write images of blocks with random colours, in a folder for each class."""
    rng = np.random.default_rng(0)
    for index in range(6):
        folder = tmp_path / "photos" / NAMES[index % 3]
        folder.mkdir(parents=True, exist_ok=True)
        blocks = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        write_image(folder / f"{index}.png", blocks.repeat(8, 0).repeat(10, 1))
    return tmp_path / "photos"


@pytest.mark.parametrize(
    ("task", "unit"),
    [
        (CLASSIFICATION, "images"),
        (SEGMENTATION, "pixels"),
        (POSE, "keypoints"),
        (TEXT_DETECTION, "texts"),
        (TEXT_RECOGNITION, "texts"),
    ],
)
def test_two_files(photos, tmp_path, capsys, task, unit):
    if task is TEXT_DETECTION:
        pytest.importorskip("shapely")
    files = {name: tmp_path / f"{name}.onnx" for name in ("file", "same", "other")}
    for name, path in files.items():
        write(path, task, bias=1.0 if name == "other" else 0.0)
    report, images = tmp_path / "report.html", str(photos / "*" / "*.png")
    command = ["parity", str(files["file"]), "--report", str(report)]
    assert main([*command, str(files["same"]), images]) == 0
    printed = capsys.readouterr().out
    assert f" {unit}{' in 6 images' * (unit != 'images')} are equal.\n" in printed
    assert "No image differs, of 6." in report.read_text()
    assert main([*command, str(files["other"]), images, "--force"]) == 1
    printed = capsys.readouterr()
    assert "other.onnx differs from file.onnx: " in printed.out
    assert "these differ from file.onnx: other.onnx" in printed.err
    text = report.read_text()
    assert f"<h2>{unit.capitalize()}</h2>" in text
    assert text.count("data:image/jpeg;base64") == 2 * text.count("<h3>") - 2 > 0


def test_a_data_set(photos, tmp_path):
    """With metrics, in percent."""
    for name, bias in (("file", 0.0), ("same", 0.0), ("other", 5.0)):
        write(tmp_path / f"{name}.onnx", CLASSIFICATION, bias)
    networks = {name: OnnxRuntime(tmp_path / f"{name}.onnx") for name in ("file", "same", "other")}
    dataset = ClassificationDataset(photos)
    result = parity(networks, dataset, options=ParityOptions(report=tmp_path / "x.html"))
    same, other = result.columns
    assert (same.equal, other.equal) == (True, False)
    expected = 100 * np.mean(
        [Predictor(networks["file"])(image.path).names[0] == image.path.parent.name for image in dataset.images]
    )
    assert result.metrics == {"accuracy/top1": pytest.approx(expected)}
    assert other.metrics == {"accuracy/top1": pytest.approx(100 / 3)}  # all are cats
    with pytest.raises(
        ValueError, match="same must be for segmentation, as the data set is, got one for classification"
    ):
        parity(
            {"same": networks["same"], "file": networks["file"]}, UnlabelledDataset([photos / "cat"], (), SEGMENTATION)
        )


def test_a_config_with_the_data_set(photos, tmp_path, capsys):
    for name in ("file", "same"):
        write(tmp_path / f"{name}.onnx", CLASSIFICATION)
    config = tmp_path / "config.py"
    config.write_text(
        f"""
default_scope = "mmpretrain"
model = dict(type="ImageClassifier")
test_dataloader = dict(
    batch_size=2,
    dataset=dict(type="CustomDataset", data_root={json.dumps(str(photos))}, classes={json.dumps(NAMES)}, pipeline=[]),
)
test_evaluator = dict(type="Accuracy", topk=(1, 2))
"""
    )
    command = ["parity", *(str(tmp_path / f"{name}.onnx") for name in ("file", "same")), str(config)]
    assert main([*command, "--report", str(tmp_path / "x.html")]) == 0
    assert "accuracy/top2" in capsys.readouterr().out

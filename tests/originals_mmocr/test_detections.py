"""Text detections exported from MMOCR's own code: polygons are MMOCR's, and what is read in them."""

import json

import cv2
import numpy as np
import pytest

from mmort import Predictor
from mmort.cli import main
from mmort.configs import read_config
from mmort.evaluate import TextRegionDataset, dataset_of, metric_options
from mmort.original import export
from mmort.predict import TextReader, TextRegions
from mmort.predict.text_reading import crop_of
from tests.originals_guide import run_section
from tests.originals_mmocr import original, signs, words

pytestmark = pytest.mark.filterwarnings("ignore")  # of MMOCR and what it imports

QUAD = "dict(type='DBPostprocessor', text_repr_type='quad', epsilon_ratio=0.002, min_text_width=3, mask_thr=0.4)"
FEW = "dict(type='DBPostprocessor', max_candidates=5, unclip_ratio=4.0, min_text_score=0.45)"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the images, the checkpoint and MMOCR's model of a text detection that was trained on them."""
    folder = tmp_path_factory.mktemp("signs")
    signs.write(folder / "images", 24, seed=1)
    model, _ = original.train_detection(signs.config(folder, folder / "images"))
    original.save(model, folder / "x.pth")
    return folder / "images", folder / "x.pth", model


def same_polygons(file, model, settings):
    """Check that polygons and scores are MMOCR's, and return how many there are."""
    samples, paths, _ = original.results(model, settings)
    count = 0
    for regions, sample in zip(Predictor(file, score_threshold=0).predict(paths, batch_size=4), samples, strict=True):
        assert isinstance(regions, TextRegions)
        found = sample.pred_instances
        assert len(regions) == len(found.polygons)
        for polygon, expected in zip(regions.polygons, found.polygons, strict=True):
            np.testing.assert_allclose(polygon.ravel(), expected, atol=1e-9)
        np.testing.assert_allclose(regions.scores, found.scores.numpy(), atol=1e-6)
        count += len(regions)
    return count


@pytest.mark.parametrize(("postprocessor", "least"), [("dict(type='DBPostprocessor')", 100), (QUAD, 50), (FEW, 5)])
def test_a_trained_detection(trained, tmp_path, capsys, postprocessor, least):
    images, checkpoint, model = trained
    config, file = signs.config(tmp_path, images, postprocessor=postprocessor), tmp_path / "x.onnx"
    built, settings = original.build(config)
    built.load_state_dict(model.state_dict())
    assert main(["export", str(config), str(checkpoint), "--original", "--output", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "corners differ by at most 0.0e+00 pixels" in printed
    assert "for inputs of all sizes" in printed
    assert same_polygons(file, built, settings) > least


def test_deformable_convolutions(trained, tmp_path):
    images, _, _ = trained
    config = signs.config(tmp_path, images, network="DBNet++", scale=(160, 96))
    model, settings = original.build(config)
    original.save(model, tmp_path / "x.pth")
    file, standard = tmp_path / "x.onnx", tmp_path / "standard.onnx"
    export(config, tmp_path / "x.pth", file, progress=lambda line: None)
    assert same_polygons(file, model, settings) > 10
    assert main(["portable", str(file), "--portable=inlined", "--output", str(standard)]) == 0
    assert main(["parity", str(file), str(standard), str(config), "--report", str(tmp_path / "x.html")]) == 0


PSE = "dict(type='PSEPostprocessor', min_kernel_confidence=0.3"
KERNELS = [
    ("PSENet", f"{PSE})"),
    ("PSENet", f"{PSE}, min_kernel_area=9, min_text_area=40, score_threshold=0.7)"),
    ("PAN", "dict(type='PANPostprocessor')"),
    ("PAN", "dict(type='PANPostprocessor', text_repr_type='quad', min_text_confidence=0.6, distance_threshold=1.0)"),
]


@pytest.mark.parametrize(("network", "postprocessor"), KERNELS)
def test_texts_that_grow_from_kernels(trained, tmp_path, network, postprocessor):
    """Of random weights, which have texts of all forms, and of networks that were trained on signs."""
    images, _, _ = trained
    config = signs.config(tmp_path, images, network=network, postprocessor=postprocessor)
    model, settings = original.train_detection(config, steps=60) if network == "PAN" else original.build(config)
    original.save(model, tmp_path / "x.pth")
    lines = []
    export(config, tmp_path / "x.pth", tmp_path / "x.onnx", progress=lines.append)
    assert any("corners differ by at most 0.0e+00 pixels" in line for line in lines)
    assert same_polygons(tmp_path / "x.onnx", model, settings) > 5


def test_reading(trained, tmp_path, capsys):
    """What is read is what MMOCR cuts out."""
    from mmocr.utils import bbox2poly, crop_img, poly2bbox

    images, checkpoint, _ = trained
    detection, recognition = tmp_path / "det.onnx", tmp_path / "rec.onnx"
    export(signs.config(tmp_path, images, postprocessor=QUAD), checkpoint, detection, progress=lambda line: None)
    config = words.config(tmp_path, images, color="grayscale", resize="one size")
    original.save(original.build(config)[0], tmp_path / "r.pth")
    export(config, tmp_path / "r.pth", recognition, progress=lambda line: None)
    path = images / "signs" / "000.png"
    reader, recognizer, pixels = TextReader(detection, recognition), Predictor(recognition), cv2.imread(str(path))
    regions = reader(path)
    assert len(regions) > 3
    for polygon, box, text in zip(regions.polygons, regions.boxes, regions.texts, strict=True):
        expected = crop_img(pixels, bbox2poly(poly2bbox(polygon.ravel())).tolist())
        np.testing.assert_array_equal(crop_of(pixels, box.astype(float)), expected)
        alone = recognizer(np.ascontiguousarray(expected))
        assert (alone.text, alone.image_size) == (text.text, text.image_size)
    capsys.readouterr()
    command = ["predict", str(detection), str(path), "--recognizer", str(recognition)]
    assert main([*command, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["texts"]
    assert [entry["text"] for entry in printed] == list(regions.names)
    assert printed[0]["polygon"] == np.round(regions.polygons[0], 2).ravel().tolist()
    assert main([*command, "--show-dir", str(tmp_path / "shown")]) == 0
    assert cv2.imread(str(tmp_path / "shown" / "000.png")).shape == pixels.shape
    with pytest.raises(ValueError, match="recognizer must be a file of text recognition, got one of text detection"):
        TextReader(detection, detection)


def test_the_guide(trained, tmp_path, monkeypatch):
    images, checkpoint, _ = trained
    words.write(tmp_path / "words", 3, seed=1)
    for name in ("detection", "recognition", "guide"):
        (tmp_path / name).mkdir()
    detection = signs.config(tmp_path / "detection", images)
    recognition = words.config(tmp_path / "recognition", tmp_path / "words", resize="one size")
    original.save(original.build(recognition)[0], tmp_path / "x.pth")
    files = {"detection.py": detection, "detection.pth": checkpoint}
    files |= {"recognition.py": recognition, "recognition.pth": tmp_path / "x.pth"}
    run_section("Texts", files, sorted((images / "signs").iterdir())[:2], tmp_path / "guide", monkeypatch)


def test_other_postprocessors_are_refused(trained, tmp_path):
    images, checkpoint, _ = trained
    for postprocessor, message in (
        ("dict(type='TextSnakePostprocessor')", "must be one of DBPostprocessor, .*, got TextSnakePostprocessor"),
        ("dict(type='DBPostprocessor', rescale_fields=[])", r"must have rescale_fields=\['polygons'\]"),
    ):
        config = signs.config(tmp_path, images, postprocessor=postprocessor)
        with pytest.raises(ValueError, match=message):
            export(config, checkpoint, tmp_path / "x.onnx", progress=lambda line: None)


@pytest.mark.parametrize(
    "metric", ["", "pred_score_thrs=dict(start=0.0, stop=1.0, step=0.05), match_iou_thr=0.1, ignore_precision_thr=0.2"]
)
def test_figures(trained, tmp_path, metric):
    """With outlines of the annotations that are moved at random, as the network has learnt too little."""
    images, _, _ = trained
    config = signs.config(tmp_path, images)
    config.write_text(
        config.read_text().replace('dict(type="HmeanIOUMetric")', f'dict(type="HmeanIOUMetric", {metric})')
    )
    settings = original.Config.fromfile(config)
    truths, rng = original.dataset_of(settings), np.random.default_rng(0)
    evaluator, results = original.registry.METRICS.build(settings.test_evaluator), []
    for sample in truths:
        truth = sample["data_samples"].gt_instances
        polygons = [polygon.reshape(-1, 2) + rng.normal(0, 5, (4, 2)) for polygon in truth.polygons for _ in range(2)]
        scores = rng.random(len(polygons)).astype(np.float32)
        results.append(TextRegions(tuple(polygons), scores, (9, 9)))
        found = {"polygons": [polygon.ravel() for polygon in polygons], "scores": scores}
        truth = {"polygons": truth.polygons, "ignored": truth.ignored.numpy()}
        evaluator.process({}, [{"pred_instances": found, "gt_instances": truth}])
    with original.quiet():
        expected = evaluator.evaluate(len(truths))
    dataset = dataset_of(read_config(config))
    figures = dataset.score(results, ["hmean"], metric_options(read_config(config), dataset)).figures
    assert {f"icdar/{name}": value for name, value in figures.items()} == expected
    assert 0.1 < figures["hmean"] < 0.9


def test_the_command_measures(trained, tmp_path):
    images, checkpoint, model = trained
    config, file = signs.config(tmp_path, images, postprocessor=QUAD), tmp_path / "x.onnx"
    export(config, checkpoint, file, progress=lambda line: None)
    built, settings = original.build(config)
    built.load_state_dict(model.state_dict())
    _, _, figures = original.results(built, settings)
    command = ["test", str(config), str(file), "--eval", "hmean", "--metrics-json", str(tmp_path / "f.json")]
    assert main(command) == 0
    mine = json.loads((tmp_path / "f.json").read_text())
    assert {f"icdar/{name}": value for name, value in mine.items()} == pytest.approx(figures, abs=1e-4)


def test_wrong_data_sets_and_options(tmp_path):
    file = tmp_path / "x.json"
    for polygon in (
        [1, 2, 3, 4],
        [1, 2, 3, 4, 5, float("nan")],
        [1, 2, 3, 4, 5, 6, 7],
        None,
        "ab",
        [[1, 2, 3, 4, 5, 6]],
    ):
        file.write_text(json.dumps({"data_list": [{"img_path": "a.png", "instances": [{"polygon": polygon}]}]}))
        with pytest.raises(ValueError, match=r"a polygon of a\.png must be x1, y1, x2, y2 ... of three corners"):
            TextRegionDataset(tmp_path, file)
    file.write_text(json.dumps({"data_list": [{"img_path": "a.png", "instances": []}]}))
    dataset = TextRegionDataset(tmp_path, file)
    for options, message in (
        ({"strategy": "max_matching"}, "strategy must be 'vanilla'"),
        ({"match_iou_thr": "0.5"}, "match_iou_thr must be a number"),
        ({"pred_score_thrs": [0.3]}, "pred_score_thrs must have the numbers start, stop and step"),
        ({"pred_score_thrs": {"start": 0, "stop": 1, "step": 1e-9}}, "must be 1 to 1000 scores"),
        ({"pred_score_thrs": {"start": 0, "stop": 1, "step": 0}}, "must be 1 to 1000 scores"),
        ({"iou": 1}, "unknown option iou"),
    ):
        with pytest.raises(ValueError, match=message):
            dataset.check(["hmean"], options)
    nothing = dataset.score([TextRegions((), np.zeros(0), (4, 5))], ["hmean"], {})
    assert nothing.figures == {"precision": 1, "recall": 1, "hmean": 1}  # MMOCR's, without texts

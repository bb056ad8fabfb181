"""Poses exported from MMPose's own code: what is cut out of images, and keypoints, are MMPose's."""

import json

import numpy as np
import pytest

from mmort.cli import main
from mmort.contract import PoseFormat
from mmort.demo import IMAGES, MODEL
from mmort.detect.export import ExportOptions
from mmort.original import export
from mmort.predict import PosePredictor, read_image
from mmort.predict.pose_decoding import decode
from tests.originals_guide import run_section
from tests.originals_mmpose import original, strokes
from tests.originals_training import randomize

pytestmark = pytest.mark.filterwarnings("ignore")  # of MMPose and what it imports


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strokes")
    strokes.write(folder, 12, seed=1)
    return folder


def same_as_mmpose(file, model, settings):
    """Check crops and keypoints in all boxes of the data set, those of an image together."""
    predictor, of_image = PosePredictor(file), {}
    for input, result in original.results(model, settings):
        of_image.setdefault(result.img_path, []).append((input, result))
    for path, rows in of_image.items():
        boxes = np.concatenate([result.gt_instances.bboxes for _, result in rows])
        crops = predictor.crops(read_image(path), boxes)
        np.testing.assert_array_equal(np.stack([made.input for _, made in crops]), [input for input, _ in rows])
        expected = np.stack([original.keypoints_of(result) for _, result in rows])
        detections = predictor.poses(path, boxes)
        np.testing.assert_allclose(detections.keypoints, expected, atol=1e-3, rtol=1e-4)
        np.testing.assert_array_equal(detections.boxes, boxes)


@pytest.mark.parametrize("network", strokes.NETWORKS)
def test_networks(figures, tmp_path, network):
    path = strokes.config(tmp_path, network, figures)
    model, settings = original.build(path)
    if network in ("DARK", "UDP", "Megvii"):  # noise has no tops: where curves are flat, rounding moves them by pixels
        original.train(model, settings, 80)
    else:
        randomize(model)
    original.save(model, tmp_path / "x.pth")
    lines = []
    export(path, tmp_path / "x.pth", tmp_path / "x.onnx", progress=lines.append)
    assert any("5 keypoints differ by at most" in line for line in lines)
    same_as_mmpose(tmp_path / "x.onnx", model, settings)
    format = PosePredictor(tmp_path / "x.onnx").format
    assert format.names == strokes.NAMES
    assert format.links == ((0, 1), (0, 2), (3, 4))
    assert format.link_colours == ((0, 255, 0), (255, 128, 0), (51, 153, 255))


@pytest.mark.parametrize("network", ["heatmaps", "RTMPose", "RLE"])
def test_a_head_with_more_keypoints_than_the_data_set(figures, tmp_path, network):
    """As CSPNeXt's, which learns from two data sets: test_cfg says which are those of the one it is tested with."""
    path = strokes.config(tmp_path, network, figures)
    text = path.read_text().replace("flip_test=True", "output_keypoint_indices=[6, 0, 3, 1, 4]")
    text = text.replace("out_channels=5", "out_channels=7").replace("num_joints=5", "num_joints=7")
    path.write_text(text)
    model, settings = original.build(path)
    randomize(model)
    original.save(model, tmp_path / "x.pth")
    lines = []
    export(path, tmp_path / "x.pth", tmp_path / "x.onnx", progress=lines.append)
    assert any("5 keypoints differ by at most" in line for line in lines)
    same_as_mmpose(tmp_path / "x.onnx", model, settings)
    assert PosePredictor(tmp_path / "x.onnx").format.names == strokes.NAMES


@pytest.mark.parametrize("network", ["heatmaps", "DARK", "UDP", "Megvii"])
def test_heatmaps_with_maxima_anywhere(figures, tmp_path, network):
    """At borders and corners, without a positive value, and with two of the largest values."""
    path = strokes.config(tmp_path, network, figures)
    codec = original.registry.KEYPOINT_CODECS.build(original.Config.fromfile(path).codec)
    rng, (width, height) = np.random.default_rng(5), (16, 24)
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    places = [(0, 0), (15, 23), (1, 1), (14, 22), (0, 12), (15, 5), (7, 0), (2, 21), (13, 2), (6, 6), (8.4, 11.7)]
    maps = np.stack([np.exp(-((x - right) ** 2 + (y - down) ** 2) / 4) for right, down in places])
    maps = (maps * rng.uniform(0.2, 1, (len(maps), 1, 1)) + rng.normal(0, 0.01, maps.shape)).astype(np.float32)
    maps = np.concatenate([maps, -1 - maps[:1], np.maximum(maps[1:2], maps[1:2, ::-1])])
    expected, scores = codec.decode(maps.copy())
    blur = getattr(codec, "blur_kernel_size", None) or getattr(codec, "kernel_size", 11)
    format = PoseFormat(network.lower(), names=("",) * len(maps), blur=blur)
    points, found = decode(format, (64, 96), [maps[None]])
    np.testing.assert_array_equal(found, scores)
    np.testing.assert_allclose(points, expected, atol=1e-4)


def test_a_trained_network_and_the_command(figures, tmp_path, capsys):
    path, file = strokes.config(tmp_path, "heatmaps", figures), tmp_path / "figures.onnx"
    model, settings = original.build(path)
    original.train(model, settings, 250)
    original.save(model, tmp_path / "x.pth")
    assert main(["export", str(path), str(tmp_path / "x.pth"), "--original", "--output", str(file)]) == 0
    assert "building the model with MMPose's own code" in capsys.readouterr().out
    same_as_mmpose(file, model, settings)
    distances = [
        np.abs(original.keypoints_of(result)[:, :2] - result.gt_instances.keypoints[0])[
            result.gt_instances.keypoints_visible[0] > 0
        ]
        for _, result in original.results(model, settings)
    ]
    assert np.median(np.concatenate(distances)) < 2  # it has learnt something
    expected, figures_file = original.figures(model, settings), tmp_path / "figures.json"
    assert main(["test", str(path), str(file), "--eval", "keypoints", "--metrics-json", str(figures_file)]) == 0
    measured = json.loads(figures_file.read_text())
    assert measured == pytest.approx(expected, abs=1e-4)
    assert measured["coco/AP"] > 0.5
    path.write_text(path.read_text() + "\ntest_evaluator = [test_evaluator, dict(type='PCKAccuracy', thr=0.06)]\n")
    settings.test_evaluator = {"type": "PCKAccuracy", "thr": 0.06}
    command = ["test", str(path), str(file), "--eval", "pck", "--metrics-json", str(figures_file), "--force"]
    assert main(command) == 0
    assert json.loads(figures_file.read_text()) == pytest.approx(original.figures(model, settings), abs=1e-4)
    assert 0.2 < json.loads(figures_file.read_text())["PCK"] < 1
    capsys.readouterr()
    assert main(["predict", str(file), str(figures / "images/000.png"), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "note: each image is one box, as there is no --detector\n"
    (found,) = json.loads(printed.out)["detections"]
    assert np.shape(found["keypoints"]) == (5, 3)
    assert found["name"] == "pose"


def test_poses_in_images_of_floats_are_refused_before_the_file_is_written(figures, tmp_path, capsys):
    path = strokes.config(tmp_path, "RTMPose", figures)
    model, _ = original.build(path)
    original.save(model, tmp_path / "x.pth")
    path.write_text(path.read_text() + "\ntest_dataloader['dataset']['pipeline'][0]['to_float32'] = True\n")
    command = ["export", "--original", "--no-verify", str(path), str(tmp_path / "x.pth"), "--output"]
    assert main([*command, str(tmp_path / "x.onnx")]) == 1
    assert "preprocessing of poses must have to_float32=False, got True" in capsys.readouterr().err
    assert not (tmp_path / "x.onnx").exists()


def test_the_guide(figures, tmp_path, monkeypatch):
    path = strokes.config(tmp_path, "RTMPose", figures)
    model, _ = original.build(path)
    original.save(model, tmp_path / "x.pth")
    (tmp_path / "guide").mkdir()
    files = {"config.py": path, "checkpoint.pth": tmp_path / "x.pth", "detector.onnx": MODEL}
    run_section("Poses", files, [IMAGES[0], figures / "images/000.png"], tmp_path / "guide", monkeypatch)


def test_the_check(figures, tmp_path, capsys):
    path = strokes.config(tmp_path, "RLE", figures)
    assert main(["export", "--check", "--original", str(path)]) == 0
    assert f"{path}: RLEHead on ResNet can be traced, with random weights" in capsys.readouterr().out
    path.write_text(
        path.read_text().replace("loss=dict(type='RLELoss', use_target_weight=True), ", "loss=dict(type='X'), ")
    )
    assert main(["export", "--check", "--original", str(path)]) == 1
    assert "MMPose cannot build the config's model" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["config.py"]


def test_data_sets_that_hold_others(figures, tmp_path):
    """What the outer one states counts: those inside may have other keypoints, which its steps convert."""
    path = strokes.config(tmp_path, "RTMPose", figures)
    info, inner = f"metainfo=dict(from_file={str(figures / 'info.py')!r})", "dict(type='CocoWholeBodyDataset')"
    text = path.read_text().replace(
        "test_evaluator",
        "test_dataloader = dict(dataset=dict(type='CombinedDataset', "
        f"{info}, datasets=[{inner}], pipeline=test_pipeline))\ntest_evaluator",
    )
    path.write_text(text)
    model, _ = original.build(path)
    original.save(model, tmp_path / "x.pth")
    export(path, tmp_path / "x.pth", tmp_path / "x.onnx", ExportOptions(verify=False), progress=lambda line: None)
    assert PosePredictor(tmp_path / "x.onnx").format.names == strokes.NAMES


def test_a_data_set_whose_keypoints_depend_on_its_subset(figures, tmp_path):
    """DeepFashionDataset has those of the subset that was made last, in whichever config."""
    path = strokes.config(tmp_path, "RTMPose", figures)
    text = path.read_text().replace("out_channels=5", "out_channels=6").replace('"CocoDataset"', '"DeepFashionDataset"')
    before, _, after = text.partition("metainfo=")
    path.write_text(f"{before}subset='upper',{after[after.index(chr(10)) :]}")
    model, settings = original.build(path)
    original.save(model, tmp_path / "x.pth")
    data_set = original.registry.DATASETS.get("DeepFashionDataset")
    data_set(subset="lower", lazy_init=True)
    export(path, tmp_path / "x.pth", tmp_path / "x.onnx", progress=lambda line: None)
    settings.test_dataloader.dataset.lazy_init = True
    expected = original.dataset_of(settings).metainfo
    format = PosePredictor(tmp_path / "x.onnx").format
    assert format.names == tuple(expected["keypoint_id2name"].values())
    assert format.sigmas == pytest.approx(tuple(expected["sigmas"]))


def test_what_the_original_reads_of_images(figures, tmp_path, monkeypatch):
    """A head that asks for the box's size has no file, as that would be a constant."""
    path = strokes.config(tmp_path, "RTMPose", figures)
    model, _ = original.build(path)
    original.save(model, tmp_path / "x.pth")
    real = type(model.head).predict

    def reads(self, features, samples, test_cfg):
        assert samples[0].metainfo["input_scale"] is not None
        return real(self, features, samples, test_cfg)

    monkeypatch.setattr(type(model.head), "predict", reads)
    with pytest.raises(ValueError, match="the original reads the meta information 'input_scale' of an image"):
        export(path, tmp_path / "x.pth", tmp_path / "x.onnx", progress=lambda line: None)


@pytest.mark.parametrize(
    ("network", "before", "after", "message"),
    [
        ("RTMPose", "use_dark=False", "use_dark=True", "decoder SimCCLabel with use_dark is not supported"),
        ("UDP", "blur_kernel_size=7", "heatmap_type='combined'", "UDPHeatmap with heatmap_type='combined' is not"),
        ("heatmaps", "flip_test=True", "output_keypoint_indices=[0]", "as the config's test data set, 5, got 1"),
        ("DARK", "heatmap_size=(16, 24)", "heatmap_size=(32, 48)", r"heatmap_size of its decoder, \(32, 48\), got"),
        ("heatmaps", "out_channels=5", "out_channels=4", "as the config's test data set, 5, got 4"),
    ],
)
def test_refusals(figures, tmp_path, network, before, after, message):
    path = strokes.config(tmp_path, network, figures)
    path.write_text(path.read_text().replace(before, after))
    model, _ = original.build(path)
    original.save(model, tmp_path / "x.pth")
    with pytest.raises(ValueError, match=message):
        export(path, tmp_path / "x.pth", tmp_path / "x.onnx", progress=lambda line: None)

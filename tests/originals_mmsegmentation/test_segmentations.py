"""Segmentations exported from MMSegmentation's own code: maps and figures are MMSegmentation's."""

import json

import numpy as np
import pytest
import torch

from mmort import Predictor
from mmort.cli import main
from mmort.configs import read_config
from mmort.detect.export import ExportOptions
from mmort.evaluate import dataset_of
from mmort.evaluate.segmentation_types import TYPES
from mmort.original import export
from mmort.predict import SegmentationMap
from tests.originals_guide import run_section
from tests.originals_mmsegmentation import digits, original

pytestmark = pytest.mark.filterwarnings("ignore")  # of MMSegmentation and what it imports

SLIDE = "dict(mode='slide', crop_size=(48, 48), stride=(32, 32))"


OPTIONS = {"LR-ASPP": {"resize": "dict(type='Resize', scale=(240, 200))"}, "BEiT": {"test_cfg": SLIDE}}
"""Of configs of networks that need others than the usual: LR-ASPP pools over 49 x 49 features, BEiT takes windows."""


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    digits.write(folder, 40, seed=1)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory, images):
    """Return the config, the checkpoint and MMSegmentation's model of a PSPNet that was trained on digits."""
    folder = tmp_path_factory.mktemp("trained")
    config = digits.config(folder, "PSPNet", root=images)
    model, settings = original.train(config)
    original.save(model, settings, folder / "digits.pth")
    return config, folder / "digits.pth", model


def same_figures(capsys, config, file, model, tmp_path, *further):
    """Check that ``mmort test`` and the maps have what MMSegmentation has, and return the figures."""
    settings = original.Config.fromfile(config)
    maps, figures = original.figures(model, settings)
    json_file = tmp_path / "figures.json"
    assert (
        main(["test", str(config), str(file), "--eval", "mIoU", "mDice", "mFscore", "--metrics-json", str(json_file)])
        == 0
    )
    mine = json.loads(json_file.read_text())
    assert mine.keys() == figures.keys()
    for name, figure in figures.items():
        assert round(mine[name], 2) == pytest.approx(figure, abs=0.0051), name  # which MMSegmentation rounds
    predictor = Predictor(file)
    paths = [sample["img_path"] for sample in original.dataset_of(settings).load_data_list()]
    differing = [int((result.map != map).sum()) for result, map in zip(predictor.predict(paths), maps, strict=True)]
    assert sum(differing) == 0
    return mine


def test_a_trained_network(trained, images, tmp_path, capsys):
    config, checkpoint, model = trained
    file = tmp_path / "digits.onnx"
    assert main(["export", str(config), str(checkpoint), "--original", "--output", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "building the model with MMSegmentation's own code" in printed
    assert "0 of 17920 pixels differ through mmort" in printed
    figures = same_figures(capsys, config, file, model, tmp_path)
    assert figures["mIoU"] > 50  # it has learnt something: untrained networks have below 25
    result = Predictor(file)(images / "images" / "000.png")
    assert isinstance(result, SegmentationMap)
    assert result.class_names == digits.CLASSES
    assert result.palette == tuple(map(tuple, digits.PALETTE))


def test_integers(trained, images, tmp_path, capsys):
    """They move few pixels, and the figures little; parity says how far."""
    config, checkpoint, _ = trained
    file, integers = tmp_path / "digits.onnx", tmp_path / "int8.onnx"
    export(config, checkpoint, file, progress=lambda line: None)
    assert main(["quantize", str(file), "--calibrate", str(images / "images"), "--output", str(integers)]) == 0
    assert "quantized 26 of 27 layers, by 40 sets of inputs; pixels change by 0." in capsys.readouterr().out
    main(["parity", str(file), str(integers), str(config), "--report", str(tmp_path / "x.html")])
    printed = capsys.readouterr().out.splitlines()
    before, after, difference = next(map(float, line.split()[1:]) for line in printed if line.startswith("mIoU"))
    assert before > 50
    assert abs(after - before) < 1
    assert difference == pytest.approx(after - before, abs=1e-3)


def test_the_guide(trained, images, tmp_path, monkeypatch):
    config, checkpoint, _ = trained
    photos = sorted((images / "images").iterdir())[:2]
    run_section("Segmentation", {"config.py": config, "checkpoint.pth": checkpoint}, photos, tmp_path, monkeypatch)
    assert [len(list((tmp_path / folder).rglob("*.png"))) for folder in ("results/maps", "drawn")] == [2, 2]


@pytest.mark.parametrize(
    ("test_cfg", "padding"),
    [
        (SLIDE, "None"),
        ("dict(mode='whole')", "dict(size_divisor=32)"),
        ("dict(mode='whole')", "dict(size=(96, 128))"),
        (SLIDE, "dict(size=(96, 128))"),
    ],
)
def test_windows_and_padding(trained, images, tmp_path, capsys, test_cfg, padding):
    _, checkpoint, model = trained
    config = digits.config(tmp_path, "PSPNet", root=images, test_cfg=test_cfg, padding=padding)
    settings = original.Config.fromfile(config)
    changed = original.registry.MODELS.build(settings.model).eval()
    changed.load_state_dict(model.state_dict())
    file = tmp_path / "digits.onnx"
    export(config, checkpoint, file, progress=lambda line: None)
    same_figures(capsys, config, file, changed, tmp_path)


def test_labels_that_begin_with_one(trained, tmp_path, capsys):
    _, checkpoint, model = trained
    digits.write(tmp_path / "data", 6, seed=2, reduce_zero_label=True)
    config = digits.config(tmp_path, "PSPNet", root=tmp_path / "data", reduce_zero_label=True)
    file = tmp_path / "digits.onnx"
    export(config, checkpoint, file, progress=lambda line: None)
    same_figures(capsys, config, file, model, tmp_path)


@pytest.mark.parametrize("network", [name for name in digits.NETWORKS if name not in ("PSPNet", "SegNeXt")])
def test_networks(images, tmp_path, network, capsys):
    """With random weights: each is proven, and its end results are MMSegmentation's."""
    config = digits.config(tmp_path, network, root=images, **OPTIONS.get(network, {}))
    model, settings = original.build(config)
    original.save(model, settings, tmp_path / "x.pth")
    lines = []
    export(config, tmp_path / "x.pth", tmp_path / "x.onnx", progress=lines.append)
    assert capsys.readouterr().err == ""  # of torch's exporter and onnxscript
    maps, _ = original.figures(model, settings)
    paths = [sample["img_path"] for sample in original.dataset_of(settings).load_data_list()]
    results = Predictor(tmp_path / "x.onnx").predict(paths)
    shares = [np.mean(result.map != map) for result, map in zip(results, maps, strict=True)]
    assert np.mean(shares) < 1e-3


def test_a_network_that_takes_windows_only(images, tmp_path):
    """BEiT has a bias for each pair of a window's positions; with ``--dynamic-export`` its export fails."""
    config, lines = digits.config(tmp_path, "BEiT", root=images, test_cfg=SLIDE), []
    model, settings = original.build(config)
    original.save(model, settings, tmp_path / "x.pth")
    export(config, tmp_path / "x.pth", tmp_path / "x.onnx", progress=lines.append)
    assert "note: the original takes windows of 48 x 48 only, and so does the file" in lines
    assert Predictor(tmp_path / "x.onnx").network.input_shape == (None, 48, 48)
    options = ExportOptions(dynamic_export=True)
    with pytest.raises(ValueError, match=r"torch cannot export the original: .*; --shape H W makes a file"):
        export(config, tmp_path / "x.pth", tmp_path / "y.onnx", options, progress=lines.append)


def test_a_network_that_draws_random_numbers(images, tmp_path):
    """SegNeXt's head draws them in each run, which is refused, or once, with ``rand_init=False``."""
    config, lines = digits.config(tmp_path, "SegNeXt", root=images), []
    model, settings = original.build(config)
    original.save(model, settings, tmp_path / "x.pth")
    export(config, tmp_path / "x.pth", tmp_path / "x.onnx", progress=lines.append)
    assert any(line.startswith("end results") and "0 of 17920 pixels differ through mmort" in line for line in lines)
    config.write_text(config.read_text().replace(", rand_init=False", ""))
    with pytest.raises(ValueError, match="the original draws random numbers in each run"):
        export(config, tmp_path / "x.pth", tmp_path / "y.onnx", progress=lambda line: None)


def test_what_the_original_reads_of_images(trained, tmp_path, monkeypatch):
    """A network that asks for the original's size has no file, as that would be a constant."""
    config, checkpoint, _ = trained
    head = original.registry.MODELS.get("PSPHead")
    real = head.predict_by_feat

    def reads(self, logits, metas):
        assert metas[0]["ori_shape"]
        return real(self, logits, metas)

    monkeypatch.setattr(head, "predict_by_feat", reads)
    with pytest.raises(ValueError, match="the original reads the meta information 'ori_shape' of an image"):
        export(config, checkpoint, tmp_path / "x.onnx", progress=lambda line: None)
    assert not (tmp_path / "x.onnx").exists()


def test_files_of_one_size_and_checkpoints_of_others(trained, images, tmp_path, capsys):
    config, checkpoint, _ = trained
    file = tmp_path / "fixed.onnx"
    command = ["export", str(config), str(checkpoint), "--original", "--output", str(file), "--shape", "96", "96"]
    assert main(command) == 0
    assert Predictor(file).network.input_shape == (None, 96, 96)
    other = digits.config(tmp_path, "FCN", root=images)
    capsys.readouterr()
    assert main(["export", str(other), str(checkpoint), "--original", "--output", str(tmp_path / "o.onnx")]) == 1
    assert "is not of the config's model: size mismatch for decode_head.conv_seg.weight" in capsys.readouterr().err
    torch.save({"state_dict": {"head.fc.weight": torch.zeros(2, 3)}}, tmp_path / "o.pth")
    assert (
        main(["export", str(other), str(tmp_path / "o.pth"), "--original", "--output", str(tmp_path / "o.onnx")]) == 1
    )
    assert "is of another model: it has none of the weights of the config's" in capsys.readouterr().err


@pytest.mark.parametrize("kind", TYPES)
def test_classes_of_types(images, tmp_path, kind):
    """Of a data set that names some of its type's classes, in another order, as MMSegmentation reads its maps."""
    defined = original.registry.DATASETS.get(kind).METAINFO.get("classes", ())
    assert TYPES[kind].classes == tuple(defined)
    path = digits.config(tmp_path, "PSPNet", root=images)
    (tmp_path / "list.txt").write_text("000\n")
    listed = str(tmp_path / "list.txt")  # which PascalVOCDataset must have
    text = path.read_text().replace('type="BaseSegDataset"', f'type="{kind}", ann_file={listed!r}')
    names = tuple(defined[:0:-1]) or digits.CLASSES
    path.write_text(text.replace(f"classes={digits.CLASSES}, palette={digits.PALETTE}", f"classes={names}"))
    sample = original.dataset_of(original.Config.fromfile(path))[0]
    truth = sample["data_samples"].gt_sem_seg.data[0].numpy()
    np.testing.assert_array_equal(dataset_of(read_config(path)).truth(0), truth)

"""Classifiers exported from MMPretrain's own code: probabilities and accuracies are MMPretrain's."""

import json

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import init_default_scope

from mmort import Predictor
from mmort.cli import main
from mmort.configs import read_config
from mmort.configs.packages import PACKAGES
from mmort.evaluate import dataset_of
from mmort.original import export
from mmort.original.packages import import_package
from mmort.predict import Classes
from tests.originals_guide import run_section

pytestmark = pytest.mark.filterwarnings("ignore")  # of MMPretrain and what it imports

registry = import_package(PACKAGES["mmpretrain"])
CLASSES = ("eight", "four", "one", "seven")  # the folders in their order
DIGITS = ("8", "4", "1", "7")
HEAD = "dict(type='LinearClsHead', num_classes=4, in_channels={channels})"
POOLED = "neck=dict(type='GlobalAveragePooling'), "
NETWORKS = {
    "ResNet": (
        "backbone=dict(type='ResNet', depth=18, stem_channels=16, base_channels=16), "
        + POOLED
        + f"head={HEAD.format(channels=128)}"
    ),
    "Swin": (
        "backbone=dict(type='SwinTransformer', img_size=32, window_size=4, arch=dict(embed_dims=8, depths=[2, 2], "
        "num_heads=[1, 2]), out_indices=(1,)), " + POOLED + f"head={HEAD.format(channels=16)}"
    ),
    "ViT": (
        "backbone=dict(type='VisionTransformer', img_size=32, patch_size=8, arch=dict(embed_dims=16, num_layers=2, "
        "num_heads=2, feedforward_channels=32)), "
        "head=dict(type='VisionTransformerClsHead', num_classes=4, in_channels=16)"
    ),
    "several labels": (
        "backbone=dict(type='ResNet', depth=18, stem_channels=8, base_channels=8), "
        + POOLED
        + "head=dict(type='MultiLabelLinearClsHead', num_classes=4, in_channels=64)"
    ),
}
CROP = "dict(type='CenterCrop', crop_size=32)"
RESIZE = {
    "bicubic, of Pillow": "dict(type='ResizeEdge', scale=36, edge='short', backend='pillow', interpolation='bicubic'), "
    + CROP,
    "bilinear, of OpenCV": "dict(type='ResizeEdge', scale=33), " + CROP,
    "the middle": "dict(type='EfficientNetCenterCrop', crop_size=32, crop_padding=7)",
    "the middle, by Pillow": "dict(type='EfficientNetCenterCrop', crop_size=32, crop_padding=0, backend='pillow')",
}
CONFIG = """
default_scope = "mmpretrain"
model = dict(type="ImageClassifier", {network})
data_preprocessor = dict(num_classes=4, mean=[120.0, 115.0, 100.0], std=[58.0, 57.0, 59.0], to_rgb=True)
test_pipeline = [
    dict(type="LoadImageFromFile"), {resize}, dict(type="PackInputs")
]
test_dataloader = dict(
    batch_size=3,
    dataset=dict(type="CustomDataset", data_root={root!r}, data_prefix="images", pipeline=test_pipeline),
)
test_evaluator = dict(type="Accuracy", topk=(1, 2), thrs=(0.0, 0.6))
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Write images of digits of several sizes, in a folder for each."""
    folder, rng = tmp_path_factory.mktemp("digits"), np.random.default_rng(3)
    for name, digit in zip(CLASSES, DIGITS, strict=True):
        (folder / "images" / name).mkdir(parents=True)
        for index in range(20):
            height, width = map(int, rng.integers(40, 60, 2))
            small = rng.integers(0, 120, (4, 5, 3), dtype=np.uint8)
            image = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
            position, colour = (width // 2 - 14, height // 2 + 14), tuple(map(int, rng.integers(120, 256, 3)))
            cv2.putText(image, digit, position, cv2.FONT_HERSHEY_SIMPLEX, 1.3, colour, 4)
            cv2.imwrite(str(folder / "images" / name / f"{index:02}.png"), image)
    return folder


def config(folder, images, network="ResNet", resize="bicubic, of Pillow"):
    path = folder / "config.py"
    path.write_text(CONFIG.format(network=NETWORKS[network], resize=RESIZE[resize], root=str(images)))
    return path


def build(path):
    settings = Config.fromfile(path)
    init_default_scope("mmpretrain")
    torch.manual_seed(0)
    model = dict(settings.model, data_preprocessor=dict(settings.data_preprocessor, type="ClsDataPreprocessor"))
    return registry.MODELS.build(model), settings


def train(model, settings, steps=60):
    """Train a model on the config's data set."""
    samples, rng = list(registry.DATASETS.build(settings.test_dataloader.dataset)), np.random.default_rng(0)
    optimizer = torch.optim.Adam(model.train().parameters(), 2e-3)
    for _ in range(steps):
        chosen = [samples[index] for index in rng.choice(len(samples), 16, replace=False)]
        data = model.data_preprocessor(pseudo_collate(chosen), True)
        loss, _ = model.parse_losses(model(**data, mode="loss"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def figures(model, settings):
    """Return MMPretrain's probabilities and accuracies on the config's data set."""
    dataset = registry.DATASETS.build(dict(settings.test_dataloader.dataset, test_mode=True))
    metric = registry.METRICS.build(settings.test_evaluator)
    metric.dataset_meta, scores = dataset.metainfo, []
    with torch.no_grad():
        for sample in dataset:
            (result,) = model.eval().test_step(pseudo_collate([sample]))
            scores.append(result.pred_score.numpy())
            metric.process({}, [result.to_dict()])
    return (
        np.stack(scores),
        metric.evaluate(len(dataset)),
        [dataset.get_data_info(i)["img_path"] for i in range(len(dataset))],
    )


@pytest.mark.parametrize("resize", RESIZE)
def test_a_trained_classifier(images, tmp_path, capsys, resize):
    path, file = config(tmp_path, images, resize=resize), tmp_path / "digits.onnx"
    model, settings = build(path)
    train(model, settings)
    torch.save({"state_dict": model.state_dict(), "meta": {"dataset_meta": {"classes": CLASSES}}}, tmp_path / "x.pth")
    assert main(["export", str(path), str(tmp_path / "x.pth"), "--original", "--output", str(file)]) == 0
    assert "building the model with MMPretrain's own code" in capsys.readouterr().out
    expected, theirs, paths = figures(model, settings)
    results = list(Predictor(file).predict(paths))
    assert all(isinstance(result, Classes) for result in results)
    assert results[0].names[0] in CLASSES
    np.testing.assert_allclose(np.stack([result.by_label for result in results]), expected, rtol=1e-4, atol=1e-6)
    assert main(["test", str(path), str(file), "--eval", "accuracy", "--metrics-json", str(tmp_path / "f.json")]) == 0
    mine = json.loads((tmp_path / "f.json").read_text())
    assert mine == pytest.approx(theirs, abs=1e-4)
    assert mine["accuracy/top1_thr-0.00"] > 80


def test_the_guide(images, tmp_path, monkeypatch):
    path = config(tmp_path, images)
    model, _ = build(path)
    torch.save({"state_dict": model.state_dict(), "meta": {"dataset_meta": {"classes": CLASSES}}}, tmp_path / "x.pth")
    (tmp_path / "guide").mkdir()
    files = {"config.py": path, "checkpoint.pth": tmp_path / "x.pth"}
    run_section(
        "Classification", files, sorted((images / "images" / "one").iterdir())[:2], tmp_path / "guide", monkeypatch
    )


@pytest.mark.parametrize("network", [name for name in NETWORKS if name != "ResNet"])
def test_networks(images, tmp_path, network):
    """With random weights: each is proven, and its probabilities are MMPretrain's."""
    path = config(tmp_path, images, network)
    model, settings = build(path)
    torch.save({"state_dict": model.state_dict(), "meta": {}}, tmp_path / "x.pth")
    export(path, tmp_path / "x.pth", tmp_path / "x.onnx", progress=lambda line: None)
    dataset = registry.DATASETS.build(dict(settings.test_dataloader.dataset, test_mode=True))
    with torch.no_grad():
        (expected,) = model.eval().test_step(pseudo_collate([dataset[5]]))
    result = Predictor(tmp_path / "x.onnx")(dataset.get_data_info(5)["img_path"])
    np.testing.assert_allclose(result.by_label, expected.pred_score.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("has_list", [False, True])
def test_a_part_of_imagenet(images, tmp_path, has_list):
    """The images and labels of a data set with ``split`` are MMPretrain's."""
    (tmp_path / "val").symlink_to(images / "images")
    if has_list:
        (tmp_path / "meta").mkdir()
        name = next((images / "images").rglob("*.png")).relative_to(images / "images")
        (tmp_path / "meta/val.txt").write_text(f"{name} 2\n")
    entry = {"type": "ImageNet", "data_root": str(tmp_path), "split": "val", "pipeline": []}
    entry["metainfo"] = {"classes": CLASSES}
    (tmp_path / "config.py").write_text(f"default_scope = 'mmpretrain'\ntest_dataloader = dict(dataset={entry!r})")
    dataset = dataset_of(read_config(tmp_path / "config.py"), classes=CLASSES)
    expected = [(data["img_path"], data["gt_label"]) for data in registry.DATASETS.build(entry).load_data_list()]
    assert [(str(image.path), label) for image, label in zip(dataset.images, dataset.labels, strict=True)] == expected

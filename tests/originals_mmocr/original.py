"""MMOCR itself: a model of a config, trained for a minute, and its results and figures on the config's data set."""

import contextlib
import logging

import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import init_default_scope

from mmort.configs.packages import PACKAGES
from mmort.original.packages import import_package
from tests.originals_training import fit, randomize

registry = import_package(PACKAGES["mmocr"])


def build(path, seed=0):
    """Return MMOCR's model of a config with random weights, and the config."""
    settings = Config.fromfile(path)
    init_default_scope("mmocr")
    torch.manual_seed(seed)
    with quiet():
        model = registry.MODELS.build(settings.model)
    randomize(model, seed)
    return model.eval(), settings


def dataset_of(settings):
    """Return MMOCR's data set of a config."""
    init_default_scope("mmocr")
    return registry.DATASETS.build(settings.test_dataloader.dataset)


def train(path, size, steps=400, batch=16):
    """Return MMOCR's model, trained on the config's images, which are resized to one width and height then."""
    settings = Config.fromfile(path)
    init_default_scope("mmocr")
    torch.manual_seed(0)
    model = registry.MODELS.build(settings.model)
    entry = dict(settings.test_dataloader.dataset)
    load, *_, annotations, pack = entry["pipeline"]
    entry |= {"pipeline": [load, {"type": "Resize", "scale": size}, annotations, pack], "test_mode": False}
    fit(model, list(registry.DATASETS.build(entry)), steps, batch, 3e-3)
    return model, settings


def save(model, path):
    """Write a checkpoint as MMEngine does."""
    torch.save({"meta": {"seed": 0}, "state_dict": model.state_dict()}, path)


def results(model, settings):
    """Return MMOCR's results for the config's test images, with their paths, and the figures of its metric."""
    dataset, samples, paths = dataset_of(settings), [], []
    metric = registry.METRICS.build(settings.test_evaluator)
    metric.dataset_meta = dataset.metainfo
    with torch.no_grad(), quiet():
        for sample in dataset:
            (result,) = model.test_step(pseudo_collate([sample]))
            samples.append(result)
            paths.append(result.img_path)
            metric.process({}, [result.to_dict()])
        return samples, paths, metric.evaluate(len(dataset))


@contextlib.contextmanager
def quiet():
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def train_detection(path, steps=120, batch=4):
    """Return MMOCR's model of a text detection, trained on the config's images in one size."""
    settings = Config.fromfile(path)
    init_default_scope("mmocr")
    torch.manual_seed(0)
    model = registry.MODELS.build(settings.model)
    entry = dict(settings.test_dataloader.dataset)
    load, _, annotations, pack = entry["pipeline"]
    entry |= {"pipeline": [load, annotations, {"type": "Resize", "scale": (192, 128)}, pack], "test_mode": False}
    fit(model, list(registry.DATASETS.build(entry)), steps, batch, 4e-3)
    return model, settings

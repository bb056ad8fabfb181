"""MMSegmentation itself: a model of a config, trained for a minute, and its figures on the config's data set."""

import contextlib
import logging

import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import init_default_scope

from mmort.configs.packages import PACKAGES
from mmort.original.packages import import_package
from tests.originals_training import fit, randomize

registry = import_package(PACKAGES["mmseg"])


def build(config, seed=0):
    """Return MMSegmentation's model of a config with random weights, and the config."""
    config = Config.fromfile(config)
    init_default_scope("mmseg")
    torch.manual_seed(seed)
    model = registry.MODELS.build(config.model)
    randomize(model, seed)
    return model.eval(), config


def dataset_of(config):
    """Return MMSegmentation's data set of a config."""
    init_default_scope("mmseg")
    return registry.DATASETS.build({**config.test_dataloader.dataset, "test_mode": True})


def train(config, steps=300, batch=4):
    """Return MMSegmentation's model, trained on the config's data set, which has images of one size then."""
    torch.manual_seed(0)
    config = Config.fromfile(config)
    init_default_scope("mmseg")
    model = registry.MODELS.build(config.model)
    entry = dict(config.test_dataloader.dataset)
    entry["pipeline"] = [
        {"type": "LoadImageFromFile"},
        {"type": "LoadAnnotations"},
        {"type": "Resize", "scale": (96, 64)},
        {"type": "PackSegInputs"},
    ]
    fit(model, list(registry.DATASETS.build(entry)), steps, batch, 4e-3)
    return model, config


def save(model, config, path):
    """Write a checkpoint as MMEngine does."""
    meta = {"dataset_meta": dict(config.test_dataloader.dataset.metainfo), "seed": 0}
    torch.save({"meta": meta, "state_dict": model.state_dict()}, path)


def figures(model, config):
    """Return the maps of the config's test images, and the figures of its metric."""
    dataset = dataset_of(config)
    metric = registry.METRICS.build(config.test_evaluator)
    metric.dataset_meta = dataset.metainfo
    maps = []
    with torch.no_grad(), _quiet():
        for sample in dataset:
            (result,) = model.test_step(pseudo_collate([sample]))
            maps.append(result.pred_sem_seg.data[0].numpy())
            metric.process({}, [result.to_dict()])
        return maps, metric.evaluate(len(dataset))


@contextlib.contextmanager
def _quiet():
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)

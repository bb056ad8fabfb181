"""MMPose itself: a model of a config, trained for a minute, and its keypoints and figures on the config's data set."""

import contextlib
import io

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import init_default_scope

from mmort.configs.packages import PACKAGES
from mmort.original.packages import import_package
from tests.originals_training import fit

registry = import_package(PACKAGES["mmpose"])


def build(path):
    """Return MMPose's model of a config with random weights, and the config."""
    config = Config.fromfile(path)
    init_default_scope("mmpose")
    torch.manual_seed(0)
    return registry.MODELS.build(config.model).eval(), config


def dataset_of(config):
    """Return MMPose's data set of a config."""
    init_default_scope("mmpose")
    with contextlib.redirect_stdout(io.StringIO()):
        return registry.DATASETS.build(config.test_dataloader.dataset)


def train(model, config, steps, rate=3e-3, batch=16):
    """Train a model on the config's data set."""
    entry = dict(config.test_dataloader.dataset, test_mode=False)
    *steps_before, pack = entry["pipeline"]
    entry["pipeline"] = [*steps_before, {"type": "GenerateTarget", "encoder": dict(config.codec)}, pack]
    init_default_scope("mmpose")
    fit(model, list(registry.DATASETS.build(entry)), steps, batch, rate)


def save(model, path):
    """Write a checkpoint as MMEngine does."""
    torch.save({"state_dict": model.state_dict(), "meta": {"seed": 0}}, path)


def results(model, config):
    """Yield the input and MMPose's data sample of each box of the config's data set."""
    with torch.no_grad():
        for sample in dataset_of(config):
            data = model.data_preprocessor(pseudo_collate([sample]), False)
            (result,) = model.predict(data["inputs"], data["data_samples"])
            yield data["inputs"][0].numpy(), result


def keypoints_of(result):
    """Return x, y and score of the keypoints of a data sample."""
    found = result.pred_instances
    return np.concatenate([found.keypoints[0], found.keypoint_scores[0][:, None]], axis=1)


def figures(model, config):
    """Return the figures of the config's metric."""
    dataset = dataset_of(config)
    with contextlib.redirect_stdout(io.StringIO()):
        metric = registry.METRICS.build(config.test_evaluator)
        metric.dataset_meta = dataset.metainfo
        for _, result in results(model, config):
            metric.process({}, [result.to_dict()])
        return {name: float(value) for name, value in metric.evaluate(len(dataset)).items()}

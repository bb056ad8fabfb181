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

registry = import_package(PACKAGES["mmpose"])


def build(path):
    """Return MMPose's model of a config with random weights, and the config."""
    config = Config.fromfile(path)
    init_default_scope("mmpose")
    torch.manual_seed(0)
    return registry.MODELS.build(config.model).eval(), config


def randomize(model):
    """Give a model's averages and deviations other values than 0 and 1, and its outputs some size."""
    generator = torch.Generator().manual_seed(0)
    for name, value in model.state_dict().items():
        if name.endswith("running_mean"):
            value.copy_(torch.randn(value.shape, generator=generator) * 0.1)
        elif name.endswith("running_var"):
            value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
        elif value.is_floating_point() and value.ndim > 1:
            value.copy_(torch.randn(value.shape, generator=generator) / value[0].numel() ** 0.5)


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
    samples, rng = list(registry.DATASETS.build(entry)), np.random.default_rng(0)
    optimizer = torch.optim.Adam(model.train().parameters(), rate)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - step / steps)
        chosen = [samples[index] for index in rng.choice(len(samples), batch, replace=False)]
        data = model.data_preprocessor(pseudo_collate(chosen), True)
        loss, _ = model.parse_losses(model.loss(**data))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()


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

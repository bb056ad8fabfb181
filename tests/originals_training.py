"""Models of OpenMMLab's packages, for tests/originals_mm*: random weights that show something, and trained ones."""

import numpy as np
import torch
from mmengine.dataset import pseudo_collate


def randomize(model, seed=0):
    """Give a model's averages and deviations other values than 0 and 1, and its outputs some size."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in model.state_dict().items():
        if name.endswith("running_mean"):
            value.copy_(torch.randn(value.shape, generator=generator) * 0.1)
        elif name.endswith("running_var"):
            value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
        elif value.is_floating_point() and value.ndim > 1:
            value.copy_(torch.randn(value.shape, generator=generator) / value[0].numel() ** 0.5)


def fit(model, samples, steps, batch, rate):
    """Train a model on samples of one size, with a rate that falls to 0; it is in evaluation mode then."""
    rng, optimizer = np.random.default_rng(0), torch.optim.Adam(model.train().parameters(), rate)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - step / steps)
        chosen = [samples[index] for index in rng.choice(len(samples), batch, replace=False)]
        data = model.data_preprocessor(pseudo_collate(chosen), True)
        loss, _ = model.parse_losses(model(**data, mode="loss"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()

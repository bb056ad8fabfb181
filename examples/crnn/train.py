"""Trains the small CRNN on lines of handwritten digits: python train.py, about a minute on two cores.

The digits are scikit-learn's (`load_digits`): 1,400 for training, the others for the lines that are read at the end.
"""

import time

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from model import CRNN
from reader import HEIGHT, greedy

STEPS, BATCH = 500, 32


def load():
    """Return (images [n, 8, 8] from 0 to 1, digits [n]) for training, and the same for testing."""
    data = load_digits()
    images, digits = data.images.astype(np.float32) / 16, data.target
    return (images[:1400], digits[:1400]), (images[1400:], digits[1400:])


def compose(rng, images, digits, length):
    """Make a line of digits, dark on light: an image [32, W] from 0 to 1, and its text."""
    chosen = rng.integers(len(images), size=length)
    parts = [np.zeros((HEIGHT, rng.integers(2, 12)), np.float32)]
    for index in chosen:
        height, width = rng.integers(22, 31), rng.integers(16, 29)
        glyph = F.interpolate(torch.from_numpy(images[index])[None, None], (height, width), mode="bilinear")[
            0, 0
        ].numpy()
        part = np.zeros((HEIGHT, width + rng.integers(0, 8)), np.float32)
        top = rng.integers(0, HEIGHT - height + 1)
        part[top : top + height, :width] = glyph
        parts.append(part)
    line = np.concatenate(parts, axis=1)
    paper, ink = rng.uniform(0.7, 1), rng.uniform(0, 0.3)
    line = paper + (ink - paper) * line + rng.normal(0, 0.06, line.shape)
    return line.clip(0, 1).astype(np.float32), "".join(map(str, digits[chosen]))


def batch_of(lines):
    """Return lines of different widths as a batch [N, 1, 32, W], padded on the right with each line's background."""
    width = max(line.shape[1] for line in lines)
    padded = [np.pad(line, ((0, 0), (0, width - line.shape[1])), constant_values=np.median(line)) for line in lines]
    return np.stack(padded)[:, None]


def main():
    """Train, test, write weights.npz."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    train, test = load()
    model = CRNN()
    # The LSTM learns nothing for thousands of steps unless the convolutions have learned something, so these have
    # scores of their own during training.
    columns = nn.Linear(model.sequence.input_size, model.scores.out_features)
    optimizer = torch.optim.Adam([*model.parameters(), *columns.parameters()])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, STEPS, pct_start=0.2)
    begin = time.perf_counter()
    for step in range(STEPS):
        lines, texts = zip(*(compose(rng, *train, rng.integers(1, 6)) for _ in range(BATCH)), strict=True)
        features = model.columns(torch.from_numpy(batch_of(lines)))
        targets = torch.tensor([1 + int(digit) for text in texts for digit in text])
        lengths = torch.tensor([len(text) for text in texts])
        loss = sum(
            F.ctc_loss(scores.log_softmax(-1), targets, torch.full((BATCH,), len(scores)), lengths)
            for scores in (columns(features), model.read(features))
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.3f}, {time.perf_counter() - begin:.0f} s")
    model.eval()
    rng = np.random.default_rng(1)
    lines = [compose(rng, *test, 5) for _ in range(200)]
    with torch.no_grad():
        right = sum(greedy(model(torch.from_numpy(line)[None, None]).numpy()) == [text] for line, text in lines)
    print(f"{right} of 200 lines of five unseen digits are read without an error")
    np.savez_compressed("lines.npz", **{text: (255 * line[None]).astype(np.uint8) for line, text in lines[:20]})
    state = {name: value.numpy() for name, value in model.state_dict().items() if value.is_floating_point()}
    np.savez_compressed("weights.npz", **{name: value.astype(np.float16) for name, value in state.items()})


if __name__ == "__main__":
    main()

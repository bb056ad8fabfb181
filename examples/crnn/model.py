"""CRNN: convolutions, a bidirectional LSTM over columns, and a score for each character and column.

B. Shi, X. Bai and C. Yao, "An End-to-End Trainable Neural Network for Image-based Sequence Recognition", 2015.
"""

import numpy as np
import torch
from torch import nn


def _convolution(inputs, outputs, kernel=3, padding=1):
    return [nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


class CRNN(nn.Module):
    """Maps images [N, 1, 32, W] to scores [W // 4 + 1, N, 1 + characters]; class 0 is CTC's blank.

    `channels` 64 and `hidden` 256 are the paper's sizes.
    """

    def __init__(self, characters=10, channels=6, hidden=32):
        super().__init__()
        first, second, third, fourth = (channels * factor for factor in (1, 2, 4, 8))
        self.features = nn.Sequential(
            *_convolution(1, first),
            nn.MaxPool2d(2),
            *_convolution(first, second),
            nn.MaxPool2d(2),
            *_convolution(second, third),
            *_convolution(third, third),
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)),  # halves the height only, and adds a column
            *_convolution(third, fourth),
            *_convolution(fourth, fourth),
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            *_convolution(fourth, fourth, 2, padding=0),  # two rows become one
        )
        self.sequence = nn.LSTM(fourth, hidden, num_layers=2, bidirectional=True)
        self.scores = nn.Linear(2 * hidden, 1 + characters)

    def columns(self, image):
        """Return the features of an image's columns, [T, N, features]."""
        return self.features(4 * (image - 0.5)).squeeze(2).permute(2, 0, 1)

    def read(self, columns):
        """Return the scores of columns, each read in the context of the others."""
        return self.scores(self.sequence(columns)[0])

    def forward(self, image):
        return self.read(self.columns(image))


def load(path):
    """Return the small network with weights that train.py wrote."""
    model = CRNN().eval()
    with np.load(path) as weights:
        state = {name: torch.from_numpy(weights[name]).float() for name in weights}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)
    return model

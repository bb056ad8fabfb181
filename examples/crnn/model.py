"""CRNN: convolutions, a bidirectional LSTM over columns, a score for each character and column.

B. Shi, X. Bai and C. Yao, "An End-to-End Trainable Neural Network for Image-based Sequence Recognition", 2015.
"""

import numpy as np
import torch
from torch import nn


def _convolution(before, after, kernel=3, padding=1):
    return [nn.Conv2d(before, after, kernel, padding=padding, bias=False), nn.BatchNorm2d(after), nn.ReLU()]


class CRNN(nn.Module):
    """Images [N, 1, 32, W] -> scores [W // 4 + 1, N, 1 + characters]; class 0 is CTC's blank.

    `channels` 64 and `hidden` 256 give the network of the paper.
    """

    def __init__(self, characters=10, channels=6, hidden=32):
        super().__init__()
        one, two, four, eight = (channels * factor for factor in (1, 2, 4, 8))
        self.features = nn.Sequential(
            *_convolution(1, one),
            nn.MaxPool2d(2),
            *_convolution(one, two),
            nn.MaxPool2d(2),
            *_convolution(two, four),
            *_convolution(four, four),
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)),  # from here on the width stays, one column more each time
            *_convolution(four, eight),
            *_convolution(eight, eight),
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            *_convolution(eight, eight, 2, padding=0),  # of the two rows that are left one
        )
        self.sequence = nn.LSTM(eight, hidden, num_layers=2, bidirectional=True)
        self.scores = nn.Linear(2 * hidden, 1 + characters)

    def columns(self, image):
        """Return what the convolutions make of an image: [T, N, features]."""
        return self.features(4 * (image - 0.5)).squeeze(2).permute(2, 0, 1)

    def read(self, columns):
        """Return the scores of columns, each read with those before and behind it."""
        return self.scores(self.sequence(columns)[0])

    def forward(self, image):
        return self.read(self.columns(image))


def load(path):
    """Return the small network with the weights of a file that train.py wrote."""
    model = CRNN().eval()
    with np.load(path) as weights:
        state = {name: torch.from_numpy(weights[name]).float() for name in weights}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)
    return model

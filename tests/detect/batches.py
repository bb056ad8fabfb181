"""A batch of two images, one of them padded, whose detections do not depend on each other."""

import torch

SHAPES = torch.tensor([[64, 96], [56, 72]])


def images():
    torch.manual_seed(0)
    batch = torch.zeros(2, 3, 64, 96)
    for row, (height, width) in zip(batch, SHAPES.tolist(), strict=True):
        row[:, :height, :width] = torch.randn(3, height, width)
    return batch


def outputs_as_alone(detector):
    """Return a detector's outputs for the batch, which must be those for each image alone."""
    together = detector(images(), SHAPES)
    for index in range(2):
        alone = detector(images()[index : index + 1], SHAPES[index : index + 1])
        for output, output_alone in zip(together, alone, strict=True):
            torch.testing.assert_close(output[index], output_alone[0], rtol=1e-3, atol=2e-3)
    return together

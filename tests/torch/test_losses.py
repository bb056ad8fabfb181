"""The focal loss: values from the definition, gradients, extremes, refusals."""

import math

import pytest
import torch

import mmort.torch


def by_definition(logits, target, gamma, alpha):
    """Return the losses of each row and class as lists, in double precision."""
    rows = []
    for row, label in zip(logits.tolist(), target.tolist(), strict=True):
        probabilities = [1 / (1 + math.exp(-value)) for value in row]
        rows.append(
            [
                -alpha * (1 - p) ** gamma * math.log(p) if index == label else -(1 - alpha) * p**gamma * math.log(1 - p)
                for index, p in enumerate(probabilities)
            ]
        )
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(("gamma", "alpha"), [(2.0, 0.25), (0.0, 0.5), (1.5, 0.9)])
def test_values_and_gradients(gamma, alpha):
    torch.manual_seed(0)
    logits = (torch.randn(5, 3, dtype=torch.float64) * 3).requires_grad_()
    target = torch.tensor([0, 2, 3, 1, -1])  # 3 and -1 are the background
    wanted = by_definition(logits, target, gamma, alpha)
    loss = mmort.torch.sigmoid_focal_loss(logits, target, gamma, alpha, reduction="none")
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(mmort.torch.SigmoidFocalLoss(gamma, alpha)(logits, target), wanted.sum() / 5)
    torch.testing.assert_close(mmort.torch.sigmoid_focal_loss(logits, target, gamma, alpha, None, "sum"), wanted.sum())
    assert torch.autograd.gradcheck(
        lambda x: mmort.torch.sigmoid_focal_loss(x, target, gamma, alpha, reduction="none"), logits
    )


def test_weights_are_those_of_the_rows_classes():
    logits, target = torch.randn(3, 2), torch.tensor([1, 0, 2])
    layer = mmort.torch.SigmoidFocalLoss(2, 0.25, torch.tensor([0.5, 3.0]), "none")
    plain = mmort.torch.sigmoid_focal_loss(logits, target, reduction="none")
    torch.testing.assert_close(layer(logits, target), plain * torch.tensor([[3.0], [0.5], [1]]))


def test_large_logits_have_losses_and_gradients():
    logits = torch.tensor([[-200.0, 200.0]], requires_grad=True)
    loss = mmort.torch.sigmoid_focal_loss(logits, torch.tensor([0]), reduction="none")
    torch.testing.assert_close(loss, torch.tensor([[50.0, 150.0]]))
    loss.sum().backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[-0.25, 0.75]]))


@pytest.mark.parametrize("gamma", [0.0, 0.001, 0.5, 1.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_where_the_sigmoid_is_0(gamma, dtype):
    """The derivative of a power below 1 is infinite there, and that of the loss is not."""
    logits = torch.tensor([[-800.0, -200, -90, -30, 30, 90, 200, 800]], dtype=dtype, requires_grad=True)
    for label in range(9):
        loss = mmort.torch.sigmoid_focal_loss(logits, torch.tensor([label]), gamma, reduction="none")
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        target = torch.arange(8) == label
        far = (logits[0] < 0) == target  # whose loss grows with the logit
        expected = torch.where(target, -0.25, 0.75) * far
        torch.testing.assert_close(gradient[0].double(), expected.double(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.zeros(2), torch.zeros(2).long()), ValueError, r"input must be \(N, C\), got \(2,\)"),
        ((torch.zeros(2, 3), torch.zeros(2)), TypeError, "target must be of dtype int64, got torch.float32"),
        ((torch.zeros(2, 3), torch.zeros(3).long()), ValueError, r"target must be \(2,\), got \(3,\)"),
        ((torch.zeros(2, 3), torch.zeros(2).long(), 2, 0.25, torch.ones(2)), ValueError, r"weight must be \(3,\)"),
        (
            (torch.zeros(2, 3), torch.zeros(2).long(), 2, 0.25, None, "max"),
            ValueError,
            "reduction must be .*, got 'max'",
        ),
    ],
)
def test_refused(arguments, error, message):
    with pytest.raises(error, match=f"sigmoid_focal_loss: {message}"):
        mmort.torch.sigmoid_focal_loss(*arguments)

"""The operator for torch, which exports to ONNX as ``example::GroupNorm``."""

from torch import nn

import mmort.torch
from example_ops import OPERATORS, group_norm

group_norm = mmort.torch.define("example::group_norm", group_norm, OPERATORS[0])


class GroupNorm(nn.GroupNorm):
    """torch's layer, computed by the operator of this package."""

    def forward(self, x):
        """Normalize x, of shape (N, C, ...)."""
        return group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

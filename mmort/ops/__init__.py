"""The numpy door: one module per family of operators, everything public re-exported by `mmort`."""

from mmort.ops.corner import corner_pool
from mmort.ops.grid import grid_sample, point_sample
from mmort.ops.scan import cummax, cummin

__all__ = ["corner_pool", "cummax", "cummin", "grid_sample", "point_sample"]

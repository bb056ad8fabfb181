"""The numpy door: one module per family of operators, everything public re-exported by `mmort`."""

from mmort.ops.corner import corner_pool
from mmort.ops.roi import roi_align
from mmort.ops.scan import cummax, cummin

__all__ = ["corner_pool", "cummax", "cummin", "roi_align"]

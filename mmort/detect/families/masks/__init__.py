"""Detectors of masks that are not cut from regions: dynamic kernels, prototypes, queries.

An import here registers a family.
"""

from mmort.detect.families.masks import (
    condinst,
    mask2former,
    maskformer,
    rtmdet_ins,
    solo,
    solov2,
    sparseinst,
    yolact,
)

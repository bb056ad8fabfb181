"""Blocks that several families are made of.

An import here registers the parts of a module.
"""

from mmort.detect.parts import (
    backbones,
    bert,
    coders,
    generic_roi_extractor,
    heads,
    necks,
    priors,
    roi_extractor,
    rotated,
    shared_head,
)

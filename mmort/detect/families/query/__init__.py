"""Detectors whose learned queries become objects: DETR and its relatives, and Sparse R-CNN.

An import here registers a family.
"""

from mmort.detect.families.query import (
    co_detr,
    conditional_detr,
    dab_detr,
    ddq,
    deformable_detr,
    detr,
    dino,
    grounding_dino,
    sparse_rcnn,
)

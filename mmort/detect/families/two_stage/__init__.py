"""Detectors that propose regions, then classify and refine them; some add masks, keypoints of grids or panoptic maps.

An import here registers a family.
"""

from mmort.detect.families.two_stage import (
    cascade_rcnn,
    crowddet,
    double_heads,
    faster_rcnn,
    fcos_rpn,
    grid_rcnn,
    htc,
    mask_scoring_rcnn,
    panoptic_fpn,
    point_rend,
    rpn,
    scnet,
)

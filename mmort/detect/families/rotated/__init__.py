"""MMRotate's detectors of rotated boxes.

An import here registers a family.
"""

from mmort.detect.families.rotated import (
    gliding_vertex,
    oriented_rcnn,
    r3det,
    roi_transformer,
    rotated_atss,
    rotated_csl,
    rotated_fcos,
    rotated_reppoints,
    rotated_retinanet,
    rotated_rtmdet,
    s2anet,
)

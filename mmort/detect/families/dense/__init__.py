"""Detectors that predict a class and a box at every location or anchor of the maps.

An import here registers a family.
"""

from mmort.detect.families.dense import (
    atss,
    centernet,
    centernet_update,
    centripetalnet,
    cornernet,
    efficientdet,
    fcos,
    foveabox,
    ga_retinanet,
    gfl,
    glip,
    paa,
    reppoints,
    retinanet,
    rtmdet,
    sabl_retinanet,
    ssd,
    tood,
    vfnet,
    yolof,
    yolov3,
    yolox,
)

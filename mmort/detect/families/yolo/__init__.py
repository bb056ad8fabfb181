"""The detectors of MMYOLO, written from papers, its configs and what it computes.

An import here registers a family.
"""

from mmort.detect.families.yolo import (
    ppyoloe,
    rotated_rtmdet,
    rtmdet,
    yolov5,
    yolov5_ins,
    yolov6,
    yolov7,
    yolov8,
    yolox,
)

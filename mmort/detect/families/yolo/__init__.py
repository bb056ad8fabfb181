"""The detectors of MMYOLO, written from papers, its configs and what it computes.

An import here registers a family.
"""

from mmort.detect.families.yolo import rtmdet, yolov5, yolov8, yolox

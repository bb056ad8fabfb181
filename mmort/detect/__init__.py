"""Detectors in plain torch that read MMDetection's configs and checkpoints, and give MMDetection's results.

`load` takes a config and a checkpoint, `build` a config alone (the weights are random).  mmcv and mmdet are not needed.
"""

from mmort.detect.detector import Detector, build, load

__all__ = ["Detector", "build", "load"]

"""Results of models, in numpy: detections, masks, panoptic maps, rotated boxes, classes.  Drawing them needs OpenCV.

`Detections` are those in one image, `Classes` those of a classifier, and a `SegmentationMap` has a class in each pixel.
What predicts, evaluates, verifies and compares models shares these modules.
"""

from mmort.detections.classes import Classes
from mmort.detections.detections import Detections
from mmort.detections.masks import BoxMasks, ImageMasks, paste_masks
from mmort.detections.panoptic import PanopticFormat
from mmort.detections.segmentation_map import SegmentationMap

__all__ = ["BoxMasks", "Classes", "Detections", "ImageMasks", "PanopticFormat", "SegmentationMap", "paste_masks"]

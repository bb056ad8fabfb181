"""What a detector finds, in numpy: detections, masks, panoptic maps, rotated boxes.  Drawing them needs OpenCV.

`Detections` are those in one image.  What predicts, evaluates, verifies and compares detectors shares these modules.
"""

from mmort.detections.detections import Detections
from mmort.detections.masks import BoxMasks, ImageMasks, paste_masks
from mmort.detections.panoptic import PanopticFormat

__all__ = ["BoxMasks", "Detections", "ImageMasks", "PanopticFormat", "paste_masks"]

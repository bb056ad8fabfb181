"""Detection in pictures with an exported detector, without torch.

`Detections` are the results in one picture.  `Preprocessing` turns an image into the network's input, as the config's
test pipeline does; `paste_masks` pastes masks into the image; `mmort.predict.drawing` draws detections.  Reading and
resizing images needs OpenCV, drawing needs Pillow; the rest needs numpy only.
"""

from mmort.predict.detections import Detections
from mmort.predict.images import read_image
from mmort.predict.mask_format import MaskFormat
from mmort.predict.masks import BoxMasks, ImageMasks, paste_masks
from mmort.predict.preprocessing import Prepared, Preprocessing

__all__ = [
    "BoxMasks",
    "Detections",
    "ImageMasks",
    "MaskFormat",
    "Prepared",
    "Preprocessing",
    "paste_masks",
    "read_image",
]

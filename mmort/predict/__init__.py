"""Detection in pictures with an exported detector, without torch.

`Detections` are the results in one picture.  `Preprocessing` turns an image into the network's input, as the config's
test pipeline does; `paste_masks` pastes masks into the image; `draw` and `contact_sheet` draw detections.  Reading,
resizing and drawing images needs OpenCV; the rest needs numpy only.
"""

from mmort.predict.detections import Detections
from mmort.predict.drawing import contact_sheet, draw
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
    "contact_sheet",
    "draw",
    "paste_masks",
    "read_image",
]

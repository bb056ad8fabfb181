"""Preprocessing, mask pasting and drawing for programs that run an exported detector, without torch.

`Preprocessing` turns an image into the network's input, as the config's test pipeline does; `paste_masks` pastes masks
into the image; `mmort.predict.drawing` draws detections.  Reading and resizing images needs OpenCV,
drawing needs Pillow; the rest needs numpy only.
"""

from mmort.predict.images import read_image
from mmort.predict.masks import paste_masks
from mmort.predict.preprocessing import Prepared, Preprocessing

__all__ = ["Prepared", "Preprocessing", "paste_masks", "read_image"]

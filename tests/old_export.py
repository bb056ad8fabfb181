"""A Mask R-CNN that MMDetection 2.28 itself exported, with `tools/deployment/pytorch2onnx.py --dynamic-export`.

It has nodes of the domain mmcv (MMCVRoiAlign, grid_sampler), opset 11, weights listed as inputs, and masks of 0 and 1
of the size of the input.  The checkpoint is that of `mmort.demo`.
"""

import pathlib

from mmort.predict import Preprocessing, read_image

MODEL = pathlib.Path(__file__).parent / "data" / "old_export" / "mask_rcnn.onnx"
CLASSES = tuple("0123456789")
PREPROCESSING = Preprocessing(
    size=(208, 160), mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375), to_rgb=True, size_divisor=32
)


def network_input(path):
    """Return an image as the model takes it, [1, 3, H, W]."""
    return PREPROCESSING(read_image(path)).input[None]

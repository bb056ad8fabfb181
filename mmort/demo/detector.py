"""How to run a Mask R-CNN that MMDetection itself exported: image in, detections out.  Copy it for a model of your own.

The constants at the top come from the model's MMDetection config.  The rest holds for every two-stage detector exported
by ``tools/deployment/pytorch2onnx.py --dynamic-export``: input [1, 3, H, W]; outputs dets [1, N, 5] (x1, y1, x2, y2,
score), labels [1, N] and masks [1, N, H, W], all in pixels of the network's input.  (Files of ``mmort export`` carry
their settings as metadata; ``examples/detector`` runs one.)  Images are read and resized by Pillow, not OpenCV.
"""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

import mmort.ort
from mmort.demo.drawing import Detection
from mmort.predict import Preprocessing
from mmort.predict.masks import resample_mask

MODEL = Path(__file__).with_name("mask_rcnn.onnx")
CLASSES = tuple("0123456789")
PREPROCESSING = Preprocessing(
    size=(208, 160),  # test_pipeline: img_scale, keep_ratio=True
    mean=(123.675, 116.28, 103.53),  # img_norm_cfg
    std=(58.395, 57.12, 57.375),
    to_rgb=True,
    size_divisor=32,  # Pad
)


def load(profile_prefix: str) -> onnxruntime.InferenceSession:
    """Load the model with mmort's operators; ONNX Runtime writes its profile to a file of this prefix."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # no warning for each weight that an old export also lists as an input
    options.enable_profiling = True
    options.profile_file_prefix = profile_prefix
    return mmort.ort.session(MODEL, sess_options=options)


def read_image(path: str | os.PathLike[str]) -> Image.Image:
    """Read an image file as RGB, upright, transparent pixels on white; OSError if Pillow cannot read it."""
    try:
        with warnings.catch_warnings(), open(path, "rb") as file:
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image: Image.Image = Image.open(file)
            image.load()
    except UnidentifiedImageError:
        raise OSError(f"{path}: not an image in a format that Pillow reads") from None
    except (Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:  # a broken file may raise any
        raise OSError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip to 8
        image = Image.fromarray(np.clip(np.asarray(image) // 257, 0, 255).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def preprocess(image: Image.Image) -> tuple[NDArray[np.float32], tuple[int, int]]:
    """Turn an RGB image into the network's input [1, 3, H, W], as the test pipeline does: resize, normalize, pad.

    Also return the width and height of the image within the input, without the padding.
    """
    size = PREPROCESSING.resized_size(image.width, image.height)
    resized = np.asarray(image.resize(size, Image.Resampling.BILINEAR), np.float32)
    blue_green_red = resized[:, :, ::-1]
    return PREPROCESSING.finish(blue_green_red, (image.height, image.width)).input[np.newaxis], size


def run(
    session: onnxruntime.InferenceSession, network_input: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
    """Return dets [N, 5], labels [N] and masks [N, H, W] of one image."""
    dets, labels, masks = session.run(["dets", "labels", "masks"], {"input": network_input})
    return dets[0], labels[0], masks[0]


def postprocess(
    dets: NDArray[np.float32],
    labels: NDArray[np.int64],
    masks: NDArray[np.float32],
    network_size: tuple[int, int],
    image_size: tuple[int, int],
    score_threshold: float,
) -> list[Detection]:
    """Map the network's outputs to the original image; return the detections above the threshold by descending score.

    The sizes are (width, height): what `preprocess` returned, and that of the original image.
    """
    scale = np.tile(np.divide(network_size, image_size), 2)
    boxes = np.clip(dets[:, :4] / scale, 0, np.tile(image_size, 2))
    width, height = network_size
    detections = []
    for index in np.argsort(-dets[:, 4], kind="stable"):
        x1, y1, x2, y2 = map(float, boxes[index])
        if dets[index, 4] <= score_threshold or x1 >= x2 or y1 >= y2:  # a box may lie entirely in the padding
            continue
        touched = math.floor(x1), math.floor(y1), math.ceil(x2), math.ceil(y2)  # pixels of the original image
        region = np.minimum(touched * scale, [width, height, width, height])  # rounding may exceed the size
        left, top, right, bottom = map(float, region)
        mask = resample_mask(
            masks[index, :height, :width],
            (left, top, right, bottom),
            touched[2] - touched[0],
            touched[3] - touched[1],
        )
        detections.append(Detection(CLASSES[labels[index]], float(dets[index, 4]), (x1, y1, x2, y2), mask))
    return detections

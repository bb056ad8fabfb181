"""How to run a Mask R-CNN that MMDetection exported: image in, detections out.  Copy it for a model of your own.

What belongs to one model is at the top, and comes from its MMDetection config.  All else holds for every two-stage
detector exported by ``tools/deployment/pytorch2onnx.py --dynamic-export``: input [1, 3, H, W]; outputs dets [1, N, 5]
(x1, y1, x2, y2, score), labels [1, N] and masks [1, N, H, W], all in pixels of the network's input.
"""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

import mmort.ort

MODEL = Path(__file__).with_name("mask_rcnn.onnx")
CLASSES = tuple("0123456789")
LONGEST_SIDE, SHORTEST_SIDE = 208, 160  # test_pipeline: img_scale, keep_ratio=True
MEAN = np.array([123.675, 116.28, 103.53], np.float32)  # img_norm_cfg, of RGB
STD = np.array([58.395, 57.12, 57.375], np.float32)
SIZE_DIVISOR = 32  # Pad


class Detection(NamedTuple):
    """One object, in pixels of the original image."""

    label: str
    score: float
    box: tuple[float, float, float, float]
    """x1, y1, x2, y2"""
    mask: NDArray[np.bool_]
    """[h, w], of the pixels that the box touches: from column floor(x1) and row floor(y1) on."""


def load(profile_prefix: str) -> onnxruntime.InferenceSession:
    """Open the model with mmort's operators; ONNX Runtime is to write its profile to a file of this prefix."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # old exports list their weights as inputs too, and ONNX Runtime warns of each
    options.enable_profiling = True
    options.profile_file_prefix = profile_prefix
    return mmort.ort.session(MODEL, sess_options=options)


def read_image(path: str | os.PathLike[str]) -> Image.Image:
    """Read any image file as RGB, upright, transparency on white; what cannot be read is an OSError."""
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
    """Turn an RGB image into the network's input, as the test pipeline does: resize, normalise, pad.

    Also return the width and height that the image has there, without the padding.
    """
    scale = min(LONGEST_SIDE / max(image.size), SHORTEST_SIDE / min(image.size))
    width, height = (max(1, int(side * scale + 0.5)) for side in image.size)
    pixels = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR), np.float32)
    padding = ((0, -height % SIZE_DIVISOR), (0, -width % SIZE_DIVISOR), (0, 0))
    padded = np.pad((pixels - MEAN) / STD, padding)
    return np.ascontiguousarray(padded.transpose(2, 0, 1)[np.newaxis]), (width, height)


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
    """Bring what the network found to the original image: detections above the threshold, best first.

    The sizes are (width, height): those that `preprocess` returned, and those of the original image.
    """
    scale = np.tile(np.divide(network_size, image_size), 2)
    boxes = np.clip(dets[:, :4] / scale, 0, np.tile(image_size, 2))
    detections = []
    for i in np.argsort(-dets[:, 4], kind="stable"):
        x1, y1, x2, y2 = map(float, boxes[i])
        touched = math.floor(x1), math.floor(y1), math.ceil(x2), math.ceil(y2)
        if dets[i, 4] > score_threshold and x1 < x2 and y1 < y2:  # a box may lie in the padding alone
            mask = _paste(masks[i], network_size, scale, touched)
            detections.append(Detection(CLASSES[labels[i]], float(dets[i, 4]), (x1, y1, x2, y2), mask))
    return detections


def _paste(
    mask: NDArray[np.float32],
    network_size: tuple[int, int],
    scale: NDArray[np.float64],
    touched: tuple[int, int, int, int],
) -> NDArray[np.bool_]:
    """Resample a mask of the network's input to the pixels of the original image that the box touches."""
    width, height = network_size
    left, top, right, bottom = np.minimum(touched * scale, [width, height, width, height])  # last bits may exceed
    plane = Image.fromarray((mask[:height, :width] * 255).astype(np.uint8))
    size = touched[2] - touched[0], touched[3] - touched[1]
    return np.asarray(plane.resize(size, Image.Resampling.BILINEAR, box=(left, top, right, bottom))) >= 128

"""Small panoptic detectors, built alike by mmort and by MMDetection (tests/originals/records.py)."""

import copy

import numpy as np
import torch

from mmort import Predictor
from mmort.predict import Prepared, Preprocessing
from tests.detect import mask_cases, part_cases, two_stage_cases

CANVAS = 96, 131
"""Not a multiple of 4, so that masks have to be enlarged to just this size; Panoptic FPN needs a multiple of 32."""

THINGS, CLASSES = 4, 7
_NUMBERS = {"num_things_classes": THINGS, "num_stuff_classes": CLASSES - THINGS}
_ON = {"panoptic_on": True, "instance_on": False, "object_mask_thr": 0.3, "iou_thr": 0.1}


def _queries(name, **test_cfg):
    """Return a MaskFormer or Mask2Former of tests/detect/mask_cases.py."""
    model = copy.deepcopy(mask_cases.MODELS[name])
    weights = [1.0] * CLASSES + [0.1]
    model["panoptic_head"] |= {**_NUMBERS, "loss_cls": {"type": "CrossEntropyLoss", "class_weight": weights}}
    model["panoptic_fusion_head"] |= _NUMBERS
    model["test_cfg"] = {**_ON, **test_cfg}
    return model


def _panoptic_fpn():
    """Return a Panoptic FPN, which is a Mask R-CNN with a branch."""
    model = copy.deepcopy(two_stage_cases.CONFIG["model"])
    for head in ("bbox_head", "mask_head"):
        model["roi_head"][head]["num_classes"] = THINGS
    model |= {
        "type": "PanopticFPN",
        "train_cfg": None,
        "semantic_head": {
            "type": "PanopticFPNHead",
            **_NUMBERS,
            "in_channels": 32,
            "inner_channels": 8,
            "norm_cfg": {"type": "GN", "num_groups": 2},
        },
        "panoptic_fusion_head": {"type": "HeuristicFusionHead", **_NUMBERS},
    }
    nms = {"type": "nms", "iou_threshold": 0.5, "class_agnostic": True}
    model["test_cfg"]["rcnn"] = {"score_thr": 0.3, "nms": nms, "max_per_img": 6, "mask_thr_binary": 0.5}
    model["test_cfg"]["panoptic"] = {"mask_overlap": 0.5, "stuff_area_limit": 300}
    return model


FACTORS = {
    "maskformer": {"cls_embed.weight": 2, "query_embed.weight": 4, "attn.in_proj_weight": 4, "attn.out_proj.weight": 8},
    "mask2former": {"cls_embed.weight": 2, "query_feat.weight": 3},
    "panoptic_fpn": {"fc_cls.weight": 0.001, "fc_reg.weight": 0.002, "rpn_reg.weight": 0.001, "rpn_cls.weight": 0.02},
}
"""Of weights by the end of their keys, so that there are several segments."""

MODELS = {
    "maskformer": _queries("maskformer"),
    "mask2former": _queries("mask2former", filter_low_score=True),
    "panoptic_fpn": _panoptic_fpn(),
}


def config(name):
    """Return a model's config, of MMDetection 3."""
    normalization = {"mean": [128] * 3, "std": [64] * 3, "bgr_to_rgb": True}
    if name == "panoptic_fpn":
        normalization["pad_size_divisor"] = 32
    resize = {"type": "Resize", "scale": (131, 96), "keep_ratio": True}
    return {
        "model": {"data_preprocessor": normalization, **copy.deepcopy(MODELS[name])},
        "test_pipeline": [{"type": "LoadImageFromFile"}, resize, {"type": "PackDetInputs"}],
    }


def canvas(name):
    """Return the height and width of a detector's batch."""
    return (96, 128) if name == "panoptic_fpn" else CANVAS


def batch(name):
    """Return a batch of two images and their metadata."""
    shapes = [(96, 120), (80, canvas(name)[1])]
    metas = [
        {"img_shape": shape, "ori_shape": original, "scale_factor": (shape[1] / original[1], shape[0] / original[0])}
        for shape, original in zip(shapes, [(144, 180), (60, 96)], strict=True)
    ]
    return part_cases.numbers(2, 3, *canvas(name)), metas


def fill(name, module):
    """Give a network random weights with which it finds things and stuff."""
    mask_cases.fill(module)
    for key, tensor in module.state_dict().items():
        for ending, factor in FACTORS[name].items():
            if key.endswith(ending):
                tensor.mul_(factor)
        if key.endswith("conv_logits.weight"):
            tensor.sub_(tensor.mean(1, keepdim=True)).mul_(4)  # features are positive


def summary(map):
    """Return for each segment of a map its id, its pixels and their mean position."""
    results = []
    for segment in np.unique(map).tolist():
        rows, columns = np.nonzero(map == segment)
        results.append([segment, len(rows), round(float(rows.mean()), 1), round(float(columns.mean()), 1)])
    return results


class Fixed:
    """A `mmort.predict.Network` of a detector whose batch is given."""

    input_shape = None, None, None

    def __init__(self, detector):
        self.detector, self.mask_format = detector, detector.mask_format

    def __call__(self, input, img_shape):
        with torch.inference_mode():
            return [output.numpy() for output in self.detector(torch.from_numpy(input), torch.from_numpy(img_shape))]


def predicted(detector, batch, metas):
    """Return what a detector finds in the images of a batch, in their original sizes."""
    size = tuple(batch.shape[2:])
    images = [
        Prepared(
            image.numpy(),
            meta["ori_shape"],
            meta["img_shape"],
            size,
            np.tile(np.float32(meta["scale_factor"]), 2),
            (0, 0),
        )
        for image, meta in zip(batch, metas, strict=True)
    ]
    return Predictor(Fixed(detector), preprocessing=Preprocessing(), score_threshold=0).run(images)

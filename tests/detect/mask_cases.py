"""Small detectors whose masks cover the image, built alike by mmort and by MMDetection (tests/originals/records.py)."""

import copy
import zlib

import numpy as np
import torch

from mmort.predict import Prepared
from tests.detect import part_cases

GN = {"type": "GN", "num_groups": 2}
BN = {"type": "BN", "requires_grad": True}
BACKBONE = {"type": "ResNet", "depth": 18, "base_channels": 8, "out_indices": (0, 1, 2, 3), "norm_cfg": BN}
CHANNELS = [8, 16, 32, 64]
POSITIONS = {"num_feats": 4, "normalize": True}
_ATTENTION = {"embed_dims": 8, "num_heads": 2, "batch_first": True}
_FFN = {"embed_dims": 8, "feedforward_channels": 16, "num_fcs": 2, "act_cfg": {"type": "ReLU", "inplace": True}}
_ENCODER_LAYER = {"self_attn_cfg": _ATTENTION, "ffn_cfg": _FFN}
_DECODER_LAYER = {**_ENCODER_LAYER, "cross_attn_cfg": _ATTENTION}
_DEFORMABLE = {"self_attn_cfg": {**_ATTENTION, "num_levels": 3, "num_points": 2}, "ffn_cfg": _FFN}

_QUERIES = {
    "in_channels": CHANNELS,
    "feat_channels": 8,
    "out_channels": 8,
    "num_things_classes": 4,
    "num_stuff_classes": 1,
    "num_queries": 12,
    "positional_encoding": POSITIONS,
    "loss_cls": {"type": "CrossEntropyLoss", "class_weight": [1.0] * 5 + [0.1]},
}
PIXEL_DECODERS = {
    "PixelDecoder": {"type": "PixelDecoder", "norm_cfg": GN},
    "TransformerEncoderPixelDecoder": {
        "type": "TransformerEncoderPixelDecoder",
        "norm_cfg": GN,
        "encoder": {"num_layers": 1, "layer_cfg": _ENCODER_LAYER},
        "positional_encoding": POSITIONS,
    },
    "MSDeformAttnPixelDecoder": {
        "type": "MSDeformAttnPixelDecoder",
        "num_outs": 3,
        "norm_cfg": GN,
        "encoder": {"num_layers": 1, "layer_cfg": _DEFORMABLE},
        "positional_encoding": POSITIONS,
    },
}


def _mask_queries(name, pixel_decoder, **entries):
    """Return a MaskFormer or Mask2Former."""
    decoder = {"num_layers": 2, "layer_cfg": _DECODER_LAYER, "return_intermediate": True}
    head = {**_QUERIES, "pixel_decoder": PIXEL_DECODERS[pixel_decoder], "transformer_decoder": decoder, **entries}
    return {
        "type": name,
        "backbone": BACKBONE,
        "panoptic_head": {"type": f"{name}Head", **head},
        "panoptic_fusion_head": {"type": "MaskFormerFusionHead", "num_things_classes": 4, "num_stuff_classes": 1},
        "test_cfg": {"panoptic_on": False, "semantic_on": False, "instance_on": True, "max_per_image": 30},
    }


NECK = {"type": "FPN", "in_channels": CHANNELS, "out_channels": 8, "start_level": 1, "num_outs": 5}
SUPPRESSION = {"score_thr": 0.05, "nms_pre": 100, "max_per_img": 20}


def _condinst(name, width):
    """Return a CondInst or BoxInst."""
    towers = {"in_channels": 8, "feat_channels": 8, "stacked_convs": 1, "norm_on_bbox": True, "norm_cfg": GN}
    boxes = {"num_classes": 3, **towers, "strides": [8, 16, 32, 64, 128], "centerness_on_reg": True, "conv_bias": True}
    features = {"in_channels": 8, "feat_channels": 8, "start_level": 0, "end_level": 2, "out_channels": width}
    features |= {"mask_stride": 8, "num_stacked_convs": 1, "norm_cfg": BN}
    weights = (width + 2) * width + width * width + width + 2 * width + 1
    return {
        "type": name,
        "backbone": BACKBONE,
        "neck": {**NECK, "add_extra_convs": "on_output", "relu_before_extra_convs": True},
        "bbox_head": {"type": f"{name}BboxHead", "num_params": weights, **boxes},
        "mask_head": {
            "type": f"{name}MaskHead",
            "feat_channels": width,
            "mask_feature_head": features,
            "loss_mask": {"type": "DiceLoss", "use_sigmoid": True, "activate": True, "eps": 5e-6},
        },
        "test_cfg": {**SUPPRESSION, "min_bbox_size": 0, "nms": {"type": "nms", "iou_threshold": 0.6}, "mask_thr": 0.5},
    }


YOLACT = {
    "type": "YOLACT",
    "backbone": BACKBONE,
    "neck": {**NECK, "add_extra_convs": "on_input", "upsample_cfg": {"mode": "bilinear"}},
    "bbox_head": {
        "type": "YOLACTHead",
        "num_classes": 3,
        "in_channels": 8,
        "feat_channels": 8,
        "anchor_generator": {
            "type": "AnchorGenerator",
            "octave_base_scale": 3,
            "scales_per_octave": 1,
            "base_sizes": [8, 16, 32, 64, 128],
            "ratios": [0.5, 1.0, 2.0],
            "strides": [96 / count for count in (12, 6, 3, 2, 1)],
            "centers": [(48 / count, 48 / count) for count in (12, 6, 3, 2, 1)],
        },
        "bbox_coder": {"type": "DeltaXYWHBBoxCoder", "target_stds": [0.1, 0.1, 0.2, 0.2]},
        "loss_cls": {"type": "CrossEntropyLoss", "use_sigmoid": False, "reduction": "none"},
        "num_protos": 4,
    },
    "mask_head": {
        "type": "YOLACTProtonet",
        "in_channels": 8,
        "num_classes": 3,
        "num_protos": 4,
        "proto_channels": (8, None, 4),
        "proto_kernel_sizes": (3, -2, 1),
    },
    "test_cfg": {
        **SUPPRESSION,
        "min_bbox_size": 0,
        "mask_thr": 0.5,
        "iou_thr": 0.5,
        "top_k": 20,
        "mask_thr_binary": 0.5,
    },
}

MODELS = {
    "condinst": _condinst("CondInst", 8),
    "boxinst": _condinst("BoxInst", 16),
    "yolact": YOLACT,
    "maskformer": _mask_queries("MaskFormer", "TransformerEncoderPixelDecoder"),
    "maskformer_plain": _mask_queries("MaskFormer", "PixelDecoder", enforce_decoder_input_project=True),
    "mask2former": _mask_queries("Mask2Former", "MSDeformAttnPixelDecoder", strides=[4, 8, 16, 32]),
}

GAIN = 1.5  # of layers; without any, maps would not depend on the image


INPUT = 96, 128


def config(name):
    """Return a model's config, of MMDetection 3."""
    resize = {"type": "Resize", "scale": (128, 96), "keep_ratio": name != "yolact"}
    normalization = {"mean": [128] * 3, "std": [64] * 3, "bgr_to_rgb": True, "pad_size_divisor": 32}
    return {
        "model": {"data_preprocessor": normalization, **copy.deepcopy(MODELS[name])},
        "test_pipeline": [{"type": "LoadImageFromFile"}, resize, {"type": "PackDetInputs"}],
    }


def batch(name):
    """Return a batch of two images and their metadata; YOLACT's images fill the input."""
    shapes = [INPUT, INPUT] if name == "yolact" else [(96, 120), (80, 128)]
    metas = [
        {"img_shape": shape, "ori_shape": original, "scale_factor": (shape[1] / original[1], shape[0] / original[0])}
        for shape, original in zip(shapes, [(144, 180), (60, 96)], strict=True)
    ]
    return part_cases.numbers(2, 3, *INPUT), metas


def summary(dets, labels, masks):
    """Return for each detection of an image its box, score and label, and its mask's pixels and their mean position."""
    results = []
    for det, label, mask in zip(dets.tolist(), labels.tolist(), masks, strict=True):
        rows, columns = np.nonzero(mask) if mask.any() else ([0], [0])
        results.append([*(float(f"{value:.6g}") for value in det), label, int(mask.sum())])
        results[-1] += [round(float(np.mean(positions)), 1) for positions in (rows, columns)]
    return results


def assert_recorded(detector, batch, metas, recorded):
    """Assert that a detector, in float64, finds in a batch what was recorded: `summary` of each image, in any order.

    Boxes that were recorded as zeros are not compared: SparseInst's, where mmort has the masks' boxes.
    """
    detector.double()
    shapes = torch.tensor([meta["img_shape"] for meta in metas])
    with torch.inference_mode():
        outputs = [output.numpy() for output in detector(batch.double(), shapes)]
    for meta, dets, labels, masks, wanted in zip(metas, *outputs, recorded, strict=True):
        used = labels >= 0
        dets, masks = dets.astype(np.float32), masks.astype(np.float32)
        size = meta["img_shape"]
        image = Prepared(batch[0].numpy(), size, size, INPUT, np.ones(4, np.float32), (0, 0))
        stored, factors = detector.mask_format.store(masks[used], dets[used, :4], image)
        if detector.mask_format.boxes == "masks":
            dets[used, :4] = stored.boxes
        actual = []
        for index in range(used.sum()):
            top, left, mask = stored.region(index, *size)
            actual.append(np.pad(mask, ((top, size[0] - top - len(mask)), (left, size[1] - left - mask.shape[1]))))
        assert (factors == 1).all()  # nothing is resized
        ours = np.array(summary(dets[used], labels[used], actual))
        assert len(ours) == len(wanted)
        for row in wanted:
            far = np.abs(ours - row) > 0.5 + 2e-3 * np.abs(row)
            far[:, :4] &= any(row[:4])
            far[:, 4] = np.abs(ours[:, 4] - row[4]) > 1e-4
            assert not far.any(1).all(), row


def fill(module):
    """Give a network random weights with which its masks are neither empty nor full."""
    weights = module.state_dict()
    anchors = "bbox_head.conv_coeff.weight" in weights  # whose boxes grow exponentially
    for key, tensor in sorted(weights.items()):
        for ours, theirs in (("attentions.0.", "self_attn."), ("attentions.1.", "cross_attn."), ("ffns.0.", "ffn.")):
            key = key.replace(ours, theirs)
        generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
        if tensor.is_floating_point() and "running" not in key:
            values = torch.randn(tensor.shape, generator=generator)
            embeds = "query_" in key
            tensor.copy_(values * (2 if embeds else GAIN / tensor[0].numel() ** 0.5 if tensor.ndim > 1 else 0.2))
            if tensor.ndim == 1 and key.endswith("weight"):
                tensor.add_(1)
            if anchors and key.startswith(("bbox_head.conv_cls", "bbox_head.conv_reg")):
                tensor.mul_(0.005)

"""Small detectors whose masks cover the image, built alike by mmort and by MMDetection (tests/tools/check_masks.py)."""

import copy
import zlib

import torch

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
        "test_cfg": {"panoptic_on": False, "semantic_on": False, "instance_on": True, "max_per_image": 20},
    }


MODELS = {
    "maskformer": _mask_queries("MaskFormer", "TransformerEncoderPixelDecoder"),
    "maskformer_plain": _mask_queries("MaskFormer", "PixelDecoder", enforce_decoder_input_project=True),
    "mask2former": _mask_queries("Mask2Former", "MSDeformAttnPixelDecoder", strides=[4, 8, 16, 32]),
}

GAIN = 1.5  # of layers; without any, maps would not depend on the image


def config(name):
    """Return a model's config, of MMDetection 3."""
    return {"model": {"data_preprocessor": {}, **copy.deepcopy(MODELS[name])}}


def fill(module):
    """Give a network random weights with which its masks are neither empty nor full."""
    for key, tensor in sorted(module.state_dict().items()):
        generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
        if tensor.is_floating_point() and "running" not in key:
            values = torch.randn(tensor.shape, generator=generator)
            embeds = "query_" in key
            tensor.copy_(values * (2 if embeds else GAIN / tensor[0].numel() ** 0.5 if tensor.ndim > 1 else 0.2))
            if tensor.ndim == 1 and key.endswith("weight"):
                tensor.add_(1)

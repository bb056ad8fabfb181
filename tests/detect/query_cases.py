"""Small detectors with queries, with inputs and weights that do not depend on their code.

MMDetection's got the same: ``tests/data/detect/query_detectors.json`` has what they detected
(``tests/originals/records.py`` writes it).
"""

import zlib

import numpy as np
import torch

_FOCAL = {"type": "FocalLoss", "use_sigmoid": True}
_ATTENTION = {"embed_dims": 256, "num_heads": 8}
_SAMPLING = {"embed_dims": 256, "num_levels": 3}
SHAPES = (96, 128), (70, 100)


def _ffn(activation):
    return {"embed_dims": 256, "feedforward_channels": 64, "num_fcs": 2, "act_cfg": {"type": activation}}


def _neck(channels, levels, normalization):
    sizes = {"in_channels": channels, "kernel_size": 1, "out_channels": 256, "num_outs": levels}
    return {"type": "ChannelMapper", "act_cfg": None, "norm_cfg": normalization, **sizes}


def _single_map(name, activation, temperature):
    """Return the model of a detector that reads one map."""
    conditional = {**_ATTENTION, "cross_attn": False}, {**_ATTENTION, "cross_attn": True}
    decoder = {"self_attn_cfg": conditional[0], "cross_attn_cfg": conditional[1], "ffn_cfg": _ffn(activation)}
    return {
        "type": name,
        "num_queries": 12,
        "backbone": {"type": "ResNet", "depth": 18, "base_channels": 8, "out_indices": (3,)},
        "neck": _neck([64], 1, None),
        "encoder": {"num_layers": 2, "layer_cfg": {"self_attn_cfg": _ATTENTION, "ffn_cfg": _ffn(activation)}},
        "decoder": {"num_layers": 2, "layer_cfg": decoder, "return_intermediate": True},
        "positional_encoding": {"num_feats": 128, "normalize": True, "temperature": temperature},
        "bbox_head": {"type": f"{name}Head", "num_classes": 5, "embed_dims": 256, "loss_cls": _FOCAL},
        "test_cfg": {"max_per_img": 12},
    }


def _pyramid(name, **entries):
    """Return the model of a detector that samples several maps."""
    decoder = {"self_attn_cfg": _ATTENTION, "cross_attn_cfg": _SAMPLING, "ffn_cfg": _ffn("ReLU")}
    return {
        "type": name,
        "num_queries": 12,
        "num_feature_levels": 3,
        "backbone": {"type": "ResNet", "depth": 18, "base_channels": 8, "out_indices": (2, 3)},
        "neck": _neck([32, 64], 3, {"type": "GN", "num_groups": 32}),
        "encoder": {"num_layers": 2, "layer_cfg": {"self_attn_cfg": _SAMPLING, "ffn_cfg": _ffn("ReLU")}},
        "decoder": {"num_layers": 3, "layer_cfg": decoder, "return_intermediate": True, "post_norm_cfg": None},
        "positional_encoding": {"num_feats": 128, "normalize": True, "offset": -0.5},
        "bbox_head": {"type": f"{name}Head", "num_classes": 5, "sync_cls_avg_factor": True, "loss_cls": _FOCAL},
        "test_cfg": {"max_per_img": 12},
        **entries,
    }


_TWO_STAGES = {"with_box_refine": True, "as_two_stage": True}
_DENOISING = {
    "label_noise_scale": 0.5,
    "box_noise_scale": 1.0,
    "group_cfg": {"dynamic": True, "num_groups": None, "num_dn_queries": 10},
}
MODELS = {
    "conditional_detr": _single_map("ConditionalDETR", "ReLU", 10000),
    "dab_detr": _single_map("DABDETR", "PReLU", 20),
    "deformable_detr": _pyramid("DeformableDETR"),
    "deformable_detr_refine": _pyramid("DeformableDETR", with_box_refine=True),
    "deformable_detr_two_stage": _pyramid("DeformableDETR", **_TWO_STAGES),
    "dino": _pyramid("DINO", **_TWO_STAGES, dn_cfg=_DENOISING),
    "ddq": _pyramid("DDQDETR", **_TWO_STAGES, dn_cfg=_DENOISING, dqs_cfg={"type": "nms", "iou_threshold": 0.8}),
    "ddq_few_left": _pyramid(
        "DDQDETR", **_TWO_STAGES, dn_cfg=_DENOISING, dqs_cfg={"type": "nms", "iou_threshold": 0.02}
    ),
}


def numbers(name, *shape):
    """Return numbers of a normal distribution that depend on a name."""
    return torch.from_numpy(np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, np.float32))


def weight(name, shape):
    """Return numbers for the weight of a name, in sizes that nothing cancels."""
    values = numbers(name, *shape)
    if "embed" in name:
        return values
    if len(shape) >= 2:
        return values * 1.5 / values[0].numel() ** 0.5
    return values * 0.2 + name.endswith((".weight", "running_var"))


def fill(detector):
    """Give all weights, MMDetection's or ours, values that differ from layer to layer."""
    for name, tensor in detector.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(weight(name, tensor.shape))
    if hasattr(detector, "memory_trans_norm"):  # cells that cannot be used, all equal, are not to be among the best
        unusable = detector.memory_trans_norm(detector.memory_trans_fc.bias)
        detector.bbox_head.cls_branches[len(detector.decoder.layers)].weight.sub_(unusable / 20)


def batch(shapes=SHAPES):
    """Return images of some shapes, padded to the first of them, and the shapes."""
    images = torch.zeros(len(shapes), 3, *shapes[0])
    for index, (height, width) in enumerate(shapes):
        images[index, :, :height, :width] = numbers(f"image {index}", 3, height, width)
    return images, torch.tensor(shapes)


def assert_recorded(detector, recorded, shapes=SHAPES):
    """Assert that a detector finds in a `batch` what was recorded, and fills up its rows."""
    dets, labels = (output.numpy() for output in detector(*batch(shapes))[:2])
    for actual, classes, expected, expected_classes in zip(
        dets, labels, recorded["dets"], recorded["labels"], strict=True
    ):
        count = len(expected_classes)
        assert classes.tolist() == expected_classes + [-1] * (len(classes) - count)
        np.testing.assert_allclose(actual[:count], expected, rtol=1e-4, atol=2e-3)

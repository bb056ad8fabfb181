"""Small backbones and necks, with inputs and weights that do not depend on their code.

MMDetection's modules got the same: ``tests/data/detect/parts.json`` has what they returned
(``tests/originals/records.py`` writes it).
"""

import hashlib

import numpy as np
import torch

BN = {"type": "BN", "requires_grad": True}
DCN = {"type": "DCNv2", "deform_groups": 1, "fallback_on_stride": False}
PYRAMID = [8, 16, 32, 64]
"""Channels of the maps that the necks take."""


def res(kind, **entries):
    """Return a small relative of ResNet."""
    return {"type": kind, "depth": 50, "base_channels": 8, "norm_cfg": BN, **entries}


def plugin(position, stages, **config):
    """Return a plugin for some stages, such as "0111"."""
    return {"cfg": config, "stages": [stage == "1" for stage in stages], "position": position}


def attention(terms, **entries):
    """Return plugins of empirical attention in the last two stages."""
    config = {"type": "GeneralizedAttention", "spatial_range": -1, "num_heads": 8, "attention_type": terms, **entries}
    return [plugin("after_conv2", "0011", **config)]


EVERY_PLUGIN = [
    plugin("after_conv3", "0111", type="ContextBlock", ratio=0.25),
    plugin("after_conv1", "1000", type="ContextBlock", ratio=0.5, pooling_type="avg", fusion_types=["channel_mul"]),
    plugin("after_conv2", "0001", type="NonLocal2d"),
]


def hr_stage(channels, block="BASIC"):
    """Return a stage of HRNet."""
    count = len(channels)
    return {
        "num_modules": 2 if count == 3 else 1,
        "num_branches": count,
        "block": block,
        "num_blocks": [2] * count,
        "num_channels": channels,
    }


HRNET = {
    "stage1": hr_stage([16], "BOTTLENECK"),
    "stage2": hr_stage([8, 16]),
    "stage3": hr_stage([8, 16, 32]),
    "stage4": hr_stage([8, 16, 32, 64]),
}

PVT = {"embed_dims": 8, "num_layers": [1, 2, 1, 1]}
SAC = {
    "conv_cfg": {"type": "ConvAWS"},
    "sac": {"type": "SAC", "use_deform": True},
    "stage_with_sac": [False, True, True, True],
}
SAC_WITHOUT_OFFSETS = {**SAC, "sac": {"type": "SAC", "use_deform": False}}

BACKBONES = {
    "convnext": {"type": "mmpretrain.ConvNeXt", "arch": {"depths": [1, 2, 1, 1], "channels": [8, 12, 16, 24]}}
    | {"out_indices": [0, 1, 2, 3], "gap_before_final_norm": False, "layer_scale_init_value": 1.0},
    "convnext_unscaled": {"type": "mmpretrain.ConvNeXt", "arch": {"depths": [1, 1], "channels": [8, 12]}}
    | {"out_indices": [1], "gap_before_final_norm": False, "layer_scale_init_value": 0},
    "convnext_v2": {"type": "mmpretrain.ConvNeXt", "arch": {"depths": [1, 2], "channels": [8, 12]}, "use_grn": True}
    | {"out_indices": [0, 1], "gap_before_final_norm": False, "layer_scale_init_value": 0.0},
    "detectors": res("DetectoRS_ResNet", **SAC, rfp_inplanes=16, output_img=True),
    "detectors_without_offsets": res("DetectoRS_ResNet", **SAC_WITHOUT_OFFSETS),
    "efficientnet_b0": {"type": "EfficientNet", "arch": "b0", "out_indices": [0, 1, 2, 3]},
    "pvt": {"type": "PyramidVisionTransformer", "pretrain_img_size": 64, **PVT},
    "pvt_v2": {"type": "PyramidVisionTransformerV2", "mlp_ratios": [4, 4, 2, 2], "qkv_bias": False, **PVT},
    "trident": {"type": "TridentResNet", "depth": 50, "base_channels": 8, "norm_cfg": BN, "style": "caffe"}
    | {"num_stages": 3, "strides": [1, 2, 2], "dilations": [1, 1, 1], "out_indices": [2]}
    | {"num_branch": 3, "test_branch_idx": 1, "trident_dilations": [1, 2, 3]},
    "hrnet": {"type": "HRNet", "extra": HRNET},
    "hrnet_one_output": {"type": "HRNet", "extra": HRNET, "multiscale_output": False},
    "regnet": {"type": "RegNet", "arch": {"w0": 8, "wa": 12, "wm": 2.0, "group_w": 16, "depth": 6, "bot_mul": 1.0}},
    "res2net": res("Res2Net", base_width=26),
    "resnest": res("ResNeSt", stem_channels=32, reduction_factor=2),
    "resnest_groups": res("ResNeSt", groups=2, base_width=8, radix=1, avg_down_stride=False),
    "resnet": res("ResNet"),
    "resnet_attention_0010": res("ResNet", plugins=attention("0010")),
    "resnet_attention_0110_square": res("ResNet", plugins=attention("0110")),
    "resnet_attention_1101": res("ResNet", plugins=attention("1101", q_stride=2, kv_stride=1)),
    "resnet_attention_1111": res("ResNet", plugins=attention("1111")),
    "resnet_basic": res("ResNet", depth=18),
    "resnet_caffe": res("ResNet", style="caffe", dilations=[1, 1, 1, 2], strides=[1, 2, 2, 1], out_indices=[3]),
    "resnet_plugins": res("ResNet", plugins=EVERY_PLUGIN),
    "resnet_v1d": res("ResNetV1d"),
    "resnext_plugins": res("ResNeXt", groups=4, plugins=EVERY_PLUGIN),
    "swin": {"type": "SwinTransformer", "embed_dims": 12, "depths": [2, 2, 2], "num_heads": [1, 2, 3]}
    | {"out_indices": [0, 1, 2]},
    "swin_window_12": {"type": "SwinTransformer", "embed_dims": 12, "window_size": 12, "mlp_ratio": 2}
    | {"depths": [2, 1, 2, 1], "convert_weights": True},
}

NECK = {"in_channels": PYRAMID, "out_channels": 16, "num_outs": 5}
ORDER = ("act", "conv", "norm")


def transition(kind, **config):
    """Return a connection of FPG."""
    return {"type": kind, "norm_cfg": BN, "inplace": False, "order": ORDER, **config}


NECKS = {
    "bfp": [{"type": "FPN", **NECK}, {"type": "BFP", "in_channels": 16, "num_levels": 5, "refine_type": "non_local"}],
    "bfp_conv": [
        {"type": "FPN", **NECK, "start_level": 1, "add_extra_convs": "on_output"},
        {"type": "BFP", "in_channels": 16, "num_levels": 5, "refine_level": 1, "refine_type": "conv", "norm_cfg": BN},
    ],
    "carafe": {"type": "FPN_CARAFE", **NECK, "order": ("conv", "norm", "act")}
    | {"upsample_cfg": {"type": "carafe", "up_kernel": 5, "up_group": 2, "compressed_channels": 8}},
    "channel_mapper": {"type": "ChannelMapper", **NECK, "kernel_size": 1, "act_cfg": None}
    | {"num_outs": 6, "bias": True, "norm_cfg": {"type": "GN", "num_groups": 4}},
    "dyhead": [{"type": "FPN", **NECK}, {"type": "DyHead", "in_channels": 16, "out_channels": 16, "num_blocks": 2}],
    "fpg": {"type": "FPG", **NECK, "inter_channels": 8, "stack_times": 3, "paths": ["bu"] * 3}
    | {"same_down_trans": None, "across_up_trans": None, "norm_cfg": BN, "skip_inds": [(0, 1), (0,), (0,), (), ()]}
    | {"same_up_trans": transition("conv", kernel_size=3, stride=2, padding=1)}
    | {"across_lateral_trans": transition("conv", kernel_size=1)}
    | {"across_down_trans": transition("interpolation_conv", mode="nearest", kernel_size=3)}
    | {"across_skip_trans": transition("conv", kernel_size=1)}
    | {"output_trans": {"type": "last_conv", "kernel_size": 3, "order": ORDER, "inplace": False}},
    "fpn_dropblock": {"type": "FPN_DropBlock", **NECK, "add_extra_convs": "on_output"}
    | {"relu_before_extra_convs": True, "num_outs": 6},
    "nas_fpn": {"type": "NASFPN", **NECK, "stack_times": 2, "start_level": 1, "norm_cfg": BN},
    "nasfcos_fpn": {"type": "NASFCOS_FPN", **NECK, "norm_cfg": BN, "add_extra_convs": True},
    "pafpn": {"type": "PAFPN", **NECK},
    "rfp": {"type": "RFP", **NECK, "in_channels": [32, 64, 128, 256], "rfp_steps": 2, "aspp_out_channels": 4}
    | {"aspp_dilations": (1, 3, 6, 1), "rfp_backbone": res("DetectoRS_ResNet", **SAC, rfp_inplanes=16)},
    "pafpn_on_input": {"type": "PAFPN", **NECK, "start_level": 1, "add_extra_convs": "on_input", "norm_cfg": BN},
    "fpn": {"type": "FPN", "in_channels": PYRAMID, "out_channels": 16, "num_outs": 5},
    "hrfpn": {"type": "HRFPN", "in_channels": PYRAMID, "out_channels": 16},
    "hrfpn_stride": {"type": "HRFPN", "in_channels": PYRAMID, "out_channels": 16, "stride": 2, "pooling_type": "MAX"},
}

CASES = [
    *(("backbone", name, config) for name, config in BACKBONES.items()),
    *(("neck", name, config) for name, config in NECKS.items()),
]


def numbers(*shape):
    """Return numbers between -1 and 1 that look random."""
    count = int(np.prod(shape))
    values = np.random.default_rng(count).random(count, dtype=np.float32) * 2 - 1
    return torch.from_numpy(values.reshape(shape))


def inputs(kind, name):
    """Return what a part is called with: an image, or maps."""
    if kind == "neck":  # of an image of 152 x 208 pixels, where MMDetection takes it
        height, width = (32, 48) if name in ("carafe", "fpg", "hrfpn", "hrfpn_stride") else (38, 52)
        channels = PYRAMID if name != "rfp" else [4 * count for count in PYRAMID]
        sides = [(-(-height // 2**level), -(-width // 2**level)) for level in range(4)]
        maps = [numbers(2, count, *side) for count, side in zip(channels, sides, strict=True)]
        return tuple(maps if name != "rfp" else [numbers(2, 3, 4 * height, 4 * width), *maps])
    if "square" in name:  # MMCV refuses other maps
        return numbers(2, 3, 64, 64)
    return numbers(2, 3, *((64, 96) if "hrnet" in name else (75, 110)))  # MMDetection's HRNet takes multiples of 32


def fill(module):
    """Give all weights and statistics values that nothing cancels, whatever the order of the keys."""
    for key, tensor in sorted(module.state_dict().items()):
        if not tensor.is_floating_point():
            continue
        values = numbers(*tensor.shape, 1)[..., 0]
        if key.endswith(("weight_gamma", "weight_beta", "switch.weight")):  # nothing else makes the maps small again
            tensor.copy_(values * (0.05 if key.endswith("gamma") else 0.002))
        elif tensor.ndim < 2:
            tensor.copy_(values * 0.25 + (1 if key.endswith(("running_var", "weight")) else 0.25))
        else:
            tensor.copy_(values / tensor[0].numel() ** 0.5)


def names(module):
    """Return a digest of the keys and shapes of a module's weights, but for what loading may lack."""
    lines = [f"{key} {[*value.shape]}" for key, value in sorted(module.state_dict().items()) if "batches" not in key]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def summary(outputs):
    """Return for each tensor its shape, the root of its mean square, and ten of its values."""
    tensors = [outputs] if isinstance(outputs, torch.Tensor) else outputs
    return [
        [
            [*tensor.shape],
            float(f"{tensor.square().mean().sqrt().item():.6g}"),
            [float(f"{value:.6g}") for value in tensor.flatten()[:: max(1, tensor.numel() // 9)].tolist()],
        ]
        for tensor in tensors
    ]

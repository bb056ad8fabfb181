"""Images of digits with a class in each pixel, as MMSegmentation has them, and configs of small networks."""

import cv2
import numpy as np

CLASSES = ("background", "one", "four", "eight")
DIGITS = ("1", "4", "8")
PALETTE = [[0, 0, 0], [230, 30, 40], [20, 200, 60], [40, 60, 240]]

CONFIG = """
default_scope = "mmseg"
norm_cfg = dict(type="BN", requires_grad=True)
data_preprocessor = dict(
    type="SegDataPreProcessor", mean=[120.0, 115.0, 100.0], std=[58.0, 57.0, 59.0], bgr_to_rgb=True, pad_val=0,
    seg_pad_val=255, size=(64, 96), test_cfg={padding}
)
model = dict(
    type="EncoderDecoder",
    data_preprocessor=data_preprocessor,
    pretrained=None,
    backbone={backbone},
    decode_head={head},
    auxiliary_head={auxiliary},
    train_cfg=dict(),
    test_cfg={test_cfg},
)
test_pipeline = [
    dict(type="LoadImageFromFile"),
    {resize},
    dict(type="LoadAnnotations", reduce_zero_label={reduce_zero_label}),
    dict(type="PackSegInputs"),
]
test_dataloader = dict(
    batch_size=2,
    dataset=dict(
        type="BaseSegDataset",
        data_root={root!r},
        data_prefix=dict(img_path="images", seg_map_path="maps"),
        img_suffix=".png",
        seg_map_suffix=".png",
        reduce_zero_label={reduce_zero_label},
        metainfo=dict(classes={classes}, palette={palette}),
        pipeline=test_pipeline,
    ),
)
test_evaluator = dict(type="IoUMetric", iou_metrics=["mIoU", "mDice", "mFscore"])
"""

RESIZE = "dict(type='Resize', scale=(96, 80), keep_ratio=True)"
RESNET = """dict(
    type="ResNetV1c", depth=18, base_channels=8, stem_channels=8, num_stages=4, out_indices=(0, 1, 2, 3),
    dilations=(1, 1, 2, 4), strides=(1, 1, 1, 1), norm_cfg=norm_cfg, norm_eval=False, style="pytorch",
    contract_dilation=True
)"""
HEAD = "norm_cfg=norm_cfg, align_corners=False, loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False)"
MASK2FORMER = """dict(
    type="Mask2FormerHead", in_channels=[8, 16, 32, 64], strides=[4, 8, 16, 32], feat_channels=16, out_channels=16,
    num_classes=4, num_queries=6, num_transformer_feat_level=3, align_corners=False,
    enforce_decoder_input_project=False,
    positional_encoding=dict(num_feats=8, normalize=True),
    pixel_decoder=dict(
        type="mmdet.MSDeformAttnPixelDecoder", num_outs=3, norm_cfg=dict(type="GN", num_groups=4),
        act_cfg=dict(type="ReLU"), positional_encoding=dict(num_feats=8, normalize=True),
        encoder=dict(num_layers=2, layer_cfg=dict(
            self_attn_cfg=dict(embed_dims=16, num_heads=2, num_levels=3, num_points=4, batch_first=True),
            ffn_cfg=dict(embed_dims=16, feedforward_channels=32, num_fcs=2, act_cfg=dict(type="ReLU", inplace=True)),
        )),
    ),
    transformer_decoder=dict(return_intermediate=True, num_layers=3, layer_cfg=dict(
        self_attn_cfg=dict(embed_dims=16, num_heads=2, batch_first=True),
        cross_attn_cfg=dict(embed_dims=16, num_heads=2, batch_first=True),
        ffn_cfg=dict(embed_dims=16, feedforward_channels=32, num_fcs=2, act_cfg=dict(type="ReLU", inplace=True)),
    )),
    loss_cls=dict(type="mmdet.CrossEntropyLoss", use_sigmoid=False, class_weight=[1.0] * 4 + [0.1]),
)"""
NETWORKS = {
    "FCN": (
        RESNET,
        f"dict(type='FCNHead', in_channels=64, in_index=3, channels=16, num_classes=4, num_convs=1, {HEAD})",
    ),
    "PSPNet": (
        RESNET,
        f"dict(type='PSPHead', in_channels=64, in_index=3, channels=8, pool_scales=(1, 2, 3), num_classes=4, {HEAD})",
    ),
    "DeepLabV3+, corners aligned": (
        RESNET,
        "dict(type='DepthwiseSeparableASPPHead', in_channels=64, in_index=3, channels=8, dilations=(1, 6), "
        "c1_in_channels=8, c1_channels=4, num_classes=4, "
        f"{HEAD.replace('align_corners=False', 'align_corners=True')})",
    ),
    "SegFormer": (
        "dict(type='MixVisionTransformer', in_channels=3, embed_dims=8, num_stages=4, num_layers=[1, 1, 1, 1], "
        "num_heads=[1, 2, 4, 8], patch_sizes=[7, 3, 3, 3], sr_ratios=[8, 4, 2, 1], out_indices=(0, 1, 2, 3), "
        "mlp_ratio=4, qkv_bias=True)",
        "dict(type='SegformerHead', in_channels=[8, 16, 32, 64], in_index=[0, 1, 2, 3], channels=16, num_classes=4, "
        f"{HEAD})",
    ),
    "LR-ASPP": (
        RESNET,
        "dict(type='LRASPPHead', in_channels=(8, 16, 64), in_index=(0, 1, 3), channels=8, branch_channels=(4, 4), "
        f"input_transform='multiple_select', act_cfg=dict(type='ReLU'), num_classes=4, {HEAD})",
    ),
    "DMNet": (
        RESNET,
        f"dict(type='DMHead', in_channels=64, in_index=3, channels=8, filter_sizes=(1, 3), num_classes=4, {HEAD})",
    ),
    "Swin": (
        "dict(type='SwinTransformer', embed_dims=8, depths=[2, 1, 1, 1], num_heads=[1, 2, 2, 2], window_size=4, "
        "strides=(4, 2, 2, 2), out_indices=(0, 1, 2, 3))",
        "dict(type='UPerHead', in_channels=[8, 16, 32, 64], in_index=[0, 1, 2, 3], pool_scales=(1, 2), channels=8, "
        f"num_classes=4, {HEAD})",
    ),
    "BEiT": (
        "dict(type='BEiT', img_size=(48, 48), patch_size=8, embed_dims=16, num_layers=2, num_heads=2, mlp_ratio=2, "
        "out_indices=(0, 1), qv_bias=True, init_values=0.1)",
        f"dict(type='FCNHead', in_channels=16, in_index=1, channels=8, num_classes=4, num_convs=1, {HEAD})",
    ),
    "Mask2Former": (
        RESNET.replace("dilations=(1, 1, 2, 4), strides=(1, 1, 1, 1)", "dilations=(1, 1, 1, 1), strides=(1, 2, 2, 2)"),
        MASK2FORMER,
    ),
    "SegNeXt": (
        RESNET,
        "dict(type='LightHamHead', in_channels=[32, 64], in_index=[2, 3], channels=8, ham_channels=8, num_classes=4, "
        f"ham_kwargs=dict(MD_R=4, rand_init=False), {HEAD})",
    ),
}
"""Backbone and head of small networks."""


def write(folder, count, seed, *, reduce_zero_label=False):
    """Write images of several sizes and their maps."""
    rng = np.random.default_rng(seed)
    for name in ("images", "maps"):
        (folder / name).mkdir(parents=True)
    for index in range(count):
        height, width = int(rng.integers(56, 76)), int(rng.integers(84, 110))
        image = cv2.resize(
            rng.integers(0, 90, (5, 7, 3), dtype=np.uint8), (width, height), interpolation=cv2.INTER_CUBIC
        )
        labels = np.zeros((height, width), np.uint8)
        for x in range(4, width - 24, 26):
            label = int(rng.integers(1, 4))
            position = x + int(rng.integers(-3, 4)), int(rng.integers(34, height - 6))
            colour = tuple(map(int, rng.integers(150, 256, 3)))
            cv2.putText(image, DIGITS[label - 1], position, cv2.FONT_HERSHEY_SIMPLEX, 1.1, colour, 5)
            cv2.putText(labels, DIGITS[label - 1], position, cv2.FONT_HERSHEY_SIMPLEX, 1.1, label, 5)
        labels[: int(rng.integers(0, 4))] = 254 if reduce_zero_label else 255  # do not count
        cv2.imwrite(str(folder / "images" / f"{index:03}.png"), image)
        cv2.imwrite(str(folder / "maps" / f"{index:03}.png"), labels + np.uint8(reduce_zero_label))


def config(
    folder, network, *, root, test_cfg="dict(mode='whole')", padding="None", reduce_zero_label=False, resize=RESIZE
):
    """Write the config of a network, and return its path."""
    backbone, head = NETWORKS[network]
    auxiliary = "None"
    if backbone is RESNET:
        auxiliary = f"dict(type='FCNHead', in_channels=32, in_index=2, channels=8, num_classes=4, {HEAD})"
    path = folder / "config.py"
    path.write_text(
        CONFIG.format(
            backbone=backbone,
            head=head,
            auxiliary=auxiliary,
            test_cfg=test_cfg,
            padding=padding,
            resize=resize,
            reduce_zero_label=reduce_zero_label,
            root=str(root),
            classes=CLASSES,
            palette=PALETTE,
        )
    )
    return path

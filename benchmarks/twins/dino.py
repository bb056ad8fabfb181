"""DINO R-50 with four scales, but of ResNet-18 with few channels, three scales from 1/16 and five layers."""

_base_ = "digits.py"
model = {
    "type": "DINO",
    "num_queries": 40,
    "num_feature_levels": 3,
    "with_box_refine": True,
    "as_two_stage": True,
    "data_preprocessor": {
        "type": "DetDataPreprocessor",
        "mean": [123.675, 116.28, 103.53],
        "std": [58.395, 57.12, 57.375],
        "bgr_to_rgb": True,
    },
    "backbone": {
        "type": "ResNet",
        "depth": 18,
        "num_stages": 4,
        "out_indices": (2, 3),
        "frozen_stages": -1,
        "norm_cfg": {"type": "BN", "requires_grad": True},
        "norm_eval": True,
        "style": "pytorch",
        "base_channels": 12,
        "stem_channels": 12,
    },
    "neck": {
        "type": "ChannelMapper",
        "in_channels": [48, 96],
        "kernel_size": 1,
        "out_channels": 256,
        "act_cfg": None,
        "norm_cfg": {"type": "GN", "num_groups": 32},
        "num_outs": 3,
    },
    "encoder": {
        "num_layers": 2,
        "layer_cfg": {
            "self_attn_cfg": {"embed_dims": 256, "num_levels": 3, "dropout": 0.0},
            "ffn_cfg": {"embed_dims": 256, "feedforward_channels": 256, "ffn_drop": 0.0},
        },
    },
    "decoder": {
        "num_layers": 3,
        "return_intermediate": True,
        "layer_cfg": {
            "self_attn_cfg": {"embed_dims": 256, "num_heads": 8, "dropout": 0.0},
            "cross_attn_cfg": {"embed_dims": 256, "num_levels": 3, "dropout": 0.0},
            "ffn_cfg": {"embed_dims": 256, "feedforward_channels": 256, "ffn_drop": 0.0},
        },
        "post_norm_cfg": None,
    },
    "positional_encoding": {"num_feats": 128, "normalize": True, "offset": 0.0, "temperature": 20},
    "bbox_head": {
        "type": "DINOHead",
        "num_classes": 10,
        "sync_cls_avg_factor": True,
        "loss_cls": {"type": "FocalLoss", "use_sigmoid": True, "gamma": 2.0, "alpha": 0.25, "loss_weight": 1.0},
        "loss_bbox": {"type": "L1Loss", "loss_weight": 5.0},
        "loss_iou": {"type": "GIoULoss", "loss_weight": 2.0},
    },
    "dn_cfg": {
        "label_noise_scale": 0.5,
        "box_noise_scale": 1.0,
        "group_cfg": {"dynamic": True, "num_groups": None, "num_dn_queries": 20},
    },
    "train_cfg": {
        "assigner": {
            "type": "HungarianAssigner",
            "match_costs": [
                {"type": "FocalLossCost", "weight": 2.0},
                {"type": "BBoxL1Cost", "weight": 5.0, "box_format": "xywh"},
                {"type": "IoUCost", "iou_mode": "giou", "weight": 2.0},
            ],
        }
    },
    "test_cfg": {"max_per_img": 100},
}
train_dataloader = {"batch_size": 4}
train_cfg = {"max_epochs": 4}
param_scheduler = [
    {"type": "LinearLR", "start_factor": 0.01, "by_epoch": False, "begin": 0, "end": 200},
    {"type": "CosineAnnealingLR", "eta_min": 0, "by_epoch": True, "convert_to_iter_based": True, "T_max": 6},
]
optim_wrapper = {
    "type": "OptimWrapper",
    "optimizer": {"type": "AdamW", "lr": 0.0003, "weight_decay": 0.0001},
    "clip_grad": {"max_norm": 1.0},
    "paramwise_cfg": {"custom_keys": {"backbone": {"lr_mult": 0.5}}},
}

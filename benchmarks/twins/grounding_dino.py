"""MM-Grounding-DINO with Swin-T, but of ResNet-18 with few channels, two scales from 1/16 and four layers."""

_base_ = "digits.py"
custom_imports = {"imports": ["benchmarks.twins.random_names"]}
classes = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
language_model = "mmort/demo/words/language_model"
model = {
    "type": "GroundingDINO",
    "num_queries": 40,
    "num_feature_levels": 2,
    "with_box_refine": True,
    "as_two_stage": True,
    "data_preprocessor": {
        "type": "DetDataPreprocessor",
        "mean": [123.675, 116.28, 103.53],
        "std": [58.395, 57.12, 57.375],
        "bgr_to_rgb": True,
        "pad_mask": False,
    },
    "language_model": {
        "type": "BertModel",
        "name": language_model,
        "max_tokens": 32,
        "pad_to_max": False,
        "use_sub_sentence_represent": True,
        "special_tokens_list": ["[CLS]", "[SEP]", ".", "?"],
        "add_pooling_layer": False,
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
        "bias": True,
        "norm_cfg": {"type": "GN", "num_groups": 32},
        "num_outs": 2,
    },
    "encoder": {
        "num_layers": 1,
        "num_cp": 0,
        "layer_cfg": {
            "self_attn_cfg": {"embed_dims": 256, "num_levels": 2, "dropout": 0.0},
            "ffn_cfg": {"embed_dims": 256, "feedforward_channels": 128, "ffn_drop": 0.0},
        },
        "text_layer_cfg": {
            "self_attn_cfg": {"num_heads": 4, "embed_dims": 256, "dropout": 0.0},
            "ffn_cfg": {"embed_dims": 256, "feedforward_channels": 128, "ffn_drop": 0.0},
        },
        "fusion_layer_cfg": {"v_dim": 256, "l_dim": 256, "embed_dim": 128, "num_heads": 4, "init_values": 0.1},
    },
    "decoder": {
        "num_layers": 2,
        "return_intermediate": True,
        "layer_cfg": {
            "self_attn_cfg": {"embed_dims": 256, "num_heads": 8, "dropout": 0.0},
            "cross_attn_text_cfg": {"embed_dims": 256, "num_heads": 8, "dropout": 0.0},
            "cross_attn_cfg": {"embed_dims": 256, "num_heads": 8, "num_levels": 2, "dropout": 0.0},
            "ffn_cfg": {"embed_dims": 256, "feedforward_channels": 128, "ffn_drop": 0.0},
        },
        "post_norm_cfg": None,
    },
    "positional_encoding": {"num_feats": 128, "normalize": True, "offset": 0.0, "temperature": 20},
    "bbox_head": {
        "type": "GroundingDINOHead",
        "num_classes": 10,
        "sync_cls_avg_factor": True,
        "contrastive_cfg": {"max_text_len": 32, "log_scale": "auto", "bias": True},
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
                {"type": "BinaryFocalLossCost", "weight": 2.0},
                {"type": "BBoxL1Cost", "weight": 5.0, "box_format": "xywh"},
                {"type": "IoUCost", "iou_mode": "giou", "weight": 2.0},
            ],
        }
    },
    "test_cfg": {"max_per_img": 40},
}
train_pipeline = [
    {"type": "LoadImageFromFile"},
    {"type": "LoadAnnotations", "with_bbox": True},
    {"type": "Resize", "scale": (208, 160), "keep_ratio": True},
    {"type": "Pad", "size_divisor": 32, "pad_val": {"img": (114, 114, 114)}},
    {"type": "RandomNames"},
    {
        "type": "PackDetInputs",
        "meta_keys": ("img_id", "img_path", "ori_shape", "img_shape", "scale_factor", "text", "custom_entities"),
    },
]
test_pipeline = [
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": (208, 160), "keep_ratio": True},
    {"type": "Pad", "size_divisor": 32, "pad_val": {"img": (114, 114, 114)}},
    {"type": "LoadAnnotations", "with_bbox": True},
    {
        "type": "PackDetInputs",
        "meta_keys": ("img_id", "img_path", "ori_shape", "img_shape", "scale_factor", "text", "custom_entities"),
    },
]
train_dataloader = {
    "batch_size": 4,
    "dataset": {"metainfo": {"classes": classes}, "return_classes": True, "pipeline": train_pipeline},
}
val_dataloader = {
    "dataset": {"metainfo": {"classes": classes}, "return_classes": True, "pipeline": test_pipeline},
}
test_dataloader = val_dataloader
train_cfg = {"max_epochs": 3}
param_scheduler = [
    {"type": "LinearLR", "start_factor": 0.01, "by_epoch": False, "begin": 0, "end": 200},
    {"type": "CosineAnnealingLR", "eta_min": 0, "by_epoch": True, "convert_to_iter_based": True, "T_max": 3},
]
optim_wrapper = {
    "type": "OptimWrapper",
    "optimizer": {"type": "AdamW", "lr": 0.0004, "weight_decay": 0.0001},
    "clip_grad": {"max_norm": 1.0},
    "paramwise_cfg": {"custom_keys": {"backbone": {"lr_mult": 0.5}}},
}

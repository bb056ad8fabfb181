"""MM-Grounding-DINO with Swin-T, but of ResNet-18 with few channels, two scales from 1/16 and four layers."""

_base_ = "dino.py"
custom_imports = {"imports": ["benchmarks.twins.random_names"]}
classes = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
language_model = "mmort/demo/words/language_model"
model = {
    "type": "GroundingDINO",
    "num_feature_levels": 2,
    "data_preprocessor": {"pad_mask": False},
    "language_model": {
        "type": "BertModel",
        "name": language_model,
        "max_tokens": 32,
        "pad_to_max": False,
        "use_sub_sentence_represent": True,
        "special_tokens_list": ["[CLS]", "[SEP]", ".", "?"],
        "add_pooling_layer": False,
    },
    "neck": {"bias": True, "num_outs": 2},
    "encoder": {
        "num_layers": 1,
        "num_cp": 0,
        "layer_cfg": {"self_attn_cfg": {"num_levels": 2}, "ffn_cfg": {"feedforward_channels": 128}},
        "text_layer_cfg": {
            "self_attn_cfg": {"num_heads": 4, "embed_dims": 256, "dropout": 0.0},
            "ffn_cfg": {"embed_dims": 256, "feedforward_channels": 128, "ffn_drop": 0.0},
        },
        "fusion_layer_cfg": {"v_dim": 256, "l_dim": 256, "embed_dim": 128, "num_heads": 4, "init_values": 0.1},
    },
    "decoder": {
        "num_layers": 2,
        "layer_cfg": {
            "cross_attn_text_cfg": {"embed_dims": 256, "num_heads": 8, "dropout": 0.0},
            "cross_attn_cfg": {"num_heads": 8, "num_levels": 2},
            "ffn_cfg": {"feedforward_channels": 128},
        },
    },
    "bbox_head": {
        "type": "GroundingDINOHead",
        "contrastive_cfg": {"max_text_len": 32, "log_scale": "auto", "bias": True},
    },
    "train_cfg": {
        "assigner": {
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
optim_wrapper = {"optimizer": {"lr": 0.0004}}

"""RTMDet-s, but three eighths as wide and half as deep."""

_base_ = "digits.py"
model = {
    "type": "RTMDet",
    "data_preprocessor": {
        "type": "DetDataPreprocessor",
        "mean": [103.53, 116.28, 123.675],
        "std": [57.375, 57.12, 58.395],
        "bgr_to_rgb": False,
    },
    "backbone": {
        "type": "CSPNeXt",
        "arch": "P5",
        "expand_ratio": 0.5,
        "deepen_factor": 0.167,
        "widen_factor": 0.1875,
        "channel_attention": True,
        "norm_cfg": {"type": "BN"},
        "act_cfg": {"type": "SiLU", "inplace": True},
    },
    "neck": {
        "type": "CSPNeXtPAFPN",
        "in_channels": [48, 96, 192],
        "out_channels": 48,
        "num_csp_blocks": 1,
        "expand_ratio": 0.5,
        "norm_cfg": {"type": "BN"},
        "act_cfg": {"type": "SiLU", "inplace": True},
    },
    "bbox_head": {
        "type": "RTMDetSepBNHead",
        "num_classes": 10,
        "in_channels": 48,
        "stacked_convs": 2,
        "feat_channels": 48,
        "anchor_generator": {"type": "MlvlPointGenerator", "offset": 0, "strides": [8, 16, 32]},
        "bbox_coder": {"type": "DistancePointBBoxCoder"},
        "loss_cls": {"type": "QualityFocalLoss", "use_sigmoid": True, "beta": 2.0, "loss_weight": 1.0},
        "loss_bbox": {"type": "GIoULoss", "loss_weight": 2.0},
        "with_objectness": False,
        "exp_on_reg": False,
        "share_conv": True,
        "pred_kernel_size": 1,
        "norm_cfg": {"type": "BN"},
        "act_cfg": {"type": "SiLU", "inplace": True},
    },
    "train_cfg": {
        "assigner": {"type": "DynamicSoftLabelAssigner", "topk": 13},
        "allowed_border": -1,
        "pos_weight": -1,
        "debug": False,
    },
    "test_cfg": {
        "nms_pre": 30000,
        "min_bbox_size": 0,
        "score_thr": 0.001,
        "nms": {"type": "nms", "iou_threshold": 0.65},
        "max_per_img": 300,
    },
}
optim_wrapper = {
    "type": "OptimWrapper",
    "optimizer": {"type": "AdamW", "lr": 0.004, "weight_decay": 0.05},
    "clip_grad": {"max_norm": 10},
    "paramwise_cfg": {"norm_decay_mult": 0, "bias_decay_mult": 0, "bypass_duplicate": True},
}

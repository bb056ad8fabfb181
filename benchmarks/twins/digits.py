"""The data, the steps of the training and what is written, of both twins; the batches are small images."""

default_scope = "mmdet"
classes = tuple("0123456789")
data_root = "data/"
train_pipeline = [
    {"type": "LoadImageFromFile"},
    {"type": "LoadAnnotations", "with_bbox": True},
    {"type": "Resize", "scale": (208, 160), "keep_ratio": True},
    {"type": "Pad", "size_divisor": 32, "pad_val": {"img": (114, 114, 114)}},
    {"type": "PackDetInputs"},
]
test_pipeline = [
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": (208, 160), "keep_ratio": True},
    {"type": "Pad", "size_divisor": 32, "pad_val": {"img": (114, 114, 114)}},
    {"type": "LoadAnnotations", "with_bbox": True},
    {"type": "PackDetInputs", "meta_keys": ("img_id", "img_path", "ori_shape", "img_shape", "scale_factor")},
]
train_dataloader = {
    "batch_size": 8,
    "num_workers": 0,
    "sampler": {"type": "DefaultSampler", "shuffle": True},
    "dataset": {
        "type": "CocoDataset",
        "metainfo": {"classes": classes},
        "data_root": data_root,
        "ann_file": "annotations/instances_train2017.json",
        "data_prefix": {"img": "train2017/"},
        "pipeline": train_pipeline,
    },
}
val_dataloader = {
    "batch_size": 1,
    "num_workers": 0,
    "sampler": {"type": "DefaultSampler", "shuffle": False},
    "dataset": {
        "type": "CocoDataset",
        "metainfo": {"classes": classes},
        "data_root": data_root,
        "ann_file": "annotations/instances_val2017.json",
        "data_prefix": {"img": "val2017/"},
        "test_mode": True,
        "pipeline": test_pipeline,
    },
}
test_dataloader = val_dataloader
val_evaluator = {"type": "CocoMetric", "ann_file": data_root + "annotations/instances_val2017.json", "metric": "bbox"}
test_evaluator = val_evaluator
train_cfg = {"type": "EpochBasedTrainLoop", "max_epochs": 10, "val_interval": 1}
val_cfg = {"type": "ValLoop"}
test_cfg = {"type": "TestLoop"}
param_scheduler = [
    {"type": "LinearLR", "start_factor": 0.01, "by_epoch": False, "begin": 0, "end": 200},
    {"type": "CosineAnnealingLR", "eta_min": 0, "by_epoch": True, "convert_to_iter_based": True, "T_max": 12},
]
default_hooks = {
    "logger": {"type": "LoggerHook", "interval": 25},
    "checkpoint": {"type": "CheckpointHook", "interval": 1, "max_keep_ckpts": 2},
}

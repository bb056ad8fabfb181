"""Images of several words, MMOCR's lists of where they are, and small text detections."""

import json

import cv2
import numpy as np

from tests.originals_mmocr import words

_RESNET = "dict(type='mmdet.ResNet', depth={depth}, base_channels={base}, norm_cfg=dict(type='BN'){more})"
_DCN = ", dcn=dict(type='DCNv2', deform_groups=1, fallback_on_stride=False), stage_with_dcn=(False, False, True, True)"
_FUSION = ", asf_cfg=dict(attention_type='ScaleChannelSpatial')"
_NECK = "dict(type='FPNC', in_channels={channels}, lateral_channels=16, out_channels=8{more})"
NETWORKS = {
    "DBNet": f"type='DBNet', backbone={_RESNET.format(depth=18, base=8, more='')}, "
    f"neck={_NECK.format(channels=[8, 16, 32, 64], more='')}",
    "DBNet++": (
        f"type='DBNet', backbone={_RESNET.format(depth=50, base=4, more=_DCN)}, "
        f"neck={_NECK.format(channels=[16, 32, 64, 128], more=_FUSION)}"
    ),
    "PSENet": f"type='PSENet', backbone={_RESNET.format(depth=18, base=8, more='')}, "
    "neck=dict(type='FPNF', in_channels=[8, 16, 32, 64], out_channels=256, fusion_type='concat')",
    "PAN": f"type='PANet', backbone={_RESNET.format(depth=18, base=8, more='')}, "
    "neck=dict(type='FPEM_FFM', in_channels=[8, 16, 32, 64], conv_out=8)",
}
DB = "dict(type='DBHead', in_channels=32, module_loss=dict(type='DBModuleLoss'), postprocessor={postprocessor})"
HEADS = {
    "DBNet": DB,
    "DBNet++": DB,
    "PSENet": (
        "dict(type='PSEHead', in_channels=[256], hidden_dim=16, out_channel=7, "
        "module_loss=dict(type='PSEModuleLoss'), postprocessor={postprocessor})"
    ),
    "PAN": (
        "dict(type='PANHead', in_channels=[8, 8, 8, 8], hidden_dim=16, out_channel=6, "
        "module_loss=dict(type='PANModuleLoss'), postprocessor={postprocessor})"
    ),
}
CONFIG = """
default_scope = "mmocr"
model = dict(
    {network},
    det_head={head},
    data_preprocessor=dict(
        type="TextDetDataPreprocessor", mean=[123.0, 116.0, 103.0], std=[58.0, 57.0, 57.0], bgr_to_rgb=True,
        pad_size_divisor=32,
    ),
)
test_pipeline = [
    dict(type="LoadImageFromFile", color_type="color_ignore_orientation"),
    dict(type="Resize", scale={scale}, keep_ratio=True),
    dict(type="LoadOCRAnnotations", with_polygon=True, with_bbox=True, with_label=True),
    dict(type="PackTextDetInputs", meta_keys=("img_path", "ori_shape", "img_shape", "scale_factor")),
]
test_dataloader = dict(
    batch_size=1,
    dataset=dict(type="OCRDataset", data_root={root!r}, ann_file="signs.json", test_mode=True, pipeline=test_pipeline),
)
test_evaluator = dict(type="HmeanIOUMetric")
"""


def write(folder, count, seed):
    """Write images of up to four words each, some of them turned, and MMOCR's list of them."""
    (folder / "signs").mkdir(parents=True)
    rng, entries = np.random.default_rng(seed), []
    for index in range(count):
        height, width = int(rng.integers(96, 140)), int(rng.integers(140, 220))
        image = cv2.resize(rng.integers(150, 256, (3, 5, 3), dtype=np.uint8), (width, height))
        instances = []
        for row in range(2):
            for column in range(2):
                if rng.random() < 0.3:
                    continue
                text = "".join(rng.choice(list(words.DICTIONARY), rng.integers(2, 5)))
                (w, h), below = cv2.getTextSize(text, cv2.FONT_HERSHEY_DUPLEX, 0.7, 2)
                layer = np.zeros((height, width), np.uint8)
                x, y = 6 + column * width // 2, 30 + row * height // 2
                cv2.putText(layer, text, (x, y), cv2.FONT_HERSHEY_DUPLEX, 0.7, 255, 2, cv2.LINE_AA)
                turn = cv2.getRotationMatrix2D((x + w / 2, y - h / 2), float(rng.uniform(-12, 12)), 1)
                layer = cv2.warpAffine(layer, turn, (width, height))
                corners = np.array([(x, y - h), (x + w, y - h), (x + w, y + below), (x, y + below)], np.float64)
                corners = corners @ turn[:, :2].T + turn[:, 2]
                image = np.where(layer[..., None] > 127, np.uint8(20), image)
                polygon = [round(float(number), 1) for number in corners.ravel()]
                box = [float(number) for number in (*corners.min(0), *corners.max(0))]
                ignore = bool(rng.random() < 0.1)
                instances.append({"polygon": polygon, "bbox": box, "bbox_label": 0, "ignore": ignore, "text": text})
        cv2.imwrite(str(folder / "signs" / f"{index:03}.png"), image)
        entries.append({"img_path": f"signs/{index:03}.png", "height": height, "width": width, "instances": instances})
    info = {"dataset_type": "TextDetDataset", "task_name": "textdet", "category": [{"id": 0, "name": "text"}]}
    (folder / "signs.json").write_text(json.dumps({"metainfo": info, "data_list": entries}))


def config(folder, root, network="DBNet", scale=(256, 160), postprocessor="dict(type='DBPostprocessor')"):
    """Write a config; return its path."""
    path = folder / "config.py"
    head = HEADS[network].format(postprocessor=postprocessor)
    path.write_text(CONFIG.format(network=NETWORKS[network], head=head, scale=scale, root=str(root)))
    return path

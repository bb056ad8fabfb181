"""Files of detectors whose masks cover the image, at a fixed size and by torch's older exporter, which is faster."""

import json

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

import mmort.onnx
import mmort.ort
from mmort import Predictor
from mmort.configs import read_config
from mmort.detect import build
from mmort.detect.export import ExportOptions, export
from mmort.detect.export.exported_detector import Exported
from mmort.detect.network import load_network
from mmort.onnx.verify.detections import DetectionRow
from tests.detect import mask_cases, panoptic_cases, part_cases

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""torch's, about nodes that its older exporter does not fold."""


class Maps(nn.Module):
    """Stands for a backbone, with maps of 1/4 ... 1/32 of the input's size."""

    def __init__(self, channels):
        super().__init__()
        self.channels, self.conv = list(channels), nn.Conv2d(3, sum(channels), 4, stride=4)

    def forward(self, x):
        maps = self.conv(x).split(self.channels, 1)
        return tuple(functional.avg_pool2d(x, 2**level) for level, x in enumerate(maps))


def with_few_levels(name):
    """Return a detector with three levels instead of five."""
    model = mask_cases.config(name)["model"]
    model["neck"]["num_outs"] = 3
    if name == "yolact":
        anchors = model["bbox_head"]["anchor_generator"]
        model["bbox_head"]["anchor_generator"] = {
            key: value[:3] if key in ("base_sizes", "strides", "centers") else value for key, value in anchors.items()
        }
    else:
        model["bbox_head"]["strides"] = model["bbox_head"]["strides"][:3]
    detector = build({"model": model})
    detector.backbone = Maps(mask_cases.CHANNELS)
    mask_cases.fill(detector)
    return detector.eval().requires_grad_(False)


def with_one_layer():
    """Return a Mask2Former whose decoders have one layer."""
    model = mask_cases.config("mask2former")["model"]
    head = model["panoptic_head"]
    head["transformer_decoder"]["num_layers"] = 1
    detector = build({"model": model})
    detector.backbone = Maps(mask_cases.CHANNELS)
    mask_cases.fill(detector)
    return detector.eval().requires_grad_(False)


def with_few_instances():
    """Return a Panoptic FPN with two instances, as its map takes some nodes for each."""
    config = panoptic_cases.config("panoptic_fpn")
    config["model"]["test_cfg"]["rcnn"] |= {"max_per_img": 2, "score_thr": 0.05}
    config["model"]["test_cfg"]["rpn"] |= {"nms_pre": 20, "max_per_img": 20}
    detector = build(config)
    detector.backbone = Maps([12, 24, 48, 96])
    panoptic_cases.fill("panoptic_fpn", detector)
    return detector.eval().requires_grad_(False)


SMALL = {
    "boxinst": lambda: with_few_levels("boxinst"),  # and so CondInst, from which it differs in numbers only
    "mask2former": with_one_layer,
    "panoptic_fpn": with_few_instances,
    "yolact": lambda: with_few_levels("yolact"),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_file_equals_torch(name, tmp_path):
    module = Exported(SMALL[name](), pasted=name == "panoptic_fpn")
    args = part_cases.numbers(1, 3, 64, 96), torch.tensor([[64, 80]])
    path, names = tmp_path / "file.onnx", list(module.output_names)
    mmort.onnx.export(module, args, path, exporter="legacy", opset_version=17, output_names=names, verify=False)
    report = mmort.onnx.verify(path, module, [args])
    assert report.ok, report
    (row,) = (row for row in report.rows if isinstance(row, DetectionRow))
    assert row.matched >= 2


def test_a_panoptic_file_predicts_and_has_its_map(tmp_path):
    config, weights, path = (tmp_path / name for name in ("config.json", "weights.pth", "file.onnx"))
    settings = panoptic_cases.config("maskformer")
    settings["model"]["test_cfg"]["filter_low_score"] = True
    config.write_text(json.dumps(settings))
    detector = build(settings)
    panoptic_cases.fill("maskformer", detector)
    torch.save({"state_dict": detector.state_dict(), "meta": {}}, weights)
    options = ExportOptions(shape=panoptic_cases.CANVAS, opset_version=17, paste_masks=True)
    assert export(config, weights, path, options, progress=lambda line: None).ok
    image = part_cases.numbers(130, 177, 3).mul(127).add(128).numpy().astype(np.uint8)
    network = load_network(read_config(config), weights)
    expected = Predictor(network, preprocessing=network.preprocessing, score_threshold=0)(image)
    detections = Predictor(path, score_threshold=0)(image)
    assert len(detections.names) > 1
    assert (detections.panoptic_map == expected.panoptic_map).mean() > 0.999
    prepared = Predictor(path, score_threshold=0).preprocessing(image)
    session = mmort.ort.session(path, sess_options=onnxruntime.SessionOptions())
    inputs, shapes = network.preprocessing.batch([prepared])
    (map,) = session.run(["panoptic"], {"input": inputs, "img_shape": shapes})
    assert map.shape == (1, *panoptic_cases.CANVAS)
    assert set(np.unique(map)) == set(np.unique(expected.panoptic_map))

"""Fast R-CNN, whose proposals are an input: in torch, in its file, and where nothing makes proposals."""

import copy

import numpy as np
import pytest
import torch

import mmort.ort
from mmort import Predictor
from mmort.detect import build, unsupported
from mmort.detect.export import ExportOptions, export_network
from mmort.detect.network import TorchNetwork
from mmort.predict import FixedSizeWarning, Preprocessing
from tests.detect import two_stage_cases

SHAPES = torch.tensor([[64, 96], [56, 72]])
PIPELINE = [
    {"type": "LoadImageFromFile"},
    {"type": "LoadProposals", "num_max_proposals": 2000},
    {"type": "Resize", "scale": (96, 64), "keep_ratio": True},
    {"type": "PackDetInputs"},
]


def configs():
    """Return the configs of a Faster R-CNN and of the Fast R-CNN that lacks its first stage."""
    model = copy.deepcopy(two_stage_cases.CONFIG["model"])
    del model["roi_head"]["mask_head"], model["roi_head"]["mask_roi_extractor"]
    model["test_cfg"]["rpn"] |= {"nms_pre": 40, "max_per_img": 40}
    model["test_cfg"]["rcnn"] |= {"max_per_img": 15}
    fast = copy.deepcopy(model) | {"type": "FastRCNN"}
    del fast["rpn_head"], fast["test_cfg"]["rpn"]
    return {"model": model | {"type": "FasterRCNN"}}, {"model": fast, "test_pipeline": PIPELINE}


@pytest.fixture(scope="module")
def detectors():
    torch.manual_seed(1)
    faster, fast = map(build, configs())
    faster.roi_head.bbox_head.fc_cls.weight *= 20
    for name, weights in fast.state_dict().items():
        weights.copy_(faster.state_dict()[name])
    return faster, fast


def test_fast_rcnn_given_an_rpns_proposals_is_faster_rcnn(detectors):
    faster, fast = detectors
    assert fast.family == "Fast R-CNN"
    torch.manual_seed(0)
    images = torch.randn(2, 3, 64, 96)
    images[1, :, 56:], images[1, :, :, 72:] = 0, 0
    actual = []
    faster.rpn_head.register_forward_hook(lambda head, inputs, output: actual.append(output))
    expected = faster(images, SHAPES)
    ((proposals, used),) = actual
    proposals = torch.where(used[..., None], proposals, 0)
    for output, wanted in zip(fast(images, SHAPES, proposals), expected, strict=True):
        torch.testing.assert_close(output, wanted, rtol=0, atol=0)
    assert (expected[1] >= 0).sum() > 5
    with pytest.raises(ValueError, match=r"Fast R-CNN needs proposals \(N, P, 4\) besides the images"):
        fast(images, SHAPES)
    with pytest.raises(ValueError, match="Faster R-CNN makes proposals itself"):
        faster(images, SHAPES, proposals)


def test_a_file_takes_any_number_of_proposals(detectors, tmp_path):
    _, config = configs()
    assert unsupported(config) == []
    network, path = TorchNetwork(detectors[1], Preprocessing.from_config(config)), tmp_path / "fast.onnx"
    options = ExportOptions(shape=(64, 96), opset_version=17)  # torch's older exporter is faster
    with pytest.warns(FixedSizeWarning, match="takes inputs of 64 x 96 only"):
        assert export_network(network, config, path, options, progress=lambda line: None).ok
    session = mmort.ort.session(path)
    inputs = {formal.name: formal.shape for formal in session.get_inputs()}
    assert list(inputs)[:2] == ["input", "proposals"]
    assert inputs["proposals"][::2] == [1, 4]
    image = np.random.default_rng(0).standard_normal((1, 3, *inputs["input"][2:]), np.float32)
    boxes = np.array([[[3, 5, 40, 50], [0, 0, 0, 0], [20, 10, 90, 60]]], np.float32)
    outputs = session.run(None, {"input": image, "proposals": boxes})
    expected = detectors[1](*map(torch.from_numpy, (image,)), proposals=torch.from_numpy(boxes))
    for output, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, wanted.numpy(), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"takes proposals \(N, P, 4\) besides the images"):
        Predictor(path, score_threshold=0)


@pytest.mark.parametrize("option", ["skip_postprocess", "show"])
def test_options_that_need_an_rpn_are_refused(detectors, tmp_path, option):
    _, config = configs()
    network = TorchNetwork(detectors[1], Preprocessing.from_config(config))
    with pytest.raises(ValueError, match=f"export: {option} must be False for Fast R-CNN, which takes proposals"):
        export_network(network, config, tmp_path / "x.onnx", ExportOptions(**{option: True}), progress=str)


def test_other_two_stage_detectors_must_have_an_rpn():
    config = two_stage_cases.config_of("HTC")
    del config["model"]["rpn_head"]
    with pytest.raises(ValueError, match="'HybridTaskCascade' must have an rpn_head"):
        build(config)

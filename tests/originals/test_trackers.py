"""A tracker's file detects what the tracker's detector detects in each image, by MMDetection's own preprocessing."""

import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.dataset import Compose, pseudo_collate

from mmort import Predictor
from mmort.detect import unsupported
from mmort.detect.network import load_network
from tests.originals.candidate import _image_result
from tests.originals.cases import CASES
from tests.originals.compare import filled
from tests.originals.comparison import differences, require_substance
from tests.originals.images import image_files
from tests.originals.original import MODELS, Original, _without_warnings
from tests.originals.original import _image_result as _result
from tests.originals.results import BatchResult

STEPS = [
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": (131, 90), "keep_ratio": True},
    {"type": "LoadTrackAnnotations"},
]
PIPELINE = [{"type": "TransformBroadcaster", "transforms": STEPS}, {"type": "PackTrackInputs"}]
PREPROCESSOR = {
    "type": "TrackDataPreprocessor",
    "mean": [123.675, 116.28, 103.53],
    "std": [58.395, 57.12, 57.375],
    "bgr_to_rgb": True,
    "pad_size_divisor": 32,
    "use_det_processor": True,
}
KINDS = "ByteTrack", "DeepSORT", "OCSORT"  # without what joins the detections, which needs further packages


@_without_warnings
def tracked(tracker, paths):
    """Return what a tracker's detector detects in each image, which is a video of its own."""
    results = []
    for path in paths:
        frame = {"img_path": [path], "img_id": [0], "ori_shape": [None], "instances": [[]], "frame_id": [0]}
        batch = tracker.data_preprocessor(pseudo_collate([Compose(PIPELINE)(frame)]), False)
        inputs, sample = batch["inputs"][:, 0], batch["data_samples"][0][0]
        with torch.inference_mode():
            results.append(BatchResult(inputs.numpy(), [_result(tracker.detector.predict(inputs, [sample])[0])]))
    return results


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["yolox", "faster_rcnn"])
def test_equal(kind, name, tmp_path):
    case = CASES[name]
    original, _ = filled(Original, case, case.config())
    detector = {key: value for key, value in case.model.items() if key != "data_preprocessor"}
    model = {"type": kind, "data_preprocessor": PREPROCESSOR, "detector": detector}
    config = {"model": model, "test_dataloader": {"dataset": {"type": "MOTChallengeDataset", "pipeline": PIPELINE}}}
    tracker = MODELS.build(ConfigDict(model)).eval()
    tracker.detector.load_state_dict(original.model.state_dict(), strict=False)
    torch.save({"state_dict": tracker.state_dict()}, tmp_path / "tracker.pth")
    assert unsupported(config) == []
    network = load_network(config, tmp_path / "tracker.pth")
    expected = tracked(tracker, image_files()[:2])
    require_substance(expected, case.classes)
    for path, result in zip(image_files(), expected, strict=False):
        prepared = [network.preprocessing(path)]
        input, _ = network.preprocessing.batch(prepared)
        detections = Predictor(network, preprocessing=network.preprocessing, score_threshold=0).run(prepared)
        assert not differences(BatchResult(input, list(map(_image_result, detections))), result)

"""The road of an export: `mmort.detect` calls `mmort.onnx`, which runs the detector as a module and calls nothing else.

Below a call of `mmort.onnx`, code of `mmort.detect` runs as part of a module's forward only: no function of the export
is handed down to be called back.
"""

import json
import sys
from pathlib import Path

import pytest
import torch

import mmort
from mmort.detect import build, load
from mmort.detect.export import ExportOptions, export
from mmort.onnx.export.draft import expected_outputs

ROOT = f"{Path(mmort.__file__).parent}/"
DATA = Path(__file__).parents[1] / "data"
CALLING_A_MODULE = torch.nn.Module._wrapped_call_impl.__code__


class Road:
    """Records which files of mmort a block enters, and what `mmort.onnx` calls of `mmort.detect`."""

    def __init__(self):
        self.files, self.called_back = set(), set()
        self._depths = {"onnx": 0, "module": 0}

    def __enter__(self):
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _profile(self, frame, event, _):
        if event not in ("call", "return"):
            return
        code, change = frame.f_code, 1 if event == "call" else -1
        if code is CALLING_A_MODULE:
            self._depths["module"] += change
        elif code.co_filename.startswith(ROOT) and code.co_name != "<module>":
            file = code.co_filename.removeprefix(ROOT)
            package = file.partition("/")[0]
            if package == "onnx":
                self._depths["onnx"] += change
            elif package == "detect" and self._depths["onnx"] and not self._depths["module"]:
                self.called_back.add(f"{file}: {code.co_name}")
            self.files.add(file)


def faster_rcnn(directory):
    """Write the config and a checkpoint of a small Faster R-CNN with random weights."""
    config = json.loads((DATA / "detect" / "mask_rcnn.json").read_text())
    pipelines = json.loads((DATA / "preprocessing" / "expected.json").read_text())
    config["test_pipeline"] = pipelines["cascade_mask_rcnn"]["pipeline"]
    model = config["model"]
    model["type"] = "FasterRCNN"
    model["backbone"] |= {"num_stages": 2, "out_indices": [0, 1]}
    model["neck"] |= {"in_channels": [12, 24], "num_outs": 3}
    model["rpn_head"]["anchor_generator"]["strides"] = [4, 8, 16]
    head = model["roi_head"]
    head["bbox_roi_extractor"]["featmap_strides"] = [4, 8]
    model["roi_head"] = {name: entry for name, entry in head.items() if "mask" not in name}
    (directory / "config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    torch.save({"state_dict": build(config).state_dict(), "meta": {}}, directory / "weights.pth")
    return directory / "config.json", directory / "weights.pth"


@pytest.mark.filterwarnings("ignore::mmort.predict.FixedSizeWarning")
def test_the_export_of_a_faster_rcnn_goes_down_once(tmp_path):
    files, lines = faster_rcnn(tmp_path), []
    with Road() as road:
        report = export(
            *files, tmp_path / "x.onnx", ExportOptions(shape=(64, 96), opset_version=16), progress=lines.append
        )
    assert report.ok
    assert (tmp_path / "x.onnx").exists()
    assert {"detect/export/export_steps.py", "onnx/export/draft.py", "onnx/verify/sessions.py"} <= road.files
    assert sorted(road.called_back) == []


def test_what_is_handed_down_and_called_is_seen(tmp_path):
    detector = load(*faster_rcnn(tmp_path))
    with Road() as road:
        expected_outputs(detector, (torch.zeros(1, 3, 64, 64), torch.tensor([[64, 64]])))
    assert not road.called_back
    with Road() as road:
        expected_outputs(detector.raw, (torch.zeros(1, 3, 64, 64),))
    assert "detect/parts/two_stage.py: raw" in road.called_back

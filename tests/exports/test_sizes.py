"""The sizes that files take: all of them, or one that is chosen.

`.ci/run exports` runs this; the suite does not, as each export takes seconds.
"""

import re

import numpy as np
import pytest
import torch

import mmort.onnx
import mmort.ort
from mmort.configs import read_config
from mmort.detect import build
from tests.cli import running
from tests.detect import test_dense_detectors as dense
from tests.detect.small_exports import SmallExport, small_cases
from tests.detect.test_detect_export import FCOS

fcos, images, recorded = dense.fcos, dense.images, dense.recorded  # fixtures


@pytest.mark.filterwarnings("default::mmort.predict.FixedSizeWarning")  # printed, as by the command
@pytest.mark.parametrize(
    ("arguments", "shape", "compared", "warning"),
    [
        ((), ["batch", 3, "height", "width"], "1x3x448x320, 3x3x96x128, 1x3x160x224", None),
        (
            ("--shape", 64, 96, "--dynamic-export"),
            ["batch", 3, "height", "width"],
            "2x3x64x96, 1x3x192x128, 3x3x64x96",
            None,
        ),
        (
            ("--static",),
            [1, 3, 224, 224],
            "1x3x224x224, 1x3x224x224, 1x3x224x224, 1x3x224x224",
            "takes inputs of 224 x 224 only",
        ),
        (
            ("--shape", 64, 96),
            [1, 3, 64, 96],
            "1x3x64x96, 1x3x64x96, 1x3x64x96",
            "fits images into 160 x 208, which do not fit",
        ),
    ],
)
def test_sizes_that_a_file_takes(arguments, shape, compared, warning, tmp_path):
    """All, or one that is chosen; the comparison includes the example as the pipeline makes it."""
    path = tmp_path / "x.onnx"
    options = ("--opset-version", 17, "--cfg-options", "model.test_cfg.nms_pre=1")  # the older exporter is faster
    code, out, err = running.run("export", *FCOS, "--output-file", path, *arguments, *options)
    assert code == 0
    assert mmort.ort.session(path).get_inputs()[0].shape == shape
    assert f"comparing ONNX Runtime with torch at {compared}\n" in out
    sizes = "all sizes" if shape[0] == "batch" else f"{shape[2]} x {shape[3]} only"
    assert f" MB, for inputs of {sizes}\n" in out
    if warning is None:
        assert err == ""
    else:
        assert re.fullmatch(r"mmort: warning: the file takes .*; by default files take inputs of all sizes\n", err)
        assert warning in err


@pytest.fixture(scope="module")
def small_fcos(fcos):
    """Return the detector with half of its network: torch.export takes seconds for each level and tower."""
    config = read_config(dense.DATA / "fcos/config.py")
    parts = config["model"]
    parts["backbone"] |= {"num_stages": 2, "out_indices": (0, 1)}
    parts["neck"] |= {"in_channels": [12, 24], "num_outs": 2}
    parts["bbox_head"] |= {"stacked_convs": 1, "strides": [8, 16]}
    detector = build(config)
    detector.load_state_dict(fcos.state_dict(), strict=False)
    return detector


@pytest.fixture(scope="module")
def exported(small_fcos, images, tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "fcos.onnx"
    batch, shapes = images[0].batch(images[1][:2])
    args = torch.from_numpy(batch[:, :, :101, :190].copy()), torch.from_numpy(np.minimum(shapes, [101, 190]))
    dynamic = torch.export.Dim.DYNAMIC
    check_sizes = [tuple(map(torch.from_numpy, images[0].batch(chosen))) for chosen in (images[1], images[1][:1])]
    mmort.onnx.export(
        small_fcos,
        args,
        path,
        dynamic_shapes=({0: dynamic, 2: dynamic, 3: dynamic}, {0: dynamic}),
        check_sizes=check_sizes,
        output_names=["dets", "labels"],
    )
    return mmort.ort.session(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("shape", [(1, 3, 33, 129), (4, 3, 200, 64)])
def test_onnx_runtime_agrees_at_sizes_that_were_not_traced(exported, small_fcos, shape, rng):
    input = rng.standard_normal(shape, np.float32) * 50
    img_shape = np.tile(np.array(shape[2:]) - [5, 9], (shape[0], 1))
    outputs = exported.run(None, {"input": input, "img_shape": img_shape})
    for dets, labels, torchs in zip(*outputs, dense.run(small_fcos, input, img_shape), strict=True):
        assert len(torchs.dets) > 0
        dense.assert_same(dense.found(dets, labels), torchs)


@pytest.mark.parametrize("name", ["Rotated RTMDet", "Oriented R-CNN"])
def test_rotated_boxes_in_files_of_all_sizes(name, tmp_path):
    path = tmp_path / "x.onnx"
    assert SmallExport(*small_cases()[name], path, dynamic=True).write().ok
    assert mmort.ort.session(path).get_inputs()[0].shape == ["batch", 3, "height", "width"]

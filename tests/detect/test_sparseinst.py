"""SparseInst with the keys of its checkpoint, against what MMDetection's project detected."""

import copy
import json
import pathlib
import re

import numpy as np
import onnxruntime
import pytest
import torch

import mmort.onnx
from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from tests.detect import mask_cases, sparseinst_cases

RECORDED = json.loads((pathlib.Path(__file__).parents[1] / "data/detect/sparseinst.json").read_text())


def built(name="sparseinst", part=None, **entries):
    """Return a detector, of which a part has other entries."""
    model = copy.deepcopy(sparseinst_cases.MODELS[name])
    (model[part] if part else model).update(entries)
    return build({"model": model})


@pytest.mark.parametrize("name", sparseinst_cases.MODELS)
def test_masks_are_the_projects(name):
    detector, recorded = built(name), RECORDED[name]
    assert {key: list(value.shape) for key, value in detector.state_dict().items()} == recorded["shapes"]
    load_weights(detector, sparseinst_cases.weights(recorded["shapes"]))
    mask_cases.assert_recorded(detector, *mask_cases.batch(name), recorded["images"])


def test_the_last_maps_are_read():
    """A backbone may have more maps than the encoder reads."""
    detector, larger = built(), built(backbone={**mask_cases.BACKBONE, "out_indices": (0, 1, 2, 3)})
    for network in (detector, larger):
        sparseinst_cases.fill(network)
    input, _ = mask_cases.batch("sparseinst")
    assert all(map(torch.equal, detector(input), larger(input)))
    fewer = built(backbone={**mask_cases.BACKBONE, "out_indices": (2, 3)})
    with pytest.raises(ValueError, match=r"the backbone must have at least 3 maps \(out_indices\), got 2"):
        fewer(input)


@pytest.mark.parametrize(
    ("levels", "cells", "size"),
    [((1, 2, 3), (16, 32), (64, 123)), ((0, 1, 2), (32, 64), (64, 128))],
    ids=["no_whole_number_of_pixels", "finer_maps"],
)
def test_boxes_are_those_of_the_masks(levels, cells, size):
    """Cells of 4 x 3.84 pixels, and of 2 x 2."""
    channels = [mask_cases.CHANNELS[level] for level in levels]
    encoder = {**sparseinst_cases.MODELS["sparseinst"]["encoder"], "in_channels": channels}
    detector = built(backbone={**mask_cases.BACKBONE, "out_indices": levels}, encoder=encoder)
    decide, masks = detector.decoder.forward, torch.full((1, 12, *cells), -9.0)
    masks[..., 4:6, 13:20] = 9
    detector.decoder.forward = lambda x: (torch.full((1, 12, 8), 9.0), *decide(x)[1:2], masks + 0 * decide(x)[2])
    dets, _, _ = detector(torch.zeros(1, 3, *size))
    x, y = size[1] / cells[1], size[0] / cells[0]
    np.testing.assert_allclose(dets[0, 0, :4], [13 * x, 4 * y, 20 * x, 6 * y], atol=0.1 * y)


def test_instances_that_are_left_out():
    """Below the threshold before the mask counts; a row without any pixels stays, with a score of 0."""
    detector = built(part="test_cfg", score_thr=0.5)
    classes, masks = torch.full((1, 3, 8), -20.0), torch.full((1, 3, 24, 32), -9.0)
    classes[0, :, 2] = torch.tensor([-1.2, 20, 20])
    masks[0, :2] = torch.tensor([9.0, 0.0])[:, None, None]
    detector.decoder.forward = lambda x: (classes, torch.full((1, 3, 1), 20.0), masks)
    dets, labels, outputs = detector(torch.zeros(1, 3, 96, 128))
    assert labels.tolist() == [[2, 2, -1]]
    np.testing.assert_allclose(dets[0, :, 4], [0.5, 0, 0], atol=1e-5)
    assert dets[0, 0, :4].tolist() == [0, 0, 128, 96]
    assert not dets[0, 1:, :4].any()
    assert not outputs[0, 2].any()


def test_shares_of_low_logits_in_a_file(tmp_path):
    """ONNX Runtime's sigmoid of -18 is 0, and that of -16 half of what it should be."""
    logits = torch.linspace(-19, -12, 64).reshape(1, 1, 64)
    branch = built().decoder.inst_branch
    mmort.onnx.export(lambda logits: branch.shares(logits), (logits,), tmp_path / "shares.onnx", verify=False)
    (actual,) = onnxruntime.InferenceSession(tmp_path / "shares.onnx").run(None, {"logits": logits.numpy()})
    expected = logits.double().sigmoid()
    np.testing.assert_allclose(actual, expected / expected.sum(), rtol=1e-4)


def test_the_pyramid_of_a_file_at_other_sizes(tmp_path):
    """The bins of the pooled maps depend on the size: coarsest maps of 1x1, of odd sizes, smaller and larger than 6."""
    detector = built()
    sparseinst_cases.fill(detector)

    def maps(height, width):
        generator = torch.Generator().manual_seed(height)
        channels = zip((4, 2, 1), mask_cases.CHANNELS[1:], strict=True)
        return tuple(torch.randn(1, c, factor * height, factor * width, generator=generator) for factor, c in channels)

    sizes = {2: "h", 3: "w"}
    dynamic = ([{axis: f"{name}{level}" for axis, name in sizes.items()} for level in range(3)],)
    path = tmp_path / "encoder.onnx"
    mmort.onnx.export(detector.encoder, (list(maps(4, 5)),), path, dynamic_shapes=dynamic, verify=False)
    session = onnxruntime.InferenceSession(path)
    names = [value.name for value in session.get_inputs()]
    for height, width in ((1, 1), (3, 5), (7, 6), (13, 2)):
        features = maps(height, width)
        (actual,) = session.run(None, {name: x.numpy() for name, x in zip(names, features, strict=True)})
        np.testing.assert_allclose(actual, detector.encoder(features), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("part", "entries", "match"),
    [
        ("encoder", {"in_channels": [16, 32]}, "in_channels of encoder 'InstanceContextEncoder' must be 3 elements"),
        ("encoder", {"act_cfg": None}, "act_cfg of encoder 'InstanceContextEncoder' must be a dict, got None"),
        ("encoder", {"pool_sizes": [1, 2]}, "encoder 'InstanceContextEncoder' with pool_sizes is not supported"),
        ("encoder", {"out_channels": 12}, "in_channels of decoder must be out_channels of encoder and two coordinates"),
        ("decoder", {"num_groups": 2}, "decoder 'BaseIAMDecoder' with num_groups is not supported"),
        ("decoder", {"scale_factor": 1.5}, "scale_factor of decoder 'BaseIAMDecoder' must be 1, 2, 4 or 8, got 1.5"),
        ("decoder", {"type": "IAMDecoder"}, "decoder 'IAMDecoder' of model.type 'SparseInst' is not supported"),
        ("test_cfg", {"mask_thr_binary": -1}, "mask_thr_binary of test_cfg must be a number of at least 0, got -1"),
        ("test_cfg", {"max_per_img": 10}, "test_cfg with max_per_img is not supported"),
        (None, {"neck": {"type": "FPN"}}, "neck of model must be None, got {'type': 'FPN'}"),
        (None, {"type": "Sparse"}, "model 'Sparse' is not supported; supported: SparseInst"),
    ],
)
def test_other_entries_are_refused(part, entries, match):
    with pytest.raises(ValueError, match=re.escape(match)):
        built(part=part, **entries)

"""The layers: MMCV's keys, initial values, and the functions that they call."""

import copy

import numpy as np
import pytest
import torch

import mmort.torch
from tests.compare import assert_close
from tests.torch.calls import ROIS


def keys(module):
    return {name: list(value.shape) for name, value in module.state_dict().items()}


def test_layers_have_the_keys_of_mmcv():
    assert keys(mmort.torch.DeformConv2d(4, 6, 3, groups=2)) == {"weight": [6, 2, 3, 3]}
    assert keys(mmort.torch.DeformConv2dPack(4, 6, (3, 1), deform_groups=2)) == {
        "weight": [6, 4, 3, 1],
        "conv_offset.weight": [12, 4, 3, 1],
        "conv_offset.bias": [12],
    }
    assert keys(mmort.torch.ModulatedDeformConv2d(4, 6, 3)) == {"weight": [6, 4, 3, 3], "bias": [6]}
    assert keys(mmort.torch.ModulatedDeformConv2dPack(4, 6, 3, bias=False)) == {
        "weight": [6, 4, 3, 3],
        "conv_offset.weight": [27, 4, 3, 3],
        "conv_offset.bias": [27],
    }
    for layer in (
        mmort.torch.RoIAlign(7),
        mmort.torch.RoIAlignRotated(7, 1),
        mmort.torch.SimpleRoIAlign(7, 1),
        mmort.torch.CornerPool("top"),
    ):
        assert keys(layer) == {}


@pytest.mark.parametrize("steps", [(1, 1, 1), (2, 0, 1), ((1, 2), (2, 1), (2, 1))], ids=str)
def test_new_packs_are_plain_convolutions(steps, rng):
    """Offsets are initialized to 0, masks to one half."""
    input = torch.tensor(rng.standard_normal((2, 4, 9, 8)).astype(np.float32))
    plain = mmort.torch.DeformConv2dPack(4, 6, 3, *steps, groups=2)
    modulated = mmort.torch.ModulatedDeformConv2dPack(4, 6, 3, *steps, groups=2)
    for layer, factor in ((plain, 1), (modulated, 0.5)):
        assert 0 < layer.weight.abs().max() <= 1 / np.sqrt(2 * 9)
        expected = factor * torch.nn.functional.conv2d(input, layer.weight, None, *steps, groups=2)
        assert_close([layer(input).detach().numpy()], [expected.detach().numpy()])


def test_modulated_pack_takes_offsets_before_masks(rng):
    layer = mmort.torch.ModulatedDeformConv2dPack(2, 3, 3, padding=1, deform_groups=2)
    torch.nn.init.normal_(layer.conv_offset.weight)
    input = torch.tensor(rng.standard_normal((1, 2, 5, 6)).astype(np.float32))
    offset, mask = layer.conv_offset(input).split([36, 18], dim=1)
    expected = mmort.torch.modulated_deform_conv2d(
        input, offset, mask.sigmoid(), layer.weight, layer.bias, padding=1, deform_groups=2
    )
    assert torch.equal(layer(input), expected)


@pytest.mark.parametrize("output_size", [2, (3, 2)])
def test_region_layers_call_the_functions(output_size, rng):
    input = torch.tensor(rng.standard_normal((2, 3, 8, 9)).astype(np.float32))
    rois = ROIS.float()
    layer = mmort.torch.RoIAlign(output_size, 0.5, 2, "max", aligned=False)
    assert torch.equal(layer(input, rois), mmort.torch.roi_align(input, rois, output_size, 0.5, 2, "max", False))
    rotated = torch.cat([rois, rois[:, :1] + 0.3], dim=1).abs()
    rotated_layer = mmort.torch.RoIAlignRotated(output_size, 0.5, 2, aligned=False, clockwise=True)
    expected = mmort.torch.roi_align_rotated(input, rotated, output_size, 0.5, 2, aligned=False, clockwise=True)
    assert torch.equal(rotated_layer(input, rotated), expected)


@pytest.mark.parametrize("aligned", [False, True])
def test_simple_roi_align_image_by_image(aligned, rng):
    input = torch.tensor(rng.standard_normal((3, 2, 8, 9)).astype(np.float32))
    rois = torch.cat([torch.tensor([[2.0], [0], [2], [0], [1]]), ROIS[:, 1:].float()], dim=1)
    found = mmort.torch.SimpleRoIAlign((3, 2), 0.5, aligned)(input, rois)
    assert found.shape == (5, 2, 3, 2)
    for k, roi in enumerate(rois):
        x1, y1, x2, y2 = roi[1:] * 0.5
        y, x = y1 + (torch.arange(3) + 0.5) * (y2 - y1) / 3, x1 + (torch.arange(2) + 0.5) * (x2 - x1) / 2
        grid = torch.stack(torch.meshgrid(y / 8, x / 9, indexing="ij")[::-1], dim=2)[None] * 2 - 1
        image = input[int(roi[0])][None]
        expected = torch.nn.functional.grid_sample(image, grid, align_corners=not aligned)
        assert_close([found[k].numpy()], [expected[0].numpy()], str(k), 1e-5)


def test_corner_pool_layer(rng):
    input = torch.tensor(rng.standard_normal((1, 2, 3, 4)))
    assert torch.equal(mmort.torch.CornerPool("right")(input), input.cummax(3).values)


def test_layers_can_be_copied():
    layer = copy.deepcopy(mmort.torch.ModulatedDeformConv2dPack(4, 6, 3))
    assert torch.equal(layer.conv_offset.weight, torch.zeros(27, 4, 3, 3))

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
    pooled = mmort.torch.SimpleRoIAlign((3, 2), 0.5, aligned)(input, rois)
    assert pooled.shape == (5, 2, 3, 2)
    for k, roi in enumerate(rois):
        x1, y1, x2, y2 = roi[1:] * 0.5
        y, x = y1 + (torch.arange(3) + 0.5) * (y2 - y1) / 3, x1 + (torch.arange(2) + 0.5) * (x2 - x1) / 2
        grid = torch.stack(torch.meshgrid(y / 8, x / 9, indexing="ij")[::-1], dim=2)[None] * 2 - 1
        image = input[int(roi[0])][None]
        expected = torch.nn.functional.grid_sample(image, grid, align_corners=not aligned)
        assert_close([pooled[k].numpy()], [expected[0].numpy()], str(k), 1e-5)


def test_corner_pool_layer(rng):
    input = torch.tensor(rng.standard_normal((1, 2, 3, 4)))
    assert torch.equal(mmort.torch.CornerPool("right")(input), input.cummax(3).values)


def test_layers_can_be_copied():
    layer = copy.deepcopy(mmort.torch.ModulatedDeformConv2dPack(4, 6, 3))
    assert torch.equal(layer.conv_offset.weight, torch.zeros(27, 4, 3, 3))


def sampled_by_torch(layer, query, references, shapes):
    """Compute the attention map by map with torch's own sampling; as a sum over points of single pixels' values."""
    images, queries, _ = query.shape
    sizes = layer.num_heads, layer.num_levels, layer.num_points
    offsets = layer.sampling_offsets(query).reshape(images, queries, *sizes, 2)
    weights = layer.attention_weights(query).reshape(images, queries, layer.num_heads, -1).softmax(3)
    weights = weights.reshape(images, queries, *sizes)
    values = layer.value_proj(query).split([height * width for height, width in shapes], dim=1)
    result = 0
    for level, (height, width) in enumerate(shapes):
        reference = references[:, :, level][:, :, None, None]  # (N, Q, 1, 1, 2 or 4)
        scale = (
            reference[..., 2:] / 2 / layer.num_points if references.shape[3] == 4 else 1 / torch.tensor([width, height])
        )
        points = reference[..., :2] + offsets[:, :, :, level] * scale  # (N, Q, M, P, 2)
        maps = values[level].reshape(images, height, width, layer.num_heads, -1).permute(0, 3, 4, 1, 2).flatten(0, 1)
        grid = 2 * points.transpose(1, 2).flatten(0, 1) - 1
        samples = torch.nn.functional.grid_sample(maps, grid, align_corners=False)  # (N*M, D, Q, P)
        samples = samples.reshape(images, layer.num_heads, -1, queries, layer.num_points)
        result = result + torch.einsum("nmdqp,nqmp->nqmd", samples, weights[:, :, :, level])
    return query + layer.output_proj(result.flatten(2))


@pytest.mark.parametrize("coordinates", [2, 4])
def test_attention_layer_and_its_gradients_are_torchs(coordinates):
    torch.manual_seed(0)
    layer = mmort.torch.MultiScaleDeformableAttention(8, 2, 2, 3, 0.0, batch_first=True, value_proj_ratio=0.5)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    shapes = [(3, 4), (2, 2)]
    query, references = torch.randn(2, 16, 8, requires_grad=True), torch.rand(2, 16, 2, coordinates)
    actual = layer(query, reference_points=references, spatial_shapes=torch.tensor(shapes))
    expected = sampled_by_torch(layer, query, references, shapes)
    torch.testing.assert_close(actual, expected)
    inputs = [query, *layer.parameters()]
    factors = torch.randn(actual.shape)
    for ours, theirs in zip(
        torch.autograd.grad((actual * factors).sum(), inputs),
        torch.autograd.grad((expected * factors).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_attention_layer_takes_mmcvs_arguments():
    """The batch may be second; padding is 0; positions are added to queries only."""
    torch.manual_seed(0)
    layer = mmort.torch.MultiScaleDeformableAttention(8, 2, 1, 2)
    torch.nn.init.normal_(layer.attention_weights.weight)
    assert keys(layer) == {
        "sampling_offsets.weight": [8, 8],
        "sampling_offsets.bias": [8],
        "attention_weights.weight": [4, 8],
        "attention_weights.bias": [4],
        "value_proj.weight": [8, 8],
        "value_proj.bias": [8],
        "output_proj.weight": [8, 8],
        "output_proj.bias": [8],
    }
    assert layer.sampling_offsets.bias.round().tolist() == [1, 0, 2, 0, -1, 0, -2, 0]
    first = copy.deepcopy(layer).eval()
    first.batch_first = True
    query, positions, value, identity = (torch.randn(size, 3, 8) for size in (5, 5, 6, 5))
    padding, references = torch.arange(6).expand(3, 6) > 3, torch.rand(3, 5, 1, 2)
    shapes = {"reference_points": references, "spatial_shapes": torch.tensor([[2, 3]])}
    actual = layer.eval()(
        query, None, value, identity, positions, padding, level_start_index=torch.tensor([0]), **shapes
    )
    query, positions, value, identity = (tensor.transpose(0, 1) for tensor in (query, positions, value, identity))
    first.value_proj.bias.data.zero_()
    layer.value_proj.bias.data.zero_()
    value = torch.where(padding[..., None], 0, value)
    expected = first(query + positions, value=value, identity=identity, **shapes)
    torch.testing.assert_close(actual.transpose(0, 1), expected)
    with pytest.raises(ValueError, match="num_heads must divide"):
        mmort.torch.MultiScaleDeformableAttention(10, 4)
    with pytest.raises(ValueError, match="2 or 4 coordinates, got 3"):
        first(query, reference_points=torch.rand(3, 5, 1, 3), spatial_shapes=torch.tensor([[2, 3]]))
    with pytest.raises(ValueError, match="must be given"):
        first(query)


def test_layers_print_their_settings():
    assert repr(mmort.torch.RoIAlign(7, 0.5)) == (
        "RoIAlign(output_size=(7, 7), spatial_scale=0.5, sampling_ratio=0, pool_mode='avg', aligned=True)"
    )
    for layer in (mmort.torch.DeformConv2d, mmort.torch.DeformConv2dPack, mmort.torch.ModulatedDeformConv2dPack):
        assert "in_channels=4, out_channels=6, kernel_size=(3, 1)" in repr(layer(4, 6, (3, 1)))
    assert repr(mmort.torch.CornerPool("top")) == "CornerPool(mode='top')"

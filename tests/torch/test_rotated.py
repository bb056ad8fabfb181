"""What detectors of rotated boxes need besides operators: values by definition, gradients, refusals."""

import math

import numpy as np
import pytest
import torch

import mmort.torch
from mmort.torch import RiRoIAlignRotated, active_rotated_filter, min_area_polygons, points_in_polygons


def test_filters_of_several_layers_are_permuted():
    """Weights 1 to 4 of two layers: the second orientation exchanges the layers."""
    weights = torch.arange(1.0, 5).reshape(1, 1, 2, 1, 2)
    indices = torch.tensor([[1, 3], [2, 4], [3, 1], [4, 2]]).reshape(2, 1, 2, 2)
    turned = active_rotated_filter(weights, indices)
    assert turned.shape == (2, 2, 1, 2)
    assert turned.flatten(1).tolist() == [[1, 2, 3, 4], [3, 4, 1, 2]]
    with pytest.raises(ValueError, match=r"indices \[L, h, w, R\], got \[1, 1, 2, 1, 2\] and \[1, 1, 2, 2\]"):
        active_rotated_filter(weights, indices[:1])


@pytest.mark.parametrize("angle", [0.0, 0.3, 1.2, 2.5])
def test_rectangles_are_found_in_any_direction(angle):
    """8 by 2, with points inside, in two sets."""
    cos, sin = math.cos(angle), math.sin(angle)
    in_box = torch.tensor([(-4, -1), (4, -1), (4, 1), (-4, 1), (0, 0), (3, 0.5), (-2, 0.9)], dtype=torch.float64)
    points = in_box @ torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)
    result = min_area_polygons(torch.stack([points, points + 10]).flatten(1)).reshape(2, 4, 2)
    for corners, shift in zip(result, (0, 10), strict=True):
        far = torch.cdist(corners, points[:4] + shift)
        assert far.min(0).values.max() < 1e-9
        assert far.min(1).values.max() < 1e-9


def test_rectangles_have_gradients_and_need_two_points():
    points = torch.tensor([[0.0, 0, 4, 0.3, 5, 2, 1, 2.5, -1, 1]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(min_area_polygons, points)
    with pytest.raises(ValueError, match=r"P at least 2, got \[1, 2\]"):
        min_area_polygons(points[:, :2])


def test_points_inside_outside_and_on_the_border():
    square = [0.0, 0, 2, 0, 2, 2, 0, 2]
    arrow = [0.0, 0, 4, 2, 0, 4, 1, 2]  # not convex: its back reaches in to x = 1
    points = torch.tensor([[1, 1.0], [3, 1], [0, 1], [2, 2], [1, 0], [0.5, 2], [2.5, 2], [-1, 0]])
    result = points_in_polygons(points, torch.tensor([square, arrow, square[::-1]]))
    assert result[:, 0].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    assert result[:, 1].tolist() == [1, 0, 0, 1, 0, 0, 1, 0]
    assert result[:, 2].tolist() == result[:, 0].tolist()  # the other way around
    with pytest.raises(ValueError, match=r"polygons \[M, 8\], got \[8, 2\] and \[2, 8, 1\]"):
        points_in_polygons(points, torch.tensor([square, arrow])[..., None])


def oriented_by_definition(features, roi, orientations):
    """Return what a region [6] of one bin with one sample at its centre has, of maps that are constant."""
    turn = float(np.float32(np.float64(np.float32(roi[5]) * np.float32(orientations)) / (2 * math.pi)))
    whole = math.floor(turn)
    values = features[int(roi[0]), :, 0, 0].reshape(-1, orientations)
    result = torch.zeros_like(values)
    for channel in range(orientations):
        first = (channel - whole) % orientations
        result[:, channel] = (1 - (turn - whole)) * values[:, first]
        result[:, channel] += (turn - whole) * values[:, (first + 1) % orientations]
    return result.flatten()


@pytest.mark.parametrize("orientations", [1, 4, 8])
def test_channels_turn_with_a_region(orientations):
    torch.manual_seed(0)
    features = torch.rand(2, 2 * orientations, 1, 1).expand(-1, -1, 20, 20)
    angles = [0, 0.1, math.pi / 4, -math.pi / 4, 1.5, -1.5, 3.1, -3.1, 7.0]
    rois = torch.tensor([[index % 2, 10, 10, 6, 4, angle] for index, angle in enumerate(angles)])
    layer = RiRoIAlignRotated(1, 1.0, num_samples=1, num_orientations=orientations, clockwise=True)
    actual = layer(features, rois)[:, :, 0, 0]
    wanted = torch.stack([oriented_by_definition(features, roi, orientations) for roi in rois.tolist()])
    torch.testing.assert_close(actual, wanted)


def test_samples_are_those_of_roi_align_rotated():
    """With one orientation nothing is exchanged."""
    torch.manual_seed(0)
    features, rois = torch.rand(1, 3, 12, 15), torch.tensor([[0, 30.0, 20, 24, 10, 0.4], [0, 10, 10, 0.2, 0.1, -1]])
    pooled = mmort.torch.riroi_align_rotated(features, rois, (3, 2), 0.25, 0, 1, True)
    wanted = mmort.torch.roi_align_rotated(features, rois, (3, 2), 0.25, 0, aligned=False, clockwise=True)
    torch.testing.assert_close(pooled, wanted)
    with pytest.raises(ValueError, match=r"with num_orientations 2, got \[1, 3, 12, 15\]"):
        mmort.torch.riroi_align_rotated(features, rois, 3, 0.25, num_orientations=2)

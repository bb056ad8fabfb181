"""Rotated boxes: ranges of angles, upright bounding boxes, smallest rectangles around points, boxes of four points.

A box is x, y of its centre, width, height and angle in radians; y points down, and a positive angle turns it clockwise
on screen.  MMRotate has three versions of the same box:

* ``le90``: the width is the longer side, the angle within [-pi/2, pi/2);
* ``le135``: likewise, the angle within [-pi/4, 3pi/4);
* ``oc``, OpenCV's: the angle within [0, pi/2), so either side may be longer.  Angles that are regressed are not brought
  into this range.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from mmort.torch import min_area_polygons

AngleVersion = Literal["oc", "le90", "le135"]

LONGER = 1 + 1e-5
"""How many times as long as the height a width is that is the longer side.

Sides that are equal but for rounding, as those of a square that a limit has cut, would be turned by chance otherwise,
and a second stage finds something else in a region that is turned.
"""

_LOWEST = {"le90": -math.pi / 2, "le135": -math.pi / 4}


def angle_version(name: str, *versions: str | None) -> AngleVersion:
    """Return the version that one of a config's entries names, by default "oc"; ValueError if there is no such one."""
    version = next((value for value in versions if value is not None), "oc")
    if version not in get_args(AngleVersion):
        raise ValueError(f"detect.build: angle version of {name} must be 'oc', 'le90' or 'le135', got {version!r}")
    return version  # type: ignore[return-value]


def normalized(angle: Tensor, version: AngleVersion) -> Tensor:
    """Return angles moved by multiples of pi into the range of a version; those of "oc" as they are."""
    if version == "oc":
        return angle
    lowest = _LOWEST[version]
    above = angle - lowest
    return above - torch.floor(above / math.pi) * math.pi + lowest


def with_longer_width(boxes: Tensor, version: AngleVersion) -> Tensor:
    """Return the same boxes [..., 5] whose width is the longer side."""
    width, height, angle = boxes[..., 2], boxes[..., 3], boxes[..., 4]
    wide = width > height * LONGER
    angle = normalized(torch.where(wide, angle, angle + math.pi / 2), version)
    return torch.stack([boxes[..., 0], boxes[..., 1], width.maximum(height), width.minimum(height), angle], -1)


def bounding_boxes(boxes: Tensor) -> Tensor:
    """Return the upright boxes x1, y1, x2, y2 [..., 4] around rotated boxes [..., 5]."""
    half, cos, sin = boxes[..., 2:4] / 2, boxes[..., 4:].cos(), boxes[..., 4:].sin()
    across, along = half[..., :1], half[..., 1:]
    reach_x = (across * cos).abs() + (along * sin).abs()
    reach_y = (across * sin).abs() + (along * cos).abs()
    reach = torch.cat([reach_x, reach_y], -1)
    return torch.cat([boxes[..., :2] - reach, boxes[..., :2] + reach], -1)


def upright_boxes(corners: Tensor) -> Tensor:
    """Return upright boxes x1, y1, x2, y2 [..., 4] as rotated ones [..., 5], whose angle is 0."""
    first, last = corners[..., :2], corners[..., 2:]
    return torch.cat([(first + last) / 2, last - first, torch.zeros_like(first[..., :1])], -1)


def boxes_of_points(points: Tensor, version: AngleVersion) -> Tensor:
    """Return rotated boxes [..., 5] of four points in a row, [..., 4, 2].

    Of points that are not a rectangle's, this is MMRotate's choice: two of the sides give width and height.
    """
    first, second, third, fourth = points.unbind(-2)  # [..., 2]
    side, other = second - first, third - second
    length, other_length = side.square().sum(-1).sqrt(), other.square().sum(-1).sqrt()
    if version == "oc":
        angle = torch.atan2(-side[..., 0], side[..., 1])
        quarters = torch.floor(angle / (math.pi / 2))
        turned = quarters - torch.floor(quarters / 2) * 2 == 0
        centre = (first + second + third + fourth) / 4
        width, height = torch.where(turned, other_length, length), torch.where(turned, length, other_length)
        angle = angle - quarters * (math.pi / 2)
    else:
        last = fourth - first
        wide = length > other_length * LONGER
        angle = torch.atan2(
            torch.where(wide, side[..., 1], last[..., 1]), torch.where(wide, side[..., 0], last[..., 0])
        )
        angle = normalized(angle, version)
        centre = (first + third) / 2
        width, height = length.maximum(other_length), length.minimum(other_length)
    return torch.stack([centre[..., 0], centre[..., 1], width, height, angle], -1)


def smallest_rectangles(points: Tensor) -> Tensor:
    """Return the corners [..., 4, 2] of the rectangles of smallest area around points [..., P, 2].

    The side between the first two is a longer one: one without length, of points on a line, has no direction.
    """
    corners = torch.unflatten(min_area_polygons(points.flatten(-2)), -1, (4, 2))
    following = corners.roll(-1, -2)
    sides = (following - corners).square().sum(-1)
    return torch.where((sides[..., 0] < sides[..., 1])[..., None, None], following, corners)

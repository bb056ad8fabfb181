"""`torchvision.ops` as torchvision's tests call it, over `mmort.torch`: for `check_peers`."""

import torch
from torch import nn
from torch.nn.modules.utils import _pair

import mmort.torch


def nms(boxes, scores, iou_threshold):
    return mmort.torch.nms(boxes, scores, iou_threshold).indices


def batched_nms(boxes, scores, idxs, iou_threshold):
    return mmort.torch.batched_nms(boxes, scores, idxs, iou_threshold).indices


box_iou = mmort.torch.bbox_overlaps


def roi_align(input, boxes, output_size, spatial_scale=1.0, sampling_ratio=-1, aligned=False):
    """Take regions in one tensor, or in one for each image."""
    if not isinstance(boxes, torch.Tensor):
        indices = [torch.full_like(image[:, :1], index) for index, image in enumerate(boxes)]
        boxes = torch.cat([torch.cat(pair, 1) for pair in zip(indices, boxes, strict=True)])
    ratio = max(sampling_ratio, 0)
    return mmort.torch.roi_align(input, boxes, output_size, spatial_scale, ratio, "avg", aligned)


class RoIAlign(nn.Module):
    def __init__(self, output_size, spatial_scale, sampling_ratio, aligned=False):
        super().__init__()
        self.settings = output_size, spatial_scale, sampling_ratio, aligned

    def forward(self, input, rois):
        return roi_align(input, rois, *self.settings)


def deform_conv2d(input, offset, weight, bias=None, stride=1, padding=0, dilation=1, mask=None):
    """Infer groups from shapes, as torchvision does."""
    taps = weight.shape[2] * weight.shape[3]
    groups = input.shape[1] // weight.shape[1], offset.shape[1] // (2 * taps)
    if mask is None:
        mask = offset.new_ones(len(offset), groups[1] * taps, *offset.shape[2:])
    steps = [_pair(step) for step in (stride, padding, dilation)]
    return mmort.torch.modulated_deform_conv2d(input, offset, mask, weight, bias, *steps, *groups)


class DeformConv2d(mmort.torch.ModulatedDeformConv2d):
    def forward(self, input, offset, mask=None):
        return deform_conv2d(input, offset, self.weight, self.bias, self.stride, self.padding, self.dilation, mask)

"""A small two-stage detector in plain torch, with every step of a real one, for the tests of export."""

import torch
from torch import nn
from torch.nn import functional as F

import mmort.torch

STRIDES = (4, 8)
PROPOSALS, DETECTIONS, CLASSES, CHANNELS = 24, 10, 3, 8


class Detector(nn.Module):
    """Images [B, 3, H, W] -> dets [B, 10, 5], labels [B, 10] (-1: unused), masks [B, 10, 7, 7]; any B, H and W."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.stem = nn.Sequential(nn.Conv2d(3, CHANNELS, 3, 2, 1), nn.ReLU(), nn.Conv2d(CHANNELS, CHANNELS, 3, 2, 1))
        self.down = nn.Sequential(nn.ReLU(), nn.Conv2d(CHANNELS, CHANNELS, 3, 2, 1))
        self.lateral = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.rpn = nn.Conv2d(CHANNELS, 5, 3, padding=1)
        self.box_head = nn.Sequential(nn.Linear(CHANNELS * 9, 32), nn.ReLU())
        self.classes = nn.Linear(32, CLASSES + 1)
        self.boxes = nn.Linear(32, 4)
        self.mask_head = nn.Conv2d(CHANNELS, 1, 3, padding=1)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.xavier_normal_(module.weight, gain=1.5)
        self.eval()

    def forward(self, images):
        fine = self.stem(images)
        coarse = self.down(fine)
        fine = self.lateral(fine) + F.interpolate(coarse, size=fine.shape[-2:])
        levels = (fine, coarse)
        proposals = self.propose(levels, images.shape)
        features = self.pool(levels, proposals, 3)
        hidden = self.box_head(features.flatten(1))
        shape = proposals.shape[:2]
        scores = self.classes(hidden).softmax(-1)[:, :CLASSES].reshape(*shape, CLASSES)
        boxes = decode(proposals, self.boxes(hidden).reshape(*shape, 4) / 4, images.shape)
        dets, labels, _ = mmort.torch.multiclass_nms(
            boxes, scores, score_threshold=0.1, iou_threshold=0.5, max_per_image=DETECTIONS
        )
        masks = self.mask_head(self.pool(levels, dets[..., :4], 7)).sigmoid()
        masks = masks.reshape(*dets.shape[:2], 7, 7) * (labels >= 0)[..., None, None]
        return dets, labels, masks

    def propose(self, levels, image_shape):
        """Return the best boxes of each image after suppression, [B, R, 4]; missing ones have no area."""
        boxes, scores = [], []
        for level, stride in zip(levels, STRIDES, strict=True):
            score, delta = self.rpn(level).permute(0, 2, 3, 1).flatten(1, 2).split([1, 4], -1)
            rows, columns = level.shape[-2:]
            y, x = (torch.arange(count) * float(stride) for count in (rows, columns))
            corner = torch.stack([x.expand(rows, columns), y[:, None].expand(rows, columns)], -1).reshape(-1, 2)
            anchors = torch.cat([corner - 3.0 * stride, corner + 3.0 * stride], -1)
            best, order = score.squeeze(-1).topk(min(2 * PROPOSALS, score.shape[1]))
            chosen = anchors[order]
            delta = delta.gather(1, order[..., None].expand(-1, -1, 4))
            boxes.append(decode(chosen, delta / 4, image_shape))
            scores.append(best)
        boxes, scores = torch.cat(boxes, 1), torch.cat(scores, 1)
        # One suppression for the batch, as the boxes of different images are moved apart.
        apart = torch.arange(boxes.shape[0])[:, None, None] * (boxes.amax() + 1)
        _, kept = mmort.torch.nms((boxes + apart).reshape(-1, 4), scores.flatten(), 0.6)
        keep = torch.zeros_like(scores, dtype=torch.bool).flatten()
        keep = keep.index_put((kept,), torch.ones_like(kept, dtype=torch.bool)).reshape(scores.shape)
        best, order = scores.masked_fill(~keep, -torch.inf).topk(min(PROPOSALS, scores.shape[1]))
        chosen = boxes.gather(1, order[..., None].expand(-1, -1, 4))
        return chosen * best.isfinite()[..., None]

    def pool(self, levels, boxes, size):
        """Return features [B * R, C, size, size] of boxes [B, R, 4], those of large ones from the coarse level."""
        images = torch.arange(boxes.shape[0])[:, None].expand(-1, boxes.shape[1])
        rois = torch.cat([images[..., None].to(boxes.dtype), boxes], -1).reshape(-1, 5)
        sides = (rois[:, 3:] - rois[:, 1:3]).prod(-1).sqrt()
        pooled = rois.new_zeros((rois.shape[0], CHANNELS, size, size))
        for index, (level, stride) in enumerate(zip(levels, STRIDES, strict=True)):
            members = (sides >= 20 if index else sides < 20).nonzero().squeeze(1)
            part = mmort.torch.roi_align(level, rois.index_select(0, members), (size, size), 1 / stride, 2)
            pooled = pooled.index_put((members,), part)
        return pooled


def decode(boxes, deltas, image_shape):
    """Move corners by fractions of the boxes' sides, and clip them to the image."""
    sides = boxes[..., 2:] - boxes[..., :2]
    moved = boxes + deltas.clamp(-1, 1) * torch.cat([sides, sides], -1)
    height, width = image_shape[-2:]
    x, y = moved[..., 0::2].clamp(0, width), moved[..., 1::2].clamp(0, height)
    return torch.stack([x.amin(-1), y.amin(-1), x.amax(-1), y.amax(-1)], -1)

import torch.nn as nn
from mmdet.models import FPN, RetinaNet
from mmdet.models.backbones import ResNet as Backbone
import mmdet.models.losses
import mmdet.models

model = dict(
    type=RetinaNet,
    backbone=dict(type=Backbone, depth=50, act=nn.ReLU, layers=[nn.Conv2d, nn.modules.Linear]),
    neck=dict(type=FPN, channels=[1, 2], loss=mmdet.models.losses.FocalLoss))
schedule = dict(epochs=12, milestones=(8, 11))
lr = 0.01
_private = [1]

from mmengine.config import read_base

with read_base():
    from mmdet.configs.runtime import *

    from .parts.model import *
    from ..importing.parts.schedule import momentum as beta, optimizer

from torch.optim import SGD

optimizer.update(dict(type=SGD, lr=lr * 2, momentum=beta))
model.update(dict(backbone=dict(depth=18, norm=dict(type='BN')), neck=dict(type=FPN, channels=[3])))
model.neck.merge(dict(_delete_=True, type='None', norm=dict(_delete_=True, type='GN')))
model.merge(dict(head=dict(_delete_=True, type='Head')))
default_hooks.checkpoint.interval = schedule['epochs'] // 5
train = dict(**optimizer, epochs=schedule.epochs)

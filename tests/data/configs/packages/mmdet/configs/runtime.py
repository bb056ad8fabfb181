from mmengine.hooks import CheckpointHook
from mmengine.visualization import LocalVisBackend as Backend

default_scope = 'mmdet'
default_hooks = dict(checkpoint=dict(type=CheckpointHook, interval=1))
vis_backends = [dict(type=Backend)]

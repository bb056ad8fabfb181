# A tracker takes its detector out of the base config and changes it.
_base_ = ['../base_model.py', '../base_data.yaml']
detector = _base_.model
detector.pop('neck')
detector.pop('train_cfg')
detector['backbone'].update(dict(dcn=dict(type='DCNv2'), init_cfg=dict(type='Pretrained')))
detector.backbone.update(init_cfg=dict(checkpoint='x.pth'), depth=101)
detector.roi_head.bbox_head[1].stage = 'second'
detector.test_cfg.rcnn.merge(dict(nms=dict(_delete_=True, type='soft_nms'), max_per_img=100))
detector['init_cfg'] = dict(type='Pretrained')
copied = detector.copy()
copied.type = 'Copy'
del _base_.model
_base_.test_pipeline[-1]['scale'] = (640, 640)
model = dict(type='Tracker', detector=detector)

_base_ = ['base_model.py', './base_data.yaml', 'base_schedule.json']
work_dir = './work_dirs/{{ fileBasenameNoExtension }}/{{fileBasename}}{{ fileExtname }}'
num_classes = {{'$MMORT_TEST_CLASSES:7'}}
lr = _base_.lr * 2 ** (_base_.max_epochs / 12)
model = dict(
    backbone=dict(depth=18, dcn=dict(type='DCN', _delete_=True)),
    neck=dict(_delete_=True, type='NASFPN', stack_times=7, norm=dict(_delete_=True, type='BN')),
    roi_head=dict(bbox_head=dict(_delete_=True, num_classes=num_classes)),
    rpn_head=dict(_delete_=True, type='RPNHead'),
    test_cfg=dict(rcnn=dict(nms=dict(iou_threshold=0.6))))
test_pipeline = [dict(type='LoadImageFromFile', backend_args={{_base_.backend_args}}), {{ _base_.test_pipeline }}]
names = {{_base_.classes}}
thresholds = [_base_.model.test_cfg.rcnn.score_thr, _base_.model['test_cfg']['rcnn'].nms.iou_threshold]

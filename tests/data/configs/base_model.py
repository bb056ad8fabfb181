model = dict(
    type='FasterRCNN',
    backbone=dict(type='ResNet', depth=50, frozen_stages=1, dcn=None),
    neck=dict(type='FPN', in_channels=[256, 512, 1024, 2048]),
    roi_head=dict(bbox_head=[dict(num_classes=80, stage=i) for i in range(3)]),
    test_cfg=dict(rcnn=dict(score_thr=0.05, nms=dict(type='nms', iou_threshold=0.5))))
checkpoint = {{'$MMORT_TEST_CHECKPOINT:None'}}

_base_ = ['mmdet::_base_/detector.py', 'base_data.yaml']
model = dict(bbox_head=dict(num_classes=10))

_base_ = '../inherit.py'
model = dict(backbone=dict(frozen_stages=-1, dcn=dict(deform_groups=2)), neck=dict(norm=None))
test_pipeline = [dict(type='A')]
max_epochs = 24

model = dict(type='RetinaNet', bbox_head=dict(type='RetinaHead', loss=[dict(type='L1Loss')]))
train_dataloader = dict(dataset=dict(type='CocoDataset', pipeline=[dict(type='Resize')]), samplers=[dict(type='A', inner=dict(type='B'))])
tasks = (dict(type='Task'), dict(name='no type'))

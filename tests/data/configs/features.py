# What configs are written in, on one page.
"""A docstring changes nothing."""
number, word, nothing, flag = 3, 'it''s', None, not False
negative: int = -2**3 + 17 // 4 % 3
quotient = 1 / 3
empty = dict(a=[], b=(), c={})
img_norm_cfg = dict(mean=[103.53, 116.28, 123.675], std=[1.0] * 3, to_rgb=False)
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='MultiScaleFlipAug',
        img_scale=(1333, 800),
        transforms=[dict(type='Normalize', **img_norm_cfg), dict(type='Pad', size_divisor=32)])
]
data = dict(val=dict(pipeline=test_pipeline), test=dict(pipeline=test_pipeline))
data['test']['pipeline'] = [*test_pipeline[:1], {**test_pipeline[-1], 'flip': True}]
strides = [8 * 2**i for i in range(5) if i != 3]
pairs = {f'level{i}': (stride, stride / 2) for i, stride in enumerate(strides)}
grid = [(x, y) for x in (1, 2) for y in range(x)]
total = sum(s for s in strides)
kinds = sorted({kind.lower() for kind in ('B', 'a', 'B')}, reverse=True)
chosen = 'small' if number < 4 <= 5 and 'b' in kinds or nothing else 'large'
missing = data.get('train', 'nowhere')
name = '{}_{size:03d}'.format(chosen, size=number) + f'_{quotient:.2f}_{word!r}' + '-' * 3
parts = name.split('_')[1:]
custom_keys = {'backbone': dict(lr_mult=0.1)}
custom_keys.update({f'norm.{i}.{j}': dict(decay=i * j) for i, j in zip([1, 2], [3, 4])}, head=dict(lr_mult=1))
milestones = [8]
milestones += [11]
milestones.append(max(*milestones) + 1)
(first, second), third = (1, 2), 3
longest = None
for stage, depth in enumerate([2, 18, 2]):
    if longest is None or depth > longest:
        longest = depth
del first
__hidden = 'not a key of the config'
_shown = type_ = 'a key'

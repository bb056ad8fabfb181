momentum = 0.9
optimizer = dict(type='AdamW', betas=(0.9, 0.999))
unused = 'not imported'

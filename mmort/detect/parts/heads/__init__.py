"""Heads that several families share.

An import here registers the parts of a module.
"""

from mmort.detect.parts.heads import (
    box_head,
    cascade_rpn_head,
    ga_rpn_head,
    mask_head,
    rpn_head,
    sabl_head,
)

"""Parts that several families of rotated detectors share, after MMRotate.

An import here registers the parts of a module.
"""

from mmort.detect.parts.rotated import (
    box_head,
    coders,
    priors,
    proposals,
    roi_extractor,
)

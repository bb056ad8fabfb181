"""Networks from an image to feature maps, finest first; their parameters are named as MMDetection names them.

An import here registers the parts of a module.
"""

from mmort.detect.parts.backbones import (
    convnext,
    csp_darknet,
    cspnext,
    darknet,
    detectors_resnet,
    efficientnet,
    hourglass,
    hrnet,
    mobilenet_v2,
    pvt,
    re_resnet,
    regnet,
    res2net,
    resnest,
    resnet,
    ssd_vgg,
    swin,
    trident_resnet,
    vit,
)

"""Networks from an image to feature maps, finest first; their parameters are named as MMDetection names them.

An import here registers the parts of a module.
"""

from mmort.detect.parts.backbones import (
    convnext,
    csp_darknet,
    darknet,
    detectors_resnet,
    efficientnet,
    hourglass,
    hrnet,
    mobilenet_v2,
    ppyoloe,
    pvt,
    regnet,
    res2net,
    resnest,
    resnet,
    ssd_vgg,
    swin,
    timm,
    vit,
    yolo,
    yolov6,
    yolov7,
)

"""Networks from the feature maps of a backbone to those that heads read.

An import here registers the parts of a module.
"""

from mmort.detect.parts.necks import (
    bfp,
    bifpn,
    channel_mapper,
    csp_pafpn,
    ct_resnet_neck,
    dilated_encoder,
    dyhead,
    fpg,
    fpn,
    fpn_carafe,
    hrfpn,
    nas_fpn,
    nasfcos_fpn,
    ppyoloe_pafpn,
    rfp,
    simple_fpn,
    ssd_neck,
    yolo_neck,
    yolo_pafpn,
    yolov6_pafpn,
    yolov7_pafpn,
)

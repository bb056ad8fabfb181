"""The class of each of MMDetection's type names: a new family, or a new part, adds a line here."""

from __future__ import annotations

from collections.abc import Callable

from mmort.configs.layout import DetectorConfig
from mmort.detect.detector import Detector
from mmort.detect.entries import Parts
from mmort.detect.families.atss import ATSS
from mmort.detect.families.autoassign import AutoAssign
from mmort.detect.families.cascade_rcnn import CascadeRCNN
from mmort.detect.families.centernet import CenterNet
from mmort.detect.families.centernet_update import CenterNetUpdate
from mmort.detect.families.centripetalnet import CentripetalNet
from mmort.detect.families.condinst import CondInst
from mmort.detect.families.conditional_detr import ConditionalDETR
from mmort.detect.families.cornernet import CornerNet
from mmort.detect.families.crowddet import CrowdDet
from mmort.detect.families.dab_detr import DABDETR
from mmort.detect.families.ddod import DDOD
from mmort.detect.families.ddq import DDQ
from mmort.detect.families.deformable_detr import DeformableDETR
from mmort.detect.families.detr import DETR
from mmort.detect.families.dino import DINO
from mmort.detect.families.double_heads import DoubleHeadRCNN
from mmort.detect.families.dynamic_rcnn import DynamicRCNN
from mmort.detect.families.faster_rcnn import FasterRCNN
from mmort.detect.families.fcos import FCOS
from mmort.detect.families.fcos_rpn import FCOSRPNHead
from mmort.detect.families.foveabox import FoveaBox
from mmort.detect.families.free_anchor import FreeAnchor
from mmort.detect.families.fsaf import FSAF
from mmort.detect.families.ga_retinanet import GARetinaNet
from mmort.detect.families.gfl import GFL, LD
from mmort.detect.families.gliding_vertex import GlidingVertex
from mmort.detect.families.grid_rcnn import GridRCNN
from mmort.detect.families.h2rbox import H2RBox
from mmort.detect.families.htc import HTC
from mmort.detect.families.mask2former import Mask2Former
from mmort.detect.families.mask_scoring_rcnn import MaskScoringRCNN
from mmort.detect.families.maskformer import MaskFormer
from mmort.detect.families.nas_fcos import NASFCOS
from mmort.detect.families.oriented_rcnn import OrientedRCNN
from mmort.detect.families.paa import LAD, PAA
from mmort.detect.families.panoptic_fpn import PanopticFPN
from mmort.detect.families.point_rend import PointRend
from mmort.detect.families.r3det import R3Det
from mmort.detect.families.reppoints import RepPoints
from mmort.detect.families.retina_sepbn import RetinaSepBN
from mmort.detect.families.retinanet import RetinaNet
from mmort.detect.families.roi_transformer import RoITransformer
from mmort.detect.families.rotated_atss import rotated_atss
from mmort.detect.families.rotated_csl import CSLFCOS, CSLRetinaNet
from mmort.detect.families.rotated_fcos import RotatedFCOS
from mmort.detect.families.rotated_reppoints import RotatedRepPoints
from mmort.detect.families.rotated_retinanet import RotatedRetinaNet
from mmort.detect.families.rotated_rtmdet import RotatedRTMDet
from mmort.detect.families.rpn import RPN
from mmort.detect.families.rtmdet import RTMDet
from mmort.detect.families.rtmdet_ins import RTMDetIns
from mmort.detect.families.s2anet import S2ANet
from mmort.detect.families.sabl_retinanet import SABLRetinaNet
from mmort.detect.families.scnet import SCNet
from mmort.detect.families.solo import SOLO
from mmort.detect.families.solov2 import SOLOv2
from mmort.detect.families.sparse_rcnn import SparseRCNN
from mmort.detect.families.ssd import SSD
from mmort.detect.families.tood import TOOD
from mmort.detect.families.tridentnet import TridentFasterRCNN
from mmort.detect.families.vfnet import VFNet
from mmort.detect.families.yolact import YOLACT
from mmort.detect.families.yolof import YOLOF
from mmort.detect.families.yolov3 import YOLOv3
from mmort.detect.families.yolox import YOLOX
from mmort.detect.parts.backbones.convnext import ConvNeXt
from mmort.detect.parts.backbones.csp_darknet import CSPDarknet
from mmort.detect.parts.backbones.cspnext import CSPNeXt
from mmort.detect.parts.backbones.darknet import Darknet
from mmort.detect.parts.backbones.detectors_resnet import DetectoRSResNet
from mmort.detect.parts.backbones.efficientnet import EfficientNet
from mmort.detect.parts.backbones.hourglass import HourglassNet
from mmort.detect.parts.backbones.hrnet import HRNet
from mmort.detect.parts.backbones.mobilenet_v2 import MobileNetV2
from mmort.detect.parts.backbones.pvt import PyramidVisionTransformer, PyramidVisionTransformerV2
from mmort.detect.parts.backbones.re_resnet import ReResNet
from mmort.detect.parts.backbones.regnet import RegNet
from mmort.detect.parts.backbones.res2net import Res2Net
from mmort.detect.parts.backbones.resnest import ResNeSt
from mmort.detect.parts.backbones.resnet import ResNet, ResNetV1d
from mmort.detect.parts.backbones.ssd_vgg import SSDVGG
from mmort.detect.parts.backbones.swin import SwinTransformer
from mmort.detect.parts.backbones.trident_resnet import TridentResNet
from mmort.detect.parts.coders import (
    DeltaXYWHBBoxCoder,
    DistancePointBBoxCoder,
    LegacyDeltaXYWHBBoxCoder,
    TBLRBBoxCoder,
)
from mmort.detect.parts.generic_roi_extractor import GenericRoIExtractor
from mmort.detect.parts.heads.box_head import BoxHead, Shared2FCBoxHead, Shared4Conv1FCBoxHead
from mmort.detect.parts.heads.cascade_rpn_head import CascadeRPNHead
from mmort.detect.parts.heads.ga_rpn_head import GARPNHead
from mmort.detect.parts.heads.mask_head import FCNMaskHead
from mmort.detect.parts.heads.rpn_head import RPNHead
from mmort.detect.parts.heads.sabl_head import SABLHead
from mmort.detect.parts.necks.bfp import BFP
from mmort.detect.parts.necks.channel_mapper import ChannelMapper
from mmort.detect.parts.necks.csp_pafpn import YOLOXPAFPN, CSPNeXtPAFPN
from mmort.detect.parts.necks.ct_resnet_neck import CTResNetNeck
from mmort.detect.parts.necks.dilated_encoder import DilatedEncoder
from mmort.detect.parts.necks.dyhead import DyHead
from mmort.detect.parts.necks.fpg import FPG
from mmort.detect.parts.necks.fpn import FPN, DropBlockFPN
from mmort.detect.parts.necks.fpn_carafe import CARAFEFPN
from mmort.detect.parts.necks.hrfpn import HRFPN
from mmort.detect.parts.necks.nas_fpn import NASFPN
from mmort.detect.parts.necks.nasfcos_fpn import NASFCOSFPN
from mmort.detect.parts.necks.pafpn import PAFPN
from mmort.detect.parts.necks.re_fpn import ReFPN
from mmort.detect.parts.necks.rfp import RFP
from mmort.detect.parts.necks.ssd_neck import SSDNeck
from mmort.detect.parts.necks.yolo_neck import YOLOV3Neck
from mmort.detect.parts.priors import (
    AnchorGenerator,
    LegacyAnchorGenerator,
    LegacySSDAnchorGenerator,
    PointGenerator,
    SSDAnchorGenerator,
    YOLOAnchorGenerator,
)
from mmort.detect.parts.roi_extractor import RoIExtractor
from mmort.detect.parts.rotated.box_head import RotatedBoxHead, RotatedShared2FCBoxHead
from mmort.detect.parts.rotated.coders import (
    DeltaXYWHAHBBoxCoder,
    DeltaXYWHAOBBoxCoder,
    DistanceAnglePointCoder,
    MidpointOffsetCoder,
)
from mmort.detect.parts.rotated.priors import (
    FakeRotatedAnchorGenerator,
    PseudoAnchorGenerator,
    RotatedAnchorGenerator,
)
from mmort.detect.parts.rotated.proposals import OrientedRPNHead, RotatedRPNHead
from mmort.detect.parts.rotated.roi_extractor import RotatedRoIExtractor
from mmort.detect.parts.shared_head import ResLayer

FAMILIES: dict[str, Callable[[DetectorConfig, Parts], Detector]] = {
    "FCOSHead": FCOS,
    "NASFCOSHead": NASFCOS,
    "FSAFHead": FSAF,
    "RetinaHead": RetinaNet,
    "AscendRetinaHead": RetinaNet,
    "GARetinaHead": GARetinaNet,
    "SSDHead": SSD,
    "AscendSSDHead": SSD,
    "YOLOV3Head": YOLOv3,
    "StandardRoIHead": FasterRCNN,
    "CascadeRoIHead": CascadeRCNN,
    "DoubleHeadRoIHead": DoubleHeadRCNN,
    "DynamicRoIHead": DynamicRCNN,
    "GridRoIHead": GridRCNN,
    "HybridTaskCascadeRoIHead": HTC,
    "MaskScoringRoIHead": MaskScoringRCNN,
    "MultiInstanceRoIHead": CrowdDet,
    "PointRendRoIHead": PointRend,
    "RPNHead": RPN,
    "GARPNHead": RPN,
    "CascadeRPNHead": RPN,
    "SCNetRoIHead": SCNet,
    "SparseRoIHead": SparseRCNN,
    "TridentRoIHead": TridentFasterRCNN,
    "RTMDetSepBNHead": RTMDet,
    "RTMDetInsSepBNHead": RTMDetIns,
    "YOLOXHead": YOLOX,
    "ATSSHead": ATSS,
    "DDODHead": DDOD,
    "GFLHead": GFL,
    "LDHead": LD,
    "VFNetHead": VFNet,
    "TOODHead": TOOD,
    "PAAHead": PAA,
    "LADHead": LAD,
    "FreeAnchorRetinaHead": FreeAnchor,
    "PISARetinaHead": RetinaNet,
    "PISARoIHead": FasterRCNN,
    "PISASSDHead": SSD,
    "RetinaSepBNHead": RetinaSepBN,
    "FoveaHead": FoveaBox,
    "AutoAssignHead": AutoAssign,
    "YOLOFHead": YOLOF,
    "RepPointsHead": RepPoints,
    "SABLRetinaHead": SABLRetinaNet,
    "CenterNetHead": CenterNet,
    "CenterNetUpdateHead": CenterNetUpdate,
    "CondInstBboxHead": CondInst,
    "BoxInstBboxHead": CondInst,
    "YOLACTHead": YOLACT,
    "SOLOHead": SOLO,
    "DecoupledSOLOHead": SOLO,
    "DecoupledSOLOLightHead": SOLO,
    "SOLOV2Head": SOLOv2,
    "PanopticFPNHead": PanopticFPN,
    "MaskFormerHead": MaskFormer,
    "Mask2FormerHead": Mask2Former,
    "CornerHead": CornerNet,
    "CentripetalHead": CentripetalNet,
    "DETRHead": DETR,
    "ConditionalDETRHead": ConditionalDETR,
    "DABDETRHead": DABDETR,
    "DeformableDETRHead": DeformableDETR,
    "DINOHead": DINO,
    "DDQDETRHead": DDQ,
    "AngleBranchRetinaHead": CSLRetinaNet,
    "CFAHead": RotatedRepPoints,
    "CSLRFCOSHead": CSLFCOS,
    "CSLRRetinaHead": CSLRetinaNet,
    "GVRatioRoIHead": GlidingVertex,
    "H2RBoxHead": H2RBox,
    "KFIoURRetinaHead": RotatedRetinaNet,
    "KFIoURRetinaRefineHead": R3Det,
    "KFIoUODMRefineHead": S2ANet,
    "ODMRefineHead": S2ANet,
    "OrientedRepPointsHead": RotatedRepPoints,
    "OrientedStandardRoIHead": OrientedRCNN,
    "R3RefineHead": R3Det,
    "RoITransRoIHead": RoITransformer,
    "RotatedATSSHead": rotated_atss,
    "RotatedFCOSHead": RotatedFCOS,
    "RotatedRTMDetSepBNHead": RotatedRTMDet,
    "RotatedRepPointsHead": RotatedRepPoints,
    "RotatedRetinaHead": RotatedRetinaNet,
    "RotatedRetinaRefineHead": R3Det,
    "RotatedStandardRoIHead": OrientedRCNN,
    "S2ARefineHead": S2ANet,
    "SAMRepPointsHead": RotatedRepPoints,
}
"""By the type of the last head: ``model.type`` is not enough, since two-stage detectors may share one."""

ROTATED_FAMILIES: dict[str, Callable[[DetectorConfig, Parts], Detector]] = {
    "CascadeRoIHead": RoITransformer,
    "RetinaHead": RotatedRetinaNet,
    "StandardRoIHead": OrientedRCNN,
}
"""Those of MMDetection's own heads if their box coder is one of rotated boxes, as in MMRotate 1."""

PARTS = Parts(
    {
        "backbone": {
            "ConvNeXt": ConvNeXt,
            "Darknet": Darknet,
            "CSPDarknet": CSPDarknet,
            "CSPNeXt": CSPNeXt,
            "DetectoRS_ResNet": DetectoRSResNet,
            "EfficientNet": EfficientNet,
            "HourglassNet": HourglassNet,
            "HRNet": HRNet,
            "MobileNetV2": MobileNetV2,
            "PyramidVisionTransformer": PyramidVisionTransformer,
            "PyramidVisionTransformerV2": PyramidVisionTransformerV2,
            "RegNet": RegNet,
            "ReResNet": ReResNet,
            "Res2Net": Res2Net,
            "ResNeSt": ResNeSt,
            "ResNet": ResNet,
            "ResNetV1d": ResNetV1d,
            "ResNeXt": ResNet,
            "SSDVGG": SSDVGG,
            "SwinTransformer": SwinTransformer,
            "TridentResNet": TridentResNet,
        },
        "neck": {
            "BFP": BFP,
            "ChannelMapper": ChannelMapper,
            "CSPNeXtPAFPN": CSPNeXtPAFPN,
            "CTResNetNeck": CTResNetNeck,
            "DilatedEncoder": DilatedEncoder,
            "DyHead": DyHead,
            "FPG": FPG,
            "FPN": FPN,
            "FPN_CARAFE": CARAFEFPN,
            "FPN_DropBlock": DropBlockFPN,
            "HRFPN": HRFPN,
            "NASFCOS_FPN": NASFCOSFPN,
            "NASFPN": NASFPN,
            "PAFPN": PAFPN,
            "ReFPN": ReFPN,
            "RFP": RFP,
            "SSDNeck": SSDNeck,
            "YOLOV3Neck": YOLOV3Neck,
            "YOLOXPAFPN": YOLOXPAFPN,
        },
        "prior generator": {
            "AnchorGenerator": AnchorGenerator,
            "FakeRotatedAnchorGenerator": FakeRotatedAnchorGenerator,
            "LegacyAnchorGenerator": LegacyAnchorGenerator,
            "LegacySSDAnchorGenerator": LegacySSDAnchorGenerator,
            "MlvlPointGenerator": PointGenerator,
            "PseudoAnchorGenerator": PseudoAnchorGenerator,
            "PseudoRotatedAnchorGenerator": PseudoAnchorGenerator,
            "RotatedAnchorGenerator": RotatedAnchorGenerator,
            "SSDAnchorGenerator": SSDAnchorGenerator,
            "YOLOAnchorGenerator": YOLOAnchorGenerator,
        },
        "box coder": {
            "DeltaXYWHBBoxCoder": DeltaXYWHBBoxCoder,
            "DeltaXYWHHBBoxCoder": DeltaXYWHBBoxCoder,
            "DeltaXYWHQBBoxCoder": DeltaXYWHBBoxCoder,
            "LegacyDeltaXYWHBBoxCoder": LegacyDeltaXYWHBBoxCoder,
            "TBLRBBoxCoder": TBLRBBoxCoder,
            "DistancePointBBoxCoder": DistancePointBBoxCoder,
        },
        "rotated box coder": {
            "DeltaXYWHAHBBoxCoder": DeltaXYWHAHBBoxCoder,
            "DeltaXYWHAOBBoxCoder": DeltaXYWHAOBBoxCoder,
            "DeltaXYWHTHBBoxCoder": DeltaXYWHAHBBoxCoder,
            "DeltaXYWHTRBBoxCoder": DeltaXYWHAOBBoxCoder,
            "DistanceAnglePointCoder": DistanceAnglePointCoder,
            "MidpointOffsetCoder": MidpointOffsetCoder,
        },
        "rpn_head": {
            "CascadeRPNHead": CascadeRPNHead,
            "FCOSHead": FCOSRPNHead,
            "GARPNHead": GARPNHead,
            "OrientedRPNHead": OrientedRPNHead,
            "RPNHead": RPNHead,
            "RotatedRPNHead": RotatedRPNHead,
        },
        "RoI extractor": {
            "GenericRoIExtractor": GenericRoIExtractor,
            "RotatedSingleRoIExtractor": RotatedRoIExtractor,
            "SingleRoIExtractor": RoIExtractor,
        },
        "shared_head": {"ResLayer": ResLayer},
        "bbox_head": {
            "BBoxHead": BoxHead,
            "ConvFCBBoxHead": BoxHead,
            "SABLHead": SABLHead,
            "Shared2FCBBoxHead": Shared2FCBoxHead,
            "Shared4Conv1FCBBoxHead": Shared4Conv1FCBoxHead,
        },
        "rotated bbox_head": {
            "RotatedBBoxHead": RotatedBoxHead,
            "RotatedConvFCBBoxHead": RotatedBoxHead,
            "RotatedKFIoUShared2FCBBoxHead": RotatedShared2FCBoxHead,
            "RotatedShared2FCBBoxHead": RotatedShared2FCBoxHead,
            "Shared2FCBBoxHead": RotatedShared2FCBoxHead,
        },
        "mask_head": {"FCNMaskHead": FCNMaskHead},
    }
)
"""Parts by kind; a part of only one family is named in that family's file."""

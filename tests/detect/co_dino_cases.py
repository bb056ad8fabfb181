"""Small detectors of Co-DETR, as MMDetection's ``projects/CO-DETR`` and its authors describe them, with their weights.

``tests/data/detect/co_dino.json`` and ``co_detr.json`` have the keys of the weights, and what both detected
(``tests/tools/check_projects.py`` and ``check_co_detr.py`` write them).
"""

import copy

import torch
from torch.nn.functional import layer_norm

from tests.detect import query_cases

_SAMPLING = {"type": "MultiScaleDeformableAttention", "embed_dims": 64, "num_levels": 3, "dropout": 0.0}
_ATTENTION = {"type": "MultiheadAttention", "embed_dims": 64, "num_heads": 8, "dropout": 0.0}
_LAYER = {"ffn_cfgs": {"type": "FFN", "embed_dims": 64}, "feedforward_channels": 64, "ffn_dropout": 0.0}
_LOSSES = {
    "loss_cls": {"type": "QualityFocalLoss", "use_sigmoid": True, "beta": 2.0, "loss_weight": 1.0},
    "loss_bbox": {"type": "L1Loss", "loss_weight": 5.0},
    "loss_iou": {"type": "GIoULoss", "loss_weight": 2.0},
}
_ENCODER = {
    "type": "DetrTransformerEncoder",
    "num_layers": 2,
    "with_cp": 4,
    "transformerlayers": {
        "type": "BaseTransformerLayer",
        "attn_cfgs": _SAMPLING,
        "operation_order": ("self_attn", "norm", "ffn", "norm"),
        **_LAYER,
    },
}
_DECODER = {
    "type": "DinoTransformerDecoder",
    "num_layers": 2,
    "return_intermediate": True,
    "transformerlayers": {
        "type": "DetrTransformerDecoderLayer",
        "attn_cfgs": [_ATTENTION, _SAMPLING],
        "operation_order": ("self_attn", "norm", "cross_attn", "norm", "ffn", "norm"),
        **_LAYER,
    },
}
_AUXILIARY = {"bbox_coder": {"type": "DeltaXYWHBBoxCoder"}, "in_channels": 64, "feat_channels": 64}


def _anchors(scale):
    strides = {"octave_base_scale": scale, "scales_per_octave": 1, "strides": [8, 16, 32, 64]}
    return {"type": "AnchorGenerator", "ratios": [1.0], **strides}


def model(test_cfg, **head):
    """Return a model whose queries are selected by `test_cfg`, with entries of the head instead of others."""
    return copy.deepcopy(
        {
            "type": "CoDETR",
            "use_lsj": False,
            "eval_module": "detr",
            "backbone": {"type": "ResNet", "depth": 18, "base_channels": 8, "out_indices": (2, 3)},
            "neck": {
                "type": "ChannelMapper",
                "in_channels": [32, 64],
                "kernel_size": 1,
                "out_channels": 64,
                "act_cfg": None,
                "norm_cfg": {"type": "GN", "num_groups": 8},
                "num_outs": 3,
            },
            "query_head": {
                "type": "CoDINOHead",
                "num_query": 12,
                "num_classes": 5,
                "in_channels": 2048,
                "as_two_stage": True,
                "dn_cfg": {
                    "label_noise_scale": 0.5,
                    "box_noise_scale": 1.0,
                    "group_cfg": {"dynamic": True, "num_groups": None, "num_dn_queries": 10},
                },
                "transformer": {
                    "type": "CoDinoTransformer",
                    "with_coord_feat": False,
                    "num_co_heads": 2,
                    "num_feature_levels": 3,
                    "encoder": _ENCODER,
                    "decoder": _DECODER,
                },
                "positional_encoding": {
                    "type": "SinePositionalEncoding",
                    "num_feats": 32,
                    "temperature": 20,
                    "normalize": True,
                },
                **_LOSSES,
                **head,
            },
            "rpn_head": {"type": "RPNHead", "anchor_generator": _anchors(4), **_AUXILIARY},
            "bbox_head": [{"type": "CoATSSHead", "num_classes": 5, "anchor_generator": _anchors(8), **_AUXILIARY}],
            "train_cfg": [
                {"assigner": {"type": "HungarianAssigner", "match_costs": [{"type": "FocalLossCost", "weight": 2.0}]}},
                {"rpn": None, "assigner": {"type": "ATSSAssigner", "topk": 9}},
            ],
            "test_cfg": [test_cfg, {"rpn": {"nms_pre": 10, "max_per_img": 10}, "nms_pre": 10}],
        }
    )


_SOFT_NMS = {"type": "soft_nms", "iou_threshold": 0.8}
MODELS = {
    "co_dino": model({"max_per_img": 20, "nms": _SOFT_NMS}),
    "co_dino_few_left": model({"max_per_img": 20, "score_thr": 0.3, "nms": {"type": "nms", "iou_threshold": 0.2}}),
    "co_dino_softmax": model({"max_per_img": 9}, loss_cls={"type": "CrossEntropyLoss", "use_sigmoid": False}),
}


def of_authors(test_cfg, transformer=None, **head):
    """Return a model as the authors of Co-DETR describe it; `transformer` has entries that differ from Co-DINO's."""
    config = model(test_cfg, **{"with_box_refine": True, "mixed_selection": True, **head})
    del config["use_lsj"]
    config |= {"with_attn_mask": config["query_head"]["type"] == "CoDeformDETRHead", "train_cfg": None}
    config["query_head"]["transformer"] |= transformer or {}
    config["query_head"]["num_feature_levels"] = 3
    del config["query_head"]["transformer"]["encoder"]["with_cp"]  # of the authors' own MMCV
    config["query_head"]["dn_cfg"] = {
        "type": "CdnQueryGenerator",
        "noise_scale": {"label": 0.5, "box": 1.0},
        "group_cfg": {"dynamic": True, "num_groups": None, "num_dn_queries": 10},
    }
    return config


def _deformable(test_cfg, **head):
    decoder = {**_DECODER, "type": "CoDeformableDetrTransformerDecoder", "look_forward_twice": True}
    positions = {"type": "SinePositionalEncoding", "num_feats": 32, "normalize": True, "offset": -0.5}
    head = {"type": "CoDeformDETRHead", "positional_encoding": positions, **head}
    config = of_authors(test_cfg, {"type": "CoDeformableDetrTransformer", "decoder": copy.deepcopy(decoder)}, **head)
    del config["query_head"]["dn_cfg"], config["query_head"]["num_feature_levels"]
    return config


_SWIN = {
    "type": "SwinTransformerV1",
    "embed_dim": 16,
    "depths": [2, 2, 2],
    "num_heads": [2, 2, 4],
    "out_indices": (1, 2),
    "window_size": 3,
    "ape": False,
    "use_checkpoint": False,
}
_VIT = {
    "type": "ViT",
    "img_size": 160,
    "pretrain_img_size": 64,
    "embed_dim": 128,
    "depth": 3,
    "num_heads": 2,
    "drop_path_rate": 0.4,
    "window_size": 3,
    "window_block_indexes": [0, 2],
    "residual_block_indexes": [],
    "qkv_bias": True,
}


def _vit(**backbone):
    """Return Co-DINO on the maps of a plain transformer."""
    config = of_authors({"max_per_img": 9, "nms": _SOFT_NMS})
    transformer = config["query_head"]["transformer"]
    config["query_head"]["num_feature_levels"] = transformer["num_feature_levels"] = 5
    for part in ("encoder", "decoder"):
        layer = transformer[part]["transformerlayers"]
        layer["attn_cfgs"] = copy.deepcopy(layer["attn_cfgs"])
        sampling = layer["attn_cfgs"] if part == "encoder" else layer["attn_cfgs"][1]
        sampling["num_levels"] = 5
    config["backbone"] = {**_VIT, **backbone}
    config["neck"] = {"type": "SFP", "in_channels": [128], "out_channels": 64, "num_outs": 5, "use_p2": True}
    return config


def _masks(**head):
    """Return Co-DINO with masks, in whose head other entries stand."""
    config = of_authors({"max_per_img": 9, "nms": _SOFT_NMS})
    layer = {"type": "RoIAlign", "output_size": 6, "sampling_ratio": 0}
    extractor = {"type": "SingleRoIExtractor", "roi_layer": layer, "out_channels": 64, "finest_scale": 14}
    channels = dict.fromkeys(
        (f"conv_{end}_channels_{kind}" for end in ("in", "out") for kind in ("instance", "semantic")), 64
    )
    config["mask_roi_extractor"] = {**extractor, "featmap_strides": [16, 32, 64]}
    config["mask_head"] = {
        "type": "SimpleRefineMaskHead",
        "num_convs_instance": 1,
        "num_convs_semantic": 2,
        **channels,
        "norm_cfg": {"type": "LN2d"},
        "semantic_out_stride": 16,
        "stage_num_classes": [5, 5, 5, 1],
        "stage_sup_size": [6, 12, 24, 48],
        "loss_cfg": {"type": "CrossEntropyLoss", "use_mask": True},
        **head,
    }
    overlap = {"num_convs": 2, "num_fcs": 1, "roi_feat_size": 6, "in_channels": 64, "conv_out_channels": 16}
    overlap |= {"fc_out_channels": 24, "num_classes": 5, "score_use_sigmoid": True, "norm_cfg": {"type": "LN2d"}}
    config["mask_iou_head"] = {"type": "MaskIoUHead", **overlap}
    config["with_attn_mask"] = True  # the authors' code pastes no masks into the padding
    config["test_cfg"].insert(1, {"mask_thr_binary": 0.5})
    return config


def _without_overlaps():
    config = _masks(
        fusion_type="MultiBranchFusion",
        norm_cfg=None,
        dilations=[1, 2, 3],
        stage_num_classes=[5, 5, 5],
        stage_sup_size=[6, 12, 24],
        pre_upsample_last_stage=True,
        upsample_cfg={"type": "bilinear", "scale_factor": 2, "align_corners": True},
    )
    del config["mask_iou_head"]
    config["test_cfg"][1]["mask_thr_binary"] = 0.4
    return config


OF_AUTHORS = {
    "co_dino": of_authors({"max_per_img": 9, "nms": _SOFT_NMS}),
    "co_dino_few_left": of_authors({"max_per_img": 9, "score_thr": 0.3}),
    "co_dino_masks": _masks(),
    "co_dino_masks_without_overlaps": _without_overlaps(),
    "co_dino_vit": _vit(),
    "co_deformable": _deformable({"max_per_img": 20}),
    "co_deformable_swin": {**_deformable({"max_per_img": 20}), "backbone": _SWIN},
    "co_deformable_one_stage": _deformable({"max_per_img": 20}, as_two_stage=False),
}


def config(name):
    """Return the config of a detector."""
    return {"model": MODELS[name]}


def weights(shapes):
    """Return weights by their keys in a checkpoint, of given shapes."""
    tensors = {key: torch.zeros(shape, dtype=torch.int64) for key, shape in shapes.items() if not shape}
    tensors |= {key: query_cases.weight(key, shape) for key, shape in shapes.items() if shape}
    cells = "query_head.transformer.enc_output"  # those that cannot be used are not to be among the best
    if f"{cells}.bias" in tensors:
        norm = [tensors[f"{cells}_norm.{name}"] for name in ("weight", "bias")]
        bias = layer_norm(tensors[f"{cells}.bias"], norm[0].shape, *norm)
        tensors["query_head.cls_branches.2.weight"] -= bias / 20
    return tensors

"""Deformable DETR and DINO: configs of both versions, padding, and proposals and decoding by hand."""

import copy
import re

import pytest
import torch

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.detect.parts.deformable_transformer import Pyramid
from mmort.detect.parts.queries import best_pairs_of_queries, moved

DIMS = 16
_NECK = {
    "type": "ChannelMapper",
    "in_channels": [16, 32],
    "kernel_size": 1,
    "out_channels": DIMS,
    "act_cfg": None,
    "norm_cfg": {"type": "GN", "num_groups": 4},
    "num_outs": 3,
}
_BACKBONE = {"type": "ResNet", "depth": 18, "base_channels": 8, "num_stages": 3, "strides": (1, 2, 2)}
_BACKBONE |= {"dilations": (1, 1, 1), "out_indices": (1, 2)}
_SAMPLING = {"type": "MultiScaleDeformableAttention", "embed_dims": DIMS, "num_heads": 2, "num_levels": 3}
_ATTENTION = {"type": "MultiheadAttention", "embed_dims": DIMS, "num_heads": 2, "dropout": 0.1}
_FFN = {"embed_dims": DIMS, "feedforward_channels": 24, "ffn_drop": 0.1}
_FOCAL = {"type": "FocalLoss", "use_sigmoid": True}


def config_3(head, **model):
    """Return a config of MMDetection 3, with two decoder layers."""
    return {
        "model": {
            "num_queries": 6,
            "num_feature_levels": 3,
            "backbone": _BACKBONE,
            "neck": _NECK,
            "encoder": {"num_layers": 1, "layer_cfg": {"self_attn_cfg": _SAMPLING, "ffn_cfg": _FFN}},
            "decoder": {
                "num_layers": 2,
                "layer_cfg": {"self_attn_cfg": _ATTENTION, "cross_attn_cfg": _SAMPLING, "ffn_cfg": _FFN},
                "post_norm_cfg": None,
            },
            "positional_encoding": {"num_feats": DIMS // 2, "normalize": True, "offset": -0.5},
            "bbox_head": {"type": head, "num_classes": 5, "sync_cls_avg_factor": True, "loss_cls": _FOCAL},
            "test_cfg": {"max_per_img": 12},
            **model,
        }
    }


def config_2(**head):
    """Return the config of Deformable DETR in MMDetection 2."""
    layer = {"feedforward_channels": 24, "ffn_dropout": 0.1}
    encoder = {"type": "BaseTransformerLayer", "attn_cfgs": _SAMPLING, **layer}
    decoder = {"type": "DetrTransformerDecoderLayer", "attn_cfgs": [_ATTENTION, _SAMPLING], **layer}
    transformer = {
        "type": "DeformableDetrTransformer",
        "num_feature_levels": 3,
        "two_stage_num_proposals": 6,
        "encoder": {"num_layers": 1, "transformerlayers": encoder},
        "decoder": {"num_layers": 2, "return_intermediate": True, "transformerlayers": decoder},
    }
    bbox_head = {
        "type": "DeformableDETRHead",
        "num_query": 6,
        "num_classes": 5,
        "in_channels": 2048,
        "transformer": transformer,
        "positional_encoding": {"type": "SinePositionalEncoding", "num_feats": 8, "normalize": True, "offset": -0.5},
        "loss_cls": _FOCAL,
        **head,
    }
    return {
        "model": {
            "type": "DeformableDETR",
            "backbone": _BACKBONE,
            "neck": _NECK,
            "bbox_head": bbox_head,
            "test_cfg": {"max_per_img": 12},
        }
    }


def randomized(detector):
    """Give all parameters values at random, so that none can be forgotten unnoticed."""
    torch.manual_seed(0)
    for name, parameter in detector.named_parameters():
        if not name.startswith("backbone."):
            parameter.copy_(torch.randn(parameter.shape) * 0.3 + (name.endswith("norm.weight")))
    return detector


@pytest.fixture(scope="module")
def dino():
    with torch.no_grad():
        return randomized(build(config_3("DINOHead", with_box_refine=True, as_two_stage=True, dn_cfg={"x": 1})))


def deformable(**settings):
    with torch.no_grad():
        return randomized(build(config_3("DeformableDETRHead", **settings)))


VARIANTS = [{}, {"with_box_refine": True}, {"with_box_refine": True, "as_two_stage": True}]


@pytest.mark.parametrize("variant", VARIANTS, ids=["plain", "refine", "two_stage"])
def test_both_versions_of_mmdetection_are_one_network(variant):
    ours = deformable(**variant)
    weights = {}
    for key, value in ours.state_dict().items():
        key = re.sub(r"^((?:en|de)coder\.)", r"bbox_head.transformer.\1", key)
        key = key.replace(".self_attn.", ".attentions.0.").replace(".cross_attn.", ".attentions.1.")
        key = key.replace(".ffn.", ".ffns.0.").replace("query_embedding", "bbox_head.query_embedding")
        for old, new in (("memory_trans_fc", "enc_output"), ("memory_trans_norm", "enc_output_norm")):
            key = key.replace(old, f"bbox_head.transformer.{new}")
        for old, new in (("pos_trans_fc", "pos_trans"), ("reference_points_fc", "reference_points")):
            key = key.replace(old, f"bbox_head.transformer.{new}")
        for name in ("pos_trans_norm", "level_embed"):
            key = key.replace(name, f"bbox_head.transformer.{name}" + "s" * (name == "level_embed"))
        weights[key] = value
    assert not {key.partition(".")[0] for key in weights} - {"backbone", "neck", "bbox_head"}
    theirs = build(config_2(**variant))
    load_weights(theirs, weights)
    image = torch.randn(1, 3, 64, 96)
    for first, second in zip(ours(image), theirs(image), strict=True):
        assert torch.equal(first, second)


def decoded(detector, features, canvas, image):
    """Return logits and boxes for maps of a canvas in which there is an image."""
    limits = torch.tensor([[[image[1], image[0]] * 2]], dtype=torch.float32)
    pyramid = Pyramid.of(
        features, torch.zeros(1, 3, *canvas), limits, detector.positional_encoding, detector.level_embed
    )
    with torch.no_grad():
        return detector.decode(detector.encoder(pyramid), pyramid)


@pytest.mark.parametrize("variant", [VARIANTS[0], VARIANTS[2]], ids=["plain", "two_stage"])
def test_padding_takes_no_part_in_the_transformer(variant):
    """It does in DINO, as in MMDetection: there the positions of queries depend on its share of the canvas."""
    detector = deformable(**variant)
    if detector.two_stages:  # cells that cannot be used all have one score, here a low one
        unusable = detector.memory_trans_norm(detector.memory_trans_fc.bias)
        detector.bbox_head.cls_branches[-1].weight.sub_(unusable)
    torch.manual_seed(1)
    alone = [torch.randn(1, DIMS, 64 // stride, 96 // stride) for stride in (8, 16, 32)]
    padded = []
    for map in alone:
        canvas = torch.full((1, DIMS, map.shape[2] * 2, map.shape[3] * 3), 7.0)
        canvas[:, :, : map.shape[2], : map.shape[3]] = map
        padded.append(canvas)
    expected = decoded(detector, alone, (64, 96), (64, 96))
    for actual, values in zip(decoded(detector, padded, (128, 288), (64, 96)), expected, strict=True):
        torch.testing.assert_close(actual, values, rtol=1e-3, atol=1e-4)


def test_proposals_by_hand(dino):
    """A map of 2 x 4 cells, of which the image has 2 x 2, and one of 1 x 1: too large a square is none."""
    features = [torch.zeros(1, DIMS, 2, 4), torch.zeros(1, DIMS, 1, 1)]
    pyramid = Pyramid.of(
        features,
        torch.zeros(1, 3, 16, 32),
        torch.tensor([[[16.0, 16, 16, 16]]]),
        dino.positional_encoding,
        dino.level_embed,
    )
    boxes, usable = pyramid.proposals()
    assert usable[0, :, 0].tolist() == [True, True, False, False] * 2 + [True]
    expected = torch.tensor([[0.25, 0.25, 0.05, 0.05], [0.75, 0.75, 0.05, 0.05], [0.5, 0.5, 0.1, 0.1]])
    torch.testing.assert_close(boxes[0, [0, 5, 8]].sigmoid(), expected)
    assert pyramid.shapes.tolist() == [[2, 4], [1, 1]]
    torch.testing.assert_close(pyramid.shares[0], torch.tensor([[0.5, 1], [1, 1]]))


def test_decoding_by_hand():
    logits = torch.tensor([[[0.0, 2, -9], [1, -9, -9]]])
    references = torch.tensor([[[0.5, 0.5], [0.9, 0.2]]])
    boxes = moved(references, torch.tensor([[[0.0, 0, 0, 0], [0, 0, 0, 0]]]))
    torch.testing.assert_close(boxes, torch.tensor([[[0.5, 0.5, 0.5, 0.5], [0.9, 0.2, 0.5, 0.5]]]))
    dets, labels = best_pairs_of_queries(logits, boxes, torch.tensor([[[200.0, 100, 200, 100]]]), 3)
    assert labels.tolist() == [[1, 0, 0]]
    expected = torch.tensor([[50.0, 25, 150, 75], [130, 0, 200, 45], [50, 25, 150, 75]])
    torch.testing.assert_close(dets[0, :, :4], expected)
    torch.testing.assert_close(dets[0, :, 4], torch.tensor([2.0, 1, 0]).sigmoid())


def test_boxes_move_with_their_references():
    """A box at the border stays finite: it moves as from `eps`."""
    references = torch.tensor([[[1.0, 0, 0.5, 0.2]]])
    result = moved(references, torch.zeros(1, 1, 4), eps=1e-3)
    torch.testing.assert_close(result, torch.tensor([[[1 / 1.001, 0.001 / 1.001, 0.5, 0.2]]]))


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        ("as_two_stage", False, "as_two_stage of model must be True, got False"),
        (
            "bbox_head.loss_cls",
            {"type": "FocalLoss", "use_sigmoid": False},
            "use_sigmoid of loss_cls 'FocalLoss' must be True",
        ),
        ("decoder.return_intermediate", False, "return_intermediate of decoder must be True, got False"),
        ("decoder.post_norm_cfg", {"type": "LN"}, "post_norm_cfg of decoder must be None"),
        ("bbox_head.num_patterns", 3, "num_patterns"),
    ],
)
def test_unsupported_entries_are_named(path, value, match):
    config = copy.deepcopy(config_3("DINOHead", with_box_refine=True, as_two_stage=True))
    *parents, last = path.split(".")
    part = config["model"]
    for name in parents:
        part = part[name]
    part[last] = value
    with pytest.raises(ValueError, match=match):
        build(config)

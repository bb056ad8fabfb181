"""Detectors of what words describe."""

from __future__ import annotations

import copy
from pathlib import Path

from tests.originals.cases.case import Case, Config
from tests.originals.cases.dense import NECK, TEST_CFG, over_pyramid
from tests.originals.cases.query import CASES as QUERY_CASES
from tests.originals.weights import Spread

BERT = str(Path(__file__).parents[2] / "data" / "bert")
"""A folder with a small vocabulary, and the sizes of a small language model."""
WIDE_BERT = f"{BERT}_768"
"""The same, with the channels that GLIP's fusion has."""

CLASSES = ("cat", "traffic light", "Playing_jellyfish (big)", "a man with two dogs", "猫 6")
PIPELINE = [
    {"type": "LoadImageFromFile", "imdecode_backend": "pillow"},
    {"type": "FixScaleResize", "scale": (90, 131), "keep_ratio": True, "backend": "pillow"},
    {"type": "PackDetInputs", "meta_keys": ("img_shape", "scale_factor", "text", "custom_entities", "caption_prompt")},
]
_ATTENTION = {"embed_dims": 256, "num_heads": 4, "dropout": 0.0}


def _model(contrastive: Config, language: Config, **test_cfg: int) -> Config:
    dino = copy.deepcopy(QUERY_CASES["dino"].model)
    fully_connected = dino["encoder"]["layer_cfg"]["ffn_cfg"]
    dino["encoder"] |= {
        "text_layer_cfg": {"self_attn_cfg": _ATTENTION, "ffn_cfg": {**fully_connected, "feedforward_channels": 40}},
        "fusion_layer_cfg": {"v_dim": 256, "l_dim": 256, "embed_dim": 64, "num_heads": 4, "init_values": 1e-4},
    }
    dino["decoder"]["layer_cfg"]["cross_attn_text_cfg"] = _ATTENTION
    dino["bbox_head"] |= {"type": "GroundingDINOHead", "num_classes": 5, "contrastive_cfg": contrastive}
    dino |= {
        "type": "GroundingDINO",
        "language_model": {
            "type": "BertModel",
            "name": BERT,
            "pad_to_max": False,
            "use_sub_sentence_represent": True,
            "special_tokens_list": ["[CLS]", "[SEP]", ".", "?"],
            "add_pooling_layer": False,
            **language,
        },
    }
    dino["test_cfg"] |= test_cfg
    return dino


def _glip(bert: str, channels: int, head: Config, language: Config, **test_cfg: int) -> Config:
    anchors = {"ratios": [1.0], "octave_base_scale": 5, "scales_per_octave": 1, "strides": [8, 16, 32, 64, 128]}
    bbox_head = {
        "type": "ATSSVLFusionHead",
        "lang_model_name": bert,
        "num_classes": 5,
        "in_channels": channels,
        "feat_channels": channels,
        "num_dyhead_blocks": 2,
        "anchor_generator": {"type": "AnchorGenerator", **anchors, "center_offset": 0.5},
        "bbox_coder": {"type": "DeltaXYWHBBoxCoderForGLIP", "target_stds": [0.5, 0.5, 0.5, 0.5]},
        **head,
    }
    neck = {**NECK, "out_channels": channels, "num_outs": 5, "add_extra_convs": "on_output"}
    language_model = {"type": "BertModel", "name": bert, "max_tokens": 60, **language}
    return over_pyramid("GLIP", bbox_head, neck, language_model=language_model, test_cfg={**TEST_CFG, **test_cfg})


GLIP_SPREAD = {
    r"bbox_pred$": (0.0, 0.5),
    r"centerness$": (0.0, 1.5),
    r"dot_product_projection_text$": (0.0, 1.0),
}


def _case(
    model: Config, spread: Spread = QUERY_CASES["dino"].spread, *, batches: bool = True, **entries: object
) -> Case:
    data_set = {"return_classes": True, "metainfo": {"classes": CLASSES}, **entries}
    return Case(model, spread, PIPELINE, batches, data_set=data_set)


_PROMPTS = {"cat": {"suffix": " in the house"}, "traffic light": {"name": "red light", "prefix": "a "}}
_FEW = {"classes": CLASSES[:3]}  # GLIP has a box of each class where it has any
CASES = {
    "grounding_dino": _case(
        _model({"max_text_len": 256, "log_scale": 0.0, "bias": False}, {"add_pooling_layer": True})
    ),
    "mm_grounding_dino": _case(
        _model(
            {"max_text_len": 128, "log_scale": "auto", "bias": True},
            {"max_tokens": 60, "pad_to_max": True, "num_layers_of_embedded": 2},
        ),
        caption_prompt=_PROMPTS,
    ),
    # MMDetection takes one image at a time, and returns the detections of each chunk.
    "grounding_dino_chunks": _case(_model({"log_scale": "auto"}, {}, chunked_size=2), batches=False),
    "glip": _case(
        _glip(BERT, 32, {}, {"num_layers_of_embedded": 2}), GLIP_SPREAD, metainfo=_FEW, caption_prompt=_PROMPTS
    ),
    "glip_fused": _case(
        _glip(WIDE_BERT, 256, {"early_fuse": True}, {"pad_to_max": False, "num_layers_of_embedded": 2}),
        GLIP_SPREAD,
        metainfo=_FEW,
    ),
    "glip_chunks": _case(_glip(BERT, 32, {}, {}, chunked_size=2), GLIP_SPREAD, batches=False),
}

"""A small detector of what words describe, with a language model of a small vocabulary."""

import copy
from pathlib import Path

from mmort.configs.captions import Prompt
from tests.detect import dense_cases, query_cases

BERT = Path(__file__).parents[1] / "data" / "bert"
TEXTS = "cat . traffic light . a man with two dogs"


def _grounding_dino():
    """Return the model of a Grounding DINO: that of a DINO, with words."""
    model = copy.deepcopy(query_cases.MODELS["dino"])
    attention = {"embed_dims": 256, "num_heads": 4}
    fully_connected = {"embed_dims": 256, "feedforward_channels": 64}
    model["encoder"] |= {
        "text_layer_cfg": {"self_attn_cfg": attention, "ffn_cfg": fully_connected},
        "fusion_layer_cfg": {"v_dim": 256, "l_dim": 256, "embed_dim": 64, "num_heads": 4},
    }
    model["bbox_head"] |= {"type": "GroundingDINOHead", "contrastive_cfg": {"log_scale": "auto", "bias": True}}
    language_model = {
        "type": "BertModel",
        "name": str(BERT),
        "pad_to_max": False,
        "use_sub_sentence_represent": True,
        "special_tokens_list": ["[CLS]", "[SEP]", ".", "?"],
    }
    return {**model, "type": "GroundingDINO", "language_model": language_model}


def _glip():
    """Return the model of a GLIP whose image and words change each other."""
    anchors = {"ratios": [1.0], "octave_base_scale": 8, "scales_per_octave": 1, "strides": [8, 16, 32, 64, 128]}
    head = {
        "type": "ATSSVLFusionHead",
        "lang_model_name": f"{BERT}_768",
        "in_channels": 256,
        "early_fuse": True,
        "num_dyhead_blocks": 1,
        "anchor_generator": {"type": "AnchorGenerator", **anchors, "center_offset": 0.5},
        "bbox_coder": {"type": "DeltaXYWHBBoxCoderForGLIP", "target_stds": [0.1, 0.1, 0.2, 0.2]},
    }
    dense = dense_cases.config("ATSSHead")["model"]
    neck = {**dense["neck"], "out_channels": 256, "num_outs": 5, "add_extra_convs": "on_output"}
    language_model = {"type": "BertModel", "name": f"{BERT}_768"}
    return {**dense, "type": "GLIP", "neck": neck, "bbox_head": head, "language_model": language_model}


MODELS = {"grounding_dino": _grounding_dino(), "glip": _glip()}


def config(name="grounding_dino", **entries):
    """Return the config of a detector, with further entries of its model."""
    return {"model": {"data_preprocessor": {}, **copy.deepcopy(MODELS[name]), **entries}}


def fill(detector):
    """Give all weights values that nothing cancels, and set what to look for."""
    for name, tensor in detector.state_dict().items():
        values = query_cases.numbers(name, *tensor.shape)
        if tensor.ndim >= 2:
            tensor.copy_(values if "embed" in name else values * 1.5 / tensor[0].numel() ** 0.5)
        elif tensor.is_floating_point():
            tensor.copy_(values * 0.2 + name.endswith((".weight", "running_var")))
    detector.set_texts(Prompt.of(TEXTS))

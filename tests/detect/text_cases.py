"""A small detector of what words describe, with a language model of a small vocabulary."""

import copy
from pathlib import Path

from mmort.configs.captions import Prompt
from tests.detect import query_cases

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


MODELS = {"grounding_dino": _grounding_dino()}


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

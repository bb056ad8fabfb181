"""Small detectors of MMDetection's ``projects/SparseInst``, one for each decoder.

``tests/data/detect/sparseinst.json`` has the keys of their weights, and what the project detected
(``tests/tools/check_projects.py`` writes it).
"""

from tests.detect import mask_cases, query_cases


def _model(decoder, encoder=None, **entries):
    """Return a detector with a decoder of a type, and further entries of both."""
    return {
        "type": "SparseInst",
        "backbone": {**mask_cases.BACKBONE, "out_indices": (1, 2, 3)},
        "encoder": {
            "type": "InstanceContextEncoder",
            "in_channels": mask_cases.CHANNELS[1:],
            "out_channels": 16,
            **(encoder or {}),
        },
        "decoder": {
            "type": decoder,
            "in_channels": 18,
            "num_classes": 8,
            "ins_dim": 8,
            "ins_conv": 2,
            "mask_dim": 12,
            "mask_conv": 1,
            "kernel_dim": 8,
            "num_masks": 12,
            **entries,
        },
        "criterion": {
            "type": "SparseInstCriterion",
            "num_classes": 8,
            "assigner": {"type": "SparseInstMatcher", "alpha": 0.8, "beta": 0.2},
        },
        "test_cfg": {"score_thr": 0.3, "mask_thr_binary": 0.45},
    }


MODELS = {
    "sparseinst": _model("BaseIAMDecoder", output_iam=False),
    "sparseinst_groups": _model("GroupIAMDecoder"),
    "sparseinst_mixed_groups": _model("GroupIAMDecoder", num_groups=2, scale_factor=4),
    "sparseinst_soft_groups": _model(
        "GroupIAMSoftDecoder", {"with_ppm": False}, num_groups=2, act_cfg={"type": "PReLU"}
    ),
}

_FACTORS = {"iam_conv.weight": 40, "cls_score.weight": 3, "objectness.weight": 3}
"""How many times as large as the others some weights are: maps highlight few cells, and scores differ."""


def weights(shapes):
    """Return weights by their keys in a checkpoint, of given shapes: features stay near 1, masks are half full."""
    tensors = {}
    for key, shape in shapes.items():
        factor = next((factor for end, factor in _FACTORS.items() if key.endswith(end)), 1)
        tensors[key] = query_cases.weight(f"h{key}", shape) * (factor / 1.5 if len(shape) > 1 else 1)
    return tensors


def fill(detector):
    """Give all weights, the project's or ours, those of `weights`."""
    state = {key: tensor for key, tensor in detector.state_dict().items() if tensor.is_floating_point()}
    for key, values in weights({key: tensor.shape for key, tensor in state.items()}).items():
        state[key].copy_(values)

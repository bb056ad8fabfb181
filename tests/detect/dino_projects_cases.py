"""Small detectors of MMDetection's ``projects`` that are a DINO with another head or other queries.

``tests/data/detect/dino_projects.json`` has the keys of their weights, and what the projects detected
(``tests/tools/check_projects.py`` writes it).
"""

import copy

from tests.detect import query_cases


def _model(**head):
    model = copy.deepcopy(query_cases.MODELS["dino"])
    model["bbox_head"] |= head
    return model


_ALIGN = _model(
    type="AlignDETRHead",
    all_layers_num_gt_repeat=[2, 2, 1, 2],
    alpha=0.25,
    gamma=2.0,
    tau=1.5,
    loss_cls={"type": "CrossEntropyLoss", "use_sigmoid": True},
)
_ALIGN["backbone"]["norm_cfg"] = {"type": "FrozenBN", "requires_grad": False}
_ALIGN["neck"]["bias"] = True
_HYBRID = {**_model(type="HybridDINOHead", num_query_one2one=8, k_one2many=2), "type": "HDINO"}
MODELS = {"align_detr": _ALIGN, "h_dino": _HYBRID}

"""The settings of a suppression, `nms_cfg`, as the numpy and the torch API take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmort._kernels import as_number
from mmort.ops._other_names import RENAMED

_KNOWN = {
    "nms": frozenset({"iou_threshold", "offset", "score_threshold", "max_num"}),
    "soft_nms": frozenset({"iou_threshold", "sigma", "min_score", "method", "offset", "max_num"}),
}


def suppression_settings(nms_cfg: Any) -> dict[str, Any]:
    """Return the entries of `nms_cfg`, which a number or None may stand for."""
    if nms_cfg is None:
        return {"iou_threshold": float("inf")}
    if isinstance(nms_cfg, Mapping):
        return dict(nms_cfg)
    if type(nms_cfg) in (int, float):  # torch.compile cannot trace as_number
        return {"iou_threshold": nms_cfg}
    try:
        return {"iou_threshold": as_number("batched_nms", "nms_cfg", nms_cfg)}
    except TypeError:
        raise TypeError(
            "batched_nms: nms_cfg must be a mapping such as dict(type='nms', iou_threshold=0.5), a number or None, "
            f"got {nms_cfg!r}"
        ) from None


def check_settings(kind: str, settings: Mapping[str, Any]) -> None:
    """Raise TypeError for an entry that a kind of suppression does not have, or lacks."""
    for name in sorted(settings.keys() - _KNOWN[kind]):
        former = RENAMED.get(name)
        advice = (
            f"{name} was renamed {former} in MMCV 1.x" if former else f"there are {', '.join(sorted(_KNOWN[kind]))}"
        )
        raise TypeError(f"batched_nms: nms_cfg has no entry {name} for {kind}; {advice}")
    if kind == "nms" and "iou_threshold" not in settings:
        raise TypeError("batched_nms: nms_cfg must have iou_threshold, such as dict(type='nms', iou_threshold=0.5)")

"""Detectors in plain torch that read MMDetection's configs and checkpoints, and give MMDetection's results.

`load` takes a config and a checkpoint, `build` a config alone (the weights are random), `unsupported` lists
what of a config they refuse, and `list_families` all detectors.  `register` adds detectors of one's own.  mmcv and
mmdet are not needed.  Programs that run an exported detector need `mmort.predict` only, and no torch.

``families`` are the detectors, a file each, and ``parts`` what they share; both register the names that configs use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmort.detect.claims import list_families
    from mmort.detect.detector import Detector
    from mmort.detect.entries import register
    from mmort.detect.loading import build, load
    from mmort.detect.support import unsupported

__all__ = ["Detector", "build", "list_families", "load", "register", "unsupported"]


def __dir__() -> list[str]:
    return list(__all__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mmort.detect' has no attribute {name!r}")
    try:
        from mmort.detect import claims, detector, entries, loading, support
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"mmort.detect.{name} needs torch: pip install 'mmort[detect]'") from None
    modules = {"Detector": detector, "list_families": claims, "register": entries, "unsupported": support}
    return getattr(modules.get(name, loading), name)

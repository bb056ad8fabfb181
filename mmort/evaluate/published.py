"""The AP that MMDetection publishes for its configs on COCO's val2017, so that a figure can be compared with it.

published.txt has a line for each config: its name, the AP of boxes, and that of masks, in percent.  It is made of the
metafiles of MMDetection 3.3.0 by ``tests/tools/record_published.py``.
"""

from __future__ import annotations

import os
from pathlib import Path

METRICS = "bbox_mAP", "segm_mAP"
VAL2017 = 5000
"""The images of COCO's val2017."""

_FILE = Path(__file__).with_name("published.txt")


def published_figures(config: str | os.PathLike[str]) -> dict[str, float]:
    """Return the published figures of the config that has a file's name, by metric; empty if there is none.

    Names of MMDetection 2, which has underscores for hyphens, are those of MMDetection 3.

    Examples
    --------
    >>> from mmort.evaluate.published import published_figures
    >>> published_figures("configs/mask_rcnn/mask_rcnn_r50_fpn_1x_coco.py")
    {'bbox_mAP': 0.382, 'segm_mAP': 0.347}
    >>> published_figures("mine.py")
    {}
    """
    wanted = _normalized(Path(config).stem)
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        name, *percents = line.split()
        if _normalized(name) == wanted:
            pairs = zip(METRICS, percents, strict=True)
            return {metric: round(float(percent) / 100, 4) for metric, percent in pairs if percent != "-"}
    return {}


def _normalized(name: str) -> str:
    """Return a config's name with underscores only."""
    return name.replace("-", "_")

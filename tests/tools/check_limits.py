"""Reach the limits that take seconds to reach: comparisons of boxes.  Run by hand: python -m tests.tools.check_limits.

Each call has more boxes than may all be compared with each other, of which none suppresses another.
"""

import time

import numpy as np
import pytest

import mmort

COUNT = 300_000


def main() -> None:
    """Print each refusal and its time, a minute or less; fail if a call is not refused."""
    corners = np.stack(np.divmod(np.random.default_rng(0).permutation(COUNT), 1000), axis=1).astype(np.float32)
    boxes = np.concatenate([corners, corners + np.float32(0.4)], axis=1)
    rotated = np.concatenate([corners, np.full((COUNT, 2), 0.4, np.float32), corners[:, :1]], axis=1)
    scores = np.linspace(1, 0.5, COUNT, dtype=np.float32)
    far = boxes.astype(np.float64) + 1e8
    calls = {
        "far away from 0": lambda: mmort.nms(far, scores, 0.01),
        "empty, threshold below 0": lambda: mmort.nms(boxes * 0, scores, -1.0),
        "classes": lambda: mmort.multiclass_nms(far[None], scores[None, :, None], iou_threshold=0.01, max_per_image=-1),
        "rotated": lambda: mmort.nms_rotated(rotated, scores, 0.5),
        "rotated, by class": lambda: mmort.nms_rotated_indices(rotated[None], scores[None, None], 0.5, 0.0),
    }
    for name, call in calls.items():
        begin = time.perf_counter()
        with pytest.raises(ValueError, match="boxes of a class take more than 131072 comparisons each") as refusal:
            call()
        print(f"{time.perf_counter() - begin:5.1f} s  {name}: {refusal.value}")


if __name__ == "__main__":
    main()

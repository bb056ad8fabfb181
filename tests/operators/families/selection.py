"""filter_scores."""

import numpy as np

from tests.operators.case import INF, NAN, SIZES, add, given, oracle, refuse, zeros
from tests.operators.families.boxes import make_scores


@oracle
def filter_scores(scores, score_threshold=0.05, nms_pre=-1):
    """Sort each image's scores above the threshold; those equal to the last of the best stay too."""
    output = np.zeros_like(scores)
    for image, values in enumerate(scores):
        stays = values > scores.dtype.type(score_threshold)
        above = np.sort(values[stays])[::-1]
        if 0 < nms_pre < len(above):
            stays &= values >= above[nms_pre - 1]
        output[image][stays] = values[stays]
    return (output,)


def scored(images, n, classes, levels=0):
    """Return a builder of scores [B, N, C], of a number of different values if `levels` is not 0."""
    return lambda rng: (make_scores(rng, images * n * classes, levels).reshape(images, n, classes),)


def spread(images, n, classes):
    """Return a builder of scores of all signs and magnitudes."""
    shape = images, n, classes
    return lambda rng: ((rng.choice([-1, 1], shape) * 10.0 ** rng.uniform(-44, 38, shape)).astype(np.float32),)


STRANGE = [[[NAN, INF, -INF, -0.0], [0.0, 1e-45, NAN, 1.0], [-1e-45, 1.0, INF, -1.0]]]

for n in SIZES:
    for nms_pre in (-1, 1, n):
        add("filter_scores", f"n{n}_pre{nms_pre}", scored(2, n, 3), score_threshold=0.3, nms_pre=nms_pre)
    add("filter_scores", f"classes{n}", scored(2, 7, n, levels=5), nms_pre=9)
for nms_pre in (1, 100, 2500, 5000):
    add("filter_scores", f"equal_pre{nms_pre}", scored(3, 60, 80, levels=4), score_threshold=0.0, nms_pre=nms_pre)
    add("filter_scores", f"spread_pre{nms_pre}", spread(2, 60, 80), score_threshold=-INF, nms_pre=nms_pre)
for threshold in (-INF, -1.0, -0.0, 0.0, 0.1, 1.0, INF):
    for nms_pre in (0, 1, 3, 2**62):
        add("filter_scores", f"strange_{threshold}_pre{nms_pre}", given(STRANGE), score_threshold=threshold,
            nms_pre=nms_pre)  # fmt: skip
add("filter_scores", "no_images", scored(0, 4, 3), nms_pre=2)
add("filter_scores", "many", scored(3, 3000, 20), nms_pre=5000)

refuse("filter_scores", "scores must be [B, N, C], got [3, 4]", zeros(3, 4))
refuse("filter_scores", "scores must be [B, N, C], got [1, 3, 4, 1]", zeros(1, 3, 4, 1))

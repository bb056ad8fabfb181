"""Results recorded from MMCV's and MMDeploy's own libraries: mmort gives the same, or a reason stands here."""

import json
import pathlib
import re

import numpy as np
import pytest

from tests import front_ends
from tests.compare import assert_close, assert_same

FILE = np.load(pathlib.Path(__file__).parents[1] / "data" / "golden.npz")
GOLDEN = {case["file"]: case for case in json.loads(str(FILE["cases"]))}
EXACT = {"NonMaxSuppression", "NMSMatch", "NMSRotated", "MMCVCornerPool", "cummax", "cummin"}

TIES = "equal scores: mmort takes the lower index first; the original's order is that of an unstable sort"
NAN = "NaN propagates, as in torch; the original skipped every NaN but a line's first element"
LEAK = "a sample outside touches no memory; the original multiplied the first pixel by 0"
TINY = "exact overlaps; the original's absolute tolerances lose tiny boxes"
EXACTLY_ONE = "identical boxes overlap by 1, not more; the original's area came out a last bit too large"
GROUPS = "deformable groups split all channels, as in torch; the original began anew in every group"

OTHER_RESULTS = {
    "mmcv__NonMaxSuppression__021_ties_n17": TIES,
    "mmcv__NonMaxSuppression__022_ties_n40": TIES,
    "mmcv__NonMaxSuppression__023_ties_n100_4levels": TIES,
    "mmcv__NonMaxSuppression__024_ties_n100_4levels_t03": TIES,
    "mmcv__NonMaxSuppression__026_ties_n1000_sorted_asc": TIES,
    "mmdeploy__NMSMatch__025_ties_k40": TIES,
    "mmcv__MMCVRoIAlignRotated__031_nan_pixel00_roi_outside": LEAK,
    "mmdeploy__MMCVRoIAlignRotated__031_nan_pixel00_roi_outside": LEAK,
    "mmdeploy__NMSRotated__020_identical_thr1": EXACTLY_ONE,
    "mmdeploy__NMSRotated__033_tiny_overlap_0p0001": TINY,
    "mmdeploy__NMSRotated__034_tiny_overlap_5em05": TINY,
    "mmdeploy__NMSRotated__035_tiny_overlap_2em05": TINY,
    "mmdeploy__NMSRotated__040_ties_k40": TIES,
    "mmcv__MMCVCornerPool__019_nan_m3": NAN,
    "mmcv__cummin__024_nan_middle": NAN,
    "mmcv__MMCVDeformConv2d__023_g2_dg2": GROUPS,
    "mmcv__MMCVModulatedDeformConv2d__024_g2_dg4": GROUPS,
    "mmdeploy__MMCVModulatedDeformConv2d__019_g2_dg2": GROUPS,
    "mmdeploy__MMCVModulatedDeformConv2d__020_g2_dg4": GROUPS,
}
"""Cases in which mmort differs from the original, and why."""

REFUSED = {
    "mmcv__NonMaxSuppression__041_scores_2d": "scores must be [N], got [4, 1]",
    "mmcv__MMCVRoiAlign__040_mode_MAX": "mode must be 'avg' or 'max', got 'MAX'",
    "mmcv__MMCVRoiAlign__041_mode_xyz": "mode must be 'avg' or 'max', got 'xyz'",
    "mmcv__MMCVRotatedFeatureAlign__015_points_neg": "points must be from 1 to 5, got -2",
    "mmcv__MMCVCornerPool__023_mode4": "mode must be 0 (top), 1 (bottom), 2 (left) or 3 (right), got 4",
    "mmcv__MMCVDeformConv2d__035_input_smaller_s2": "offset must be [1, 18, 0, 0], got [1, 18, 1, 1]",
    "mmcv__MMCVModulatedDeformConv2d__035_input_smaller_s2": "offset must be [1, 18, 0, 0], got [1, 18, 1, 1]",
    "mmdeploy__MMCVModulatedDeformConv2d__022_dg3_of_c7": "deform_groups must divide the channels of input, 8, got 3",
}
"""Cases that the original accepted and mmort refuses, and a part of the message."""

ORDINARY = sorted(GOLDEN.keys() - OTHER_RESULTS.keys() - REFUSED.keys())


def row_of(name):
    case = GOLDEN[name]
    return next(row for row in front_ends.ROWS if (row["domain"], row["type"]) == (case["domain"], case["op"]))


def arrays(name, kind):
    return tuple(FILE[key] for key in sorted(key for key in FILE.files if key.startswith(f"{name}/{kind}_")))


def run_ort(name):
    row = row_of(name)
    recordings = zip(row["inputs"], GOLDEN[name]["inputs"], strict=False)  # optional inputs may be left out
    names = [formal["name"] if recorded else "" for formal, recorded in recordings]
    model = front_ends.make_model(row, GOLDEN[name]["attrs"], names)
    return front_ends.run_session(front_ends.make_session(model), arrays(name, "in"))


def run_numpy(name, run=front_ends.run_numpy):
    operator = row_of(name)["kernel"]
    attributes = front_ends.numpy_attributes(operator, GOLDEN[name]["attrs"])
    return front_ends.node_outputs(operator, run(operator, arrays(name, "in"), attributes))


def compare(name):
    return assert_close if GOLDEN[name]["op"] not in EXACT else assert_same


def test_names():
    assert (OTHER_RESULTS | REFUSED).keys() <= GOLDEN.keys()


@pytest.mark.parametrize("run", [run_ort, run_numpy])
@pytest.mark.parametrize("name", ORDINARY)
def test_same_as_the_original(name, run):
    compare(name)(run(name), arrays(name, "out"), GOLDEN[name]["note"])


@pytest.mark.parametrize("run", [run_ort, run_numpy])
@pytest.mark.parametrize("name", OTHER_RESULTS)
def test_differs_from_the_original(name, run):
    assert not {"ok", "edge"} & set(GOLDEN[name]["tags"]) or OTHER_RESULTS[name] is EXACTLY_ONE
    got = run(name)
    compare(name)(got, run_numpy(name, front_ends.run_oracle))
    with pytest.raises(AssertionError):
        compare(name)(got, arrays(name, "out"))


@pytest.mark.parametrize("name", REFUSED)
def test_refused_though_the_original_accepted(name):
    assert not {"ok", "edge"} & set(GOLDEN[name]["tags"])
    with pytest.raises(front_ends.ORT_ERRORS, match=re.escape(REFUSED[name])):
        run_ort(name)
    with pytest.raises(ValueError, match=r"must (be|divide)"):
        run_numpy(name)

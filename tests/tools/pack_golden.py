"""Pack recorded results of MMCV's and MMDeploy's own ONNX Runtime operators into golden.npz, for test_golden.py.

usage: python -m tests.tools.pack_golden FOLDER

FOLDER holds a manifest.json and one .npz for each case: results of the original libraries (mmcv-full 1.7.2, mmdeploy
1.3.1), recorded once; in_i and out_i are the inputs and outputs of a case.
"""

import json
import pathlib
import sys

import numpy as np

OPERATORS = (
    "NonMaxSuppression",
    "SoftNonMaxSuppression",
    "NMSMatch",
    "MMCVRoiAlign",
    "MMCVRoIAlignRotated",
    "MMCVRotatedFeatureAlign",
    "NMSRotated",
    "grid_sampler",
    "MMCVCornerPool",
    "cummax",
    "cummin",
    "MMCVDeformConv2d",
    "MMCVModulatedDeformConv2d",
)


def main(folder):
    cases, arrays = [], {}
    for case in json.loads((folder / "manifest.json").read_text()):
        if case["op"] not in OPERATORS:
            continue
        with np.load(folder / (case["file"] + ".npz")) as recorded:
            arrays |= {f"{case['file']}/{key}": recorded[key] for key in recorded.files if key != "meta"}
        cases.append({key: case[key] for key in ("file", "op", "domain", "attrs", "inputs", "tags", "note")})
    target = pathlib.Path(__file__).parents[1] / "data" / "golden.npz"
    np.savez_compressed(target, cases=json.dumps(cases), **arrays)
    print(f"{len(cases)} cases, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

"""Writes expected.json and copies three pictures, from the folder of the digits set: MMDetection 2.28.2's own inputs.

python tests/data/preprocessing/pack.py FOLDER
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np

from mmort.configs import read_config

HERE = Path(__file__).parent


def main(folder: str) -> None:
    cases: dict[str, dict] = {}
    for path in sorted(Path(folder).glob("*/config.py")):
        pipeline = read_config(path)["data"]["test"]["pipeline"]
        if any(case["pipeline"] == json.loads(json.dumps(pipeline)) for case in cases.values()):
            continue  # as another family's
        results = np.load(path.parent / "ref_results.npz")
        images = []
        for i in range(3):
            meta, array = json.loads(str(results[f"raw/{i}/meta"])), results[f"raw/{i}/input"][0]
            shutil.copy(Path(folder, meta["filename"]), HERE)
            image = {
                name: meta[name]
                for name in ("ori_shape", "img_shape", "pad_shape", "scale_factor", "border")
                if name in meta
            }
            image |= {"file": Path(meta["filename"]).name, "sha256": hashlib.sha256(array.tobytes()).hexdigest()}
            images.append(image)
        cases[path.parent.name] = {"pipeline": json.loads(json.dumps(pipeline)), "images": images}
    (HERE / "expected.json").write_text(json.dumps(cases, indent=1) + "\n")


main(*sys.argv[1:])

"""Explain where DINO's detections differ from MMDetection's: cells with nearly equal scores exchange their ranks.

    python -m tests.tools.check_ranks FOLDER FILES [--runtimes VERSION ...]

FOLDER and FILES are those of oracle_table, which makes FILES/dino_r50.pth and FILES/dino_r50.onnx.  MMDetection's
results, and the file's in each ONNX Runtime with one thread and with two, are compared with torch's.  Where an image's
detections differ, torch exchanges neighbouring ranks whose scores are at most NEAR apart, until all are equal.  Prints
a row for each of them: how many lists are equal without exchanges and with them, and the gaps between the scores that
were exchanged.  Exit code 1 if a list still differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor

import mmort
from mmort.configs.schema import Config
from mmort.detect import load
from mmort.detect.entries import Parts
from mmort.detect.families.query.dino import DINO
from mmort.detect.loading import PARTS
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.deformable_transformer import Pyramid
from mmort.detect.parts.queries import best_pairs_of_queries
from tests.tools import check_detectors, check_exported
from tests.tools.check_detectors import Found
from tests.tools.oracle_table import BOX, OLDEST, THREADS, Oracle
from tests.tools.run_on_runtimes import find_python, make_environment

FAMILY = "dino_r50"
NEAR = 2e-6
"""Share of an image's largest score; a score in float32 is a sum of 256 products after six layers of attention."""

Outputs = list[NDArray[Any]]


class Exchanging(DINO):
    """DINO whose ranks can be exchanged: `exchanged` has pairs of an image and the higher of two neighbouring ranks."""

    def __init__(self, config: Config, parts: Parts) -> None:
        super().__init__(config, parts)
        self.exchanged: list[tuple[int, int]] = []
        self.gaps = torch.empty(0)
        """By how much a rank's score exceeds the next one's, as a share of the image's largest score, [N, Q]."""

    def proposal_scores(self, logits: Tensor) -> Tensor:
        scores = super().proposal_scores(logits)
        best, order = scores.topk(self.queries + 1)
        self.gaps = -best.diff(dim=1) / best.abs().amax(1, keepdim=True)
        for image, rank in self.exchanged:
            pair = order[image, rank : rank + 2]
            scores[image, pair] = scores[image, pair.flip(0)]
        return scores


class Case:
    """A case of the oracle: torch's decoder with any exchanges, on what its encoder gave once."""

    def __init__(self, detector: Exchanging, batch: NDArray[Any], metas: list[dict[str, Any]]) -> None:
        self.detector, self.batch, self.metas = detector, batch, metas
        input = torch.from_numpy(batch)
        self.limits = image_limits(input, torch.tensor([meta["img_shape"][:2] for meta in metas]))
        with torch.inference_mode():
            features = detector.neck(detector.backbone(input))
            encoding, embedding = detector.positional_encoding, detector.level_embed
            self.pyramid = Pyramid.of(features, input, self.limits, encoding, embedding)
            self.memory = detector.encoder(self.pyramid)

    def outputs(self, exchanged: Sequence[tuple[int, int]] = ()) -> Outputs:
        """Return torch's outputs."""
        self.detector.exchanged = list(exchanged)
        with torch.inference_mode():
            boxes = self.detector.decode(self.memory, self.pyramid)
            return [
                output.numpy() for output in best_pairs_of_queries(*boxes, self.limits, self.detector.max_per_image)
            ]

    def lists(self, outputs: Outputs) -> list[list[Found]]:
        """Return the detections of each image, in the frame of the network and in that of the original image."""
        network, mask_format = lambda batch, shapes: outputs, self.detector.mask_format
        modes = [
            check_detectors.detect(network, mask_format, self.batch, self.metas, rescale) for rescale in (False, True)
        ]
        return [list(image) for image in zip(*modes, strict=True)]

    def explain(self, expected: list[list[Found]]) -> tuple[list[int], list[int], list[float]]:
        """Return how many detections of each list differ, and still do after exchanges; and the gaps of those."""
        exchanged: list[tuple[int, int]] = []
        before = missing = self.differing(self.outputs(), expected)
        gaps = self.detector.gaps
        for image in range(len(self.batch)):
            near = [rank for rank in gaps[image].argsort().tolist() if gaps[image, rank] <= NEAR]
            pair = slice(2 * image, 2 * image + 2)
            for rank in near:
                if not sum(missing[pair]):
                    break
                trial = self.differing(self.outputs([*exchanged, (image, rank)]), expected)
                if sum(trial[pair]) < sum(missing[pair]):
                    exchanged, missing = [*exchanged, (image, rank)], trial
        return before, missing, [float(gaps[pair]) for pair in exchanged]

    def differing(self, outputs: Outputs, expected: list[list[Found]]) -> list[int]:
        """Return how many detections of each list have no equal in torch's, or are no equal of one."""
        return [
            len(check_detectors.compare(ours, theirs, BOX, check_detectors.score_tolerance(FAMILY, theirs)).unmatched)
            for image in zip(self.lists(outputs), expected, strict=True)
            for ours, theirs in zip(*image, strict=True)
        ]


def expected_results(oracle: Oracle, file: Path, versions: Sequence[str], work: Path) -> dict[str, dict[str, Any]]:
    """Return for MMDetection None, and for each runtime the file's outputs, by case."""
    inputs = work / "inputs.npz"
    np.savez(inputs, **oracle.inputs())
    pythons = {version: make_environment(find_python(), version, work) / "bin/python" for version in versions}
    pythons[onnxruntime.__version__] = Path(sys.executable)
    results: dict[str, dict[str, Any]] = {"MMDetection": dict.fromkeys(oracle.batches)}
    for version, python in pythons.items():
        for threads in THREADS:
            library = mmort.get_onnxruntime_op_path()
            text, outputs = check_exported.run_file(str(python), library, file, inputs, threads)
            if not outputs:
                sys.exit(f"check_ranks: ONNX Runtime {version}: {text}")
            results[f"file, {version}, {threads} threads"] = dict(zip(oracle.batches, outputs, strict=True))
    return results


def oracle_lists(oracle: Oracle, case: str) -> list[list[Found]]:
    """Return MMDetection's detections of each image, in both frames."""
    results = [
        [oracle.cases.result(oracle.arrays, case, mode, image) for mode in ("net", "ori")]
        for image in range(len(oracle.batches[case]))
    ]
    return [[Found(result["dets"], result["labels"], result["masks"]) for result in image] for image in results]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", type=Path)
    parser.add_argument("--runtimes", nargs="*", default=[OLDEST], help="versions besides the installed one")
    arguments = parser.parse_args()
    oracle = Oracle(arguments.folder, FAMILY)
    PARTS.types["detector"]["DINOHead"] = Exchanging
    detector = load(oracle.config, arguments.files / f"{FAMILY}.pth")
    assert isinstance(detector, Exchanging)
    cases = {case: Case(detector, batch, oracle.metas[case]) for case, batch in oracle.batches.items()}
    with tempfile.TemporaryDirectory() as folder:
        every = expected_results(oracle, arguments.files / f"{FAMILY}.onnx", arguments.runtimes, Path(folder))
    print("| compared with torch | lists equal | with exchanges | gaps |\n|-|-|-|-|", flush=True)
    failed = False
    for name, results in every.items():
        before, after, gaps = [], [], []
        for key, case in cases.items():
            expected = case.lists(results[key]) if results[key] else oracle_lists(oracle, key)
            parts = case.explain(expected)
            before, after, gaps = (total + part for total, part in zip((before, after, gaps), parts, strict=True))
        failed |= any(after)
        equal = (f"{counts.count(0)} of {len(counts)}" for counts in (before, after))
        print(f"| {name} | {' | '.join(equal)} | {', '.join(f'{gap:.0e}' for gap in gaps)} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

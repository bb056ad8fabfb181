"""Evidence for a guess: a file is run on images with what is assumed, and with the usual alternatives.

An assumption is contradicted by boxes far outside of the image, by scores of 1, and by an alternative that finds much
more.  It has evidence where it finds something, and to all other ranges of values the network is blind: its scores are
low, and nearly the same for all images.  A trained network whose values are 255 times too large finds dozens of objects
in any image, with best scores of 1; where it is right, it may find nothing, but its scores differ from image to image.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mmort.contract import Preprocessing
from mmort.contract.padding import Padding
from mmort.detections.detections import Detections
from mmort.images import Image
from mmort.onnx.adopt.foreign_file import IMAGENET
from mmort.onnx.adopt.layout import Layout
from mmort.predict.engines.onnxruntime import OnnxRuntime
from mmort.predict.predictor import Predictor

CONFIDENT = 0.3
"""The score from which on a detection shows something."""

MAX_OUTSIDE = 0.2
"""Maximum share of confident boxes that reach further than an image's size beyond it."""

CERTAIN = 0.9995
"""The score from which on a detection is certain, which trained networks are hardly ever."""

MAX_CERTAIN = 0.5
"""Maximum share of images whose best score is certain, and of confident scores that are."""

MAX_SPREAD = 0.5
"""How far the best scores of images may be apart, as a share of the highest, for a network that is blind."""

WEAK = 0.5
"""Alternatives whose scores are below this share of another's are contradicted by it."""

RANGES: Mapping[str, Mapping[str, Any]] = {
    "0 to 255": {"mean": (0.0,) * 3, "std": (1.0,) * 3},
    "0 to 1": {"mean": (0.0,) * 3, "std": (255.0,) * 3},
    "ImageNet's": {"mean": tuple(IMAGENET["mean"]), "std": tuple(IMAGENET["std"])},
}
"""The ranges of values that networks take."""


class Outcome(NamedTuple):
    """The detections of a file with some preprocessing in the images."""

    detections: list[Detections]
    contradiction: str | None
    """Why the detections cannot be right."""
    shown: int
    """How many of the images, the first ones, may show something."""

    @property
    def best(self) -> list[float]:
        """The best score in each image."""
        return [float(found.scores.max(initial=0)) for found in self.detections]

    @property
    def strength(self) -> float:
        """The mean of the best scores in images that may show something; 0 if the detections cannot be right."""
        return 0.0 if self.contradiction is not None else float(np.mean(self.best[: self.shown]))

    @property
    def is_blind(self) -> bool:
        """Whether the scores hardly depend on the image."""
        return bool(self.best) and max(self.best) - min(self.best) <= MAX_SPREAD * max(self.best)


class Verdict(NamedTuple):
    """The evidence of runs for or against a candidate."""

    name: str
    layout: Layout
    outcome: Outcome
    contradiction: str | None
    """Why it cannot be right, of itself or beside an alternative or another candidate."""
    evidence: str | None
    """Why it is right."""
    is_indifferent: bool
    """Whether all alternatives give the same detections."""

    def __str__(self) -> str:
        found = sum(len(detections.above(CONFIDENT)) for detections in self.outcome.detections)
        shown = f"{found} detections above {CONFIDENT}, best {self.outcome.strength:.2f}"
        return f"contradicted: {self.contradiction}" if self.contradiction else shown


def weigh(
    candidates: Mapping[str, Layout],
    images: Sequence[Image],
    draft: Callable[[Layout], Path],
    *,
    shown: int,
    scales: bool = True,
) -> list[Verdict]:
    """Run a file as each candidate reads it, and judge them by what they find.

    Parameters
    ----------
    candidates : mapping of str to Layout
    images : sequence of ndarray
    draft : callable
        Writes the file with a layout, and returns its path.
    shown : int
        How many of the images, the first ones, may show something.
    scales : bool, default True
        Whether the file takes values of any range; one that takes bytes does not.

    Returns
    -------
    list of Verdict
    """
    runs: dict[str, _Runs] = {}
    judged: dict[str, tuple[Outcome, dict[str, Outcome]]] = {}
    for name, layout in candidates.items():
        key = repr(dataclasses.replace(layout, preprocessing={}))
        if key not in runs:
            runs[key] = _Runs(layout, draft, images, shown)
        run, prepare = runs[key], layout.prepare
        own = run(prepare)
        others = {text: run(other) for text, other in alternatives(prepare, scales=scales).items()}
        if layout.box_unit != "original" and all(agree(own.detections, other.detections) for other in others.values()):
            others |= {text: run(other) for text, other in other_positions(prepare).items()}
        judged[name] = own, others
    best = max((outcome.strength for outcome, _ in judged.values()), default=0.0)
    return [_verdict(name, candidates[name], own, others, best) for name, (own, others) in judged.items()]


class _Runs:
    """Runs a file, with the outputs read in one way, on images that are preprocessed in several."""

    def __init__(self, layout: Layout, draft: Callable[[Layout], Path], images: Sequence[Image], shown: int) -> None:
        self._images, self._shown = images, shown
        self._outcomes: dict[Preprocessing, Outcome] = {}
        self._network: OnnxRuntime | None = None
        self._refusal = ""
        try:
            self._network = OnnxRuntime(draft(layout))
        except ValueError as error:
            self._refusal = str(error).removeprefix("adopt: ")

    def __call__(self, prepare: Preprocessing) -> Outcome:
        """Return the outcome of a preprocessing."""
        if self._network is None:
            return Outcome([], self._refusal, self._shown)
        if prepare not in self._outcomes:
            self._outcomes[prepare] = _outcome(self._network, prepare, self._images, self._shown)
        return self._outcomes[prepare]


def alternatives(prepare: Preprocessing, *, scales: bool) -> dict[str, Preprocessing]:
    """Return the preprocessings with the other order of channels, and with the other ranges of values."""
    order = "blue" if prepare.to_rgb else "red"
    others = {f"{order} first": dataclasses.replace(prepare, to_rgb=not prepare.to_rgb)}
    for text, settings in RANGES.items() if scales else ():
        if not all(np.allclose(getattr(prepare, name), value, rtol=1e-3) for name, value in settings.items()):
            others[f"values {text}"] = dataclasses.replace(prepare, divide=True, **settings)
    return others


def other_positions(prepare: Preprocessing) -> dict[str, Preprocessing]:
    """Return the preprocessings with the other usual positions of the image: stretched, in the corner, centred."""
    if prepare.size is None:
        return {}
    others = {}
    if prepare.keep_ratio:
        others["stretched"] = dataclasses.replace(prepare, keep_ratio=False, by_ratio=False, padding=None)
    for text, centred in (("in the corner", False), ("centred", True)):
        padding = Padding(114.0, prepare.size, centred=centred)
        if not prepare.keep_ratio or prepare.is_centred != centred:
            others[text] = dataclasses.replace(
                prepare, keep_ratio=True, turn_size=False, by_ratio=False, padding=padding
            )
    return others


def _outcome(network: OnnxRuntime, prepare: Preprocessing, images: Sequence[Image], shown: int) -> Outcome:
    """Run a file on images."""
    predict = Predictor(network, preprocessing=prepare, score_threshold=0)
    try:
        detections = [predict(image) for image in images]
    except Exception as error:  # ONNX Runtime's exceptions have no common class
        return Outcome([], f"it does not run: {' '.join(str(error).split())[:100]}", shown)
    return Outcome(detections, _contradiction(detections), shown)


def _contradiction(detections: Sequence[Detections]) -> str | None:
    """Return why detections cannot be right; None if they can."""
    confident = [found.above(CONFIDENT) for found in detections]
    scores = np.concatenate([found.scores for found in confident])
    outside = [
        bool(count)
        for found in confident
        for count in ((found.boxes < -_sides(found)) | (found.boxes > 2 * _sides(found))).any(axis=1)
    ]
    if outside and np.mean(outside) > MAX_OUTSIDE:
        return f"{np.mean(outside):.0%} of the boxes are far outside of the image"
    certain = [found.scores.max(initial=0) >= CERTAIN for found in confident]
    if np.mean(certain) > MAX_CERTAIN:
        return f"the best scores of {sum(certain)} of {len(certain)} images are 1"
    if len(scores) > len(detections) and np.mean(scores >= CERTAIN) > MAX_CERTAIN:
        return f"{np.mean(scores >= CERTAIN):.0%} of {len(scores)} scores are 1"
    return None


def _sides(found: Detections) -> Any:
    """Return width and height of an image twice, as boxes have them."""
    height, width = found.image_size
    return np.array([width, height, width, height])


def _verdict(name: str, layout: Layout, own: Outcome, others: Mapping[str, Outcome], best: float) -> Verdict:
    """Judge a candidate by its own outcome, those of its alternatives, and the best of all candidates."""
    is_indifferent = bool(own.detections) and all(agree(own.detections, other.detections) for other in others.values())
    contradiction, evidence = own.contradiction, None
    if contradiction is None and not is_indifferent:
        text, better = max(others.items(), key=lambda item: item[1].strength, default=("", own))
        if better.strength > CONFIDENT and own.strength < WEAK * better.strength:
            contradiction = f"scores reach {own.strength:.2f}, and {better.strength:.2f} with {text}"
        elif best > CONFIDENT and own.strength < WEAK * best:
            contradiction = f"scores reach {own.strength:.2f}, and {best:.2f} with another candidate"
        ranges = [other for text, other in others.items() if text.startswith("values")]
        weak = max((other.strength for other in ranges), default=1.0)
        is_seen = own.strength >= CONFIDENT and weak < WEAK * own.strength
        if contradiction is None and is_seen and all(other.is_blind for other in ranges):
            evidence = f"scores reach {own.strength:.2f}, and {weak:.2f} with other ranges of values"
    return Verdict(name, layout, own, contradiction, evidence, is_indifferent)


def decide(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the candidate that the runs leave; None if they do not decide."""
    left = [verdict for verdict in verdicts if verdict.contradiction is None]
    if not left:
        return None
    if len(left) > 1 and not all(agree(left[0].outcome.detections, other.outcome.detections) for other in left[1:]):
        return None
    return left[0] if left[0].is_indifferent or left[0].evidence is not None else None


def agree(first: Sequence[Detections], second: Sequence[Detections]) -> bool:
    """Return whether two runs found the same."""
    return len(first) == len(second) and all(
        len(one) == len(other)
        and np.array_equal(one.labels, other.labels)
        and np.allclose(one.scores, other.scores, atol=1e-3)
        and np.allclose(one.boxes, other.boxes, atol=0.01)
        for one, other in zip(first, second, strict=True)
    )

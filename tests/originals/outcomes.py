"""What becomes of a mutant: equal, refused, or a defect."""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from mmort.detect import build
from mmort.detect.parts.rotated import geometry
from mmort.predict import Preprocessing
from tests.originals import plain_rotated_kernels
from tests.originals.candidate import Candidate
from tests.originals.compare import batches_of, filled, save
from tests.originals.comparison import differences, image_differences
from tests.originals.mutants import REMOVED, Mutant, mutants
from tests.originals.results import BatchResult, ImageResult
from tests.originals.version import Version

EFFECT, NO_EFFECT = "equal, with an effect", "equal, no effect"
REFUSED, REFUSED_BY_ORIGINAL = "refused by mmort", "refused by MMDetection"
ROUNDING, TIES = "rounding", "ties"
MAPPED_LATER = "equal before mapping"
DIFFERENT, UNCLEAR = "SILENTLY DIFFERENT", "UNCLEAR ERROR"
NO_RESULT = "no result in time"
OUTCOMES = (
    EFFECT,
    NO_EFFECT,
    REFUSED,
    REFUSED_BY_ORIGINAL,
    ROUNDING,
    TIES,
    MAPPED_LATER,
    NO_RESULT,
    DIFFERENT,
    UNCLEAR,
)
DEFECTS = DIFFERENT, UNCLEAR
SECONDS = 20


@dataclass(frozen=True)
class Outcome:
    """One of `OUTCOMES`, and what was seen."""

    kind: str
    detail: str = ""


class OutOfTimeError(Exception):
    """A mutant takes too long: its network or its image became too large."""


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError(OutOfTimeError.__name__)

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # CPU time, which other processes do not take
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Judge:
    """Judges the mutants of a case.

    Attributes
    ----------
    mutants : list of Mutant
    """

    def __init__(self, version: Version, name: str) -> None:
        self.version, self.case = version, version.cases[name]
        self.config = self.case.config()
        original, self.scales = filled(version.build, self.case, self.config)
        with tempfile.TemporaryDirectory(dir=_memory()) as folder:
            candidate = Candidate(self.config, save(original, Path(folder)))
        everything = batches_of(self.case)
        # The batch has all images, so that alone it does; a case that differs itself would hide what its mutants do.
        for batches in (everything[-1:], everything[:2]) if self.case.batches else (everything,):
            self.batches, self.expected = batches, self._results(original, batches)
            if not _all_differences(self._results(candidate, batches), self.expected):
                break
        else:
            raise ValueError(f"{name} itself differs from MMDetection: see test_detectors.py")
        detected = [image for batch in self.expected for image in batch.images]
        self.mutants: list[Mutant] = mutants(version, self.config, original.model, detected)
        changed_in = version.cases_of_pipeline
        if changed_in and name not in changed_in and self.case.pipeline == version.cases[changed_in[0]].pipeline:
            self.mutants = [mutant for mutant in self.mutants if "pipeline" not in mutant.path]

    def __call__(self, mutant: Mutant) -> Outcome:
        """Return the outcome of a mutant."""
        try:
            with _at_most(SECONDS):
                outcome = self._judged(mutant)
        except OutOfTimeError:
            return Outcome(NO_RESULT)
        # torch catches what is raised while it copies weights, and raises an error of its own.
        return Outcome(NO_RESULT) if OutOfTimeError.__name__ in outcome.detail else outcome

    def _judged(self, mutant: Mutant) -> Outcome:
        config = mutant.of(self.config)
        try:
            build(mutant.of(self.config))
            Preprocessing.from_config(mutant.of(self.config))
        except (TypeError, ValueError) as error:
            refusal = str(error)
            if _names(refusal, mutant):
                return Outcome(REFUSED, refusal[:300])
            # It is no entry that mmort cannot do, or MMDetection does not refuse it.
        except OutOfTimeError:
            raise
        except Exception:  # judged below, if MMDetection takes the config
            pass
        try:
            original, _ = filled(self.version.build, self.case, config, self.scales)
            expected = self._results(original, self.batches)
        except OutOfTimeError:
            raise
        except Exception as error:
            return Outcome(REFUSED_BY_ORIGINAL, f"{type(error).__name__}: {error}"[:300])
        if not all(_is_finite(image) for batch in expected for image in batch.images):
            return Outcome(REFUSED_BY_ORIGINAL, "MMDetection's boxes or scores are not finite")
        try:
            with tempfile.TemporaryDirectory(dir=_memory()) as folder:
                candidate = Candidate(config, save(original, Path(folder)))
            actual = self._results(candidate, self.batches)
        except OutOfTimeError:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            clear = isinstance(error, (TypeError, ValueError)) and _names(str(error), mutant)
            return Outcome(REFUSED if clear else UNCLEAR, text[:300])
        differences = _all_differences(actual, expected)
        if not differences:
            effect = _all_differences(expected, self.expected)
            return Outcome(EFFECT if effect else NO_EFFECT, "; ".join(effect)[:200])
        text = "; ".join(differences)
        if any("inputs" in line for line in differences):
            return Outcome(DIFFERENT, text[:400])
        try:
            actual, expected = (self._results(side, self.batches, torch.float64) for side in (candidate, original))
        except OutOfTimeError:
            raise
        except Exception as error:
            return Outcome(DIFFERENT, f"{text[:300]} (in float64: {error})"[:500])
        if not _all_differences(actual, expected, "float64"):
            return Outcome(ROUNDING, f"equal in float64; in float32: {text}"[:300])
        if any(image.boxes.shape[1] == 5 for batch in expected for image in batch.images):
            if not self._differences_of_rotated(original, candidate, mapped=True):
                return Outcome(TIES, f"equal where the same one of equal rectangles is taken; {text}"[:300])
            if not self._differences_of_rotated(original, candidate, mapped=False):
                return Outcome(MAPPED_LATER, f"equal in pixels of the resized image; {text}"[:300])
        if not self._differences_sorted(original, candidate):
            return Outcome(TIES, f"equal where MMDetection keeps the order of equal scores; {text}"[:300])
        tied = _are_tied(actual, expected) or _candidates_tie(original, self.batches[-1], set(_limits(config["model"])))
        if tied and not self._differences_unrounded(original, candidate):
            return Outcome(TIES, f"equal where no score is rounded to 1; {text}"[:300])
        if tied and self._are_equal_scaled(config):
            return Outcome(TIES, f"equal where scores do not tie; {text}"[:300])
        if "panoptic_head" in self.config["model"] and not self._differences_of_queries(original, candidate):
            return Outcome(TIES, f"equal where queries are not alike; {text}"[:300])
        return Outcome(DIFFERENT, text[:400])

    def _results(self, side: Any, batches: list[list[str]], dtype: torch.dtype = torch.float32) -> list[BatchResult]:
        """Return what one side makes of some batches, in the pixels in which the case is compared."""
        return [side.run(batch, dtype, self.case.mapped) for batch in batches]

    def _differences_of_rotated(self, original: Any, candidate: Candidate, mapped: bool) -> list[str]:
        """Return what differs in float64 if both sides take the same one of equally small rectangles around points.

        Unless `mapped`, boxes are compared in pixels of the resized image: MMRotate 1 suppresses those of the original.
        """
        kernel, geometry.min_area_polygons = geometry.min_area_polygons, _min_area_polygons
        try:
            actual, expected = (
                [side.run(batch, torch.float64, mapped) for batch in self.batches] for side in (candidate, original)
            )
        finally:
            geometry.min_area_polygons = kernel
        return _all_differences(actual, expected, "float64")

    def _differences_sorted(self, original: Any, candidate: Candidate) -> list[str]:
        """Return what differs in float64 if MMDetection keeps the order of equal scores, as mmort does.

        Those of regions beyond a map are equal, for instance.  Where no scores are, this changes nothing.
        """
        with _stable_sort():
            expected = self._results(original, self.batches, torch.float64)
        return _all_differences(self._results(candidate, self.batches, torch.float64), expected, "float64")

    def _differences_unrounded(self, original: Any, candidate: Candidate) -> list[str]:
        """Return what differs so if, on both sides, logits of classes are small: no probability is rounded to 1."""
        hooks = [
            layer.register_forward_hook(_smaller_logits)
            for model in (original.model, candidate.network.network.detector)
            for layer in _class_layers(model)
        ]
        try:
            return self._differences_sorted(original, candidate)
        finally:
            for hook in hooks:
                hook.remove()

    def _differences_of_queries(self, original: Any, candidate: Candidate) -> list[str]:
        """Return what differs in float64 if no two queries are alike: on both sides they get the same noise.

        If none are alike before, that is what differs: each pixel belongs to one query, and rounding decides to which.
        """
        alike: list[bool] = []
        heads = original.model.panoptic_head, candidate.network.network.detector.panoptic_head
        hooks = [head.register_forward_hook(partial(_with_noise, alike=alike)) for head in heads]
        try:
            actual, expected = (self._results(side, self.batches, torch.float64) for side in (candidate, original))
        finally:
            for hook in hooks:
                hook.remove()
        return _all_differences(actual, expected, "float64") if all(alike) else ["no queries are alike"]

    def _are_equal_scaled(self, config: dict[str, Any]) -> bool:
        """Return whether results are equal in float64 with weights that are scaled for a mutant: scores are not all 1.

        They are scaled by one image, so that scores of another may tie still; at least one image has none that do.
        """
        original, _ = filled(self.version.build, self.case, config)
        with tempfile.TemporaryDirectory(dir=_memory()) as folder:
            candidate = Candidate(config, save(original, Path(folder)))
        actual, expected = (self._results(side, self.batches, torch.float64) for side in (candidate, original))
        equal = [not image_differences(*pair, "float64") for pair in _pairs(actual, expected)]
        return any(equal) and (all(equal) or _are_tied(actual, expected))


def _min_area_polygons(points: torch.Tensor) -> torch.Tensor:
    """Call the stand-in as mmort's own function is called: with points [..., 2 * P]."""
    polygons = points.new_zeros(*points.shape[:-1], 8)
    plain_rotated_kernels.min_area_polygons(points.flatten(0, -2), polygons.view(-1, 8))
    return polygons


def _pairs(actual: list[BatchResult], expected: list[BatchResult]) -> list[tuple[ImageResult, ImageResult]]:
    """Return what both sides made of each image."""
    batches = zip(actual, expected, strict=True)
    return [pair for batch in batches for pair in zip(*(side.images for side in batch), strict=True)]


def _are_tied(actual: list[BatchResult], expected: list[BatchResult]) -> bool:
    """Return whether each image that differs has, on both sides, detections of exactly the same score."""
    different = [pair for pair in _pairs(actual, expected) if image_differences(*pair, "float64")]
    # mmort.Predictor returns float32 whatever the network computes in.
    sides = [side.scores.astype(np.float32) for pair in different for side in pair]
    return all(len(np.unique(scores)) < len(scores) for scores in sides)


def _candidates_tie(original: Any, batch: list[str], limits: set[int]) -> bool:
    """Return whether probabilities of classes tie in float64 before the suppression.

    They are exactly 1, that of a logit of 37 for instance, or the last of the best ones at a level equals the next.
    """
    ties: list[bool] = []

    def note(layer: Any, inputs: Any, output: Any) -> None:
        for logits in output if isinstance(output, torch.Tensor) and output.numel() else ():
            best = logits.flatten().sort(descending=True).values
            ties.append(bool(best[0] > 37) or any(best[k - 1] == best[k] for k in limits if k < len(best)))

    hooks = [layer.register_forward_hook(note) for layer in _class_layers(original.model)]
    try:
        original.run(batch, torch.float64)
    finally:
        for hook in hooks:
            hook.remove()
    return any(ties)


def _class_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers that predict classes."""
    layers = [layer for name, layer in model.named_modules() if "cls" in name and "convs" not in name]
    return [layer for layer in layers if isinstance(layer, (nn.Conv2d, nn.Linear))]


def _smaller_logits(layer: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    """Return logits whose probabilities differ in float64 if the logits do: 1e7 becomes 17, and 37 becomes 4."""
    return output.asinh()


def _with_noise(head: nn.Module, inputs: Any, output: Any, *, alike: list[bool]) -> tuple[Any, Any]:
    """Return the logits and masks of queries with noise, and note whether two queries of each image were alike."""
    logits, masks = output
    last = tree_leaves(logits)[-1]
    last = last[-1] if last.dim() == 4 else last  # [N, Q, C]; of all layers in one tensor, the last
    distances = (last[:, :, None] - last[:, None]).abs().amax(-1) + torch.eye(last.shape[1], dtype=last.dtype)
    alike.append(bool((distances.amin((1, 2)) < 1e-9).all()))
    return tree_map(partial(_noisy, axes=2), logits), tree_map(partial(_noisy, axes=3), masks)


def _noisy(tensor: Tensor, axes: int) -> Tensor:
    """Add the same noise along the other axes, and to each tensor of that shape."""
    generator = torch.Generator().manual_seed(axes)
    return tensor + torch.randn(tensor.shape[-axes:], generator=generator, dtype=torch.float64).to(tensor.dtype)


@contextmanager
def _stable_sort() -> Iterator[None]:
    """Have `Tensor.sort` keep the order of equal numbers: torch promises none, and MMDetection asks for none."""
    sort = torch.Tensor.sort

    def stable(self: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
        return sort(self, dim=dim, descending=descending, stable=True)

    torch.Tensor.sort = stable  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.Tensor.sort = sort  # type: ignore[method-assign]


def _limits(config: Any) -> Iterator[int]:
    """Yield how many candidates of a level go into the suppressions of a config."""
    for key, value in config.items() if isinstance(config, dict) else enumerate(config):
        if isinstance(value, (dict, list)):
            yield from _limits(value)
        elif key == "nms_pre" and isinstance(value, int) and value > 0:
            yield value


def _is_finite(image: ImageResult) -> bool:
    return bool(np.isfinite(image.boxes).all() and np.isfinite(image.scores).all())


def _all_differences(actual: list[BatchResult], expected: list[BatchResult], precision: str = "float32") -> list[str]:
    """Return what differs in any batch."""
    return [line for pair in zip(actual, expected, strict=True) for line in differences(*pair, precision)]


def _names(message: str, mutant: Mutant) -> bool:
    """Return whether a message names the entry, what it is in, or its value."""
    keys = [str(key) for key in mutant.path if isinstance(key, str)][-2:]
    names = {*keys, *(_texts(mutant.value))} - {"model", "pipeline", "dataset", "type"}
    names |= (
        {"test pipeline", "preprocessing"} if "pipeline" in mutant.path or "data_preprocessor" in mutant.path else set()
    )
    return any(re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", message) for name in names if name)


def _texts(value: Any) -> Iterator[str]:
    """Yield the names in a value: keys and types, but for those of a whole model."""
    if isinstance(value, dict) and len(value) < 12:
        yield from (key for key in value if key != "type")
        for child in value.values():
            yield from _texts(child)
    elif isinstance(value, (list, tuple)):
        for child in value:
            yield from _texts(child)
    elif isinstance(value, str) and value != REMOVED and len(value) > 1:
        yield value


@lru_cache
def _memory() -> str | None:
    """Return a directory in memory, if there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None

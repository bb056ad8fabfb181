"""Build a detector from a config, and load a checkpoint into it."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from mmort.configs import read_config
from mmort.configs.captions import Prompt, Texts
from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.detect.checkpoint import MAX_LISTED, load_checkpoint, load_weights
from mmort.detect.claims import branch_of, family_of
from mmort.detect.detector import Detector, require_proportions
from mmort.detect.entries import PARTS, Parts, refusing
from mmort.detect.receptive_fields import set_receptive_fields
from mmort.limits import MAX_WEIGHTS


@contextlib.contextmanager
def _limited_weights() -> Iterator[None]:
    """Stop a model whose config asks for millions of layers, before they are made."""
    counts = itertools.count(1)

    def count(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        if next(counts) > MAX_WEIGHTS:
            raise ValueError(f"detect.build: the config's model must have at most {MAX_WEIGHTS} weights and biases")

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def build(config: Config, parts: Parts = PARTS) -> Detector:
    """Return the detector that a config describes, in evaluation mode, with random weights.

    Parameters
    ----------
    config : dict
        As `mmort.configs.read_config` returns it.
    parts : Parts, optional
        The supported parts, by default the registered ones.

    Raises
    ------
    ValueError
        If the config has no model, or a part of the model is missing or not supported; the message names it.
    """
    layout = DetectorConfig(config)
    family = family_of(layout)
    with refusing("the config's model"), _limited_weights():
        detector = family(layout, parts)
    if detector.angle_version is not None and layout.version == 3:
        require_proportions(
            layout, "MMRotate suppresses boxes in the original image, where rotated ones overlap otherwise"
        )
    set_receptive_fields(detector, layout.custom_hooks)
    detector.eval()  # whose result is None where a detector's own train() returns nothing
    return detector.requires_grad_(False)


def load(
    config: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    options: Config | None = None,
    *,
    texts: Texts | None = None,
    vocabulary: str | os.PathLike[str] | None = None,
) -> Detector:
    """Return the detector of a config with a checkpoint's weights, in evaluation mode.

    Parameters
    ----------
    config : path
        An MMDetection config, 2.x or 3.x.
    checkpoint : path
        The ``.pth`` file that MMDetection wrote when it trained that config.  If it names no classes, they are those
        of the config's test data set, if these are as many as the detector's.
    options : dict, optional
        Values that replace the config's, by dotted key, as ``--cfg-options`` does.
    texts : str, sequence of str or dict, optional
        What a detector with a language model looks for: names, a caption whose names end with ``". "``, or a dict of
        a ``text`` and its ``tokens_positive``, as MMDetection has them.  By default the classes of the config's test
        data set.
    vocabulary : path, optional
        The ``vocab.txt`` of the language model.  By default that in the folder which the config names.

    Raises
    ------
    ValueError
        If the config or the checkpoint cannot be read, or they do not fit each other; if texts or vocabulary do not
        fit the language model, or there is none.
    """
    settings = read_config(config, options)
    detector = build(settings)
    load_trained(detector, checkpoint, settings, texts, vocabulary)
    return detector


def load_trained(
    detector: Detector,
    checkpoint: str | os.PathLike[str],
    config: Config,
    texts: Texts | None = None,
    vocabulary: str | os.PathLike[str] | None = None,
    *,
    open_vocabulary: bool = False,
) -> bool:
    """Load a checkpoint's weights and classes into a detector that was built from `config`; see `load`.

    With `open_vocabulary` it has no classes yet.  Returns whether the classes are those of the config's data set, as
    the checkpoint names none.
    """
    weights, meta = load_checkpoint(checkpoint)
    layout = DetectorConfig(config)
    load_weights(detector, _weights_of_branch(weights, branch_of(layout)), config)
    if open_vocabulary:
        return False
    names = meta.get("classes", ())
    detector.name_classes(names or layout.fitting_classes)
    if not detector.takes_texts:
        _check_class_names(checkpoint, detector, layout)
    if detector.takes_texts:
        detector.set_texts(layout.prompt if texts is None else Prompt.of(texts), vocabulary)
    elif texts is not None or vocabulary is not None:
        raise ValueError(
            f"detect: {'vocabulary' if texts is None else 'texts'} must not be set for {detector.family}, which has no "
            "language model"
        )
    return not names and not detector.takes_texts


def _check_class_names(checkpoint: str | os.PathLike[str], detector: Detector, layout: DetectorConfig) -> None:
    """Refuse class names of a checkpoint that are more or fewer than the classes of the config's model."""
    names, counts = detector.classes, layout.name_counts
    if names and counts and len(names) not in counts:
        raise ValueError(
            f"{checkpoint}: its meta must name as many classes as the config's model has, num_classes="
            f"{' or '.join(map(str, sorted(counts)))}, got {len(names)} names: {', '.join(names[:MAX_LISTED])}"
        )


def _weights_of_branch(weights: dict[str, Tensor], branch: str | None) -> dict[str, Tensor]:
    """Return the weights of the part of a model that detects, by the detector's own names; see `branch_of`.

    Weights of a plain detector are returned as they are: MMDetection gives them to student and teacher.
    """
    if branch is None or not any(key.startswith(("student.", "teacher.", "detector.")) for key in weights):
        return weights
    prefix = f"{branch}."
    return {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}

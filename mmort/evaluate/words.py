"""Data sets of images of words in MMOCR's format, and its word accuracy."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mmort._files.inputs import read_text
from mmort.contract import TEXT_RECOGNITION, Task
from mmort.detections.recognized_text import RecognizedText
from mmort.evaluate.dataset import Dataset, DatasetImage, Metrics
from mmort.evaluate.option_checks import option_values

MODES = "exact", "ignore_case", "ignore_case_symbol"

FIGURES = dict(zip(MODES, ("word_acc", "word_acc_ignore_case", "word_acc_ignore_case_symbol"), strict=True))
"""The names of the figures, MMOCR's."""


VALID_SYMBOL = "[^A-Z^a-z^0-9^\u4e00-\u9fa5]"
"""MMOCR's: characters that are no Latin letters, digits or Chinese characters."""


@dataclass(frozen=True)
class WordOptions:
    """The options of ``WordMetric``, by MMOCR's names.

    Parameters
    ----------
    mode : str or sequence of str, default "ignore_case_symbol"
        What must be the same: "exact", "ignore_case", or "ignore_case_symbol", which leaves out what `valid_symbol`
        matches.
    valid_symbol : str, default `VALID_SYMBOL`
        A regular expression of the characters that are left out.
    """

    mode: str | Sequence[str] = "ignore_case_symbol"
    valid_symbol: str = VALID_SYMBOL

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes, each once."""
        return tuple(dict.fromkeys((self.mode,) if isinstance(self.mode, str) else self.mode))


class WordDataset(Dataset):
    """Images of words with their texts.

    Parameters
    ----------
    images : path
        The folder that the paths of the images are relative to.
    annotations : path
        A JSON file of MMOCR's: ``data_list``, with an ``img_path`` and one of ``instances`` each, which has a ``text``.

    Raises
    ------
    ValueError
        If the file is not in this format.
    OSError
        If it cannot be opened.
    """

    task: ClassVar[Task] = TEXT_RECOGNITION
    metric_names = ("word_acc",)
    classes = ()

    def __init__(self, images: str | os.PathLike[str], annotations: str | os.PathLike[str]) -> None:
        folder, entries = Path(images), read_data_list(annotations)
        texts = []
        for name, instances in entries:
            (instance,) = instances if len(instances) == 1 else (None,)
            text = instance.get("text") if instance is not None else None
            if not isinstance(text, str):
                raise ValueError(f"evaluate: {annotations}: {name} must have one instance with a text")
            texts.append(text)
        self.texts = tuple(texts)
        self.images = tuple(DatasetImage(index, folder / name, name) for index, (name, _) in enumerate(entries))

    def check(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse metrics and options that `score` does not have."""
        super().check(metrics, options)
        _options(options)

    def result_of(self, image: DatasetImage, found: RecognizedText) -> str:
        """Return the text of an image."""
        return found.text

    def score(self, results: Sequence[Any], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Return the shares of words that are right, by MMOCR's names: ``word_acc_ignore_case``."""
        chosen, figures = _options(options), {}
        symbols = re.compile(chosen.valid_symbol)
        changes: dict[str, Callable[[str], str]] = {
            "exact": str,
            "ignore_case": str.lower,
            "ignore_case_symbol": lambda text: symbols.sub("", text.lower()),
        }
        for mode in chosen.modes:
            change = changes[mode]
            right = [change(text) == change(truth) for text, truth in zip(results, self.texts, strict=True)]
            figures[FIGURES[mode]] = sum(right) / len(right)
        return Metrics(figures)


def _options(options: Mapping[str, Any]) -> WordOptions:
    """Return options of the metric; ValueError if one is unknown or no mode or regular expression."""
    chosen = WordOptions(**option_values(WordOptions, options))
    if not chosen.modes or not set(chosen.modes) <= set(MODES):
        raise ValueError(f"evaluate: mode must be of {', '.join(MODES)}, got {chosen.mode}")
    try:
        re.compile(chosen.valid_symbol)
    except (re.error, TypeError) as error:
        raise ValueError(
            f"evaluate: valid_symbol must be a regular expression, got {chosen.valid_symbol}: {error}"
        ) from None
    return chosen


def read_data_list(path: str | os.PathLike[str]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Return the path and the instances of each image of a JSON file of MMOCR's.

    Raises
    ------
    ValueError
        If the file is not in this format.
    OSError
        If it cannot be opened.
    """
    try:
        content = json.loads(read_text("annotation file", path))
        return [_image_of(entry) for entry in content["data_list"]]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"evaluate: {path} is not a JSON file with a data_list, as MMOCR has: {error}") from None


def _image_of(entry: Any) -> tuple[str, list[Mapping[str, Any]]]:
    """Return the path and the instances of an image."""
    name, instances = entry["img_path"], entry["instances"]
    if not isinstance(name, str) or not isinstance(instances, list):
        raise ValueError(f"img_path must be a path, and instances a list, got {name!r:.60}")
    if not all(isinstance(instance, Mapping) for instance in instances):
        raise ValueError(f"the instances of {name} must be objects")
    return name, instances

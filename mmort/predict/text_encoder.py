"""Words at run time: the text encoder's file beside a detector's, and the detector's inputs that words become."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.configs.captions import Prompt
from mmort.configs.schema import read_entries
from mmort.configs.tokens import REQUIRED, BertInput, TextLimits, Tokenizer, TokenizerEntries, bert_inputs
from mmort.contract.tasks import TEXT_INPUTS
from mmort.contract.texts import DIGEST, INPUTS, OUTPUT, TOKENIZER


@dataclass(frozen=True)
class EncodedNames:
    """The names of a caption as a detector's file takes them.

    Attributes
    ----------
    count : int
        The number of names.
    feeds : dict of str to ndarray
        The inputs by name.
    """

    count: int
    feeds: Mapping[str, NDArray[Any]]


class TextEncoder:
    """The text encoder's file in ONNX Runtime.

    Parameters
    ----------
    path : path
    session : onnxruntime.InferenceSession
        With the file.
    digest : str
        That of the detector's file, which names the text encoder it was exported with.

    Raises
    ------
    ValueError
        If it is not the text encoder of the detector.
    ImportError
        If tokenizers is not installed.
    """

    def __init__(self, path: Path, session: Any, digest: str) -> None:
        self._session = session
        metadata = self._session.get_modelmeta().custom_metadata_map
        if metadata.get(DIGEST) != digest:
            raise ValueError(
                f"{path}: the text encoder of another detector; copy the one that was exported with this one"
            )
        try:
            tokenizer = json.loads(metadata[TOKENIZER])
            self._limits = read_entries("limits", TextLimits, tokenizer["limits"])
            self._tokenizer = _tokenizer(tokenizer["vocabulary"], tokenizer["settings"])
        except KeyError as error:
            raise ValueError(f"{path}: metadata that mmort cannot read: it has no {error.args[0]}") from None
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{path}: metadata that mmort cannot read: {error}") from None

    def __call__(self, prompt: Prompt) -> tuple[EncodedNames, ...]:
        """Return the words of each chunk of a prompt.

        Raises
        ------
        ValueError
            If a name has no tokens, or there are too many.
        """
        return tuple(map(self._words, bert_inputs(prompt, self._tokenizer, self._limits)))

    def _words(self, input: BertInput) -> EncodedNames:
        """Return the words of a caption."""
        ids, positions = INPUTS
        (text,) = self._session.run([OUTPUT], {ids: input.ids, positions: input.positions})
        shares = input.tokens.shares.astype(np.float32)
        return EncodedNames(shares.shape[1], dict(zip(TEXT_INPUTS, (text, input.positions, shares), strict=True)))


def _tokenizer(vocabulary: Any, settings: Any) -> Tokenizer:
    """Return the tokenizer of a file's metadata."""
    if not isinstance(vocabulary, list) or not all(isinstance(token, str) for token in vocabulary):
        raise ValueError("vocabulary must be a list of tokens")
    missing = [token for token in REQUIRED if token not in vocabulary]
    if missing:
        raise ValueError(f"vocabulary must be BERT's, it has no {missing[0]}")
    return Tokenizer(vocabulary, read_entries("settings", TokenizerEntries, settings))


def merged(chunks: Sequence[tuple[int, Sequence[NDArray[Any]]]]) -> list[NDArray[Any]]:
    """Return the detections of several chunks of names, by descending score.

    Parameters
    ----------
    chunks : sequence of (int, sequence of ndarray)
        The number of names of each, and what a detector's file returns: dets (N, K, 5) and labels (N, K), which are -1
        in unused rows.
    """
    if len(chunks) == 1:
        return list(chunks[0][1])
    starts = np.cumsum([0, *(count for count, _ in chunks)])
    dets = np.concatenate([dets for _, (dets, _) in chunks], 1)
    labels = np.concatenate(
        [np.where(labels < 0, -1, labels + start) for start, (_, (_, labels)) in zip(starts, chunks, strict=False)], 1
    )
    order = np.argsort(-dets[..., 4], axis=1, kind="stable")
    return [np.take_along_axis(dets, order[..., None], 1), np.take_along_axis(labels, order, 1)]

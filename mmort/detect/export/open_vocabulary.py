"""Files whose words are inputs: the inputs that words become, and the text encoder's file, which makes them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import onnx.helper
import torch
from torch import Tensor

import mmort
from mmort.configs.captions import Prompt
from mmort.configs.tokens import BertInput, bert_inputs
from mmort.contract.tasks import TEXT, TEXT_POSITIONS, TEXT_SHARES
from mmort.contract.texts import INPUTS, OUTPUT, EncoderFile, encoder_entries, path_of_encoder
from mmort.detect.detector import Detector
from mmort.detect.export.options import ExportOptions
from mmort.detect.export.progress import muted
from mmort.onnx.export.draft import Draft
from mmort.onnx.export.exporters import remove_traces
from mmort.onnx.export.options import Options
from mmort.onnx.graph import inspection

EXAMPLES = "cat . red light", "dog", "man . two dogs . cat . 6"
"""Of several numbers of tokens and names: what files are traced with, and compared with torch for."""


class OpenVocabulary:
    """The words that a detector's file is traced and compared with, and the file of its text encoder.

    Parameters
    ----------
    detector : Detector
    vocabulary : path or None
        See `Detector.set_texts`.

    Raises
    ------
    ValueError
        If the words of the detector cannot be inputs, or the vocabulary is not that of its language model.
    """

    def __init__(self, detector: Detector, vocabulary: str | os.PathLike[str] | None) -> None:
        self.encoder = detector.text_encoder()
        self.tokenizer = self.encoder.language_model.tokenizer(vocabulary)
        self._captions = replace(self.encoder.limits, chunked_size=-1)
        self._texts = []
        for example in EXAMPLES:
            features, positions, shares = self.encoder.text(self._input(example))
            self._texts.append((features.float(), positions, shares.float()))
        tokenizer = {
            "vocabulary": self.tokenizer.vocabulary,
            "settings": asdict(self.tokenizer.settings),
            "limits": asdict(self.encoder.limits),
        }
        digest = hashlib.sha256(json.dumps(tokenizer).encode())
        for tensor in self.encoder.state_dict().values():
            digest.update(tensor.contiguous().numpy())
        self._digest = digest.hexdigest()
        self._entries = encoder_entries(json.dumps(tokenizer, ensure_ascii=False), self._digest, mmort.__version__)

    def shapes(self) -> dict[str, dict[int, str]]:
        """Return the dynamic shapes of the inputs."""
        if self.encoder.limits.pad_to_max:
            return {TEXT_SHARES.name: {0: "token", 1: "name"}}
        return {
            TEXT.name: {1: "token"},
            TEXT_POSITIONS.name: {1: "token"},
            TEXT_SHARES.name: {0: "token", 1: "name"},
        }

    def insert(self, args: Sequence[Tensor], example: int) -> tuple[Tensor, ...]:
        """Return the arguments of a detector with the words of an example, before ``img_shape``."""
        return *args[:-1], *self._texts[example % len(EXAMPLES)], args[-1]

    def encoder_file(self, output_file: Path) -> EncoderFile:
        """Return the entry of the detector's file about the text encoder's."""
        return EncoderFile(path_of_encoder(output_file).name, self._digest)

    @contextmanager
    def written(self, output_file: Path, options: ExportOptions, begin: Callable[[str], None]) -> Iterator[None]:
        """Export the text encoder, compare it with torch, and write it beside the detector's file after the block."""
        path = path_of_encoder(output_file)
        inputs = map(self._input, EXAMPLES)
        args = [(torch.from_numpy(input.ids), torch.from_numpy(input.positions)) for input in inputs]
        dynamic = None if self.encoder.limits.pad_to_max else {name: {1: "token"} for name in INPUTS}
        settings = Options(
            dynamic_shapes=dynamic,
            check_sizes=args[1:],
            opset_version=options.opset_version,
            output_names=[OUTPUT],
            simplify=options.simplify,
            exporter=options.exporter,
        )
        with Draft(self.encoder, args[0], path, settings) as draft:
            begin(f"exporting the text encoder with torch's {settings.exporter} exporter")
            with muted():
                draft.trace()
            model = draft.artifact.model
            onnx.helper.set_model_props(model, self._entries)
            remove_traces(model)
            model.ir_version = inspection.needed_format(model)
            begin("comparing the text encoder with torch")
            draft.accept(None if options.verify is False else draft.prove())
            yield

    def _input(self, example: str) -> BertInput:
        """Return the input of BERT for an example."""
        (input,) = bert_inputs(Prompt.of(example), self.tokenizer, self._captions)
        return input

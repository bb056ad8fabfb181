"""BERT, which turns the words of a caption into features; sub-sentences may know nothing of each other.

Source: J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", NAACL
2019.
"""

from __future__ import annotations

import copy
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort._files.inputs import read_text, refuse_address
from mmort.configs.captions import Prompt
from mmort.configs.tokens import BertInput, TextLimits, Tokenizer, Tokens, bert_inputs
from mmort.detect.entries import PARTS, Schema, at_least, only, read_entries, training_only
from mmort.detect.parts.transformer import attended, by_head

BASE = "bert-base-uncased", "google-bert/bert-base-uncased"
"""Names of the model whose sizes are the defaults of `BertSizes`."""

DTYPES = torch.float32, torch.float64
"""The dtypes in which detectors may compute; results for words are kept in both."""

_MODEL = r"^language_model\.language_backbone\.body\.model\."


def layer_keys(before: str, after: str) -> tuple[tuple[str, str], ...]:
    """Return the ``renamed_keys`` of a `BertLayer`, whose keys begin with a pattern in checkpoints."""
    names = {
        r"attention\.self\.": "",
        r"attention\.output\.dense\.": "out.",
        r"attention\.output\.LayerNorm\.": "attention_norm.",
        r"intermediate\.dense\.": "widen.",
        r"output\.dense\.": "narrow.",
        r"output\.LayerNorm\.": "norm.",
    }
    return tuple((before + pattern, after + name) for pattern, name in names.items())


@dataclass(frozen=True, kw_only=True)
class BertSizes(Schema):
    """The entries of a folder's ``config.json``, as Hugging Face's transformers writes it."""

    ignored: ClassVar = {
        **training_only("attention_probs_dropout_prob", "hidden_dropout_prob", "gradient_checkpointing"),
        **training_only("classifier_dropout", "initializer_range"),
        **dict.fromkeys(("architectures", "_name_or_path", "transformers_version"), "what wrote it"),
        **dict.fromkeys(("dtype", "torch_dtype", "pad_token_id", "use_cache", "chunk_size_feed_forward"), "the same"),
    }

    model_type: str = only("bert")
    vocab_size: int = at_least(1, default=30522)
    hidden_size: int = at_least(1, default=768)
    num_hidden_layers: int = at_least(1, default=12)
    num_attention_heads: int = at_least(1, default=12)
    intermediate_size: int = at_least(1, default=3072)
    hidden_act: str = only("gelu")
    max_position_embeddings: int = at_least(1, default=512)
    type_vocab_size: int = at_least(1, default=2)
    layer_norm_eps: float = 1e-12
    position_embedding_type: str = only("absolute")
    is_decoder: bool = only(False)

    def check(self, name: str) -> None:
        """Raise a ValueError if the channels cannot be divided among the heads."""
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"detect.build: hidden_size of {name} must be a multiple of num_attention_heads, "
                f"got {self.hidden_size} and {self.num_attention_heads}"
            )


@dataclass(frozen=True)
class Text:
    """The result of a language model for a caption of T tokens.

    Attributes
    ----------
    tokens : Tokens
    features, last : Tensor of float64, [1, T, C]
        The mean of the last layers that the config asks for, and the output of the last one.
    positions : Tensor of int64, [1, T]
        Where each token is in its sub-sentence.
    hidden : Tensor of bool, [1, T, T]
        From which tokens others are hidden: those of other sub-sentences.
    """

    tokens: Tokens
    features: Tensor
    last: Tensor
    positions: Tensor
    hidden: Tensor

    @property
    def shares(self) -> Tensor:
        """For each name the weight of each token's score in its own, a tensor of float64, [tokens, names]."""
        return torch.from_numpy(self.tokens.shares)


class BertLayer(nn.Module):
    """Attention of all tokens that see each other, then two fully connected layers.

    MMDetection's copy of it in GLIP clamps inner numbers to 50,000, for half precision: those of float32 are far below.
    """

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        dims, eps = sizes.hidden_size, sizes.layer_norm_eps
        self.num_heads = sizes.num_attention_heads
        self.query, self.key, self.value, self.out = (nn.Linear(dims, dims) for _ in range(4))
        self.attention_norm, self.norm = nn.LayerNorm(dims, eps), nn.LayerNorm(dims, eps)
        self.widen, self.narrow = nn.Linear(dims, sizes.intermediate_size), nn.Linear(sizes.intermediate_size, dims)

    def forward(self, x: Tensor, hidden: Tensor | None = None) -> Tensor:
        q, k, v = (by_head(layer(x), self.num_heads) for layer in (self.query, self.key, self.value))
        x = self.attention_norm(x + self.out(attended(q, k, v, hidden)))
        return self.norm(x + self.narrow(functional.gelu(self.widen(x))))


@PARTS.register("language model", "BertModel")
class Bert(nn.Module):
    """BERT without its heads."""

    renamed_keys = (
        (_MODEL + r"embeddings\.LayerNorm\.", "language_model.norm."),
        (_MODEL + r"embeddings\.", "language_model."),
        *layer_keys(_MODEL + r"encoder\.layer\.(\d+)\.", r"language_model.layers.\1."),
    )
    unused_keys = (_MODEL + r"pooler\.", _MODEL + r"embeddings\.position_ids$")

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        ignored: ClassVar = {"add_pooling_layer": "nothing reads its output", **training_only("use_checkpoint")}

        name: str = BASE[0]
        max_tokens: int = at_least(2, default=256)
        pad_to_max: bool = True
        use_sub_sentence_represent: bool = False
        special_tokens_list: list[str] | None = None
        num_layers_of_embedded: int = at_least(1, default=1)

        def check(self, name: str) -> None:
            """Raise a ValueError if nothing says where sub-sentences end."""
            if self.use_sub_sentence_represent and self.special_tokens_list is None:
                raise ValueError(f"detect.build: {name} with use_sub_sentence_represent must have special_tokens_list")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.entries, sizes = entries, sizes_of("name of language_model", entries.name)
        self.dims = sizes.hidden_size
        self.word_embeddings = nn.Embedding(sizes.vocab_size, self.dims)
        self.position_embeddings = nn.Embedding(sizes.max_position_embeddings, self.dims)
        self.token_type_embeddings = nn.Embedding(sizes.type_vocab_size, self.dims)
        self.norm = nn.LayerNorm(self.dims, sizes.layer_norm_eps)
        self.layers = nn.ModuleList(BertLayer(sizes) for _ in range(sizes.num_hidden_layers))
        if entries.num_layers_of_embedded > len(self.layers):
            raise ValueError(
                f"detect.build: num_layers_of_embedded of language_model must be at most {len(self.layers)}, its "
                f"layers, got {entries.num_layers_of_embedded}"
            )

    def tokenizer(self, vocabulary: str | os.PathLike[str] | None = None) -> Tokenizer:
        """Return the tokenizer of a vocabulary, by default of ``vocab.txt`` in the folder that the config names."""
        if vocabulary is None and not Path(self.entries.name).is_dir():
            raise ValueError(
                f"vocabulary must be set (--vocabulary vocab.txt): the file of {self.entries.name}, which is not "
                "downloaded"
            )
        path = Path(self.entries.name, "vocab.txt") if vocabulary is None else Path(vocabulary)
        tokenizer = Tokenizer.read(path)
        if len(tokenizer.vocabulary) != self.word_embeddings.num_embeddings:
            raise ValueError(
                f"vocabulary must have as many tokens as the language model, {self.word_embeddings.num_embeddings}, "
                f"got {len(tokenizer.vocabulary)} in {path}"
            )
        return tokenizer

    def limits(self, chunked_size: int, max_text_len: int | None = None) -> TextLimits:
        """Return how the config has captions; the arguments are the detector's entries of these names."""
        entries = self.entries
        return TextLimits(
            max_tokens=entries.max_tokens,
            max_text_len=max_text_len,
            max_positions=self.position_embeddings.num_embeddings,
            pad_to_max=entries.pad_to_max,
            sub_sentence_ends=entries.special_tokens_list if entries.use_sub_sentence_represent else None,
            chunked_size=chunked_size,
        )

    def texts(self, prompt: Prompt, vocabulary: str | os.PathLike[str] | None, limits: TextLimits) -> list[Text]:
        """Return the model's results for names, one for each chunk; the last name of a chunk does not end as others do.

        Parameters
        ----------
        prompt, vocabulary
            See `Detector.set_texts`.
        limits : TextLimits

        Raises
        ------
        ValueError
            See `Detector.set_texts`.
        """
        return [self._text(input) for input in bert_inputs(prompt, self.tokenizer(vocabulary), limits, closed=False)]

    def _text(self, input: BertInput) -> Text:
        """Return the model's result for a caption, computed in float64."""
        ids, positions = torch.from_numpy(input.ids), torch.from_numpy(input.positions)
        hidden = other_sub_sentences(positions)
        if self.entries.special_tokens_list is None or not self.entries.use_sub_sentence_represent:
            hidden = torch.zeros_like(hidden)
        with torch.inference_mode():
            features, last = copy.deepcopy(self).double()(ids, positions, hidden)
        # Not tensors of inference mode, which no traced module may hold.
        return Text(input.tokens, features.clone(), last.clone(), positions, hidden)

    def forward(self, ids: Tensor, positions: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and last outputs [1, T, C] of tokens [1, T]; see `Text`."""
        x = self.norm(
            self.word_embeddings(ids) + self.position_embeddings(positions) + self.token_type_embeddings.weight[0]
        )
        outputs = []
        for layer in self.layers:
            x = layer(x, hidden)
            outputs.append(x)
        count = self.entries.num_layers_of_embedded
        return torch.stack(outputs[-count:]).mean(0) / count, x  # MMDetection divides twice


class TextEncoder(nn.Module):
    """BERT and a layer that gives its features the channels of a detector: all that depends on words alone.

    Parameters
    ----------
    language_model : Bert
        One of sub-sentences.
    projection : nn.Linear
    limits : TextLimits
    """

    def __init__(self, language_model: Bert, projection: nn.Linear, limits: TextLimits) -> None:
        super().__init__()
        self.language_model, self.projection, self.limits = language_model, projection, limits
        self.eval()

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Return features [1, T, D] of tokens and their positions in sub-sentences [1, T]."""
        features, _ = self.language_model(ids, positions, other_sub_sentences(positions))
        return self.projection(features)

    def text(self, input: BertInput) -> tuple[Tensor, Tensor, Tensor]:
        """Return the features of a caption, computed in float64, their positions [1, T], and shares [S, C]."""
        positions = torch.from_numpy(input.positions)
        with torch.inference_mode():
            features = copy.deepcopy(self).double()(torch.from_numpy(input.ids), positions)
        # Not a tensor of inference mode, which no traced module may hold.
        return features.clone(), positions, torch.from_numpy(input.tokens.shares)


def sizes_of(entry: str, name: str) -> BertSizes:
    """Return the sizes of a model that an entry of a config names: a known one, or a folder."""
    if name in BASE:
        return BertSizes()
    refuse_address(entry, name)
    path = Path(name, "config.json")
    if not path.exists():
        raise ValueError(
            f"detect.build: {entry} must be {BASE[0]} or a folder with config.json and vocab.txt, got {name!r}"
        )
    try:
        sizes = json.loads(read_text("config.json", path))
    except json.JSONDecodeError as error:
        raise ValueError(f"detect.build: {path} must be JSON: {error}") from None
    return read_entries(f"{path}", BertSizes, sizes)


def other_sub_sentences(positions: Tensor) -> Tensor:
    """Return which tokens are of other sub-sentences than which, [N, T, T], for positions in these [N, T].

    Each sub-sentence begins at position 0.
    """
    sub_sentences = (positions == 0).to(torch.int64).cumsum(1)
    return sub_sentences[:, :, None] != sub_sentences[:, None]

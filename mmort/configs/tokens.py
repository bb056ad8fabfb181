"""Texts as the tokens of BERT's vocabulary: WordPiece, by the package tokenizers, and what BERT takes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mmort._files.inputs import read_text, refuse_address
from mmort.configs.captions import Caption, Prompt
from mmort.configs.schema import Schema, at_least, only, read_entries
from mmort.limits import MAX_WORD_CHARACTERS

SPECIAL = UNKNOWN, PADDING, FIRST, LAST, MASK = "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"
REQUIRED = UNKNOWN, FIRST, LAST, PADDING
"""Those of `SPECIAL` that a vocabulary must have."""


@dataclass(frozen=True, kw_only=True)
class TokenizerEntries(Schema):
    """The entries of ``tokenizer_config.json``, as Hugging Face's transformers writes it."""

    reader = "vocabulary"
    ignored: ClassVar = {
        **dict.fromkeys(("added_tokens_decoder", "extra_special_tokens", "never_split"), "BERT's special tokens"),
        **dict.fromkeys(("clean_up_tokenization_spaces", "model_max_length", "truncation_side"), "for other texts"),
        **dict.fromkeys(("name_or_path", "padding_side", "special_tokens_map_file", "tokenizer_class"), "the same"),
    }

    do_lower_case: bool = True
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    do_basic_tokenize: bool = only(True)
    unk_token: str = only(UNKNOWN)
    sep_token: str = only(LAST)
    pad_token: str = only(PADDING)
    cls_token: str = only(FIRST)
    mask_token: str = only(MASK)


@dataclass(frozen=True)
class Tokens:
    """The tokens of a caption.

    Attributes
    ----------
    ids : tuple of int
        Those of the vocabulary, from ``[CLS]`` to ``[SEP]``.
    of_names : tuple of tuple of int
        For each name of the caption the positions of its tokens.
    """

    ids: tuple[int, ...]
    of_names: tuple[tuple[int, ...], ...]

    @property
    def shares(self) -> NDArray[np.float64]:
        """For each name the weight of each token's score in its own, [tokens, names]."""
        shares = np.zeros((len(self.ids), len(self.of_names)))
        for label, tokens in enumerate(self.of_names):
            shares[list(tokens), label] = 1 / len(tokens)
        return shares


class Tokenizer:
    """BERT's tokenizer.

    Parameters
    ----------
    vocabulary : sequence of str
        The tokens by id.
    settings : TokenizerEntries, optional
        By default those of a vocabulary of small letters.

    Raises
    ------
    ImportError
        If the package tokenizers is not installed.
    """

    def __init__(self, vocabulary: Sequence[str], settings: TokenizerEntries | None = None) -> None:
        try:
            import tokenizers
            from tokenizers import models, normalizers, pre_tokenizers, processors
        except ModuleNotFoundError as error:
            if error.name != "tokenizers":
                raise
            raise ImportError("texts need tokenizers: pip install tokenizers") from None
        self.vocabulary, self.settings = tuple(vocabulary), settings or TokenizerEntries()
        self.ids = {token: index for index, token in enumerate(self.vocabulary)}
        self._tokenizer = tokenizers.Tokenizer(
            models.WordPiece(self.ids, unk_token=UNKNOWN, max_input_chars_per_word=MAX_WORD_CHARACTERS)
        )
        self._tokenizer.add_special_tokens([token for token in SPECIAL if token in self.ids])
        self._tokenizer.normalizer = normalizers.BertNormalizer(
            lowercase=self.settings.do_lower_case,
            strip_accents=self.settings.strip_accents,
            handle_chinese_chars=self.settings.tokenize_chinese_chars,
        )
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        ends = ((token, self.ids[token]) for token in (LAST, FIRST))
        self._tokenizer.post_processor = processors.BertProcessing(*ends)

    @classmethod
    def read(cls, path: Path) -> Tokenizer:
        """Return the tokenizer of a file with a token in each line; ``tokenizer_config.json`` beside it is obeyed.

        Raises
        ------
        ValueError
            If the file is no vocabulary of BERT.
        OSError
            If it cannot be opened.
        """
        refuse_address("vocabulary", path)
        lines = read_text("vocabulary", path).replace("\r\n", "\n").removesuffix("\n").split("\n")
        missing = [token for token in REQUIRED if token not in lines]
        if missing:
            raise ValueError(f"vocabulary must be BERT's, a token in each line: {path} has no {missing[0]}")
        return cls(lines, _settings(path))

    def id_of(self, token: str) -> int:
        """Return the id of a token; that of an unknown one if the vocabulary does not have it."""
        return self.ids.get(token, self.ids[UNKNOWN])

    def __call__(self, caption: Caption) -> Tokens:
        """Return the tokens of a caption."""
        encoding = self._tokenizer.encode(caption.text)
        of_names = ({token for span in spans for token in _tokens_between(encoding, *span)} for spans in caption.spans)
        return Tokens(tuple(encoding.ids), tuple(tuple(sorted(tokens)) for tokens in of_names))


@dataclass(frozen=True, kw_only=True)
class TextLimits(Schema):
    """How a detector's config has captions: their length, and what of them BERT sees at once; a file's metadata too.

    Attributes
    ----------
    max_tokens : int
        Of the language model.
    max_text_len : int, optional
        Of the head, which counts the padding, too; None if that has no limit.
    max_positions : int
        How many positions of tokens BERT knows.
    pad_to_max : bool
        Whether captions are padded to `max_tokens`.
    sub_sentence_ends : list of str, optional
        The tokens that end sub-sentences, which know nothing of each other.  If None, all tokens see each other.
    chunked_size : int
        The number of names in a caption; all if it is not positive.
    """

    reader = "texts"

    max_tokens: int = at_least(1)
    max_text_len: int | None
    max_positions: int = at_least(1)
    pad_to_max: bool
    sub_sentence_ends: list[str] | None
    chunked_size: int


@dataclass(frozen=True)
class BertInput:
    """The input of BERT for a caption.

    Attributes
    ----------
    tokens : Tokens
        Those of the caption.
    ids, positions : ndarray of int64, [1, T]
        The tokens, with padding, and where each of them is in its sub-sentence.
    """

    tokens: Tokens
    ids: NDArray[np.int64]
    positions: NDArray[np.int64]


def bert_inputs(prompt: Prompt, tokenizer: Tokenizer, limits: TextLimits, *, closed: bool = True) -> list[BertInput]:
    """Return the inputs of BERT for a prompt, one for each chunk of its names.

    Parameters
    ----------
    prompt : Prompt
    tokenizer : Tokenizer
    limits : TextLimits
    closed : bool, default True
        Whether the last name of a caption ends as the others do.

    Raises
    ------
    ValueError
        If a name has no tokens or more than BERT knows positions, or a caption has more than the limits allow.
    """
    chunks = prompt.chunks(limits.chunked_size) if limits.chunked_size > 0 else (prompt,)
    return [_bert_input(chunk, tokenizer, limits, closed) for chunk in chunks]


def _bert_input(prompt: Prompt, tokenizer: Tokenizer, limits: TextLimits, closed: bool) -> BertInput:
    """Return BERT's inputs for the names of one caption."""
    caption, names = prompt.caption(closed=closed), len(prompt.names)
    if names > limits.max_tokens:  # each has a token: what follows takes time for each pair of a token and a name
        raise ValueError(
            f"texts must have at most {limits.max_tokens} tokens together (max_tokens of language_model), "
            f"got {names} names"
        )
    if len(caption.text) > (characters := MAX_WORD_CHARACTERS * limits.max_tokens):
        raise ValueError(f"texts must have at most {characters} characters together, got {len(caption.text)}")
    tokens = tokenizer(caption)
    count = len(tokens.ids)
    if count > limits.max_tokens:
        raise ValueError(
            f"texts must have at most {limits.max_tokens} tokens together (max_tokens of language_model), got {count}"
        )
    ids, positions = np.array(tokens.ids), np.arange(count)
    if limits.sub_sentence_ends is not None:
        padding = limits.max_tokens - count if limits.pad_to_max else 0
        ids = np.pad(ids, (0, padding), constant_values=tokenizer.id_of(PADDING))
        positions = _positions(np.isin(ids, [tokenizer.id_of(token) for token in limits.sub_sentence_ends]))
    if limits.max_text_len is not None and len(ids) > limits.max_text_len:
        raise ValueError(
            f"texts must have at most {limits.max_text_len} tokens together (max_text_len of contrastive_cfg), "
            f"got {len(ids)}"
        )
    if limits.sub_sentence_ends is None and count > limits.max_positions:
        raise ValueError(
            f"texts must have at most {limits.max_positions} tokens together (max_position_embeddings of "
            f"language_model), got {count}"
        )
    if positions.max() >= limits.max_positions:
        raise ValueError(
            f"texts must have names of less than {limits.max_positions} tokens, got one of {positions.max()}"
        )
    for name, of_name in zip(prompt.names, tokens.of_names, strict=True):
        if not of_name:
            raise ValueError(f"texts must be names of which the vocabulary has tokens, got {name!r}")
    return BertInput(tokens, ids[None], positions[None])


def _positions(ends: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return where tokens are in their sub-sentences, which some tokens end.

    The first token and the last stand alone, as do those after the last end.
    """
    positions, before = np.zeros(len(ends), np.int64), 0
    for end in np.flatnonzero(ends).tolist():
        if 0 < end < len(ends) - 1:
            positions[before + 1 : end + 1] = np.arange(end - before)
        before = end
    return positions


def _settings(vocabulary: Path) -> TokenizerEntries:
    """Return the settings beside a vocabulary, or the defaults."""
    path = vocabulary.with_name("tokenizer_config.json")
    try:
        text = read_text("tokenizer_config.json", path)
    except FileNotFoundError:
        return TokenizerEntries()
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"vocabulary: {path} must be JSON: {error}") from None
    return read_entries(f"{path}", TokenizerEntries, entries)


def _tokens_between(encoding: Any, begin: int, end: int) -> tuple[int, ...]:
    """Return the positions of the tokens of a name; none if its first or last three characters are in no token."""
    first = _first_token(encoding, range(begin, begin + 3))
    last = _first_token(encoding, range(end - 1, end - 4, -1))
    return () if first is None or last is None else tuple(range(first, last + 1))


def _first_token(encoding: Any, characters: Sequence[int]) -> int | None:
    """Return the position of the token of the first of some characters that is in one; blanks are in none."""
    tokens = (encoding.char_to_token(character) for character in characters if character >= 0)
    return next((token for token in tokens if token is not None), None)

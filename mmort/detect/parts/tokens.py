"""Texts as the tokens of BERT's vocabulary: WordPiece, by the package tokenizers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mmort._files.inputs import read_text
from mmort.configs.captions import Caption
from mmort.configs.local_files import refuse_address
from mmort.configs.schema import Schema, only, read_entries

MAX_CHARACTERS_OF_WORD = 100
"""Longer words are unknown to BERT."""

SPECIAL = UNKNOWN, PADDING, FIRST, LAST, MASK = "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"


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


class Tokenizer:
    """BERT's tokenizer.

    Parameters
    ----------
    vocabulary : path
        A file with a token in each line.  ``tokenizer_config.json`` beside it is obeyed.

    Raises
    ------
    ImportError
        If the package tokenizers is not installed.
    ValueError
        If the file is no vocabulary of BERT.
    OSError
        If it cannot be opened.
    """

    def __init__(self, vocabulary: Path) -> None:
        try:
            import tokenizers
            from tokenizers import models, normalizers, pre_tokenizers, processors
        except ModuleNotFoundError as error:
            if error.name != "tokenizers":
                raise
            raise ImportError("texts need tokenizers: pip install 'mmort[texts]'") from None
        refuse_address("vocabulary", vocabulary)
        lines = read_text("vocabulary", vocabulary).replace("\r\n", "\n").removesuffix("\n").split("\n")
        self.ids = {token: index for index, token in enumerate(lines)}
        self.size = len(lines)
        missing = [token for token in (UNKNOWN, FIRST, LAST, PADDING) if token not in self.ids]
        if missing:
            raise ValueError(f"vocabulary must be BERT's, a token in each line: {vocabulary} has no {missing[0]}")
        self._tokenizer = tokenizers.Tokenizer(
            models.WordPiece(self.ids, unk_token=UNKNOWN, max_input_chars_per_word=MAX_CHARACTERS_OF_WORD)
        )
        self._tokenizer.add_special_tokens([token for token in SPECIAL if token in self.ids])
        settings = _settings(vocabulary)
        self._tokenizer.normalizer = normalizers.BertNormalizer(
            lowercase=settings.do_lower_case,
            strip_accents=settings.strip_accents,
            handle_chinese_chars=settings.tokenize_chinese_chars,
        )
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        ends = ((token, self.ids[token]) for token in (LAST, FIRST))
        self._tokenizer.post_processor = processors.BertProcessing(*ends)

    def id_of(self, token: str) -> int:
        """Return the id of a token; that of an unknown one if the vocabulary does not have it."""
        return self.ids.get(token, self.ids[UNKNOWN])

    def __call__(self, caption: Caption) -> Tokens:
        """Return the tokens of a caption."""
        encoding = self._tokenizer.encode(caption.text)
        of_names = ({token for span in spans for token in _tokens_between(encoding, *span)} for spans in caption.spans)
        return Tokens(tuple(encoding.ids), tuple(tuple(sorted(tokens)) for tokens in of_names))


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

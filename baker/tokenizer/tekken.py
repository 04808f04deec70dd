"""Mistral's tekken.json: the ranks of tokens, which are bytes, and the rule for words.

Special tokens come first. Source: transformers, integrations/mistral/tokenizer.py, except that a
text begins with <s>, as in the tokenizer.json of Mistral's models.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from tokenizers import Regex, Tokenizer, pre_tokenizers

from hearthd.baker.tokenizer.gguf_vocabulary import convert
from hearthd.baker.tokenizer.vocabulary_fields import CONTROL, NORMAL, byte_characters
from hearthd.baker.weights.safetensors import read_json
from hearthd.baker.weights.source import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_BOS = "<s>"
# Far above all published files: a few bytes of a file say how many special tokens there are, and a
# token is split at each of its bytes.
_MAX_SPECIAL, _MAX_TOKEN_BYTES = 2**14, 2**10
# Files of these versions may leave the special tokens to mistral_common, which has this list.
_EARLY_VERSIONS = ("v1", "v2", "v3", "v7")
_EARLY_TOKENS = (
    "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] "
    "[/TOOL_RESULTS] [TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] "
    "[SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]"
).split()


def read_tekken(path: Path) -> Tokenizer:
    """The tokenizer of a tekken.json; raises TokenizerError or BadFile."""
    data = read_json(path)
    try:
        special = _special_tokens(data)
        size = data["config"].get("default_vocab_size")
        entries = data["vocab"][: None if size is None else size - len(special)]
        tokens = [base64.b64decode(entry["token_bytes"]) for entry in entries]
        if any(len(token) > _MAX_TOKEN_BYTES for token in tokens):
            raise ValueError(f"a token of more than {_MAX_TOKEN_BYTES} bytes")
        words, bos = _split(data["config"]["pattern"]), special.index(_BOS)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TokenizerError(f"{path} is not a tekken.json that is supported: {error!r}") from error
    names = {token: byte_characters(token) for token in tokens}
    merges = [f"{names[left]} {names[right]}" for left, right in _merges(tokens)]
    try:
        tokenizer = convert(
            {
                "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.pre": "tekken",
                "tokenizer.ggml.tokens": [*special, *map(byte_characters, tokens)],
                "tokenizer.ggml.token_type": [CONTROL] * len(special) + [NORMAL] * len(tokens),
                "tokenizer.ggml.merges": merges,
                "tokenizer.ggml.bos_token_id": bos,
            }
        )
    except TokenizerError as error:
        raise TokenizerError(f"{path}: {error}") from error
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, by_bytes])
    return tokenizer


def _split(pattern: str) -> pre_tokenizers.Split:
    """The pre-tokenizer of the pattern of words; raises ValueError."""
    try:
        return pre_tokenizers.Split(Regex(pattern), "isolated")
    # The library raises plain Exception.
    except Exception as error:
        raise ValueError(f"pattern: {error}") from error


def _special_tokens(data: dict[str, Any]) -> list[str]:
    """The names of the special tokens, in the order of their ids, those without a use included."""
    if data.get("special_tokens") is None and data["config"].get("version") in _EARLY_VERSIONS:
        by_rank = dict(enumerate(_EARLY_TOKENS))
    else:
        by_rank = {entry["rank"]: entry["token_str"] for entry in data["special_tokens"]}
    count = data["config"].get("default_num_special_tokens", len(by_rank))
    if count > _MAX_SPECIAL:
        raise ValueError(f"{count} special tokens, expected at most {_MAX_SPECIAL}")
    names = [by_rank.pop(rank, f"<SPECIAL_{rank}>") for rank in range(count)]
    if by_rank:
        raise ValueError(f"special tokens of rank {[*by_rank]!r:.80}")
    return names


def _merges(tokens: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Every split of a token into two, in the order of application, which is the order of ranks."""
    ranks = {token: rank for rank, token in enumerate(tokens)}
    for token in tokens:
        splits = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [split for split in splits if split[0] in ranks and split[1] in ranks]
        yield from sorted(known, key=lambda split: (ranks[split[0]], ranks[split[1]]))

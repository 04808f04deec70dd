"""How byte BPE splits a text into words: the rules that GGUF files name in `tokenizer.ggml.pre`.

Sources: llama.cpp, src/llama-vocab.cpp, and the tokenizer.json of the models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenizers import Regex, pre_tokenizers

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class WordRule:
    """A rule.

    parts        pre-tokenizers, one after the other; the last one turns bytes into characters
    whole_words  whether a word that is a token is not split, whatever the merges say
    adds_bos     whether a text starts with the bos token where the file does not say it
    composed     whether characters are composed first (NFC)
    """

    parts: tuple[Any, ...]
    whole_words: bool = False
    adds_bos: bool = False
    composed: bool = False


def _words(*patterns: str) -> tuple[Any, ...]:
    """Splits by patterns, one after the other."""
    return (
        *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    )


def _llama3(digits: str) -> str:
    """Words, numbers of some digits, and punctuation with the line ends behind it."""
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


def _gpt4o(digits: str, ending: str) -> str:
    """As `_llama3`, where a capital starts a new word; `ending` follows a word."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{ending}|"
        rf"[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{ending}|{digits}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


# Han characters and kana.
_CHINESE_AND_JAPANESE = r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_HUNYUAN = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
_THREE = r"\p{N}{1,3}"
_SINGLE_DIGITS = (pre_tokenizers.Digits(individual_digits=True), _GPT2)
_THREE_DIGITS = _words(_llama3(_THREE))

WORD_RULES: Mapping[str, WordRule] = {
    "dbrx": WordRule(parts=_THREE_DIGITS),
    "exaone4": WordRule(parts=(_GPT2,)),
    "falcon3": WordRule(parts=_THREE_DIGITS, whole_words=True, adds_bos=True),
    "glm4": WordRule(parts=_THREE_DIGITS, whole_words=True),
    "gpt-2": WordRule(parts=(_GPT2,)),
    "gpt-4o": WordRule(parts=_words(_gpt4o(_THREE, r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"))),
    "hunyuan-dense": WordRule(parts=_words(_THREE, _CHINESE_AND_JAPANESE, _HUNYUAN)),
    "lfm2": WordRule(parts=_THREE_DIGITS, whole_words=True, adds_bos=True),
    "llama-bpe": WordRule(parts=_THREE_DIGITS, whole_words=True, adds_bos=True),
    "minicpm5": WordRule(parts=_words(_THREE, _llama3(r"\p{N}+")), whole_words=True),
    "modern-bert": WordRule(parts=(_GPT2,), composed=True),
    "olmo": WordRule(parts=(_GPT2,)),
    "qwen2": WordRule(parts=_words(_llama3(r"\p{N}")), composed=True),
    "refact": WordRule(parts=_SINGLE_DIGITS),
    "smaug-bpe": WordRule(parts=_THREE_DIGITS),
    "smollm": WordRule(parts=_SINGLE_DIGITS),
    "tekken": WordRule(parts=_words(_gpt4o(r"\p{N}", "")), whole_words=True, adds_bos=True),
}

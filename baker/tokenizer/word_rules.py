"""How byte BPE splits a text into words: the rules that GGUF files name in `tokenizer.ggml.pre`.

Sources: llama.cpp, src/llama-vocab.cpp, and the tokenizer.json of the models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenizers import Regex, pre_tokenizers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
# As `_llama3` with single digits, where marks are part of words.
_QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SEED_CODER = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
_THREE = r"\p{N}{1,3}"
_SINGLE_DIGITS = (pre_tokenizers.Digits(individual_digits=True), _GPT2)
_THREE_DIGITS = _words(_llama3(_THREE))

_LLAMA3 = WordRule(parts=_THREE_DIGITS, whole_words=True, adds_bos=True)
_QWEN2 = _words(_llama3(r"\p{N}"))
_GPT4O = _words(_gpt4o(_THREE, r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"))
_DEEPSEEK_CODER = (
    r"[\r\n]",
    r"\s?\p{L}+",
    r"\s?\p{P}+",
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
)

# Names of the same rule stand together.
_RULES: Sequence[tuple[str, WordRule]] = (
    ("dbrx smaug-bpe chatglm-bpe", WordRule(parts=_THREE_DIGITS)),
    ("glm4 glm5", WordRule(parts=_THREE_DIGITS, whole_words=True)),
    ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 lfm2 midm-2.0 pixtral", _LLAMA3),
    (
        "gpt-2 a.x-4.0 exaone4 gigachat granite-docling jais jina-de jina-es jina-v2-de jina-v2-es "
        "mellum mpt olmo phi-2 trillion",
        WordRule(parts=(_GPT2,)),
    ),
    ("modern-bert", WordRule(parts=(_GPT2,), composed=True)),
    (
        "smollm codeshell command-r exaone mellum2 minerva-7b refact starcoder",
        WordRule(parts=_SINGLE_DIGITS),
    ),
    ("gpt-4o kanana2 llama4 minimax-m2", WordRule(parts=_GPT4O)),
    ("granite-embed-multi-97m", WordRule(parts=_GPT4O, whole_words=True)),
    ("tekken", WordRule(parts=_words(_gpt4o(r"\p{N}", "")), whole_words=True, adds_bos=True)),
    ("qwen2", WordRule(parts=_QWEN2, composed=True)),
    ("qwen35", WordRule(parts=_words(_QWEN35), composed=True)),
    (
        "deepseek-r1-qwen f2llmv2 grok-2 hunyuan kormo megrez solar-open stablelm2",
        WordRule(parts=_QWEN2),
    ),
    ("minicpm5", WordRule(parts=_words(_THREE, _llama3(r"\p{N}+")), whole_words=True)),
    (
        "hunyuan-dense deepseek-v3 hy_v4 joyai-llm",
        WordRule(parts=_words(_THREE, _CHINESE_AND_JAPANESE, _HUNYUAN)),
    ),
    ("deepseek-coder", WordRule(parts=_words(*_DEEPSEEK_CODER, r"\p{N}"))),
    ("seed-coder", WordRule(parts=_words(_SEED_CODER))),
)
WORD_RULES: Mapping[str, WordRule] = {
    name: rule for names, rule in _RULES for name in names.split()
}

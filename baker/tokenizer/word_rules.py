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
    joins_twice  whether the end token stands twice between the texts of a pair
    """

    parts: tuple[Any, ...]
    whole_words: bool = False
    adds_bos: bool = False
    composed: bool = False
    joins_twice: bool = False


_CASES = (r"\p{Lu}\p{Lt}", r"\p{Ll}")
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"


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


def _gpt4o(digits: str, ending: str, without: str = "") -> str:
    """As `_llama3`, where a capital starts a new word.

    `ending` follows a word, and `without` excludes letters from it.
    """
    upper, lower = (rf"[{case}\p{{Lm}}\p{{Lo}}\p{{M}}{without}]" for case in _CASES)
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
_GPT4O_WORDS = _gpt4o(_THREE, _CONTRACTION)
_GPT4O = _words(_GPT4O_WORDS)
# Groups of three digits, from the end of a number that no letter follows. llama.cpp's pattern,
# \d{1,3}(?=(?:\d{3})*\b), looks ahead at each digit, which takes quadratic time. Here such numbers
# are split off first; then other pieces stay, and a number loses one or two digits at its start.
_THOUSANDS = (
    r"(?<!\d)(?>\d+)(?!\w)",
    r"\A(?=\d*\D)(?m:.+)|\A\d{1,2}(?=(?>(?:\d{3})+)\z)|\d{3}|\d{1,2}",
)
_DEEPSEEK_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_ASIAN)

# The letters with a case of Unicode 11, as DeepSeek's first models list them.
_CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-"
    "\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90"
    "-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-"
    "\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d"
    "\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_CASED}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    _DEEPSEEK_ASIAN,
    r"\p{N}",
)
_FALCON = (
    pre_tokenizers.Punctuation("contiguous"),
    _GPT2,
    pre_tokenizers.Digits(individual_digits=False),
    pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
)
# As `_llama3` with single digits, where a line end ends a word.
_BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
    r"\s*[\r\n]|\s+(?!\S)|\s+"
)
_EXAONE_MOE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SPACES = "|".join(rf"\s{{{count}}}(?!\S)" for count in (512, 256, 128, 64, 32, 16, 8, 4))
_JAIS_2 = _llama3(_THREE).replace(r"|\s+(?!\S)|\s+", rf"|{_SPACES}|\s{{1,2}}(?!\S)|\s{{1}}")
# As `_gpt4o`, where Han characters are words of their own.
_KIMI = r"\p{Han}+|" + _gpt4o(_THREE, _CONTRACTION, r"&&[^\p{Han}]").replace(r"\n/]*", r"\n]*")
# The rule where a file names none, as in files from before May 2024: llama.cpp's name for it.
UNNAMED = "default"
_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_UNNAMED = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2_WORDS, r"\p{N}+", "[0-9][0-9][0-9]")
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_VIKING = (_BLOOM, r"\p{N}")
# Hangul, full-width punctuation, Bopomofo, and Han characters with kana.
_YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-"
    "\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    _gpt4o(r"\p{N}", _CONTRACTION),
)
# Groups of three digits from the end of a number, then scripts without spaces.
_AFMOE = (
    r"\p{N}+",
    r"\A\P{N}(?m:.*)|\A\p{N}{1,2}(?=(?>(?:\p{N}{3})+)\z)|\p{N}{3}|\p{N}{1,2}",
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
    "\u1100-\u11ff]+",
    _HUNYUAN,
)
# As `_llama3` with single digits, without the contractions of English.
_UFAKZEKA = _llama3(r"\p{N}").removeprefix(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|")
# Names of image tokens, runs of spaces, digits, and punctuation.
_CHAMELEON = (
    "IMGIMG[A-I]{1,4}Z",
    r"[\t\n]|    |  ",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT2_WORDS,
)
_SPARK_2_5 = _HUNYUAN.replace(r"[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|", r"[\p{P}\p{S}]+|[\r\n]|")
# A number splits where a multiple of three digits is left. llama.cpp looks ahead at each digit,
# which takes quadratic time; here a match is a whole piece, and ends where the next one begins.
_TRIPLES = r"(?>(?:\d{3})+)(?!\d)"
_NO_TRIPLE = r"(?>(?:[^\d]+|(?<!\d)\d{1,2}(?!\d))*)"
_HEAD = rf"\d{{0,2}}(?={_TRIPLES})"
_SUPERBPE = (
    r"\p{N}+",
    rf"\A(?!{_TRIPLES}){_NO_TRIPLE}{_HEAD}|\d{{3}}(?:(?=\d)|{_NO_TRIPLE}(?:{_HEAD})?)",
)
# Names of the same rule stand together.
_RULES: Sequence[tuple[str, WordRule]] = (
    ("dbrx smaug-bpe chatglm-bpe", WordRule(parts=_THREE_DIGITS)),
    ("glm4 glm5", WordRule(parts=_THREE_DIGITS, whole_words=True)),
    ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 jina-v5-nano lfm2 midm-2.0 pixtral", _LLAMA3),
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
    ("gpt-4o kanana2 llama4 minimax-m2 talkie", WordRule(parts=_GPT4O)),
    ("tiny_aya cohere2moe", WordRule(parts=_words(*_THOUSANDS, _GPT4O_WORDS))),
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
    ("deepseek-llm", WordRule(parts=_words(*_DEEPSEEK_LLM))),
    ("falcon", WordRule(parts=_FALCON)),
    ("bailingmoe bailingmoe2 llada-moe", WordRule(parts=_words(_BAILING))),
    ("exaone-moe", WordRule(parts=_words(_EXAONE_MOE))),
    ("jais-2", WordRule(parts=_words(_JAIS_2))),
    ("seed-coder", WordRule(parts=_words(_SEED_CODER))),
    ("kimi-k2", WordRule(parts=_words(_KIMI))),
    ("roberta-bpe jina-v1-en jina-v2-code", WordRule(parts=(_GPT2,), joins_twice=True)),
    ("superbpe", WordRule(parts=_words(*_SUPERBPE))),
    ("youtu", WordRule(parts=_words(*_YOUTU), whole_words=True)),
    ("afmoe", WordRule(parts=_words(*_AFMOE))),
    ("laguna", WordRule(parts=_words(r"[^\n]+|\n+", _llama3(r"\p{N}")))),
    (
        "spark2_5",
        WordRule(parts=_words(_THREE, _CHINESE_AND_JAPANESE, _SPARK_2_5, r"\p{N}")),
    ),
    ("chameleon", WordRule(parts=_words(*_CHAMELEON), adds_bos=True)),
    ("ufakzeka", WordRule(parts=_words(_UFAKZEKA))),
    ("bloom gpt3-finnish poro-chat", WordRule(parts=_words(_BLOOM))),
    ("viking", WordRule(parts=_words(*_VIKING))),
    (UNNAMED, WordRule(parts=_words(*_UNNAMED))),
)
WORD_RULES: Mapping[str, WordRule] = {
    name: rule for names, rule in _RULES for name in names.split()
}

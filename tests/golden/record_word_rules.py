"""Record the tokens that llama.cpp gives texts by each rule for words that Hearth knows.

    python -m tests.golden.record_word_rules LLAMA_TOKENIZE

LLAMA_TOKENIZE is the program of llama.cpp. Recorded with llama.cpp as in llama-cpp-python 0.3.36.
The tokens of the vocabulary have characters of several words, so that each border of words is seen.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gguf import GGUFWriter
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from hearthd.baker.tokenizer.gguf_vocabulary import SPACED_BPE
from hearthd.baker.tokenizer.word_rules import UNNAMED, WORD_RULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

OUT = Path(__file__).with_name("word_rules.json")
TEXTS = Path(__file__).with_name("encoder_tokenizers.json")
FLAGS = ("--ids", "--no-parse-special", "--no-escape", "--log-disable")
# U+0085 and the separators of lines and paragraphs are spaces to some libraries alone.
_UNCLEAR = "\x85\u2028\u2029"
MORE = (
    "I'LL pay; you'Re, it's, WE'VE, don\u2019t", "12345 67 8 1234567890123", " \n\n\n  x\n \n",
    "CamelCaseWord HTTPServer \xc0\xc9\xce stra\xdfeX", "a/b//c\n/d", "hello\r\n\r\nworld",
    "x = {'a': [1]};\n\tif (a<=b) { return a->b; }\n", "\xbd \xb2 \u2167 \u2463 \u4e00\u4e8c",
    "__init__ snake_case ++i --j != === => $5 `x`", "!!!...???,,,\u2026\u3002\u3001(\u060c)",
    " " * 950 + "x", "x\r\r\ry\r\r\rz\r\r\r.", "\xb6  \n\xb6  \r\xb6  ",
    "\xbd\xbe\xbc\u2153\u2154 \xb2\xb3\xb9\xb2x", "\xa0a\u2003b\u30001", "y\r z \r\n a\n\r\nb",
    "a\tb    c   d  e\t\tf      g",
    "a1b2 3c d4 5e(6)f[7] x-1 $2 .5 ,6 _7 /8/\n//\n.\n\n;\r\n", "!a ?b #Cd @eF \u20acg %h *I\u263a",
    "A b C d e fg H i", "hello hello/hello", "def\n\n    return\n", "x   \n   y \n\n z\t\n",
)  # fmt: skip
# Words that some rules split.
CONTRACTIONS = "'llab 'scd 'tef 'regh 'veij 'mkl 'dno 'LLpq 'Srt 'Reuv 'VEwx 'Dyz".split()
WORDS = (
    "\u4e2d\u6587ab \u30ab\u30cacd \ud55c\uae00ef \u3105\u3106gh ij\u4e2d\u6587 kl\ud55c\uae00 "
    "\uff01\u4e2d \u3002\u30ab <sentinel:12> xIMGIMGABZy"
).split()
# A token that no merges make: a rule decides whether a word that is a token stays whole.
UNMERGED = "hello"


def compared_texts() -> list[str]:
    """Texts in many languages and scripts, code, and runs of spaces, digits and punctuation."""
    found = json.loads(TEXTS.read_text(encoding="utf-8"))["texts"]
    usable = [text for text in found if text and "\0" not in text and "<" not in text]
    more = [*MORE, *_texts_with_borders()]
    return [text for text in (*usable, *more) if not set(text) & set(_UNCLEAR)]


def _texts_with_borders() -> Iterator[str]:
    """The words between characters that differ, so that tokens cross the borders in the words."""
    letters = map(chr, itertools.count(0x430))
    for word in CONTRACTIONS:
        yield "".join(f"{next(letters)}{word}{separator}" for separator in ".,;!")
    for word in WORDS:
        yield "".join(f"{word}{separator}" for separator in ".,;!")


def vocabulary() -> tuple[list[str], list[str]]:
    """3000 tokens, and the merges that make them, which cross the borders of words."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return _trained(library, compared_texts(), alphabet)


def spaced_vocabulary() -> tuple[list[str], list[str]]:
    """As `vocabulary`, of characters, with SentencePiece's space, and a token for each byte."""
    texts = [text.replace(" ", "\u2581") for text in compared_texts()]
    tokens, merges = _trained(Tokenizer(models.BPE()), texts, [])
    return [*tokens, *(f"<0x{byte:02X}>" for byte in range(256))], merges


def _trained(
    library: Tokenizer, texts: list[str], alphabet: list[str]
) -> tuple[list[str], list[str]]:
    """The last texts count twice, so that tokens cross their borders."""
    trainer = trainers.BpeTrainer(vocab_size=3000, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator([*texts, *texts, *texts[-80:] * 2], trainer)
    model = json.loads(library.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return tokens, [" ".join(merge) for merge in model["merges"] if "".join(merge) != UNMERGED]


def write_vocabulary(path: Path, rule: str, tokens: Sequence[str], merges: Sequence[str]) -> None:
    """Write a GGUF file without weights."""
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    if rule != UNNAMED:
        writer.add_tokenizer_pre(rule)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def tokens_of(program: str, vocabulary: Path, text: str, *flags: str) -> list[int]:
    """The ids that llama.cpp gives a text."""
    file = vocabulary.with_name("text")
    file.write_bytes(text.encode())
    command = [program, "-m", str(vocabulary), "-f", str(file), *FLAGS, *flags]
    found: list[int] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def _recorded(
    program: str, rules: Iterable[str], tokens: Sequence[str], merges: Sequence[str]
) -> dict[str, object]:
    """A vocabulary, and the ids by each rule. Rules with the same ids share them."""
    results: list[list[list[int]]] = []
    names: dict[str, int] = {}
    start_with_bos = []
    for rule in rules:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "vocabulary.gguf")
            write_vocabulary(file, rule, tokens, merges)
            ids = [tokens_of(program, file, text, "--no-bos") for text in compared_texts()]
            if len(tokens_of(program, file, "a")) == 2:
                start_with_bos.append(rule)
        if ids not in results:
            results.append(ids)
        names[rule] = results.index(ids)
    return {
        "tokens": tokens, "merges": merges, "rules": names, "ids": results,
        "start_with_bos": start_with_bos,
    }  # fmt: skip


def main(program: str) -> None:
    """Write the file."""
    data = {
        "texts": compared_texts(),
        **_recorded(program, WORD_RULES, *vocabulary()),
        "spaced": _recorded(program, SPACED_BPE, *spaced_vocabulary()),
    }
    OUT.write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

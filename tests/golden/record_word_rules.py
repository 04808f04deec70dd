"""Record the tokens that llama.cpp gives texts by each rule for words that Hearth knows.

    python -m tests.golden.record_word_rules LLAMA_TOKENIZE

LLAMA_TOKENIZE is the program of llama.cpp. Recorded with llama.cpp as in llama-cpp-python 0.3.36.
The tokens of the vocabulary have characters of several words, so that each border of words is seen.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gguf import GGUFWriter
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from hearthd.baker.tokenizer.word_rules import UNNAMED, WORD_RULES

if TYPE_CHECKING:
    from collections.abc import Sequence

OUT = Path(__file__).with_name("word_rules.json")
TEXTS = Path(__file__).with_name("encoder_tokenizers.json")
FLAGS = ("--ids", "--no-bos", "--no-parse-special", "--no-escape", "--log-disable")
# U+0085 and the separators of lines and paragraphs are spaces to some libraries alone.
_UNCLEAR = "\x85\u2028\u2029"
MORE = (
    "I'LL pay; you'Re, it's, WE'VE, don\u2019t", "12345 67 8 1234567890123", " \n\n\n  x\n \n",
    "CamelCaseWord HTTPServer \xc0\xc9\xce stra\xdfeX", "a/b//c\n/d", "hello\r\n\r\nworld",
    "x = {'a': [1]};\n\tif (a<=b) { return a->b; }\n", "\xbd \xb2 \u2167 \u2463 \u4e00\u4e8c",
    "__init__ snake_case ++i --j != === => $5 `x`", "!!!...???,,,\u2026\u3002\u3001(\u060c)",
)  # fmt: skip


def compared_texts() -> list[str]:
    """Texts in many languages and scripts, code, and runs of spaces, digits and punctuation."""
    found = json.loads(TEXTS.read_text(encoding="utf-8"))["texts"]
    usable = [text for text in found if text and "\0" not in text and "<" not in text]
    return [text for text in (*usable, *MORE) if not set(text) & set(_UNCLEAR)]


def vocabulary() -> tuple[list[str], list[str]]:
    """2000 tokens, and the merges that make them, which cross the borders of words."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    library.train_from_iterator([text for text in compared_texts() for _ in range(2)], trainer)
    model = json.loads(library.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return tokens, [" ".join(merge) for merge in model["merges"]]


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


def tokens_of(program: str, vocabulary: Path, text: str) -> list[int]:
    """The ids that llama.cpp gives a text."""
    file = vocabulary.with_name("text")
    file.write_bytes(text.encode())
    command = [program, "-m", str(vocabulary), "-f", str(file), *FLAGS]
    found: list[int] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def main(program: str) -> None:
    """Write the file. Rules with the same ids share them."""
    tokens, merges = vocabulary()
    results: list[list[list[int]]] = []
    names: dict[str, int] = {}
    for rule in WORD_RULES:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "vocabulary.gguf")
            write_vocabulary(file, rule, tokens, merges)
            ids = [tokens_of(program, file, text) for text in compared_texts()]
        if ids not in results:
            results.append(ids)
        names[rule] = results.index(ids)
    data = {
        "tokens": tokens, "merges": merges, "texts": compared_texts(), "rules": names,
        "ids": results,
    }  # fmt: skip
    OUT.write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

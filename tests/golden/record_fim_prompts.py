"""Record vocabularies of Mistral's two forms, and the prompts of mistral-common to fill a gap.

    python -m tests.golden.record_fim_prompts

Needs `mistral-common` with its extra `sentencepiece`.
"""

from __future__ import annotations

import base64
import io
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import sentencepiece
from mistral_common.protocol.fim.request import FIMRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

OUT = Path(__file__).with_name("fim_prompts.json")
CONTROL = (
    "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[IMG]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
)  # fmt: skip
GAPS = (
    ("def add(a, b):\n    ", "return c"), ("a", "  b"), ("x\n", "\n\n\ty"), ("\u00e9\u6f22", "z"),
    ("[PREFIX] a", "[SUFFIX] <s>"), ("", "b"),
)  # fmt: skip
# mistral-common cuts the two tokens of this character off the text after a gap.
_SMILEY = "\u263a".encode()
PATTERN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def sentencepiece_model() -> bytes:
    """tokenizer.model.v3 of 400 tokens."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*Path(__file__).read_text("utf-8").splitlines(), "\u263a"]),
        model_writer=written, vocab_size=400, num_threads=1, minloglevel=2, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        control_symbols=list(CONTROL), allow_whitespace_only_pieces=True, character_coverage=1.0,
    )  # fmt: skip
    return written.getvalue()


def tekken() -> bytes:
    """tekken.json of the bytes, and of some words."""
    words = [bytes([byte]) for byte in range(256)]
    words += [_SMILEY[:2], b"de", b"re", b"ret", b"retu", b"retur", b" a", b" b", b"  ", b"\n\n"]
    special = ("<unk>", "<s>", "</s>", *CONTROL)
    size = len(words) + len(special)
    return json.dumps(
        {
            "config": {
                "pattern": PATTERN, "num_vocab_tokens": len(words), "default_vocab_size": size,
                "default_num_special_tokens": len(special), "version": "v3",
            },
            "vocab": [
                {"rank": rank, "token_bytes": base64.b64encode(word).decode(), "token_str": None}
                for rank, word in enumerate(words)
            ],
            "special_tokens": [
                {"rank": rank, "token_str": name, "is_control": True}
                for rank, name in enumerate(special)
            ],
        }
    ).encode()  # fmt: skip


def cases() -> Iterator[tuple[str, str, bytes]]:
    """For each case the file in a folder of weights, its name in mistral-common, and its bytes."""
    yield "tokenizer.model", "tokenizer.model.v3", sentencepiece_model()
    yield "tekken.json", "tekken.json", tekken()


def main() -> None:
    """Write the files and the ids."""
    recorded = []
    for name, theirs, data in cases():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, theirs)
            path.write_bytes(data)
            tokenizer = MistralTokenizer.from_file(str(path))
            assert (theirs == "tekken.json") == isinstance(
                tokenizer.instruct_tokenizer.tokenizer, Tekkenizer
            )
            prompts = [
                tokenizer.encode_fim(FIMRequest(prompt=before, suffix=after)).tokens
                for before, after in GAPS
            ]
        recorded.append({"file": name, "data": base64.b64encode(data).decode(), "prompts": prompts})
    OUT.write_text(json.dumps({"gaps": GAPS, "cases": recorded}), encoding="utf-8")


if __name__ == "__main__":
    main()

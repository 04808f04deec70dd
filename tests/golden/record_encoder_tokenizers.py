"""Record tiny vocabularies of encoders and what transformers' tokenizers make of texts.

    python -m tests.golden.record_encoder_tokenizers

Needs `transformers` and `sentencepiece`. The texts come from tokenizer_smollm2.json.
"""

from __future__ import annotations

import base64
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import BertWordPieceTokenizer
from transformers import BertTokenizer, XLMRobertaTokenizer

FOLDER = Path(__file__).parent
PAIRS = 12
# Code points in hexadecimal: what they become. White space, full width, a ligature, an ellipsis.
RULES = {"9": "20", "A": "20", "3000": "20", "FF21": "41", "FB01": "66 69", "2026": "2E 2E 2E"}


def texts() -> list[str]:
    """Texts in many languages and scripts."""
    file = json.loads((FOLDER / "tokenizer_smollm2.json").read_text(encoding="utf-8"))
    return [case["text"] for case in file["cases"] if len(case["text"]) < 120][:160]


def results(tokenizer: Any) -> dict[str, Any]:
    """The ids of each text, and the ids and types of pairs of the first ones."""
    pairs = [tokenizer(text, texts()[i + 1]) for i, text in enumerate(texts()[:PAIRS])]
    return {
        "ids": [tokenizer(text)["input_ids"] for text in texts()],
        "pairs": [pair["input_ids"] for pair in pairs],
        "types": [list(pair.get("token_type_ids", [0] * len(pair["input_ids"]))) for pair in pairs],
    }


def bert(*, lowercase: bool, strip_accents: bool | None) -> dict[str, Any]:
    """A WordPiece vocabulary."""
    trained = BertWordPieceTokenizer(lowercase=lowercase, strip_accents=strip_accents)
    trained.train_from_iterator(texts(), vocab_size=420, limit_alphabet=180, show_progress=False)
    vocabulary = trained.get_vocab()
    tokenizer = BertTokenizer(
        vocab=vocabulary, do_lower_case=lowercase, strip_accents=strip_accents
    )
    return {"tokens": sorted(vocabulary, key=vocabulary.__getitem__), **results(tokenizer)}


def xlm_roberta() -> dict[str, Any]:
    """A vocabulary of unigrams, with the special tokens where XLM-RoBERTa has them."""
    written = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        rules.write_text("".join(f"{a}\t{b}\n" for a, b in RULES.items()), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(line for text in texts() for line in text.splitlines() if line),
            model_writer=written, vocab_size=760, character_coverage=0.98, model_type="unigram",
            normalization_rule_tsv=str(rules), num_threads=1, minloglevel=2,
        )  # fmt: skip
    model = sentencepiece_model_pb2.ModelProto.FromString(written.getvalue())
    pieces = [(piece.piece, piece.score) for piece in model.pieces]
    special = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    charsmap = model.normalizer_spec.precompiled_charsmap
    tokenizer = XLMRobertaTokenizer(
        vocab=[*special, *pieces[3:], ("<mask>", 0.0)], _spm_precompiled_charsmap=charsmap
    )
    return {
        "pieces": pieces[3:],
        "charsmap": base64.b64encode(charsmap).decode(),
        **results(tokenizer),
    }


def main() -> None:
    """Write the file."""
    record = {
        "texts": texts(),
        "uncased": bert(lowercase=True, strip_accents=None),
        "cased": bert(lowercase=False, strip_accents=None),
        "accents": bert(lowercase=True, strip_accents=False),
        "xlm-roberta": xlm_roberta(),
    }
    path = FOLDER / "encoder_tokenizers.json"
    path.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

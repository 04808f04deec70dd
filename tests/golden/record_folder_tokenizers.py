"""Record folders without tokenizer.json, and what transformers' tokenizers make of texts.

    python -m tests.golden.record_folder_tokenizers

Needs `transformers` and `sentencepiece`. The texts are those of record_encoder_tokenizers.py, and
texts with the tokens that the folders add.
"""

from __future__ import annotations

import base64
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library
from transformers import GemmaTokenizer, LlamaTokenizer, Qwen2Tokenizer, XLMRobertaTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.integrations.mistral.tokenizer import MistralConverter

from tests.golden.record_encoder_tokenizers import RULES, texts

OUT = Path(__file__).with_name("folder_tokenizers.json")
# Of Mistral NeMo's tekken.json.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ADDED = {"<|im_start|>": 1000, "<|im_end|>": 1001, "<tool>": 1002}
TALKS = (
    "<|im_start|>user\nWhat is  this?<|im_end|>\n<|im_start|> assistant\n",
    "<s>x</s> y<tool>  z </tool>", " two  spaces", "", " ", "<|im_end|>", "\t\n \n\n a",
)  # fmt: skip


def sentencepiece_model(**options: Any) -> bytes:
    """A vocabulary of 1000 tokens."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in texts() for line in text.splitlines() if line),
        model_writer=written, vocab_size=1000, character_coverage=0.98, num_threads=1,
        minloglevel=2,
        **{"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity",
           "remove_extra_whitespaces": False, "split_digits": True, **options},
    )  # fmt: skip
    return written.getvalue()


def unigrams(**options: Any) -> bytes:
    """A vocabulary of at most 1000 unigrams."""
    return sentencepiece_model(model_type="unigram", hard_vocab_limit=False, **options)


def qwen_files() -> dict[str, bytes]:
    """vocab.json and merges.txt of 700 tokens."""
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    library = Library(models.BPE())
    library.normalizer = normalizers.NFC()
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    library.train_from_iterator(
        texts(),
        trainers.BpeTrainer(
            vocab_size=700,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    with tempfile.TemporaryDirectory() as folder:
        library.model.save(folder)
        return {name: Path(folder, name).read_bytes() for name in ("vocab.json", "merges.txt")}


def tekken_file() -> bytes:
    """tekken.json of 700 tokens, 8 of them special, and of more that are not used."""
    files = qwen_files()
    bytes_of = {character: byte for byte, character in bytes_to_unicode().items()}
    vocabulary = json.loads(files["vocab.json"])
    special = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<tool>")
    entries = [
        {"rank": rank, "token_bytes": base64.b64encode(bytes(bytes_of[c] for c in name)).decode()}
        for rank, name in enumerate(sorted(vocabulary, key=vocabulary.__getitem__))
    ]
    data = {
        "config": {
            "pattern": PATTERN, "default_vocab_size": 700, "default_num_special_tokens": 8,
        },
        "vocab": entries,
        "special_tokens": [
            {"rank": rank, "token_str": name, "is_control": True}
            for rank, name in enumerate(special)
        ],
    }  # fmt: skip
    return json.dumps(data).encode()


def cases() -> dict[str, tuple[Any, dict[str, bytes], dict[str, Any]]]:
    """For each case the tokenizer of transformers, files, and tokenizer_config.json."""
    prefixed, bare = sentencepiece_model(), sentencepiece_model(add_dummy_prefix=False)
    symbols = sentencepiece_model(user_defined_symbols=["<mask>", "def", "\n\n", "\u2581\u2581"])
    decoder = {
        str(id_): {"content": name, "special": name != "<tool>", "normalized": False}
        for name, id_ in {"<unk>": 0, "<s>": 1, "</s>": 2, **ADDED}.items()
    }
    older = {
        "added_tokens.json": json.dumps(ADDED).encode(),
        "special_tokens_map.json": json.dumps(
            {"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}
        ).encode(),
    }
    adds_bos = {"add_bos_token": True}
    gemma = {
        **adds_bos,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<unk>",
        "mask_token": "<unk>",
    }
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as rules:
        rules.writelines(f"{before}\t{after}\n" for before, after in RULES.items())
        rules.flush()
        changed = unigrams(
            byte_fallback=False, remove_extra_whitespaces=True, normalization_rule_name="",
            normalization_rule_tsv=rules.name,
        )  # fmt: skip
    qwen = {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|im_end|>",
            "unk_token": "<|im_end|>"}  # fmt: skip
    return {
        "llama": (LlamaTokenizer, {"tokenizer.model": prefixed}, adds_bos),
        "llama legacy": (
            LlamaTokenizer,
            {"tokenizer.model": prefixed},
            {**adds_bos, "legacy": True},
        ),
        "llama added": (
            LlamaTokenizer,
            {"tokenizer.model": prefixed},
            {"added_tokens_decoder": decoder, "add_bos_token": False},
        ),
        "llama older": (LlamaTokenizer, {"tokenizer.model": prefixed, **older}, adds_bos),
        "llama symbols": (LlamaTokenizer, {"tokenizer.model": symbols}, adds_bos),
        "gemma": (GemmaTokenizer, {"tokenizer.model": bare}, gemma),
        "xlm-roberta": (XLMRobertaTokenizer, {"sentencepiece.bpe.model": changed}, {}),
        "qwen": (Qwen2Tokenizer, qwen_files(), {**qwen, "added_tokens_decoder": decoder_from(700)}),
    }


def decoder_from(first: int) -> dict[str, Any]:
    """Added tokens, which have the ids from `first` on, after the vocabulary's."""
    return {
        str(first + i): {"content": name, "special": name != "<tool>", "normalized": False}
        for i, name in enumerate(ADDED)
    }


def main() -> None:
    """Write the files and the ids of each case."""
    recorded: dict[str, Any] = {"talks": TALKS}
    for name, (kind, files, config) in cases().items():
        config = {**config, "tokenizer_class": kind.__name__}
        files = {**files, "tokenizer_config.json": json.dumps(config).encode()}
        with tempfile.TemporaryDirectory() as folder:
            for file, data in files.items():
                Path(folder, file).write_bytes(data)
            tokenizer = kind.from_pretrained(folder)
        recorded[name] = {
            "files": {file: base64.b64encode(data).decode() for file, data in files.items()},
            "ids": [tokenizer(text)["input_ids"] for text in (*texts(), *TALKS)],
        }
    # transformers 5 reads the unigrams of a LlamaTokenizer as BPE.
    model = unigrams(user_defined_symbols=["<tool>"])
    reads = sentencepiece.SentencePieceProcessor(model_proto=model)
    config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}
    recorded["unigrams"] = {
        "files": {
            "tokenizer.model": base64.b64encode(model).decode(),
            "tokenizer_config.json": base64.b64encode(json.dumps(config).encode()).decode(),
        },
        "ids": [[1, *reads.encode(text)] for text in (*texts(), *TALKS)],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tekken.json")
        path.write_bytes(tekken_file())
        converted = MistralConverter(str(path)).converted()
        recorded["tekken"] = {
            "files": {"tekken.json": base64.b64encode(path.read_bytes()).decode()},
            # Mistral's own tokenizer.json puts <s> in front.
            "ids": [[1, *converted.encode(text).ids] for text in (*texts(), *TALKS)],
        }
    OUT.write_text(json.dumps(recorded), encoding="utf-8")


if __name__ == "__main__":
    main()

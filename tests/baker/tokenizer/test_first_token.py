"""The token in front of a prompt, beside what transformers 5.24 gives for the same folders.

Recorded with AutoTokenizer.from_pretrained, with tokenizer_class LlamaTokenizerFast,
PreTrainedTokenizerFast, Qwen2Tokenizer, GPT2TokenizerFast and none, which all give the same:
neither bos_token_id nor add_bos_token adds a token, only tokenizer.json's post-processor does.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import processors

from hearthd.baker.tokenizer.tokenizer_files import answer_tokenizer, read_tokenizer, special_tokens
from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.baker.weights.source import TokenizerError
from hearthd.bundle import SpecialTokens
from hearthd.bundle.lora.adapter_settings import BadAdapter, parse_settings
from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.config_json import ConfigJson
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer
from tests.server import fakes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAMES = {"<bos>": fakes.BOS, "<eos>": fakes.EOS}


def template(single: str) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(
        single=single, pair=f"{single} $B", special_tokens=list(NAMES.items())
    )


_BYTES = processors.ByteLevel(trim_offsets=False)
# The post-processor, and the tokens that transformers puts in front of "the".
FORMS: dict[str, tuple[Any, list[str]]] = {
    "none": (None, []),
    "template": (template("<bos> $A"), ["<bos>"]),
    "template with an end": (template("<bos> $A <eos>"), ["<bos>"]),
    "template of an end": (template("$A <eos>"), []),
    "bytes": (_BYTES, []),
    "sequence": (processors.Sequence([_BYTES, template("<bos> $A")]), ["<bos>"]),
}
CHAT = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
# A number that transformers writes where it knows no length.
UNKNOWN_LENGTH = 1000000000000000019884624838656


def folder(path: Path, form: str, **config: Any) -> SafetensorsSource:
    library = fakes.gemma_like()
    post_processor, _ = FORMS[form]
    if post_processor is not None:
        library.post_processor = post_processor
    files = {
        "tokenizer_config": {"bos_token": "<bos>", "eos_token": "<eos>"} | config,
        "config": {"bos_token_id": fakes.BOS, "eos_token_id": fakes.EOS},
    }
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    (path / "tokenizer.json").write_text(library.to_str())
    save_file({"a": np.ones(1, np.float32)}, path / "model.safetensors")
    return SafetensorsSource(path)


@pytest.mark.parametrize("add_bos_token", [None, True, False])
@pytest.mark.parametrize("form", FORMS)
def test_only_the_post_processor_adds_a_token(
    tmp_path: Path, form: str, add_bos_token: bool | None
) -> None:
    source = folder(tmp_path, form, add_bos_token=add_bos_token)
    tokenizer = Tokenizer(answer_tokenizer(source), bos=special_tokens(source).bos)
    names: Sequence[str] = [tokenizer.name(token) for token in tokenizer.encode("the")]
    assert names == [*FORMS[form][1], "the"]


@pytest.mark.parametrize("form", FORMS)
def test_a_chat_template_writes_the_first_token_once(tmp_path: Path, form: str) -> None:
    source = folder(tmp_path, form, chat_template=CHAT)
    read = read_tokenizer(source, vocab_size=1000)
    first = bool(FORMS[form][1])
    assert read.special == SpecialTokens(
        bos=fakes.BOS if first else None,
        eos=(fakes.EOS,),
        template_bos=None if first else fakes.BOS,
    )
    tokenizer = Tokenizer(read.tokenizer, bos=read.special.bos)
    chat = ChatTemplate(CHAT, tokenizer, eos=fakes.EOS, bos=read.special.template_bos)
    for message in ("the", "<bos>the"):  # the name in a message is plain text
        ids = chat.prompt([{"role": "user", "content": message}]).ids
        assert ids[0] == fakes.BOS
        assert ids.count(fakes.BOS) == 1


def test_several_tokens_in_front_of_a_text_are_refused(tmp_path: Path) -> None:
    source = folder(tmp_path, "none")
    library = fakes.gemma_like()
    library.post_processor = template("<bos> <eos> $A")
    (tmp_path / "tokenizer.json").write_text(library.to_str())
    with pytest.raises(TokenizerError, match=r"puts the tokens \[2, 1\] in front of a text"):
        special_tokens(source)


@pytest.mark.parametrize("value", [UNKNOWN_LENGTH, float("nan"), float("inf"), [], {}, "x", True])
def test_a_field_that_is_not_used_decides_nothing(tmp_path: Path, value: Any) -> None:
    source = folder(tmp_path, "template", model_max_length=value, clean_up=value, add_eos=value)
    expected = special_tokens(source)
    for name in ("generation_config", "special_tokens_map", "config"):
        content = {"eos_token_id": fakes.EOS, "bos_token_id": value, "temperature": value}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    assert special_tokens(SafetensorsSource(tmp_path)) == expected
    settings = {"r": 4, "lora_alpha": 8, "revision": value, "megatron_core": value}
    assert parse_settings(json.dumps(settings).encode(), "adapter_config.json").rank == 4


@pytest.mark.parametrize("value", ["NaN", "1e999", str(UNKNOWN_LENGTH), "-Infinity"])
def test_a_field_that_is_used_names_its_number(tmp_path: Path, value: str) -> None:
    (tmp_path / "config.json").write_text(f'{{"hidden_size": {value}}}')
    save_file({"a": np.ones(1, np.float32)}, tmp_path / "model.safetensors")
    config = ConfigJson(SafetensorsSource(tmp_path).metadata())
    for read in (config.size, config.number):
        with pytest.raises(ConfigError, match=f"hidden_size: expected .*, got {value}"):
            read("hidden_size")
    with pytest.raises(BadAdapter, match=f"lora_alpha: got {value}, expected a number"):
        parse_settings(f'{{"r": 4, "lora_alpha": {value}}}'.encode(), "adapter_config.json")

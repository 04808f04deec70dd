"""Files of Ollama's converter hold the same model as files of llama.cpp's.

The differences are those that Ollama's convert/ and llama/compat/ have.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from jinja2 import Environment
from typing_extensions import override

from hearthd.baker.weights.gguf_scales import open_gguf
from hearthd.baker.weights.ollama_gguf import as_llama_cpp_writes
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.source import BadFile, WeightSource
from hearthd.baker.weights.source_in_front import SourceInFront
from tests.models.families import ours
from tests.models.families.cases import CASES
from tests.models.families.family_recording import recorded, write_folder
from tests.models.families.gguf_files import write_gguf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

TOKENS = "tokenizer.ggml.tokens"
VISION = {"vision.block_count": 2, "image_token_id": 7, "vision_start_token_id": 8}


class Renamed(SourceInFront):
    """A file with other keys and names, and tensors of zeros that are not in the base."""

    def __init__(
        self, base: WeightSource, keys: Mapping[str, Any], names: Mapping[str, str], more: list[str]
    ) -> None:
        super().__init__(base)
        self._keys, self._names, self._more = keys, names, more

    @override
    def metadata(self) -> Mapping[str, object]:
        return self._keys

    @override
    def names(self) -> tuple[str, ...]:
        return (*self._names, *self._more)

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        return (3,) if name in self._more else self._base.shape(self._names[name])

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        return self._base.blocks(self._names[name])


def gemma3(keys: dict[str, Any]) -> None:
    del keys["gemma3.attention.layer_norm_rms_epsilon"]
    keys["gemma3.rope.global.freq_base"] = keys.pop("gemma3.rope.freq_base")
    keys["gemma3.rope.local.freq_base"] = keys.pop("gemma3.rope.freq_base_swa")
    keys["gemma3.mm.tokens_per_image"] = 256


def gpt_oss(keys: dict[str, Any]) -> None:
    del keys["gpt-oss.expert_feed_forward_length"]
    renamed = {key.replace("gpt-oss.", "gptoss."): value for key, value in keys.items()}
    keys.clear()
    keys |= {**renamed, "general.architecture": "gptoss"}


def lfm2(keys: dict[str, Any]) -> None:
    keys["lfm2.feed_forward_length"] *= 2


def mistral3(keys: dict[str, Any]) -> None:
    for key, other in {
        "rope.scaling.yarn_beta_fast": "rope.scaling.beta_fast",
        "rope.scaling.yarn_beta_slow": "rope.scaling.beta_slow",
        "rope.scaling.yarn_log_multiplier": "rope.scaling.mscale_all_dim",
        "attention.temperature_scale": "rope.scaling_beta",
    }.items():
        if f"mistral3.{key}" in keys:
            keys[f"mistral3.{other}"] = keys.pop(f"mistral3.{key}")
    keys["mistral3.image_token_index"] = 10


def olmo3(keys: dict[str, Any]) -> None:
    renamed = {key.replace("olmo2.", "olmo3."): value for key, value in keys.items()}
    keys.clear()
    keys |= {**renamed, "general.architecture": "olmo3"}


def qwen35(keys: dict[str, Any]) -> None:
    heads = keys["qwen35.attention.head_count_kv"]
    keys["qwen35.attention.head_count_kv"] = [0, 0, heads, 0]
    keys["qwen35.rope.mrope_section"] = keys["qwen35.mrope_sections"] = [11, 11, 10]
    keys["qwen35.rope.mrope_interleaved"] = keys["qwen35.ssm.v_head_reordered"] = True
    keys |= {f"qwen35.{key}": value for key, value in VISION.items()}


# By case: what the keys have otherwise, parts of names as in llama.cpp and in Ollama, and tensors
# that the text model does not have.
FILES: Mapping[str, tuple[Callable[[dict[str, Any]], None], dict[str, str], list[str]]] = {
    "gemma3-gemma3": (gemma3, {}, ["v.blk.0.attn_k.weight", "mm.mm_input_projection.weight"]),
    "gemma4-gemma4": (lambda _: None, {}, ["a.blk.0.ffn.weight", "model.vision_tower.x.weight"]),
    "gemma4-moe-experts": (
        lambda _: None,
        {".ffn_down_exps.scale": ".ffn_gate_inp.per_expert_scale"},
        [],
    ),
    "gpt-oss-yarn": (
        gpt_oss,
        {
            ".attn_output.": ".attn_out.",
            ".attn_sinks.weight": ".attn_sinks",
            ".post_attention_norm.": ".ffn_norm.",
        },
        [],
    ),
    "lfm2-lfm2": (lfm2, {"token_embd_norm.weight": "output_norm.weight"}, []),
    "mistral3-mistral3": (mistral3, {}, ["v.blk.0.attn_k.weight"]),
    "olmo2-olmo3": (olmo3, {}, []),
    "qwen35-qwen35": (
        qwen35,
        {".ssm_dt.bias": ".ssm_dt"},
        ["v.blk.0.attn_qkv.weight", "mtp.fc.weight"],
    ),
}


def files(name: str, folder: Path) -> tuple[WeightSource, WeightSource]:
    """A case's file as llama.cpp's converter writes it, and as Ollama's."""
    write_folder(recorded(name), folder)
    architecture = CASES[name].architecture
    config: Any = ours.config_of(open_weights(folder), architecture)
    file = open_gguf(write_gguf(folder, architecture, config))
    change, parts, more = FILES[name]
    keys = dict(file.metadata())
    change(keys)
    names = {}
    for tensor in file.names():
        renamed = tensor
        for part, other in parts.items():
            renamed = renamed.replace(part, other)
        names[renamed] = tensor
    return file, Renamed(file, keys, names, more)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_ollama_holds_the_model_of_a_file_of_llamacpp(name: str, tmp_path: Path) -> None:
    architecture = CASES[name].architecture
    file, theirs = files(name, tmp_path)
    source = as_llama_cpp_writes(theirs)
    assert source is not theirs
    assert sorted(source.names()) == sorted(file.names())
    config: Any = ours.config_of(file, architecture)
    same: Any = ours.config_of(source, architecture)
    expected = asdict(config)
    if name == "gemma3-gemma3":
        expected["norm_eps"] = 1e-6  # what these files leave out
    assert asdict(same) == pytest.approx(expected)
    for tensor in file.names():
        assert source.shape(tensor) == file.shape(tensor)
        assert np.array_equal(source.read(tensor), file.read(tensor))
    assert as_llama_cpp_writes(file) is file


class Keys(WeightSource):
    """A file with a table of embeddings for three tokens, and other tensors of this shape."""

    format = "gguf"
    folder = None

    def __init__(self, keys: Mapping[str, object], *names: str) -> None:
        self._keys, self._names = keys, ("token_embd.weight", *names)

    @override
    def metadata(self) -> Mapping[str, object]:
        return self._keys

    @override
    def names(self) -> tuple[str, ...]:
        return self._names

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        return (3, 5)

    @override
    def dtype(self, name: str) -> str:
        raise NotImplementedError

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        raise NotImplementedError

    @override
    def files(self) -> tuple[Path, ...]:
        raise NotImplementedError

    @override
    def require_unchanged(self) -> None:
        raise NotImplementedError


def translated(architecture: str, keys: Mapping[str, object], *names: str) -> Mapping[str, object]:
    return as_llama_cpp_writes(
        Keys({"general.architecture": architecture, **keys}, *names)
    ).metadata()


def test_a_vocabulary_has_no_more_tokens_than_the_table_has_rows() -> None:
    keys = {TOKENS: list("abcde"), "tokenizer.ggml.scores": [0.0] * 5, "gemma3.mm.x": 1}
    read = translated("gemma3", keys, "v.x.weight")
    assert read[TOKENS] == ["a", "b", "c"]
    assert read["tokenizer.ggml.scores"] == [0.0] * 3


@pytest.mark.parametrize(("context", "factor"), [(131_072, 8.0), (32_768, None)])
def test_gemma_3_with_a_long_context_is_scaled(context: int, factor: float | None) -> None:
    read = translated("gemma3", {"gemma3.context_length": context}, "v.x.weight")
    assert read.get("gemma3.rope.scaling.factor") == factor
    assert read["gemma3.attention.layer_norm_rms_epsilon"] == 1e-6


def test_gemma_3_has_a_template_for_its_turns() -> None:
    template = str(translated("gemma3", {}, "v.x.weight")["tokenizer.chat_template"])
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " Hi "},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Bye"},
    ]
    rendered = Environment(autoescape=False).from_string(template)
    prompt = rendered.render(messages=messages, bos_token="<bos>", add_generation_prompt=True)
    assert prompt == (
        "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello"
        "<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    )


def test_a_file_of_llamacpp_without_a_template_gets_none() -> None:
    assert "tokenizer.chat_template" not in translated("gemma3", {"gemma3.context_length": 131_072})


def test_the_tokenizers_of_gemma_4_and_mistral_are_named() -> None:
    model, pre = "tokenizer.ggml.model", "tokenizer.ggml.pre"
    assert translated("gemma4", {model: "llama"}, "v.x.weight")[model] == "gemma4"
    assert translated("mistral3", {pre: "default"}, "v.x.weight")[pre] == "tekken"


def test_embeddinggemma_is_known_by_its_dense_layers() -> None:
    keys = {"gemma3.attention.causal": False, "gemma3.block_count": 24}
    source = as_llama_cpp_writes(
        Keys(
            {"general.architecture": "gemma3", **keys},
            "dense.0.weight",
            "dense.1.weight",
            "norm.weight",
        )
    )
    assert source.names()[1:] == ("dense_2.weight", "dense_3.weight", "output_norm.weight")
    read = source.metadata()
    assert read["general.architecture"] == "gemma-embedding"
    assert (read["gemma-embedding.dense_2_feat_in"], read["gemma-embedding.dense_2_feat_out"]) == (
        5,
        3,
    )
    assert "gemma-embedding.attention.causal" not in read
    assert "tokenizer.chat_template" not in read


def test_heads_in_another_order_are_refused() -> None:
    keys = {"qwen35.ssm.v_head_reordered": False}
    with pytest.raises(BadFile, match="v_head_reordered is False, supported is True; pull"):
        translated("qwen35", keys)

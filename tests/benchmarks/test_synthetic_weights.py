"""Random weights in the shape of a published model: the file, its values, and errors."""

from __future__ import annotations

import math
import os
import tracemalloc
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

from benchmarks.engines.gguf_bytes import unread_bytes
from benchmarks.synthetic_shapes import SIZES, architecture_of, tables_of, tensors_of
from benchmarks.synthetic_weights import (
    final_norm_of,
    main,
    read_vocabulary,
    with_layers,
    write_header,
    write_tensors,
)
from hearthd.baker.adapters.drafted_weights import with_mtp
from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.source import BLOCK_BYTES
from hearthd.models.catalog import ARCHITECTURES, ASSISTANTS
from hearthd.models.decoder.config.decoder_config import every_nth_layer_sees_all
from hearthd.models.decoder.experts import ExpertsConfig
from hearthd.models.families import gemma4moe
from hearthd.models.families.gemma3 import Config
from hearthd.runtime.interface import LOGIT_MARGIN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TOKENS = 700
TINY = Config(
    layers=7, hidden=256, ffn=96, heads=2, kv_heads=1, head_dim=32, max_context=64,
    vocab_size=1000, query_scale=32**-0.5, windows=every_nth_layer_sees_all(6, 7, 16),
)  # fmt: skip
NARROW = replace(TINY, hidden=96)  # no multiple of the 256 columns of a block of Q6_K


@pytest.fixture(autouse=True)
def tiny_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that are written in no time."""
    monkeypatch.setattr("benchmarks.synthetic_weights.SIZES", {"tiny": TINY, "narrow": NARROW})


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    return write_vocabulary(tmp_path / "vocabulary.gguf")


def write_vocabulary(path: Path, *, architecture: str = "gemma3", tokens: int = TOKENS) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(8)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"token {i}é" for i in range(tokens)])
    writer.add_token_scores([-0.5 * i for i in range(tokens)])
    writer.add_token_types([1 + i % 6 for i in range(tokens)])
    writer.add_bos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template("{{ messages }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return path


def write(
    vocabulary: Path, name: str = "tiny", *, seed: int = 0, options: Sequence[str] = ()
) -> Path:
    out = vocabulary.with_name(f"{name}-{seed}.gguf")
    main([str(vocabulary), name, str(out), "--seed", str(seed), *options])
    return out


def config_of(path: Path, architecture: str = "gemma3") -> Any:
    """The configuration that is read of a file; its numbers are f32."""
    source = GgufSource(path)
    shapes = {name: source.shape(name) for name in source.names()}
    known = {**ARCHITECTURES, **ASSISTANTS}
    config = known[architecture].from_gguf(dict(source.metadata()), shapes, source.read)
    return with_f32(config)


def with_f32(config: Any) -> Any:
    """A configuration with its numbers rounded, as files have them."""
    floats = {
        field.name: float(np.float32(value))
        for field in fields(config)
        if isinstance(value := getattr(config, field.name), float)
    }
    return replace(config, **floats)


@pytest.mark.parametrize(
    ("name", "config", "table"), [("tiny", TINY, "Q6_K"), ("narrow", NARROW, "Q8_0")]
)
def test_both_readers_find_the_shapes_and_types(
    vocabulary: Path, name: str, config: Config, table: str
) -> None:
    out = write(vocabulary, name)
    hidden = config.hidden
    layer = {
        "attn_q": (64, hidden), "attn_k": (32, hidden), "attn_v": (32, hidden),
        "attn_output": (hidden, 64), "ffn_gate": (96, hidden), "ffn_up": (96, hidden),
        "ffn_down": (hidden, 96), "attn_norm": (hidden,), "attn_q_norm": (32,),
        "attn_k_norm": (32,), "post_attention_norm": (hidden,), "ffn_norm": (hidden,),
        "post_ffw_norm": (hidden,),
    }  # fmt: skip
    expected = {
        f"blk.{i}.{part}.weight": (shape, "F32" if part.endswith("norm") else "Q4_0")
        for i in range(config.layers)
        for part, shape in layer.items()
    }
    expected["token_embd.weight"] = (TOKENS, hidden), table
    expected["output_norm.weight"] = (hidden,), "F32"

    read = gguf.GGUFReader(out).tensors
    found = {t.name: (tuple(map(int, t.shape))[::-1], t.tensor_type.name) for t in read}
    assert found == expected
    source = GgufSource(out)
    assert {
        name: (source.shape(name), source.dtype(name).replace("f32", "F32"))
        for name in source.names()
    } == expected
    for tensor in read:
        np.testing.assert_array_equal(
            source.read(tensor.name), gguf.dequantize(tensor.data, tensor.tensor_type)
        )


def test_a_file_is_read_as_the_configuration_that_was_asked_for(vocabulary: Path) -> None:
    assert config_of(write(vocabulary)) == with_f32(replace(TINY, vocab_size=TOKENS))


@pytest.mark.parametrize("size", SIZES)
def test_the_header_of_a_published_size_is_read_as_its_configuration(
    vocabulary: Path, size: str
) -> None:
    config = replace(SIZES[size], vocab_size=TOKENS)
    out = vocabulary.with_name(f"{size}.gguf")
    write_header(out, config, read_vocabulary(vocabulary), size)
    with out.open("ab") as file:
        file.write(bytes(-file.tell() % gguf.GGUF_DEFAULT_ALIGNMENT))
        for values in tables_of(config).values():
            file.write(np.array(values, "<f4").data)
    # The other data are a hole in the file.
    padded = sum(tensor.stored_bytes + 31 for tensor in tensors_of(config))
    os.truncate(out, out.stat().st_size + 31 + padded)
    architecture = architecture_of(config)
    found = with_mtp(GgufSource(out), architecture, config_of(out, architecture.name))
    assert found == with_f32(config)


def test_the_assistant_has_the_parameters_of_the_published_file() -> None:
    header, file = 5368, 839_427_840  # bytes of model.safetensors of the 26B-A4B's, in bf16
    config = SIZES["gemma4-26b-a4b-assistant"]
    tables = tables_of(config)
    tensors = [tensor for tensor in tensors_of(config) if tensor.name not in tables]
    assert header + 2 * sum(math.prod(tensor.shape) for tensor in tensors) == file


def test_fewer_layers_of_experts_and_a_smaller_vocabulary(
    vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = SIZES["qwen3-30b-a3b"]
    assert isinstance(large, ExpertsConfig)
    few = replace(
        large,
        hidden=256,
        vocab_size=90,
        experts=5,
        experts_per_token=2,
        expert_ffn=32,
        ffn=96,
    )
    monkeypatch.setattr("benchmarks.synthetic_weights.SIZES", {"few": few})
    out = write(vocabulary, "few", options=["--layers", "2"])
    source = GgufSource(out)
    assert source.shape("blk.1.ffn_down_exps.weight") == (5, 256, 32)
    assert config_of(out, "qwen3moe") == with_f32(with_layers(few, 2))
    tokens: Any = source.metadata()["tokenizer.ggml.tokens"]
    assert len(tokens) == 90
    matrices = 2 * 3 * 5 * 32 * 256 * 18 // 32  # of two layers, in Q4_0
    assert unread_bytes(out) == matrices * 3 // 5 + 90 * 256 * 210 // 256  # and a table in Q6_K
    router = source.read("blk.0.ffn_gate_inp.weight")
    assert abs(np.std(router) * 16 - 1) < 0.1
    # Embeddings are as large as what layers add, so that tokens have different experts.
    assert abs(np.std(source.read("token_embd.weight")) - 1) < 0.04
    assert abs(np.std(source.read("output.weight")) * 16 - 1) < 0.04


def test_the_vocabulary_and_its_types_are_copied(vocabulary: Path) -> None:
    def keys(path: Path) -> dict[str, Any]:
        fields_read = gguf.GGUFReader(path).fields.values()
        return {
            field.name: (field.types, field.contents())
            for field in fields_read
            if field.name.startswith("tokenizer.")
        }

    copied = keys(write(vocabulary))
    assert copied == keys(vocabulary)
    assert "tokenizer.chat_template" in copied


def test_the_same_seed_gives_the_same_bytes(vocabulary: Path) -> None:
    first = write(vocabulary).read_bytes()
    assert write(vocabulary).read_bytes() == first
    other = write(vocabulary, seed=1).read_bytes()
    assert len(other) == len(first)
    assert other != first


@pytest.mark.parametrize(
    ("size", "name"),
    [
        ("tiny", "token_embd.weight"),
        ("narrow", "token_embd.weight"),
        ("tiny", "blk.6.attn_q.weight"),
        ("narrow", "blk.0.ffn_down.weight"),
    ],
    ids=["Q6_K", "Q8_0", "Q4_0", "Q4_0 of 96 columns"],
)
def test_values_have_a_deviation_by_the_columns_and_no_mean(
    vocabulary: Path, size: str, name: str
) -> None:
    values = GgufSource(write(vocabulary, size)).read(name)
    scaled = values * np.sqrt(values.shape[1])
    assert abs(np.std(scaled) - 1) < 0.04
    assert abs(np.mean(scaled)) < 0.05


def test_scales_differ_and_half_of_those_of_q4_0_are_negative(vocabulary: Path) -> None:
    source = GgufSource(write(vocabulary))
    (block,) = source.integer_blocks("blk.0.ffn_gate.weight")
    sizes = np.abs(block.scale)
    assert 2.8 < sizes.max() / sizes.min() < 3.01
    assert 0.4 < np.mean(block.scale < 0) < 0.6
    assert set(np.unique(block.integers)) == set(range(16))


def test_q8_0_has_no_integer_that_llama_cpp_never_writes(vocabulary: Path) -> None:
    (block,) = GgufSource(write(vocabulary, "narrow")).integer_blocks("token_embd.weight")
    assert (block.integers.min(), block.integers.max()) == (-127, 127)


def test_norms_are_near_one_and_the_final_one_near_its_option(vocabulary: Path) -> None:
    for options, mean in (([], 4.5), (["--final-norm", "1"], 1)):
        source = GgufSource(write(vocabulary, options=options))
        for name, middle in (("output_norm.weight", mean), ("blk.0.ffn_norm.weight", 1)):
            norm = source.read(name) / np.float32(middle)
            assert (np.abs(norm - 1) <= 0.1001).all()
            assert len(np.unique(norm)) > 200


def test_gemma_4_scales_embeddings_and_turns_a_quarter_of_the_columns(
    vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = SIZES["gemma4-26b-a4b"]
    assert isinstance(large, gemma4moe.Config)
    few = replace(large, hidden=256, experts=9, expert_ffn=32, ffn=96, ffns=(96,) * 30)
    monkeypatch.setattr("benchmarks.synthetic_weights.SIZES", {"few": few})
    out = write(vocabulary, "few", options=["--layers", "6"])
    assert config_of(out, "gemma4-moe") == with_f32(replace(with_layers(few, 6), vocab_size=TOKENS))
    source = GgufSource(out)
    divisors = source.read("rope_freqs.weight")
    np.testing.assert_array_equal(divisors, np.repeat(np.array([1, 1e30], np.float32), (64, 192)))
    assert abs(np.std(source.read("token_embd.weight")) * 16 - 1) < 0.04
    assert abs(source.read("output_norm.weight").mean() / 4.5 - 1) < 0.02


def test_the_final_norm_of_lfm2_has_another_name(
    vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With weights near 1, its logits had a deviation of 45 in place of 4.5."""
    large = with_layers(SIZES["lfm2-8b-a1b"], 3)
    assert isinstance(large, ExpertsConfig)
    few = replace(large, hidden=256, ffn=96, experts=5, expert_ffn=32)
    monkeypatch.setattr("benchmarks.synthetic_weights.SIZES", {"few": few})
    norm = GgufSource(write(vocabulary, "few")).read("token_embd_norm.weight")
    assert abs(norm.mean() / (4.5 / 16) - 1) < 0.02


def test_memory_does_not_grow_with_a_tensor(tmp_path: Path) -> None:
    config = replace(TINY, layers=1, windows=(16,), vocab_size=1 << 17)  # a table of 27 MB
    tracemalloc.start()
    with (tmp_path / "data").open("wb") as file:
        write_tensors(file, config, np.random.default_rng(0), lambda _: None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "data").stat().st_size > 27e6
    assert peak < BLOCK_BYTES


def test_the_bytes_of_all_tensors_are_reported(tmp_path: Path) -> None:
    reported: list[int] = []
    with (tmp_path / "data").open("wb") as file:
        write_tensors(file, TINY, np.random.default_rng(0), reported.append)
    assert sum(reported) == sum(tensor.stored_bytes for tensor in tensors_of(TINY))


def test_the_experts_of_gpt_oss_are_mxfp4(
    vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = SIZES["gpt-oss-20b"]
    assert isinstance(large, ExpertsConfig)
    few = replace(large, hidden=96, vocab_size=90, experts=5, expert_ffn=64, ffn=64)
    monkeypatch.setattr("benchmarks.synthetic_weights.SIZES", {"few": few})
    out = write(vocabulary, "few", options=["--layers", "2"])
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(out).tensors}
    down = tensors["blk.1.ffn_down_exps.weight"]
    assert down.tensor_type.name == "MXFP4"
    values = gguf.dequantize(down.data, down.tensor_type)
    assert abs(np.std(values) * 64**0.5 - 1) < 0.45  # scales are powers of two
    assert abs(np.mean(values) * 64**0.5) < 0.05
    assert tensors["blk.1.attn_q.weight"].tensor_type.name == "Q8_0"
    assert [*tensors["blk.0.ffn_up_exps.bias"].shape] == [64, 5]


def test_an_interrupted_write_keeps_the_old_file(
    vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    before = write(vocabulary).read_bytes()
    monkeypatch.setattr("benchmarks.synthetic_weights.write_tensors", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(vocabulary)
    assert vocabulary.with_name("tiny-0.gguf").read_bytes() == before
    assert sorted(path.name for path in vocabulary.parent.iterdir()) == [
        "tiny-0.gguf",
        "vocabulary.gguf",
    ]


def test_wrong_files_are_rejected_by_name(tmp_path: Path, vocabulary: Path) -> None:
    llama = write_vocabulary(tmp_path / "llama.gguf", architecture="llama")
    no_tokens = write_vocabulary(tmp_path / "empty.gguf", tokens=0)
    text = tmp_path / "text.gguf"
    text.write_text("no weights")
    cases = {
        (llama, "out.gguf"): r"llama.gguf: got the architecture 'llama' with a vocab.* 'gemma3'",
        (no_tokens, "out.gguf"): r"empty.gguf: got the architecture 'gemma3' without a vocabulary",
        (text, "out.gguf"): r"text.gguf is not a GGUF file",
        (vocabulary, vocabulary.name): r"vocabulary.gguf: got the file of the vocabulary",
        (vocabulary, "missing/out.gguf"): r"No such file or directory: .*missing",
    }
    before = vocabulary.read_bytes()
    for (given, out), message in cases.items():
        with pytest.raises(SystemExit, match=message):
            main([str(given), "tiny", str(tmp_path / out)])
    assert vocabulary.read_bytes() == before
    assert not (tmp_path / "out.gguf").exists()


def test_help_names_every_size(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "{tiny,narrow}" in capsys.readouterr().out


def test_logits_are_as_uneven_as_on_text() -> None:
    """A head of its own has no larger logit of the token itself; Granite divides its logits."""
    tied, untied = SIZES["qwen3.5-0.8b"], SIZES["nemotron-3-nano-4b"]
    assert final_norm_of(tied) == 4.5
    assert final_norm_of(SIZES["granite-4-h-1b"]) == 6 * 4.5
    assert final_norm_of(SIZES["lfm2-8b-a1b"]) == pytest.approx(4.5 / 2048**0.5)
    deviation = final_norm_of(untied)
    logits = np.random.default_rng(0).normal(0, deviation, (8, untied.vocab_size // 16, 16))
    margins = logits.max(axis=(1, 2), keepdims=True) - logits.max(axis=2, keepdims=True)
    assert np.median((margins < LOGIT_MARGIN).mean(axis=1)) == pytest.approx(0.07, abs=0.01)

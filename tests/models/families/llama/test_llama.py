"""Llama with random weights, small enough to compare every position with a plain forward."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.bundle.parsing.head_rows import half_after_half
from hearthd.models.decoder import entry_points
from hearthd.models.decoder.config.decoder_config import DecoderConfig as Config
from hearthd.models.dsl.types import DType
from hearthd.models.families import llama
from hearthd.models.families.llama import Llama
from hearthd.models.program import ProgramOptions, StoredTensor
from tests.by_day import first_by_day
from tests.models.families.llama.llama_reference import RIGHT, Mistakes, file_order, forward, hidden
from tests.models.numpy_device import Device
from tests.models.presets import SMOLLM2

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

CONTEXT = 48
# No two extents agree; with eps of this size a wrong one is seen.
TINY = Config(
    layers=5, hidden=36, ffn=40, heads=6, kv_heads=2, head_dim=8, max_context=64, vocab_size=61,
    norm_eps=1e-3, rope_base=1000.0, rope_factor=2.0, tied=False,
)  # fmt: skip
OPTIONS = ProgramOptions(
    context=CONTEXT, precision="f32", prefill_tokens=(3, 8), decode_batches=(1, 2)
)
TOKENS = np.random.default_rng(0).integers(0, TINY.vocab_size, 40).tolist()
# Logits are up to 4; f32 keeps 2e-7 of that, over five layers some times more.
TOLERANCE = 2e-5


def make_device(config: Config, options: ProgramOptions = OPTIONS, padding: int = 0) -> Device:
    return Device(entry_points.program(Llama(config), options), padding)


@pytest.fixture(scope="module")
def device() -> Device:
    return make_device(TINY, padding=60)


@pytest.fixture(scope="module")
def weights(device: Device) -> dict[str, Array]:
    return file_order(TINY, device.model_weights())


@pytest.fixture(scope="module")
def decoded(device: Device) -> Array:
    return device.decoded(TOKENS)


# --- against a forward written independently


def test_decoding_equals_the_reference_at_every_position(
    weights: dict[str, Array], decoded: Array
) -> None:
    np.testing.assert_allclose(decoded, forward(TINY, weights, TOKENS), atol=TOLERANCE)


@pytest.mark.parametrize("sizes", [(8,), (3,), (5, 8, 2)], ids=str)
def test_prefill_in_any_chunks_gives_the_same_logits(
    device: Device, decoded: Array, sizes: tuple[int, ...]
) -> None:
    for position in range(0, len(TOKENS), 7):
        actual = device.logits_after(TOKENS[: position + 1], sizes)
        np.testing.assert_allclose(actual, decoded[position], atol=TOLERANCE)


def test_the_last_chunk_may_reach_beyond_the_context(
    device: Device, weights: dict[str, Array]
) -> None:
    tokens = (TOKENS * 2)[:CONTEXT]
    actual = device.logits_after(tokens, (8, 8, 8, 8, 8, 6, 1))
    np.testing.assert_allclose(actual, forward(TINY, weights, tokens)[-1], atol=TOLERANCE)


def test_a_batch_of_two_equals_two_decodes(device: Device) -> None:
    slots = [device.prefill(device.slot(), TOKENS[:7], 0)]
    slots += [device.prefill(device.slot(), TOKENS[20:23], 0)]
    both, _ = device.decode(slots, [5, 9], [7, 3])
    for i, (caches, token, position) in enumerate(zip(slots, [5, 9], [7, 3], strict=True)):
        alone, _ = device.decode([caches], [token], [position])
        np.testing.assert_allclose(both[i], alone[0], atol=1e-5)


def test_embeddings_are_sums_of_hidden_states(device: Device, weights: dict[str, Array]) -> None:
    states = hidden(TINY, weights, TOKENS)
    first, caches = device.embed(device.slot(), TOKENS[:8], 0)
    second, _ = device.embed(caches, TOKENS[8:13], 8)
    np.testing.assert_allclose(first, states[:8].sum(axis=0), atol=8 * TOLERANCE)
    np.testing.assert_allclose(second, states[8:13].sum(axis=0), atol=8 * TOLERANCE)


def test_a_tied_head_is_the_table() -> None:
    tied = replace(TINY, tied=True)
    device = make_device(tied)
    assert "lm_head.weight" not in device.weights
    actual = device.logits_after(TOKENS[:9])
    expected = forward(tied, file_order(tied, device.model_weights()), TOKENS[:9])[-1]
    np.testing.assert_allclose(actual, expected, atol=TOLERANCE)


MISTAKES = {
    "halves rotated together on GGUF's rows": Mistakes(split_half=True),
    "keys not rotated": Mistakes(keys_not_rotated=True),
    "another rotary base": Mistakes(rope_base=10_000.0),
    "no rotary factor": Mistakes(rope_factor=False),
    "another eps": Mistakes(eps=1e-5),
    "no norm before attention": Mistakes(input_norm=False),
    "no norm before the MLP": Mistakes(post_attention_norm=False),
    "no last norm": Mistakes(last_norm=False),
    "1 + w in norms": Mistakes(norm_offset=1.0),
    "embeddings times sqrt(hidden)": Mistakes(embedding_scale=6.0),
    "scale 1": Mistakes(scale=1.0),
    "the scale of all heads": Mistakes(scale=36**-0.5),
    "heads taking turns in sharing keys": Mistakes(heads_interleaved=True),
    "a sliding window": Mistakes(window=16),
    "gate and up swapped": Mistakes(gate_and_up_swapped=True),
    "GELU for SiLU": Mistakes(gelu=True),
    "the table as the head": Mistakes(tied=True),
}


@pytest.mark.parametrize("wrong", MISTAKES.values(), ids=MISTAKES)
def test_a_classic_mistake_would_be_seen(
    weights: dict[str, Array], decoded: Array, wrong: Mistakes
) -> None:
    """The comparison above goes red for each: by 20 times its tolerance at least."""
    assert wrong != RIGHT
    difference = np.abs(decoded - forward(TINY, weights, TOKENS, wrong))
    assert difference.max() > 20 * TOLERANCE


def test_rows_that_are_not_put_in_order_would_be_seen(device: Device, decoded: Array) -> None:
    difference = np.abs(decoded - forward(TINY, device.model_weights(), TOKENS))
    assert difference.max() > 20 * TOLERANCE


# --- what a program is made of


@pytest.mark.parametrize(
    ("precision", "made"), first_by_day([("int8-g32", 152), ("f32", 0), ("bf16", 0)])
)
def test_smollm2_has_its_272_tensors(precision: str, made: int) -> None:
    """Integers add a scale for each of the 30 * 5 + 1 matrices, and the head is in two halves."""
    config = SMOLLM2
    program = entry_points.program(
        Llama(config),
        replace(OPTIONS, precision=precision, prefill_tokens=(8,), decode_batches=(1,)),
    )
    weights = {
        name: tensor_type
        for name, tensor_type in program.parameters.items()
        if not name.endswith(".scale")
    }
    assert len(program.parameters) - len(program.weights) == made
    assert sum(len(one.sources) for one in program.weights) == 272
    assert sum(tensor_type.size for tensor_type in weights.values()) == pytest.approx(
        134.5e6, rel=0.01
    )
    storage = {"f32": DType.F32, "bf16": DType.BF16, "int8-g32": DType.I8}[precision]
    for name, tensor_type in weights.items():
        assert tensor_type.dtype is (storage if tensor_type.rank > 1 else DType.F32), name


# --- names in files


def test_rows_of_a_gguf_file_come_back_in_order(device: Device, weights: dict[str, Array]) -> None:
    for name, ours in device.model_weights().items():
        stored = llama.ARCHITECTURE.tensors.find(TINY, name, (), gguf=True)
        actual = weights[name]
        if stored.interleaved:
            assert not np.array_equal(actual, ours)
            actual = half_after_half(actual, stored.interleaved)
        np.testing.assert_array_equal(actual, ours, err_msg=name)


def test_names_in_gguf() -> None:
    def stored(name: str) -> StoredTensor:
        return llama.ARCHITECTURE.tensors.find(TINY, name, (), gguf=True)

    assert stored("layers.3.self_attn.q_proj.weight") == StoredTensor("blk.3.attn_q.weight", 0.0, 8)
    assert stored("layers.3.self_attn.v_proj.weight") == StoredTensor("blk.3.attn_v.weight")
    assert stored("layers.0.post_attention_layernorm.weight").name == "blk.0.ffn_norm.weight"
    assert stored("lm_head.weight") == StoredTensor("output.weight")
    assert stored("norm.weight") == StoredTensor("output_norm.weight")


def test_names_in_safetensors() -> None:
    for name in Llama(TINY).parameters():
        stored = llama.ARCHITECTURE.tensors.find(TINY, name, (), gguf=False)
        assert stored == StoredTensor(name if name == "lm_head.weight" else f"model.{name}")
    assert llama.ARCHITECTURE.tensors.is_other_part("model.layers.0.self_attn.rotary_emb.inv_freq")
    assert not llama.ARCHITECTURE.tensors.is_other_part("model.layers.0.self_attn.q_proj.bias")

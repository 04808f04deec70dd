"""The caches and states of a slot: after each token, whatever was in the slot before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.functions.routing import SIGMOID
from hearthd.models.program import ProgramOptions
from tests.models.numpy_device import Device

SHAPE: dict[str, Any] = {
    "layers": 3, "hidden": 32, "ffn": 40, "heads": 4, "kv_heads": 2, "head_dim": 8,
    "max_context": 64, "vocab_size": 61, "norm_eps": 1e-3, "rope_base": 1000.0, "tied": True,
}  # fmt: skip
_MAMBA: dict[str, Any] = {
    "ssm_heads": 4, "ssm_width": 16, "ssm_groups": 2, "ssm_state": 6, "taps": 4,
}  # fmt: skip
_EXPERTS: dict[str, Any] = {
    "experts": 5, "experts_per_token": 2, "expert_ffn": 24, "normalized": True, "shared_ffn": 36,
}  # fmt: skip
_DELTA_NET: dict[str, Any] = {
    "attends": (False, True, False), "rotary_width": 4, "key_heads": 2, "value_heads": 4,
    "key_width": 6, "value_width": 16, "taps": 4,
}  # fmt: skip
# Further fields of the configuration of an architecture.
EXTRA: dict[str, dict[str, Any]] = {
    "falcon-h1": _MAMBA,
    "gemma4": {
        "layers": 5, "windows": (6, None, 6, None, 6), "rope_divisors": (1.0, 1e30, 1e30, 1e30),
        "local_head_dim": 4, "local_rope_base": 100.0, "layer_embedding": 8, "caching_layers": 3,
        "ffns": (40, 40, 40, 48, 48), "logit_cap": None,
    },
    "granitehybrid": {
        **_MAMBA, "attends": (False, True, False), "embedding_scale": 2.0, "attention_scale": 0.4,
        "residual_scale": 0.5, "logit_scale": 2.0,
    },
    "jamba": {
        **_EXPERTS, "shared_ffn": None, "attends": (False, True, False), "ssm_inner": 48,
        "ssm_state": 6, "step_rank": 5, "taps": 4, "routed": (False, True, False),
    },
    "kimi-linear": {
        **_EXPERTS, "attends": (False, True, False), "routed": (False, True, True), "kv_heads": 1,
        "head_dim": 14, "latent": 8, "rotary_width": 6, "key_width": 4, "value_width": 5,
        "query_rank": None, "attention_scale": 0.3, "turns_neighbors": False, "delta_heads": 2,
        "delta_width": 16, "taps": 4,
    },
    "lfm2": {"taps": 4, "attends": (False, True, False), "windows": (4, None, 4)},
    "mamba": {"ssm_inner": 48, "ssm_state": 6, "step_rank": 5, "taps": 3},
    "mamba2": {**_MAMBA, "kinds": ("mamba",) * 3},
    "nemotron_h": {**_MAMBA, "layers": 4, "kinds": ("mamba", "mlp", "attention", "mamba")},
    "nemotron_h_moe": {
        **_MAMBA, **_EXPERTS, "layers": 4, "kinds": ("mamba", "moe", "attention", "mamba"),
        "routed": (False, True, False, False), "scores": SIGMOID, "choice_bias": True,
        "sum_offset": 1e-20, "factor": 2.5,
    },
    "rwkv7": {"kv_heads": 4, "decay_rank": 5, "rate_rank": 6, "value_rank": 7, "gate_rank": 9},
    "qwen3next": {**_DELTA_NET, **_EXPERTS, "routed": (True,) * 3, "shared_gate": True},
    "qwen35": _DELTA_NET,
    "qwen35moe": {**_DELTA_NET, **_EXPERTS, "routed": (True,) * 3, "shared_gate": True},
}  # fmt: skip
OPTIONS = ProgramOptions(
    context=40, precision="f32", prefill_tokens=(3, 8), decode_batches=(1, 2), verify_tokens=(4,)
)
PROMPT = np.random.default_rng(0).integers(0, SHAPE["vocab_size"], 30).tolist()


# Layers that share caches, states of convolutions, Mamba-2 and the gated delta net.
BY_DAY = ("gemma4", "lfm2", "nemotron_h_moe", "qwen35moe")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in EXTRA
    ],
)
def device(request: pytest.FixtureRequest) -> Device:
    family = ARCHITECTURES[request.param]
    return Device(family.program(family.config(**(SHAPE | EXTRA[request.param])), OPTIONS))


def test_a_prefix_continues_in_another_slot(device: Device) -> None:
    """The prefix cache: a slot is copied, and two sequences continue from the copies."""
    prefix = device.prefill(device.slot(), PROMPT[:7], 0)
    copies = [[cache.copy() for cache in prefix] for _ in range(2)]
    logits, _ = device.decode(copies, [PROMPT[7], 3], [7, 7])
    np.testing.assert_allclose(logits[0], device.logits_after(PROMPT[:8]), atol=2e-5)
    np.testing.assert_allclose(logits[1], device.logits_after([*PROMPT[:7], 3]), atol=2e-5)


def test_earlier_contents_of_a_slot_have_no_effect(device: Device) -> None:
    rng = np.random.default_rng(1)
    used = [rng.normal(size=cache.shape).astype(np.float32) for cache in device.slot()]
    for count in (1, 2, 5, 12):
        fresh = device.logits_after(PROMPT[:count])
        np.testing.assert_array_equal(device.logits_after(PROMPT[:count], caches=used), fresh)


@pytest.mark.parametrize(
    "sizes",
    [*(pytest.param(size, marks=pytest.mark.nightly) for size in ((3,), (8,))), (1, 5, 2)],
    ids=str,
)
def test_chunks_of_any_sizes_give_the_same_logits(device: Device, sizes: tuple[int, ...]) -> None:
    expected = device.logits_after(PROMPT, (1,))
    np.testing.assert_allclose(device.logits_after(PROMPT, sizes), expected, atol=2e-5)


def test_a_later_token_changes_no_earlier_logits(device: Device) -> None:
    caches = device.prefill(device.slot(), PROMPT[:7], 0)
    first, _ = device.verify(caches, [PROMPT[7], 1, 2, 3], 7)
    second, _ = device.verify(caches, [PROMPT[7], 1, 9, 3], 7)
    # The tokens of an expert are one product here, whose bits depend on how many they are.
    np.testing.assert_allclose(first[:2], second[:2], atol=2e-5)
    assert np.abs(first[2:] - second[2:]).max() > 1e-3


@pytest.mark.parametrize("accepted", [1, 2, 3, 4])
def test_rejected_drafts_leave_no_trace(device: Device, accepted: int) -> None:
    """A verify reads tokens, and only the first ones are kept."""
    caches = device.prefill(device.slot(), PROMPT[:7], 0)
    drafted = [*PROMPT[7 : 7 + accepted], 1, 2, 3][:4]
    guessed, caches = device.verify(caches, drafted, 7)
    expected = device.logits_after(PROMPT[: 7 + accepted])
    np.testing.assert_allclose(guessed[accepted - 1], expected, atol=2e-5)
    logits, _ = device.decode([caches], [PROMPT[7 + accepted]], [7 + accepted])
    expected = device.logits_after(PROMPT[: 8 + accepted])
    np.testing.assert_allclose(logits[0], expected, atol=2e-5)

"""Golden values: what NumPy computes for a few prompts, kept in the bundle for its self-test."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.bundle import (
    MIN_CONTEXT,
    Golden,
    GoldenRow,
    GoldenState,
    GoldenStep,
    unpacked_rows,
)
from hearthd.runtime.checks.row_difference import ROW_TOLERANCE, steps_between
from hearthd.runtime.interface import prefill_all_but_last

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from hearthd.baker.reference.numpy_runtime import NumpyRuntime
    from hearthd.bundle import Activations, CacheSpec
    from hearthd.runtime.interface import Reader

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Once upon a time, in a small village by the sea, there lived an old fisherman who",
)
STEPS = 4
# Logits that are kept of each step.
TOP_COUNT = 8
# Values that are kept of each state.
STATE_VALUES = 256


def prompt_ids(tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """The first tokens of PROMPTS, which each context has room for: a token may be a byte."""
    return [tuple(tokenizer.encode(prompt).ids[: MIN_CONTEXT // 2]) for prompt in PROMPTS]


def golden_values(runtime: Reader, ids: Sequence[tuple[int, ...]]) -> tuple[Golden, ...]:
    """Each of PROMPTS, by its tokens, with the largest logits of its continuation.

    Each has a slot of its own, and they go on together: where weights are unpacked to be read, a
    decode of three takes little longer than one of one.
    """
    slots = range(len(PROMPTS))
    for slot in slots:
        prefill_all_but_last(runtime, ids[slot], slot=slot)
    latest = [tokens[-1] for tokens in ids]
    steps: list[list[GoldenStep]] = [[] for _ in slots]
    for step in range(STEPS):
        logits = runtime.decode(slots, latest, [len(tokens) - 1 + step for tokens in ids])
        for slot in slots:
            steps[slot].append(_largest(logits[slot]))
        latest = [steps[slot][-1].token_ids[0] for slot in slots]
    return tuple(
        Golden(prompt=PROMPTS[slot], prompt_ids=ids[slot], steps=tuple(steps[slot]))
        for slot in slots
    )


def golden_rows(
    runtime: NumpyRuntime,
    caches: Sequence[CacheSpec],
    golden: Sequence[Golden],
    activations: Activations,
) -> tuple[GoldenRow, ...]:
    """The cached keys and values of each prompt's last token, in the second layer.

    In the first one of a model with one layer, and with activations of int8: an activation that is
    rounded to its other neighbor changes later layers by about as much as rounding itself. Returns
    no rows for caches of f32, and where these layers have none. The runtime has read each prompt in
    a slot of its own.
    """
    layers = range(1 if activations == "int8" else 2)
    present = [layer for layer in layers if _place(caches, layer) is not None]
    if not present:
        return ()
    rows = (
        _golden_row(runtime, caches, slot, case, present[-1]) for slot, case in enumerate(golden)
    )
    return tuple(row for row in rows if row is not None)


def first_routed(parameters: Iterable[str]) -> int | None:
    """The first layer with experts, by the names of parameters; None if none has them."""
    parts = (name.split(".") for name in parameters if ".experts." in name)
    return min((int(layer) for stack, layer, *_ in parts if stack == "layers"), default=None)


def row_after_experts(
    runtime: NumpyRuntime,
    changed: NumpyRuntime,
    caches: Sequence[CacheSpec],
    case: Golden,
    routed: int,
) -> tuple[GoldenRow, ...]:
    """The row of the first prompt in the first layer after `routed`, which has experts.

    Its tolerance is twice the difference of a runtime with slightly changed weights. Returns no row
    if that is more than a step: the changed runtime has then chosen other experts. Both have read
    the prompt in slot 0.
    """
    later = (layer for layer in range(routed + 1, len(caches)) if _place(caches, layer) is not None)
    if (layer := next(later, None)) is None:
        return ()
    row = _golden_row(runtime, caches, 0, case, layer)
    if row is None:
        return ()
    arrays = zip(caches, changed.row(0, len(case.prompt_ids) - 1), strict=True)
    saved = [array.reshape(-1).view(np.uint8) for spec, array in arrays if not spec.state]
    difference = steps_between(row, np.concatenate(saved))
    if difference > 1:
        return ()
    return (replace(row, tolerance=max(ROW_TOLERANCE[row.dtype], 2 * difference)),)


def _place(caches: Sequence[CacheSpec], layer: int) -> int | None:
    """The index of the cache with the keys of a layer, if it has one."""
    names = [spec.name for spec in caches]
    name = f"layers.{layer}.key"
    return names.index(name) if name in names else None


def _golden_row(
    runtime: NumpyRuntime, caches: Sequence[CacheSpec], slot: int, case: Golden, layer: int
) -> GoldenRow | None:
    """The row of the last token of a prompt in a layer with keys; None for caches of f32."""
    at = _place(caches, layer)
    if at is None or caches[at].dtype == "f32":
        return None
    offset = sum(spec.row_bytes for spec in caches[:at] if not spec.state)
    make = {"i6": _int4_row, "i8": _int8_row}.get(caches[at].dtype, _float_row)
    return make(slot, offset, runtime.row(slot, len(case.prompt_ids) - 1)[at:])


def golden_states(
    runtime: NumpyRuntime, caches: Sequence[CacheSpec], golden: Sequence[Golden]
) -> tuple[GoldenState, ...]:
    """The first values of each state of the first layer, after each prompt and its continuation.

    As the embeddings of tokens are exact, so are the activations that this layer rounds. The
    runtime has read each prompt in a slot of its own.
    """
    found = []
    offset = 0
    for index, spec in enumerate(caches):
        if spec.state and spec.name.startswith("layers.0."):
            for slot, case in enumerate(golden):
                latest = len(case.prompt_ids) + len(case.steps) - 2
                row = runtime.row(slot, latest)[index][:STATE_VALUES]
                values = tuple(float(f"{value:.6g}") for value in row)
                found.append(GoldenState(prompt=slot, offset=offset, values=values))
        offset += spec.row_bytes if spec.state else 0
    return tuple(found)


def _int8_row(prompt: int, offset: int, row: Sequence[NDArray[Any]]) -> GoldenRow:
    key, value, key_scales, value_scales = row[:4]
    integers, scales = np.concatenate([key, value]), np.concatenate([key_scales, value_scales])
    return GoldenRow(
        prompt=prompt,
        offset=offset,
        integers=tuple(integers.tolist()),
        scales=tuple(scales.tolist()),
    )


def _int4_row(prompt: int, offset: int, row: Sequence[NDArray[Any]]) -> GoldenRow:
    key, value, key_scales, value_scales = row[:4]
    integers = [unpacked_rows(part, len(key_scales)).reshape(-1) for part in (key, value)]
    scales = np.concatenate([key_scales, value_scales])
    return GoldenRow(
        prompt=prompt,
        offset=offset,
        integers=tuple(np.concatenate(integers).tolist()),
        scales=tuple(scales.tolist()),
        dtype="i4",
    )


def _float_row(prompt: int, offset: int, row: Sequence[NDArray[Any]]) -> GoldenRow:
    values = np.stack(row[:2]).astype(np.float64)
    scales = np.maximum(np.abs(values).max(axis=1), np.finfo(np.float16).tiny) / 32767
    integers = np.rint(values / scales[:, np.newaxis]).astype(np.int64)
    return GoldenRow(
        prompt=prompt,
        offset=offset,
        integers=tuple(integers.reshape(-1).tolist()),
        scales=tuple(scales.tolist()),
        dtype="f16",
    )


def _largest(logits: NDArray[np.float32]) -> GoldenStep:
    best = np.argsort(-logits, kind="stable")[:TOP_COUNT]
    return GoldenStep(
        token_ids=tuple(int(i) for i in best), logits=tuple(float(logits[i]) for i in best)
    )

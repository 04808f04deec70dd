"""The caches of a slot: the buffers that a program has for its layers and for its drafter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.bundle import CacheSpec
from hearthd.models.decoder.kv_cache import cache_rows
from hearthd.models.dsl import functions as f
from hearthd.models.precision import PRECISIONS

if TYPE_CHECKING:
    from hearthd.bundle import CacheDType
    from hearthd.models.decoder.entry_points import Decoder
    from hearthd.models.decoder.kv_cache import StateRows
    from hearthd.models.program import ProgramOptions


def layer_caches(
    model: Decoder, layer: int, options: ProgramOptions, block: int = 0
) -> tuple[CacheSpec, ...]:
    """The buffers of a layer: keys and values, then any scales of them; or its states; or none.

    They have room for the largest prefill, or for a `block` of rows that see each other.
    """
    name = f"layers.{layer}"
    if states := model.states(layer):
        return state_caches(name, states, options)
    window = model.window(layer)
    # A long prefill has no padding, which would need rows behind the context.
    longest = options.chunk if window is None else options.longest_prefill
    rows = cache_rows(window, context=options.context, chunk=max(longest, block))
    heads = model.cache_heads(layer)
    return row_caches(name, rows, model.cache_width(layer), heads, options)


def state_caches(
    name: str, states: tuple[StateRows, ...], options: ProgramOptions
) -> tuple[CacheSpec, ...]:
    """The buffers of states.

    A verify leaves a state for each of its tokens beside the one before them, so that the tokens
    that are rejected leave no trace.
    """
    ring = 1 + max(options.verify_tokens, default=1)
    return tuple(
        CacheSpec(
            name=f"{name}.state{i}",
            rows=ring + state.behind(options.longest_prefill),
            width=state.width,
            dtype="f32",
            state=True,
            behind=state.behind(options.longest_prefill),
        )
        for i, state in enumerate(states)
    )


def row_caches(
    name: str, rows: int, width: int, heads: int, options: ProgramOptions, *, drafts: bool = False
) -> tuple[CacheSpec, ...]:
    """The buffers of keys and values, each of a number of rows, and of any scales of them.

    Heads that `int4_cache_attention` has no kernel for have caches of int8 in place of int4.

    width   values in a row of keys; 0: there are no buffers
    heads   heads in it; 0 if it holds no heads
    drafts  whether only the drafter reads them
    """
    if not width:
        return ()
    kv_cache = options.kv_cache or PRECISIONS[options.precision].kv_cache
    dtype: CacheDType = "f16"
    if kv_cache in ("f16", "f32"):
        dtype = kv_cache
    elif heads:
        packs = kv_cache == "int4" and f.packs_heads(width // heads)
        dtype = "i4" if packs else "i8"
    keys: CacheDType = "i6" if dtype == "i4" else dtype
    parts: list[tuple[str, int, CacheDType]] = [("key", width, keys), ("value", width, dtype)]
    if dtype == "i8":
        parts += [("key_scale", heads, "f32"), ("value_scale", heads, "f32")]
    elif dtype == "i4":
        groups = width // f.CACHE_GROUP
        parts += [("key_scale", groups, "f16"), ("value_scale", groups, "f16")]
    return tuple(
        CacheSpec(name=f"{name}.{part}", rows=rows, width=width, dtype=dtype, drafts=drafts)
        for part, width, dtype in parts
    )

"""The memory that serving a language model takes, by its entry points and caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.bundle.manifests.entry_point import largest
from hearthd.bundle.memory_sum import MIN_IMAGE_ROWS, Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.bundle.manifests.adapter_places import AdapterPlaces
    from hearthd.bundle.manifests.cache_specs import CacheSpec
    from hearthd.bundle.manifests.entry_point import EntryPoint
    from hearthd.bundle.memory_sum import Footprint

__all__ = ["language_memory"]

# Memory of sampling, in rows of logits, besides a copy of every row that a step returns.
_SAMPLING_ROWS = 8


def language_memory(
    footprint: Footprint,
    vocab_size: int,
    row_width: int,
    context: int,
    caches: Sequence[CacheSpec],
    entry_points: Sequence[EntryPoint],
    adapters: AdapterPlaces,
) -> Memory:
    """The memory that serving takes; the footprint has all of the entry points.

    A position lies in the row of its number, so a server that uses `context` positions of more
    writes the first rows of each cache, and what padding adds. Any call can interrupt an image.

    A chunk of a prompt begins in one image and ends in another, at most: a slot has the rows of
    both, and of the chunk.
    """
    chunk, block = (largest(entry_points, kind) for kind in ("prefill", "prefill_block"))
    steps: dict[int, int] = {}
    kept = max((point.kept for point in entry_points), default=0)
    for point in entry_points:
        size = kept + max(footprint.calls[name] for name in point.functions)
        if point.kind in ("decode", "verify", "draft"):
            size += (point.batch * point.tokens + _SAMPLING_ROWS) * 4 * vocab_size
        steps[point.batch] = max(size, steps.get(point.batch, 0))
    row_bytes, image = 4 * row_width, _largest_image(entry_points)
    return Memory(
        vocab_size=vocab_size,
        context=context,
        image_rows=image_row_memory(entry_points, row_width),
        has_grammars=True,
        weights=footprint.resident,
        slot=sum(cache.row_bytes * min(cache.rows, context + max(chunk, block)) for cache in caches)
        + (row_bytes * (2 * image + chunk) if image else 0),
        adapters=adapters.bytes,
        block=chunk * sum(cache.row_bytes for cache in caches if not cache.state),
        snapshot=sum(cache.row_bytes for cache in caches if cache.state),
        chunk=max(1, chunk),
        steps=steps,
    )


def _largest_image(entry_points: Sequence[EntryPoint]) -> int:
    """The most rows of embeddings of an image or a sound; 0 if requests have none."""
    return max(largest(entry_points, kind) for kind in ("image", "sound"))


def image_row_memory(entry_points: Sequence[EntryPoint], row_width: int) -> int:
    """Bytes of the rows of the latest images and sounds; 0 if requests have none.

    The next question about images reads the chunk again in which the last of them ends, which
    begins in an image at most.
    """
    image, chunk = _largest_image(entry_points), largest(entry_points, "prefill")
    return max(MIN_IMAGE_ROWS, 4 * row_width * (image + chunk)) if image else 0

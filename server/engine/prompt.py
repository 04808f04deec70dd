"""A prompt: a sequence of segments, each of which is token ids or rows of embeddings.

Rows of embeddings are for images and audio, which no architecture has yet. The first layer reads
them instead of the embeddings of tokens. Here they are arrays with a digest of their source.
"""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hearthd.runtime.interface import NO_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_DIGEST_BYTES = 32


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddingRows:
    """A segment whose positions have no token: the first layer reads `rows`, f32 (n, E).

    rows    inputs of the first layer, scaled as the model scales its embeddings; read-only
    digest  32 bytes that identify the source of the rows, such as an image
    offset  of the first row in what the digest identifies
    """

    rows: NDArray[np.float32]
    digest: bytes
    offset: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError for another shape or dtype, or a digest of another length."""
        if self.rows.ndim != 2 or not self.rows.size or self.rows.dtype != np.float32:
            raise ValueError(
                f"rows of embeddings: got {self.rows.dtype} {self.rows.shape}, expected f32 (n, E)"
            )
        if len(self.digest) != _DIGEST_BYTES:
            raise ValueError(
                f"digest of rows: got {len(self.digest)} bytes, expected {_DIGEST_BYTES}"
            )
        view = self.rows.view()
        view.flags.writeable = False
        object.__setattr__(self, "rows", view)

    def __len__(self) -> int:
        """The number of positions."""
        return len(self.rows)

    def __getitem__(self, positions: slice) -> EmbeddingRows:
        """Some consecutive rows."""
        start, _, _ = positions.indices(len(self))
        return replace(self, rows=self.rows[positions], offset=self.offset + start)

    @property
    def identity(self) -> bytes:
        """What decides the rows: 48 bytes."""
        return self.digest + array("q", (self.offset, len(self))).tobytes()


Segment: TypeAlias = tuple[int, ...] | EmbeddingRows


@dataclass(frozen=True, init=False)
class Prompt:
    """Segments in their order. A slice of positions is a prompt too."""

    segments: tuple[Segment, ...]

    def __init__(self, *segments: Segment) -> None:
        object.__setattr__(self, "segments", tuple(filter(len, segments)))

    def __len__(self) -> int:
        """The number of positions."""
        return sum(map(len, self.segments))

    def __getitem__(self, positions: slice) -> Prompt:
        """Some consecutive positions."""
        start, stop, step = positions.indices(len(self))
        assert step == 1, "positions are consecutive"
        return Prompt(*self._between(start, stop))

    def chunks(self, size: int) -> Iterator[Prompt]:
        """The prompt in chunks of `size` positions; the last one may be shorter."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def _between(self, start: int, stop: int) -> Iterator[Segment]:
        ends = accumulate(map(len, self.segments))
        for segment, end in zip(self.segments, ends, strict=True):
            first = end - len(segment)
            if start < stop and first < stop and start < end:
                yield segment[max(start - first, 0) : stop - first]

    @property
    def tokens(self) -> array[int]:
        """The token of each position, 64-bit; NO_TOKEN where a row is read."""
        tokens = array("q")
        for segment in self.segments:
            tokens.extend(
                [NO_TOKEN] * len(segment) if isinstance(segment, EmbeddingRows) else segment
            )
        return tokens

    @property
    def row_segments(self) -> tuple[EmbeddingRows, ...]:
        """The segments of rows."""
        return tuple(segment for segment in self.segments if isinstance(segment, EmbeddingRows))

    @property
    def rows(self) -> NDArray[np.float32] | None:
        """The rows of all segments, f32 (n, E); None if there are none."""
        rows = [segment.rows for segment in self.row_segments]
        return np.concatenate(rows) if rows else None

    @property
    def content(self) -> bytes:
        """The key of the cache rows: the tokens, and the identities of the embedding rows.

        Prompts of equal content are equal: only one with rows has negative integers in it, and its
        last 32 bytes are a digest.
        """
        content = self.tokens.tobytes()
        if identities := b"".join(segment.identity for segment in self.row_segments):
            content += hashlib.sha256(identities).digest()
        return content

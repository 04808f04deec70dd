"""A prompt: a sequence of segments; a segment is token ids or rows of embeddings.

The first layer reads rows of embeddings instead of the embeddings of tokens. Here they are arrays
with a digest of their source, or the square of an image or the sound that a model's tower computes
them of.
"""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hearthd.runtime.interface import NO_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageRows:
    """A segment whose rows a tower computes, once they are read, of an image or a sound.

    media   an image, or a square of one, u8 (H, W, 3), or the frames of a sound, f32
            (T, width); read-only
    digest  32 bytes that identify the media
    count   rows
    offset  of the first row in the rows of the square
    both_ways  whether the layers let each row see the later ones too
    grid    rows and columns of the rows, if their rotary positions have them
    """

    media: NDArray[Any]
    digest: bytes
    count: int
    offset: int = 0
    both_ways: bool = False
    grid: tuple[int, int] | None = None

    def __len__(self) -> int:
        """The number of positions."""
        return self.count

    def __getitem__(self, positions: slice) -> ImageRows:
        """Some consecutive rows."""
        start, stop, _ = positions.indices(len(self))
        return replace(self, count=max(0, stop - start), offset=self.offset + start)

    @property
    def identity(self) -> bytes:
        """What decides the rows: 48 bytes."""
        return self.digest + array("q", (self.offset, len(self))).tobytes()

    def part(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The rows of this segment, of all rows of the square."""
        return rows[self.offset : self.offset + self.count]


RowSegment: TypeAlias = EmbeddingRows | ImageRows
Segment: TypeAlias = tuple[int, ...] | RowSegment


def is_readable(token: int, vocab_size: int, *, has_images: bool) -> bool:
    """Whether a prompt can have a token: an id or, with images, NO_TOKEN for a row of one."""
    return 0 <= token < vocab_size or (has_images and token == NO_TOKEN)


@dataclass(frozen=True, init=False)
class Prompt:
    """Segments in their order. A slice of positions is a prompt too."""

    segments: tuple[Segment, ...]

    def __init__(self, *segments: Segment) -> None:
        object.__setattr__(self, "segments", tuple(filter(len, segments)))

    @staticmethod
    def of_ids(ids: tuple[int, ...], images: Sequence[ImageRows]) -> Prompt:
        """A prompt whose ids have NO_TOKEN for each row of its images."""
        segments: list[Segment] = []
        at = 0
        for image in images:
            start = ids.index(NO_TOKEN, at)
            segments += [ids[at:start], image]
            at = start + len(image)
        return Prompt(*segments, ids[at:])

    def __len__(self) -> int:
        """The number of positions."""
        return sum(map(len, self.segments))

    def __getitem__(self, positions: slice) -> Prompt:
        """Some consecutive positions."""
        start, stop, step = positions.indices(len(self))
        assert step == 1, "positions are consecutive"
        return Prompt(*self._between(start, stop))

    def chunk_ends(self, size: int) -> list[int]:
        """The position after each chunk. Chunks have `size` positions, the last one may have fewer.

        Rows that see each other are a chunk of their own, which divides what is before and after.
        """
        ends: list[int] = []
        start = position = 0
        for segment in self.segments:
            if isinstance(segment, ImageRows) and segment.both_ways:
                ends += [*range(start + size, position, size), position][: position - start]
                start = position + len(segment)
                ends.append(start)
            position += len(segment)
        return [*ends, *range(start + size, position, size), position][
            : len(ends) + position - start
        ]

    def chunks(self, size: int) -> Iterator[Prompt]:
        """The prompt in its chunks."""
        ends = self.chunk_ends(size)
        return (self[start:end] for start, end in pairwise((0, *ends)))

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
            tokens.extend(segment if isinstance(segment, tuple) else [NO_TOKEN] * len(segment))
        return tokens

    @property
    def row_segments(self) -> tuple[RowSegment, ...]:
        """The segments of rows."""
        return tuple(segment for segment in self.segments if not isinstance(segment, tuple))

    @property
    def images(self) -> tuple[ImageRows, ...]:
        """The segments whose rows a tower computes."""
        return tuple(segment for segment in self.segments if isinstance(segment, ImageRows))

    @property
    def both_ways(self) -> bool:
        """Whether each position sees the later ones too, in a chunk of rows that do."""
        return any(image.both_ways for image in self.images)

    def rows(self, images: Mapping[bytes, NDArray[np.float32]]) -> NDArray[np.float32] | None:
        """The rows of all segments, f32 (n, E); None if there are none.

        `images` has the rows of squares by their digest.
        """
        rows = [
            segment.part(images[segment.digest]) if isinstance(segment, ImageRows) else segment.rows
            for segment in self.row_segments
        ]
        return np.concatenate(rows) if rows else None

    @property
    def rotary_positions(self) -> NDArray[np.int32] | None:
        """Rotary positions by time, row and column, i32 (3, n); None: they are the positions.

        The rows of an image with a grid have the position after the text before it, and their row
        and column are added to that. The text after it goes on after the largest of these.
        """
        if all(image.grid is None for image in self.images):
            return None
        parts, at = [], 0
        for segment in self.segments:
            count = len(segment)
            part = np.tile(np.arange(at, at + count, dtype=np.int32), (3, 1))
            if isinstance(segment, ImageRows) and segment.grid is not None:
                assert count == segment.grid[0] * segment.grid[1], (
                    "an image without all of its rows"
                )
                part[0], part[1:] = at, at + np.indices(segment.grid).reshape(2, count)
                count = max(segment.grid)
            parts.append(part)
            at += count
        return np.concatenate(parts, axis=1)

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

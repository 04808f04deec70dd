"""The bytes of every token of a vocabulary, stored as one object."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import numpy as np
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray


class Words(Sequence[bytes]):
    """The bytes of the tokens 0 to V - 1. A word becomes a Python object when it is read.

    A vocabulary has up to a quarter of a million words. As objects of their own they would take
    14 MB, and leave holes in Python's memory when the model is unloaded.
    """

    def __init__(self, words: Iterable[bytes]) -> None:
        text, self._ends = bytearray(), array("I", [0])
        for word in words:
            text += word
            self._ends.append(len(text))
        self._text = bytes(text)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of bytes of each word, int64 (V,)."""
        ends: NDArray[np.int64] = np.asarray(self._ends, np.int64)
        return ends[1:] - ends[:-1]

    def resized(self, size: int) -> Words:
        """The first `size` words, followed by empty ones if there are fewer."""
        result = Words(())
        result._text = self._text
        result._ends = self._ends[: size + 1]
        result._ends.extend(self._ends[-1:] * (size - len(result)))
        return result

    @override
    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[bytes, ...]: ...

    @override
    def __getitem__(self, index: int | slice) -> bytes | tuple[bytes, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(len(self))[index])
        at = range(len(self))[index]
        return self._text[self._ends[at] : self._ends[at + 1]]

    @override
    def __iter__(self) -> Iterator[bytes]:
        return (self._text[start:end] for start, end in itertools.pairwise(self._ends))

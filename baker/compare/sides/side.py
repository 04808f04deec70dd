"""The two sides of a comparison behind one interface: what comes next after some tokens?

Knows a Reader (a bundle, its NumPy reference, llama.cpp) and a recording as sides; `endpoint.py`
has the third kind. It compares nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from baker.compare.sides.prediction import Full, Top
from runtime.interface import read_prompt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from baker.compare.sides.llama_cpp import LlamaCpp
    from baker.compare.sides.prediction import Prediction
    from baker.compare.sides.recording import Recording
    from baker.compare.sides.side_tokens import Vocabulary
    from runtime.interface import Reader

Kind: TypeAlias = Literal["bundle", "numpy", "llama.cpp", "recording", "endpoint"]
_SLOT = 0


class SideError(Exception):
    """A side cannot be opened, or cannot do what was asked; the message says why."""


@dataclass(frozen=True, kw_only=True)
class About:
    """What a report says of a side.

    name       what was named on the command line
    gives      what it tells of a position, in words
    details    where it comes from: versions, precision, digests
    """

    kind: Kind
    name: str
    gives: str
    details: Mapping[str, str]


class Side(Protocol):
    """Something that says what comes next."""

    @property
    def about(self) -> About:
        """What a report says of it."""

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Text to token ids and back, if the side knows."""

    @property
    def vocab_size(self) -> int | None:
        """How many tokens there are, if the side knows."""

    @property
    def context(self) -> int | None:
        """The most tokens that it can read, if there is a limit that the side knows."""

    def after(self, token_ids: Sequence[int]) -> Prediction:
        """What it expects after these tokens."""

    def read(self, token_ids: Sequence[int], start: int) -> Iterator[Prediction]:
        """Teacher-forced: what it expects in place of each of token_ids[start:], start > 0."""


ALL = "every token's probability"


class ReaderSide:
    """A Reader: full distributions, one decode after the other, in one slot.

    If not `exact`, they are as a request's are that needs no more.
    """

    def __init__(
        self, reader: Reader, about: About, vocabulary: Vocabulary | None, *, exact: bool = False
    ) -> None:
        self.about = about
        self.vocabulary = vocabulary
        self._reader = reader
        self._exact = exact
        self._read: list[int] = []

    @property
    def vocab_size(self) -> int:
        """See Side."""
        return self._reader.vocab_size

    @property
    def context(self) -> int:
        """See Side."""
        return self._reader.context

    def after(self, token_ids: Sequence[int]) -> Full:
        """See Side. Tokens that continue those of the last call are read by one decode."""
        *before, last = token_ids
        if before and before == self._read:
            logits = self._reader.decode([_SLOT], [last], [len(before)], [self._exact])[0]
        else:
            logits = read_prompt(self._reader, token_ids, exact=self._exact)
        self._read = [*before, last]
        return Full(logits)

    def read(self, token_ids: Sequence[int], start: int) -> Iterator[Full]:
        """See Side."""
        for end in range(start, len(token_ids)):
            yield self.after(token_ids[:end])


class LlamaSide(ReaderSide):
    """llama.cpp, which gives the logits after each token of a batch."""

    def __init__(self, llama: LlamaCpp, about: About) -> None:
        super().__init__(llama, about, llama)
        self._llama = llama

    def read(self, token_ids: Sequence[int], start: int) -> Iterator[Full]:
        """See Side."""
        self._read = []  # the slot holds another text from now on
        return (Full(logits) for logits in self._llama.logits_after_each(token_ids[:-1], start))


class RecordedSide:
    """A recording: the best few tokens at each place of its own answers, and nowhere else."""

    def __init__(self, recording: Recording, about: About) -> None:
        self.about = about
        self.vocabulary = None
        self.vocab_size = None
        self.context = None
        self.recording = recording
        self._known = {
            (*case.prompt_ids, *case.greedy_ids[:step]): Top(best.token_ids, best.logprobs)
            for case in recording.cases
            for step, best in enumerate(case.best)
        }

    def after(self, token_ids: Sequence[int]) -> Top:
        """See Side. Raises SideError."""
        try:
            return self._known[tuple(token_ids)]
        except KeyError:
            raise SideError(
                f"{self.about.name} does not say what follows {len(token_ids)} tokens "
                "that it has not recorded"
            ) from None

    def read(self, token_ids: Sequence[int], start: int) -> Iterator[Top]:
        """See Side."""
        return (self.after(token_ids[:end]) for end in range(start, len(token_ids)))


def greedy_answer(side: Side, prompt_ids: Sequence[int], steps: int) -> Iterator[Prediction]:
    """What the side expects at each step of its own greedy answer, past any end of sequence.

    Raises SideError if its best token is none that the vocabulary knows.
    """
    read = list(prompt_ids)
    for _ in range(steps):
        prediction = side.after(read)
        if prediction.greedy < 0:
            raise SideError(
                f"{side.about.name}: after {len(read)} tokens the best one has a text that is no "
                "single token of the vocabulary, so the answer cannot be followed"
            )
        yield prediction
        read.append(prediction.greedy)

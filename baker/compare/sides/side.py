"""The sides of a comparison behind one interface: a prediction of the token after some tokens.

A side is a Reader (a bundle, its NumPy reference, llama.cpp), a recording, or a server
(endpoint.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from typing_extensions import override

from hearthd.baker.compare.sides.prediction import FullPrediction, TopPrediction
from hearthd.runtime.interface import (
    ALL_LOGITS,
    LOGIT_MARGIN,
    prefill_all_but_last,
    read_prompt,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hearthd.baker.compare.sides.llama_cpp import LlamaCpp
    from hearthd.baker.compare.sides.prediction import Prediction
    from hearthd.baker.compare.sides.recording import Recording
    from hearthd.baker.compare.sides.vocabulary import Vocabulary
    from hearthd.runtime.interface import Reader, Verifier

SideType: TypeAlias = Literal["bundle", "numpy", "llama.cpp", "recording", "endpoint"]
SLOT = 0  # of a bundle, for all that a side reads


class SideError(Exception):
    """A side cannot be opened or cannot predict; the message says why."""


@dataclass(frozen=True, kw_only=True)
class SideDescription:
    """The description of a side in a report.

    name       as given on the command line
    gives      the probabilities that the side provides at a position, in words
    details    versions, precision and digests
    """

    side_type: SideType
    name: str
    gives: str
    details: Mapping[str, str]


class Side(Protocol):
    """A model that predicts the next token."""

    @property
    def about(self) -> SideDescription:
        """The description for the report."""

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary, or None if it is unknown."""

    @property
    def vocab_size(self) -> int | None:
        """The size of the vocabulary, or None if it is unknown."""

    @property
    def context(self) -> int | None:
        """The maximum number of tokens, or None if it is unknown or there is no limit."""

    def after(self, token_ids: Sequence[int]) -> Prediction:
        """The prediction after these tokens."""

    def read(self, token_ids: Sequence[int], start: int) -> Iterator[Prediction]:
        """The predictions of token_ids[start:], each after the tokens before it; start > 0."""


ALL = "the probability of every token"


class ReaderSide:
    """A Reader: full distributions, one decode at a time, in one slot.

    If not `exact`, logits too low to be sampled are approximate, as for most requests.
    """

    def __init__(
        self,
        reader: Reader,
        about: SideDescription,
        vocabulary: Vocabulary | None,
        *,
        exact: bool = False,
    ) -> None:
        self.about = about
        self.vocabulary = vocabulary
        self._reader = reader
        self._margin = ALL_LOGITS if exact else LOGIT_MARGIN
        self._cached_tokens: list[int] = []

    @property
    def vocab_size(self) -> int:
        """See Side."""
        return self._reader.vocab_size

    @property
    def context(self) -> int:
        """See Side."""
        return self._reader.context

    def after(self, token_ids: Sequence[int]) -> FullPrediction:
        """See Side. One decode is enough if the tokens continue the last call's."""
        *before, last = token_ids
        if before and before == self._cached_tokens:
            logits = self._reader.decode([SLOT], [last], [len(before)], [self._margin])[0]
        else:
            logits = read_prompt(self._reader, token_ids, margin=self._margin)
        self._cached_tokens = [*before, last]
        return FullPrediction(logits)

    def read(self, token_ids: Sequence[int], start: int) -> Iterator[FullPrediction]:
        """See Side."""
        for end in range(start, len(token_ids)):
            yield self.after(token_ids[:end])


class BundleSide(ReaderSide):
    """A bundle: `verify` reads several tokens of a text in one call."""

    def __init__(
        self,
        runtime: Verifier,
        about: SideDescription,
        vocabulary: Vocabulary | None,
        *,
        exact: bool = False,
    ) -> None:
        super().__init__(runtime, about, vocabulary, exact=exact)
        self._runtime = runtime

    @override
    def read(self, token_ids: Sequence[int], start: int) -> Iterator[FullPrediction]:
        size = max(self._runtime.verify_tokens, default=0)
        if not size:
            yield from super().read(token_ids, start)
            return
        self._cached_tokens = []  # the slot is about to hold another text
        prefill_all_but_last(self._runtime, token_ids[:start], slot=SLOT)
        known = token_ids[:-1]
        for first in range(start - 1, len(known), size):
            tokens = known[first : first + size]
            for logits in self._runtime.verify(SLOT, tokens, first, margin=self._margin):
                yield FullPrediction(logits)


class LlamaSide(ReaderSide):
    """llama.cpp, which computes the logits after every token of a batch."""

    def __init__(self, llama: LlamaCpp, about: SideDescription) -> None:
        super().__init__(llama, about, llama)
        self._llama = llama

    @property
    def weights_bytes(self) -> int:
        """The size of all weights in the file, in bytes."""
        return self._llama.weights_bytes

    @override
    def read(self, token_ids: Sequence[int], start: int) -> Iterator[FullPrediction]:
        self._cached_tokens = []  # the slot is about to hold another text
        return (
            FullPrediction(logits)
            for logits in self._llama.logits_after_each(token_ids[:-1], start)
        )


class RecordedSide:
    """A recording: the top tokens at each position of its own answers."""

    def __init__(self, recording: Recording, about: SideDescription) -> None:
        self.about = about
        self.vocabulary = None
        self.vocab_size = None
        self.context = None
        self.recording = recording
        self._known = {
            (*case.prompt_ids, *case.greedy_ids[:step]): TopPrediction(
                best.token_ids, best.logprobs
            )
            for case in recording.cases
            for step, best in enumerate(case.best)
        }

    def after(self, token_ids: Sequence[int]) -> TopPrediction:
        """See Side. Raises SideError."""
        try:
            return self._known[tuple(token_ids)]
        except KeyError:
            raise SideError(
                f"{self.about.name} has no recorded prediction after these {len(token_ids)} tokens"
            ) from None

    def read(self, token_ids: Sequence[int], start: int) -> Iterator[TopPrediction]:
        """See Side."""
        return (self.after(token_ids[:end]) for end in range(start, len(token_ids)))


def greedy_answer(side: Side, prompt_ids: Sequence[int], steps: int) -> Iterator[Prediction]:
    """The predictions at each step of the side's greedy answer, which ignores ends of sequence.

    Raises SideError if the top token is not in the vocabulary.
    """
    token_ids = list(prompt_ids)
    for _ in range(steps):
        prediction = side.after(token_ids)
        if prediction.greedy < 0:
            raise SideError(
                f"{side.about.name}: after {len(token_ids)} tokens the text of the top token is "
                "not a single token of the vocabulary, so the answer cannot be continued"
            )
        yield prediction
        token_ids.append(prediction.greedy)

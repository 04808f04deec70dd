"""The writer of answers with several choices, for chat completions and completions."""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from pydantic import Field
from typing_extensions import override

from hearthd.server.api.answer_writer import Answer, AnswerWriter
from hearthd.server.api.openai.shared_fields import (
    FinishWord,
    Identity,
    OpenAIUsage,
    StreamOptions,
    finish_reason,
    usage,
)
from hearthd.server.api.usage import reports
from hearthd.server.completions.choices import Choices
from hearthd.text.answer import AnswerSummary, Piece

Delta = TypeVar("Delta")


class ChoicesEvent(Identity):
    """An event with more of one choice, or with the usage."""

    choices: list[Any]
    usage: OpenAIUsage | None = Field(default=None, description="Token counts.")


Chunk = TypeVar("Chunk", bound=ChoicesEvent)


class ChoiceWriter(AnswerWriter[Chunk, Answer], Generic[Delta, Chunk, Answer]):
    """Writes events of the type `event`, each with more of one choice or with the usage.

    `identity` has the fields that all events share. There are `n` choices for each prompt.
    """

    sends_done = True

    def __init__(
        self,
        choices: Choices,
        event: type[Chunk],
        identity: dict[str, Any],
        *,
        n: int,
        options: StreamOptions | None,
    ) -> None:
        super().__init__(choices)
        self._identity = identity
        self._event = event
        self._n = n
        self._with_usage = options is not None and options.include_usage
        self._summaries: dict[int, AnswerSummary] = {}
        self._deltas: dict[int, list[Delta]] = defaultdict(list)

    @abstractmethod
    def _last(self, index: int, reason: FinishWord) -> Delta:
        """The end of a choice."""

    def _chunk(self, delta: Delta, piece: Piece | AnswerSummary | None = None) -> Chunk:
        """The event for more of a choice, with the timings and the progress of its piece."""
        fields: dict[str, Any] = {"usage": None} if self._with_usage else {}
        if piece is not None:
            fields |= reports(piece)
        return self._event(**self._identity, choices=[delta], **fields)

    @override
    def _end(self, index: int, summary: AnswerSummary) -> Iterable[Chunk]:
        self._summaries[index] = summary
        yield self._chunk(self._last(index, finish_reason(summary.finish_reason)), summary)

    @override
    def _finish(self) -> Iterable[Chunk]:
        if self._with_usage:
            yield self._event(**self._identity, choices=[], **self._totals())

    def _totals(self) -> dict[str, Any]:
        """The usage of the request, and the timings of its first choice."""
        summaries = [summary for _, summary in sorted(self._summaries.items())]
        return {"usage": usage(summaries, choices=self._n), **reports(summaries[0])}

    @override
    def _keep(self, event: Chunk) -> None:
        for delta in event.choices:
            self._deltas[delta.index].append(delta)

    def _kept(self) -> list[list[Delta]]:
        """What came of each choice, in order."""
        return [deltas for _, deltas in sorted(self._deltas.items())]

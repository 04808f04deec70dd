"""The transcript that a language model writes, as it arrives."""

from collections.abc import Iterable

from typing_extensions import override

from hearthd.server.api.answer_writer import AnswerWriter
from hearthd.server.api.openai.transcript_forms import (
    InputDetails,
    TokenUsage,
    Transcript,
    TranscriptDelta,
    TranscriptDone,
)
from hearthd.server.completions.choices import Choices
from hearthd.text.answer import AnswerSummary, Piece
from hearthd.text.errors import InvalidRequest


class HeardTranscriptWriter(AnswerWriter[TranscriptDelta | TranscriptDone, Transcript]):
    """Writes the text of the one choice, without spaces around it.

    The sound takes `rows` positions of the prompt.
    """

    def __init__(self, choices: Choices, rows: int) -> None:
        super().__init__(choices)
        self._rows = rows
        self._text = ""
        self._spaces = ""  # after the text: they count when more text comes
        self._usage: TokenUsage | None = None

    @override
    def _more(self, index: int, piece: Piece) -> Iterable[TranscriptDelta]:
        read = self._spaces + piece.text if self._text else piece.text.lstrip()
        delta = read.rstrip()
        self._spaces = read[len(delta) :]
        self._text += delta
        if delta:
            yield TranscriptDelta(delta=delta)

    @override
    def _end(self, index: int, summary: AnswerSummary) -> Iterable[TranscriptDone]:
        if summary.finish_reason == "length":
            raise InvalidRequest(
                field="file",
                got=f"a transcript of more than {summary.completion_tokens} tokens",
                expected="one that ends within the model's context: split the sound",
            )
        prompt, answer = summary.prompt_tokens, summary.completion_tokens
        self._usage = TokenUsage(
            type="tokens",
            input_tokens=prompt,
            input_token_details=InputDetails(
                text_tokens=prompt - self._rows, audio_tokens=self._rows
            ),
            output_tokens=answer,
            total_tokens=prompt + answer,
        )
        yield TranscriptDone(text=self._text, usage=self._usage)

    @override
    def _answer(self) -> Transcript:
        assert self._usage is not None, "the answer has ended"
        return Transcript(text=self._text, usage=self._usage)

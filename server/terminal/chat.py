"""A conversation with a model in this process, and the files that keep conversations."""

from __future__ import annotations

import gc
import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from hearthd import flags
from hearthd.bundle.parsing import strict_json
from hearthd.bundle.parsing.text_files import read_text
from hearthd.later_verification import LaterVerification
from hearthd.server.api.openai.chat_messages import AssistantMessage, PlainMessage
from hearthd.server.complete_file import write_completely
from hearthd.server.terminal.messages import Messages, prompt_ids, validated
from hearthd.server.terminal.session import Session
from hearthd.server.terminal.typed_fields import ChatFields, fields_of, settable_field
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from hearthd.server.api.openai.chat_messages import ChatMessage
    from hearthd.server.services.language_service import LanguageService
    from hearthd.text.answer import AnswerSummary

_SYSTEM = ("system", "developer")


class BadConversation(Exception):
    """A file is not a conversation. The message names it."""


class Chat:
    """A context manager: load the model, and unload it at the end.

    bundle    folder of the model
    open_     opens a bundle
    options   fields of the requests, as flags pass them
    system    system message; None for none
    home      folder of bundles that are named during the chat; None for $HEARTH_HOME

    Entering raises BundleError, RequestError, and InvalidRequest without a chat template. The
    constructor raises BadFlag.
    """

    session: Session[LanguageService]
    verification: LaterVerification

    def __init__(
        self,
        bundle: Path,
        open_: Callable[[Path], LanguageService],
        options: Mapping[str, Any],
        *,
        system: str | None = None,
        home: Path | None = None,
    ) -> None:
        self.bundle = bundle
        self.home = home
        self.messages: list[ChatMessage] = _system(system)
        self._stated = fields_of(ChatFields, options)
        self._options = dict(options)
        self._open = open_
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        self._load(self.bundle)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def answer(self, text: str, write: Callable[[str], None]) -> AnswerSummary:
        """Answer a message, calling `write` with each piece; both are then in the conversation.

        Raises RequestError, and KeyboardInterrupt when the answer is cancelled: the conversation
        then has the pieces that were written.
        """
        messages = [*self.messages, PlainMessage(role="user", content=text)]
        pieces: list[str] = []

        def keep(piece: str) -> None:
            pieces.append(piece)
            write(piece)

        fields = self.fields
        request = fields.completion(
            prompt_ids(self.session.service, messages, fields.chat_template_kwargs),
            max_tokens=fields.max_tokens,
            logprobs=None,
        )
        try:
            summary = self.session.answer(request, keep)
        except KeyboardInterrupt:
            self._continue(messages, pieces)
            raise
        finally:
            self.verification.begin()
        self._continue(messages, pieces)
        return summary

    @property
    def fields(self) -> ChatFields:
        """The fields of the next requests: those that are set, and the model's defaults."""
        fields = self._stated.model_copy()
        fields.take_defaults(self.session.service.sampling)
        return fields

    def set_field(self, name: str, text: str) -> None:
        """Set a field of the next requests, as its flag does; raises BadFlag."""
        settable_field(name)
        options = self._options | {name: flags.value_of(ChatFields, name, text)}
        self._stated = fields_of(ChatFields, options, called=str)
        self._options = options

    def reset_field(self, name: str) -> None:
        """Set a field of the next requests to its default; raises BadFlag."""
        settable_field(name)
        self._options.pop(name, None)
        self._stated = fields_of(ChatFields, self._options, called=str)

    def set_system(self, text: str) -> None:
        """Replace the system message, or remove it if the text is empty; raises InvalidRequest."""
        messages = [message for message in self.messages if message.role not in _SYSTEM]
        self._replace([*_system(text), *messages])

    def clear(self) -> None:
        """Forget all messages except the system message."""
        self.messages = [message for message in self.messages[:1] if message.role in _SYSTEM]

    def save(self, path: Path) -> None:
        """Write the messages to a file, as the body of a request.

        The file is complete or as it was. Raises OSError, and BadConversation for a file with
        something else than a conversation, which is not replaced.
        """
        if path.exists():
            _require_conversation(path)
        messages = [
            message.model_dump(mode="json", exclude_unset=True) for message in self.messages
        ]
        text = json.dumps({"messages": messages}, ensure_ascii=False, indent=2)
        write_completely(path.resolve(), f"{text}\n")

    def load(self, path: Path) -> None:
        """Continue the conversation in a file; raises OSError, BadConversation, InvalidRequest."""
        try:
            messages = validated(Messages, strict_json.parse(read_text(path))).messages
        except (ValueError, InvalidRequest) as error:
            raise BadConversation(f"{path}: not a conversation: {error}") from error
        self._replace(messages)

    def use(self, bundle: Path) -> None:
        """Unload the model, and continue with another bundle.

        Raises BundleError, RequestError and KeyboardInterrupt, with the earlier model loaded again.
        """
        self._opened.close()
        del self.session
        gc.collect()  # a small machine has no memory for both
        try:
            self._load(bundle)
        except BaseException:
            self._load(self.bundle)
            raise
        self.bundle = bundle

    def _load(self, bundle: Path) -> None:
        with ExitStack() as opened:
            self.session = opened.enter_context(Session(self._open(bundle)))
            self._check(self.messages)
            self._opened = opened.pop_all()
        self.verification = LaterVerification(bundle)

    def _replace(self, messages: list[ChatMessage]) -> None:
        self._check(messages)
        self.messages = messages

    def _check(self, messages: Sequence[ChatMessage]) -> None:
        """Raise InvalidRequest if the model cannot answer a message after these."""
        prompt_ids(self.session.service, [*messages, PlainMessage(role="user", content="x")])

    def _continue(self, messages: list[ChatMessage], pieces: Sequence[str]) -> None:
        answer = AssistantMessage(role="assistant", content="".join(pieces))
        self.messages = [*messages, answer]


def _system(text: str | None) -> list[ChatMessage]:
    return [PlainMessage(role="system", content=text)] if text else []


def _require_conversation(path: Path) -> None:
    """Raise BadConversation for a file that `save` must not replace; raises OSError."""
    try:
        text = read_text(path)
        value = strict_json.parse(text) if text else {"messages": []}
    except ValueError:
        value = None
    if not isinstance(value, dict) or "messages" not in value:
        raise BadConversation(f"{path}: not a conversation, so not replaced; choose another file")

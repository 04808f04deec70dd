"""From a file of conversations to token ids, and which of them are learned.

A line is a JSON object with `messages`, as OpenAI's chat API has them, or with `prompt` and
`completion`. A prompt has the ids that the server makes of it; only answers are learned.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.bundle.parsing import strict_json, text_files
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hearthd.text.templates.chat_template import ChatTemplate
    from hearthd.text.tokenizer import Tokenizer


class BadExample(Exception):
    """A line of the data is invalid or too long; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """Token ids, and the indices of those that are learned; the first id is never one."""

    ids: tuple[int, ...]
    learned: tuple[int, ...]

    @property
    def length(self) -> int:
        """The number of tokens that the model reads: the last one is only predicted."""
        return len(self.ids) - 1


class ExampleReader:
    """Reads examples for one model.

    template    None: the model has none, so that conversations are rejected
    ends        the ids that end an answer; the first ends a completion
    max_length  tokens that the model reads of an example
    truncate    cut the end off longer examples, instead of raising BadExample
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        ends: tuple[int, ...],
        *,
        max_length: int,
        truncate: bool,
    ) -> None:
        self._tokenizer, self._template, self._ends = tokenizer, template, ends
        self._max_length, self._truncate = max_length, truncate

    def read(self, path: Path) -> list[Example]:
        """The examples of a file, in order; raises BadExample or OSError."""
        examples = []
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if not line.removeprefix(text_files.BYTE_ORDER_MARK).strip():
                continue
            try:
                entry = strict_json.parse(text_files.decode(line))
                examples += [self._fitting(example) for example in self._examples(entry)]
            except InvalidRequest as error:
                raise BadExample(f"{path}, line {number}: {error}") from error
            except ValueError as error:
                raise BadExample(f"{path}, line {number}: {error}") from error
        if not examples:
            raise BadExample(f"{path} has no examples")
        return examples

    def _fitting(self, example: Example) -> Example:
        limit = self._max_length
        if example.length <= limit:
            return example
        if not self._truncate:
            raise ValueError(
                f"got {example.length} tokens, expected at most {limit}; raise --max-length, or "
                "cut the end off with --truncate"
            )
        learned = tuple(index for index in example.learned if index <= limit)
        if not learned:
            raise ValueError(
                f"the answer starts after {limit} tokens, so that nothing is left to learn; "
                "raise --max-length"
            )
        return Example(ids=example.ids[: limit + 1], learned=learned)

    def _examples(self, entry: Any) -> Iterator[Example]:
        """The examples of one line; raises ValueError or InvalidRequest."""
        keys = set(entry) if isinstance(entry, dict) else set()
        if keys == {"prompt", "completion"}:
            yield self._completion(entry["prompt"], entry["completion"])
        elif "messages" in keys and keys <= {"messages", "tools"}:
            yield from self._conversation(entry["messages"], entry.get("tools") or [])
        else:
            raise ValueError(
                "expected an object with `messages`, or with `prompt` and `completion`, got "
                f"{json.dumps(entry):.80}"
            )

    def _completion(self, prompt: object, completion: object) -> Example:
        if not isinstance(prompt, str) or not isinstance(completion, str):
            raise ValueError("expected texts as `prompt` and `completion`")
        before = self._tokenizer.encode(prompt)
        if not before:
            raise ValueError("`prompt` is empty, and the model has no token that starts a text")
        answer = (*self._tokenizer.read(completion, position="inside"), self._ends[0])
        learned = range(len(before), len(before) + len(answer))
        return Example(ids=(*before, *answer), learned=tuple(learned))

    def _conversation(self, messages: object, tools: list[Any]) -> Iterator[Example]:
        """One example; more where the template writes an earlier answer in another way later."""
        template = self._template
        if template is None:
            raise ValueError("the model has no chat template; use `prompt` and `completion`")
        checked = _checked(messages)
        answers = [i for i, message in enumerate(checked) if message["role"] == "assistant"]
        if not answers:
            raise ValueError("`messages` has no message of the role assistant")
        ids: tuple[int, ...] = ()
        learned: tuple[int, ...] = ()
        for index in answers:
            prompt = template.prompt(checked[:index], tools=tools)
            if ids and prompt.ids[: len(ids)] != ids:
                yield Example(ids=ids, learned=learned)
                learned = ()
            answered = template.prompt(
                checked[: index + 1], tools=tools, add_generation_prompt=False
            )
            if not answered.text.startswith(prompt.text):
                raise ValueError(
                    f"the chat template does not write message {index + 1} after its prompt"
                )
            text = answered.text[len(prompt.text) :]
            answer = self._ended(self._tokenizer.read(text, position="inside"))
            learned += tuple(range(len(prompt.ids), len(prompt.ids) + len(answer)))
            ids = (*prompt.ids, *answer)
        yield Example(ids=ids, learned=learned)

    def _ended(self, answer: tuple[int, ...]) -> tuple[int, ...]:
        """An answer up to the last token that ends one, which is added if there is none."""
        last = max((i for i, token in enumerate(answer) if token in self._ends), default=None)
        return (*answer, self._ends[0]) if last is None else answer[: last + 1]


def _checked(messages: object) -> list[dict[str, Any]]:
    """The messages, if each has a role and, as text, a content; raises ValueError."""
    if not isinstance(messages, list):
        raise ValueError("expected a list as `messages`")
    checked = []
    for number, message in enumerate(messages, 1):
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str):
            raise ValueError(f"message {number} has no role")
        content = message.get("content")
        if content is None and message.get("tool_calls"):
            content = ""
        if not isinstance(content, str):
            raise ValueError(f"message {number}: expected a text as content")
        checked.append({**message, "content": content})
    return checked

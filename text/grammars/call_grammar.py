"""The grammars of answers that can be tool calls.

If an answer must be a call, or a call or JSON, its grammar applies from the first token. If it may
also be any text, the grammar applies from the text that begins a call.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.answer_constraint import AnswerRules, Trigger
from hearthd.text.grammars.grammar import Grammar, side_grammar
from hearthd.text.grammars.json_text import UnsupportedText
from hearthd.text.grammars.lark_regex import lark_regex
from hearthd.text.reasoning import quoted
from hearthd.text.tool_calls.call_format import Signature, UnsupportedSchema
from hearthd.text.tool_calls.parameter_schemas import resolved
from hearthd.text.value_marks import JSON_VALUE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.text.grammars.grammar import Grammars
    from hearthd.text.reasoning import Reasoning, ReasoningTags
    from hearthd.text.tokenizer import Tokenizer
    from hearthd.text.tool_calls.call_format import CallFormat
    from hearthd.text.tool_calls.tools import Tool, ToolUse

_KNOWN_SCHEMAS = 1024
_ANY_OBJECT = '{"type": "object"}'
_NO_ARGUMENTS = '{"type": "object", "properties": {}}'


class CallGrammars:
    """Makes the rules of answers that can call tools; for any thread."""

    def __init__(self, grammars: Grammars, tokenizer: Tokenizer) -> None:
        self._grammars = grammars
        self._tokenizer = tokenizer
        self._valid: dict[tuple[int, bytes], int] = {}

    def rules(
        self, use: ToolUse | None, answer: Grammar | None, reasoning: Reasoning | None = None
    ) -> AnswerRules:
        """The rules of an answer that may be calls, or match `answer`; any text without both.

        An answer of messages may begin with a message of reasoning, unless its budget is 0. Raises
        InvalidRequest for a strict tool whose schema cannot be enforced.
        """
        messages = reasoning.tags if reasoning and reasoning.possible else None
        messages = messages if messages and messages.opening else None
        if use is not None and not use.tools and (answer is not None or not use.format.response):
            answer = answer or _text_without(use.format, has_messages=bool(messages))
            use = None
        if use is None and (answer is None or messages is None):
            return AnswerRules(grammar=answer)
        required = use is not None and use.required
        choices, rules, parts = [], [], []
        if use is not None:
            choices += ["calls"] * bool(use.tools)
            rules.append(self._calls(use))
            if use.format.response is not None and not required and answer is None:
                choices.append("response")
        if answer is not None and not required:
            self._grammars.rules(answer)  # reports errors at the field of the answer
            header = quoted(messages.headers[0], self._quote) if messages else ""
            choices.append(
                f"{header} {JSON_VALUE}? @answer" if answer.json else f"{header} @answer"
            )
            parts.append(side_grammar(answer, "answer"))
        trigger = None
        if use is not None and choices == ["calls"] and not required:
            trigger = Trigger(pattern=use.format.trigger, only_first=use.format.only_first)
        start = " | ".join(choices)
        if messages and trigger is None and reasoning and reasoning.budget != 0:
            start = f"thought? ({start})"
            rules.append(self._thought(messages))
        lark = "\n".join([f"start: {start}", *rules])
        parts.insert(0, json.dumps({"name": "calls", "lark_grammar": lark}))
        grammars = f'{{"grammars": [{", ".join(parts)}]}}'
        field = answer.field if use is None and answer is not None else "tools"
        return AnswerRules(grammar=Grammar("calls", grammars, field=field), trigger=trigger)

    def _thought(self, tags: ReasoningTags) -> str:
        """The rule `thought`: a message of reasoning, and the opening of the next one."""
        begin, end = quoted(tags.start, self._quote), quoted(tags.end + tags.opening, self._quote)
        # No special token is a part of a text; without them, a name would begin with these signs.
        return f"thought: {begin} THOUGHT? {end}\nTHOUGHT: /([^<]|<[^|])+/"

    def _calls(self, use: ToolUse) -> str:
        signatures = [
            Signature(
                name=tool.name,
                schema=self._schema(tool),
                input=self._input(tool.input, in_json=use.format.json_texts),
                strict=tool.strict,
            )
            for tool in use.tools
        ]
        try:
            return use.format.lark(signatures, self._quote, parallel=use.parallel)
        except UnsupportedSchema as error:
            tool = next(tool for tool in use.tools if tool.name == error.tool)
            got = "a strict tool" if tool.strict else "a tool"
            raise InvalidRequest(
                field=tool.field, got=got, expected=f"another schema: {error}", quotes=True
            ) from error

    def _schema(self, tool: Tool) -> str:
        """The schema as llguidance can enforce it: at least partly, unless the tool is strict."""
        parameters = _NO_ARGUMENTS
        if tool.parameters and (given := json.loads(tool.parameters)):
            parameters = json.dumps({"type": "object", **given}, ensure_ascii=False)
        schema = Grammar("json_schema", parameters, tool.field)
        attempts = [schema]
        if not tool.strict:
            attempts += [
                replace(schema, type="partial_schema"),
                replace(schema, value=_names(json.loads(parameters))),
                replace(schema, value=_ANY_OBJECT),
            ]
        attempt = attempts[self._first_valid(attempts)]
        text: str = json.dumps(json.loads(side_grammar(attempt, "arguments"))["json_schema"])
        return text

    def _first_valid(self, attempts: Sequence[Grammar]) -> int:
        """The index of the first grammar that compiles; raises InvalidRequest of the last one.

        A chat sends its tools with each turn, so the index is kept; dozens of compiled schemas
        would evict the grammars of answers.
        """
        # The others are made from the first one.
        key = len(attempts), hashlib.sha256(attempts[0].value.encode()).digest()
        if (known := self._valid.get(key)) is not None:
            return known
        for attempt in attempts:
            try:
                self._grammars.check(attempt)
            except InvalidRequest:
                if attempt is attempts[-1]:
                    raise
            else:
                break
        if len(self._valid) >= _KNOWN_SCHEMAS:
            self._valid.clear()
        valid = self._valid[key] = attempts.index(attempt)
        return valid

    def _input(self, grammar: Grammar | None, *, in_json: bool) -> str | None:
        """The regular expression of a text in a call, between slashes; raises InvalidRequest."""
        if grammar is None:
            return None
        self._grammars.rules(grammar)  # reports errors at its field
        lark = grammar.value
        if grammar.type == "regex":
            # The whole input matches, with or without anchors.
            pattern = lark.removeprefix("^").removesuffix("$").replace("/", r"\/")
            lark = f"start: /{pattern}/"
        try:
            return lark_regex(lark, in_json=in_json).replace("/", r"\/")
        except UnsupportedText as error:
            raise InvalidRequest(
                field=grammar.field,
                got=grammar.type,
                expected=f"a grammar without {error}, which cannot be enforced in a call",
                quotes=True,
            ) from error

    def _quote(self, text: str) -> str:
        token = self._tokenizer.special_id(text)
        return json.dumps(text) if token is None else f"<[{token}]>"


def _text_without(calls: CallFormat, *, has_messages: bool) -> Grammar:
    """Any text in which no call begins; in a message that is not a call, any text.

    No special token is a part of a text.
    """
    text = r"TEXT: /(?s:.*)/"
    if not has_messages:
        begin = calls.trigger.decode().replace("?P<call>", "?:").replace("/", r"\/")
        before = "" if calls.only_first else "(?s:.*)"
        text += rf" & ~/{before}{begin}(?s:.*)/"
    return Grammar("lark", f"start: TEXT\n{text}", field="tool_choice")


def _names(schema: dict[str, Any]) -> str:
    """A schema with the names of another one's properties, and those that are required."""
    schema = resolved(schema, schema) or {}
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return _ANY_OBJECT
    needed = [key for key in properties if isinstance(required, list) and key in required]
    others = schema.get("additionalProperties", False) is not False
    names = {"type": "object", "properties": dict.fromkeys(properties, True), "required": needed}
    return json.dumps({**names, "additionalProperties": others}, ensure_ascii=False)

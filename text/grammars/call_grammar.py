"""The grammars of answers that can be tool calls.

If an answer must be a call, or a call or JSON, its grammar applies from the first token. If it may
also be any text, the grammar applies from the text that begins a call.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.answer_constraint import AnswerRules, Trigger
from hearthd.text.grammars.grammar import Grammar, side_grammar
from hearthd.text.grammars.json_text import UnsupportedText
from hearthd.text.grammars.lark_regex import lark_regex
from hearthd.text.tool_calls.call_format import Signature, UnsupportedSchema
from hearthd.text.value_marks import JSON_VALUE

if TYPE_CHECKING:
    from hearthd.text.grammars.grammar import Grammars
    from hearthd.text.tokenizer import Tokenizer
    from hearthd.text.tool_calls.tools import Tool, ToolUse

_ANY_OBJECT = '{"type": "object"}'
_NO_ARGUMENTS = '{"type": "object", "properties": {}}'


class CallGrammars:
    """Makes the rules of answers that can call tools; for any thread."""

    def __init__(self, grammars: Grammars, tokenizer: Tokenizer) -> None:
        self._grammars = grammars
        self._tokenizer = tokenizer

    def rules(self, use: ToolUse, answer: Grammar | None) -> AnswerRules:
        """The rules of an answer that may be calls, or match `answer`.

        Raises InvalidRequest for a strict tool whose schema cannot be enforced.
        """
        start, parts = "start: calls", []
        has_response = use.format.response is not None and not use.required and answer is None
        if has_response:
            start += " | response"
        if answer is not None and not use.required:
            self._grammars.rules(answer)  # reports errors at the field of the answer
            start += f" | {JSON_VALUE}? @answer" if answer.json else " | @answer"
            parts.append(side_grammar(answer, "answer"))
        lark = f"{start}\n{self._calls(use)}"
        parts.insert(0, json.dumps({"name": "calls", "lark_grammar": lark}))
        grammar = Grammar("calls", f'{{"grammars": [{", ".join(parts)}]}}', field="tools")
        if use.required or answer is not None or has_response:
            return AnswerRules(grammar=grammar)
        return AnswerRules(
            grammar=grammar,
            trigger=Trigger(pattern=use.format.trigger, only_first=use.format.only_first),
        )

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
            field = next(tool.field for tool in use.tools if tool.name == error.tool)
            raise InvalidRequest(
                field=field, got="a strict tool", expected=f"another schema: {error}"
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
                Grammar("json_schema", _ANY_OBJECT, tool.field),
            ]
        for attempt in attempts:
            try:
                self._grammars.rules(attempt)
            except InvalidRequest:
                if attempt is attempts[-1]:
                    raise
            else:
                break
        text: str = json.dumps(json.loads(side_grammar(attempt, "arguments"))["json_schema"])
        return text

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
            ) from error

    def _quote(self, text: str) -> str:
        token = self._tokenizer.special_id(text)
        return json.dumps(text) if token is None else f"<[{token}]>"

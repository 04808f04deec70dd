"""No key occurs twice in an object that other text stands around, or that is not JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.grammar import Grammar
from hearthd.text.tool_calls.tools import Tool, ToolUse
from hearthd.text.tool_calls.xml_calls import XML
from tests.by_day import first_by_day
from tests.server.fakes import byte_level
from tests.server.grammar_world import World, accepts
from tests.text.test_call_grammar import CASES, FORMATS, constraint
from tests.text.test_call_grammar import WORLDS as CALL_WORLDS
from tests.text.test_unique_keys import ALL_WORLDS, OBJECT, OPEN, object_sizes, sampled

if TYPE_CHECKING:
    from hearthd.sampling.constraint import Constraint
    from hearthd.text.grammars.grammar import Rules

# An object in a Lark grammar, and an answer with {} for the object.
LARK = {
    "alone": ("start: object", "{}"),
    "after text": ('start: "Answer:" object', "Answer:{}"),
    "after a colon": (r'start: "\":" object', '":{}'),
    "after any text": ("start: /[^{]*/ object /[^{]*/", 'a "b" {} "c"'),
    "inside braces": ('start: "{" object "}"', "{{}}"),
    "several": ('start: (object " "?)+', '{"b":1,"a":2}{} {"b":3}'),
    "repeated at once": ("start: %json SCHEMA+", "{}"),
    "in an array": ('start: %json {"type": "array", "items": SCHEMA}', '[{"b":1},{}]'),
    "limited": ("start: limited\nlimited[max_tokens=60]: %json SCHEMA", "{}"),
    "in a grammar": ("start: %lark { start: %json SCHEMA\n}", "{}"),
}


def lark(name: str) -> str:
    grammar = f"{LARK[name][0]}\nobject: %json SCHEMA"
    return grammar.replace("SCHEMA", json.dumps(OPEN["a schema of values"]))


def rules(value: str, world: str = "gemma") -> Rules:
    return ALL_WORLDS[world].grammars.rules(Grammar("lark", value))


def follows(state: Constraint, world: World, text: str) -> bool:
    """Whether a text may come next."""
    for token in world.tokenizer.read(text, position="inside"):
        allowed = state.allowed()
        if allowed is not None and not allowed[token]:
            return False
        state.accept(token)
    return True


@pytest.mark.parametrize("name", LARK)
@pytest.mark.parametrize("world", first_by_day(ALL_WORLDS))
def test_random_objects_in_a_lark_grammar_have_unique_keys(world: str, name: str) -> None:
    begun = LARK[name][1].partition("{}")[0] + '{"a":1,'
    for seed in range(3):
        state = rules(lark(name), world)
        assert follows(state, ALL_WORLDS[world], begun)
        assert max(object_sizes(begun + sampled(ALL_WORLDS[world], state, seed))) > 1


@pytest.mark.parametrize("world", ALL_WORLDS)
@pytest.mark.parametrize("name", LARK)
def test_an_object_in_a_lark_grammar_has_unique_keys(world: str, name: str) -> None:
    for members, valid in {
        '{"a":1, "b":2}': True,
        '{"a":1, "a":2}': False,
        '{"a":{"a":1},"b":{"b":{"a":1},"c":1}}': True,
        '{"b":{"a":1},"a":{"b":{"b":1,"b":1}}}': False,
        r'{"\"":1,"\u0022":2}': False,
    }.items():
        answer = LARK[name][1].replace("{}", members)
        assert accepts("lark", lark(name), answer, world=ALL_WORLDS[world]) is valid, answer


JSON_OR = {
    "text": "start: /(.|\\n)*/ | %json SCHEMA",
    "sets": 'start: (set | %json SCHEMA)+\nset: "{" ("\\"a\\"" ","?)* "}"',
    "tokens": "start: <[*]>* | %json SCHEMA",
    "members": 'start: "{" ("\\"a\\":1" ","?)* "}" %json SCHEMA',
    "its name": 'start: "%json {}" %json SCHEMA // %json {\nOTHER: /%json "/',
    "any value": "start: %json {}",
}


@pytest.mark.parametrize(
    ("name", "text", "valid"),
    [
        ("text", '{"a":1,"a":1}', False),
        ("text", 'x {"a":1,"a":1}', True),
        ("text", '{"a", "a", "a":1}', True),
        ("text", '{ {"a":1,"a":1}', True),
        ("sets", '{"a","a"}{"a":1}{"a"}', True),
        ("sets", '{"a","a"}{"a":1,"a":1}', False),
        ("tokens", '{"a":1,"a":1}', True),
        ("members", '{"a":1,"a":1}{"a":1}', True),
        ("members", '{"a":1,"a":1}{"a":1,"a":1}', False),
        ("its name", '%json {}{"a":1,"b":1}', True),
        ("its name", '%json {}{"a":1,"a":1}', False),
        ("any value", '"{\\"a\\":1,\\"a\\":1}"', True),
        ("any value", '["{", {"a":1}, {"a":1}, "a", "a"]', True),
        ("any value", '["{", {"a":1}, {"a":1, "a":2}]', False),
        ("any value", "-12.5", True),
    ],
)
@pytest.mark.parametrize("world", ALL_WORLDS)
def test_a_text_that_cannot_be_the_object_is_free(
    world: str, name: str, text: str, valid: bool
) -> None:
    grammar = JSON_OR[name].replace("SCHEMA", json.dumps(OBJECT))
    assert accepts("lark", grammar, text, world=ALL_WORLDS[world]) is valid


def test_a_token_can_leave_the_object() -> None:
    library = byte_level()
    library.add_tokens(['"=', "}{", "the end"])
    world = World(library)
    text = JSON_OR["text"].replace("SCHEMA", json.dumps(OBJECT))
    assert accepts("lark", text, '{"a":1,"a"=2}', world=world)
    sets = JSON_OR["sets"].replace("SCHEMA", json.dumps(OBJECT))
    assert accepts("lark", sets, '{"a":1}{"a","a"}', world=world)
    assert accepts("lark", sets, '{"a":1}{"a":1}', world=world)
    assert not accepts("lark", sets, '{"a","a"}{"a":1,"a":1}', world=world)


def test_an_error_shows_the_grammar_as_it_was_sent() -> None:
    with pytest.raises(InvalidRequest, match=r"objct") as error:
        rules('start: "a" %json {"type": "objct"}')
    assert "value" not in str(error.value)
    with pytest.raises(InvalidRequest, match=r"start: %json \{\} missing") as error:
        rules("start: %json {} missing")


def test_a_text_that_is_fed_counts() -> None:
    for grammar in (Grammar("json_object"), Grammar("lark", f"start: %json {json.dumps(OBJECT)}")):
        state = ALL_WORLDS["gemma"].grammars.rules(grammar)
        assert not state.feed(b'{"a" 1', ())
        assert state.feed(b'{"a":1,"a', ())
        (quote,) = ALL_WORLDS["gemma"].tokenizer.read('"', special=False, position="inside")
        assert not state.allowed()[quote]


CALLS = {
    "generic": '{"tool_calls": [{"name": "f", "arguments": ',
    "hermes": '<tool_call>{"name": "f", "arguments": ',
    "llama": '{"name": "f", "parameters": ',
    "mistral": '[TOOL_CALLS][{"name": "f", "arguments": ',
    "mistral named": "[TOOL_CALLS]f[ARGS]",
    "granite": '<|tool_call|>[{"name": "f", "arguments": ',
    "phi": '<|tool_call|>[{"name": "f", "arguments": ',
    "function gemma": "<start_function_call>call:f",
}
ANSWERS = {
    "a call": None,
    "a call or JSON": Grammar("json_object"),
    "a call or a regex": Grammar("regex", "[a{]+"),
    "a call or Lark": Grammar("lark", f"start: /[^{{]*/ %json {json.dumps(OBJECT)}"),
}


def call_constraint(name: str, world: str, answer: Grammar | None) -> Constraint:
    tool = Tool(name="f", parameters=json.dumps(OBJECT), strict=True)
    tools = ToolUse(format=FORMATS[name], tools=(tool,), required=not answer, parallel=False)
    return constraint(world, tools, answer)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize(("world", "name"), [case for case in CASES if case[1] in CALLS])
def test_arguments_have_unique_keys(world: str, name: str, answer: Grammar | None) -> None:
    for arguments, valid in {
        '{"a":1,"b":2}': True,
        '{"a":1,"a":2}': False,
        '{"b":{"a":1,"b":2}}': True,
        '{"b":{"a":1,"a":2}}': False,
        '{"b":[{"a":1},{"a":1}]}': True,
        '{"b":[{"a":1,"a":2}]}': False,
    }.items():
        written = arguments.replace('"', "") if name == "function gemma" else arguments
        state = call_constraint(name, world, answer)
        assert follows(state, CALL_WORLDS[world], CALLS[name] + written) is valid, arguments


def test_objects_in_parameters_of_xml_have_unique_keys() -> None:
    schema = json.dumps({"properties": {"b": OBJECT}, "required": ["b"]})
    tools = ToolUse(
        format=XML,
        tools=(Tool(name="f", parameters=schema, strict=True),),
        required=True,
        parallel=False,
    )
    for value, valid in {'{"a":1,"b":2}': True, '{"a":1,"a":2}': False}.items():
        text = f"<tool_call>\n<function=f>\n<parameter=b>\n{value}"
        state = constraint("text", tools, None)
        assert follows(state, CALL_WORLDS["text"], text) is valid, value


def test_a_call_that_begins_in_free_text_has_unique_keys() -> None:
    for name in ("hermes", "function gemma"):
        tool = Tool(name="f", parameters=json.dumps(OBJECT))
        tools = ToolUse(format=FORMATS[name], tools=(tool,), required=False, parallel=True)
        for arguments, valid in {'{"a":1,"b":2}': True, '{"a":1,"a":2}': False}.items():
            written = arguments.replace('"', "") if name == "function gemma" else arguments
            text = 'I say {"a":1,"a":2}. ' + CALLS[name] + written
            state = constraint("special", tools, None)
            assert follows(state, CALL_WORLDS["special"], text) is valid, text


def test_the_answer_beside_tools_has_unique_keys() -> None:
    for name in ("a call or JSON", "a call or Lark"):
        for second, valid in {"b": True, "a": False}.items():
            state = call_constraint("hermes", "text", ANSWERS[name])
            text = f'{{"a":{{"a":1,"{second}":2}}}}'
            assert follows(state, CALL_WORLDS["text"], text) is valid
    sets = Grammar("regex", r'(\{("a",?)*\})+')
    assert follows(call_constraint("hermes", "text", sets), CALL_WORLDS["text"], '{"a","a"}{"a"}')


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("{}", True),
        ("{a:{},b:[{},{}]}", True),
        ("{ab:1,a:2,abc:3,b:4}", True),
        ("{ab:1,a:2,ab:3}", False),
        ("{a:{a:{a:1}}}", True),
        ("{a:{b:1,b:1}}", False),
        ("{a:{b:1},b:{b:1},a:2}", False),
        ("{x:[{a:1},{a:1}],a:[]}", True),
        ("{x:[1,2],x:1}", False),
        ("{a:<escape>,a:<escape>,b:<escape>{a:<escape>}", True),
        ("{a:<escape>,b:<escape>,b:1}", True),
        ("{a:<escape>,b:<escape>,b:1,b:2}", False),
        ("{a:<escape><escape>,a:1}", False),
        ("{a:<escape>< < esc<escape>,b:<escape>x<escape>,a:1}", False),
    ],
)
def test_the_keys_of_function_gemma_are_bare_words(text: str, valid: bool) -> None:
    state = call_constraint("function gemma", "special", None)
    call = f"{CALLS['function gemma']}{text}<end_function_call>"
    assert follows(state, CALL_WORLDS["special"], call) is valid


@pytest.mark.parametrize("schema", [{}, {"type": "array"}, {"anyOf": [{}, OBJECT]}])
def test_any_value_of_function_gemma_has_unique_keys(schema: dict[str, Any]) -> None:
    parameters = json.dumps({"properties": {"x": schema}})
    tools = ToolUse(
        format=FORMATS["function gemma"],
        tools=(Tool(name="f", parameters=parameters),),
        required=True,
        parallel=False,
    )
    for members, valid in {"a:1,b:2": True, "a:1,a:2": False}.items():
        state = constraint("special", tools, None)
        call = f"{CALLS['function gemma']}{{x:[{{{members}}},{{a:1}}]}}<end_function_call>"
        assert follows(state, CALL_WORLDS["special"], call) is valid, call


def test_no_key_of_function_gemma_begins_that_cannot_become_another() -> None:
    state, world = call_constraint("function gemma", "special", None), CALL_WORLDS["special"]
    longest = "a" * 41
    assert follows(state, world, f"{CALLS['function gemma']}{{{longest}:1,{longest[1:]}")
    a, b = (world.tokenizer.read(text, position="inside")[0] for text in "ab")
    allowed = state.allowed()
    assert allowed is not None
    assert allowed[b]
    assert not allowed[a]


def as_json(text: str) -> str:
    """Values of FunctionGemma in JSON, with empty strings."""
    return re.sub(r"(\w+):", r'"\1":', re.sub("<escape>.*?<escape>", '""', text, flags=re.DOTALL))


@pytest.mark.parametrize("answer", first_by_day(ANSWERS.values(), 2), ids=ANSWERS)
@pytest.mark.parametrize("name", CALLS)
def test_random_calls_have_unique_keys(name: str, answer: Grammar | None) -> None:
    world, bare = CALL_WORLDS["special"], name == "function gemma"
    begun = "{a:1," if bare else '{"a":1,'
    for seed in range(3):
        state = call_constraint(name, "special", answer)
        assert follows(state, world, CALLS[name] + begun)
        text = begun + sampled(world, state, seed, "<escape>::,,}}1ab" if bare else '"",,}:1ab')
        assert max(object_sizes(as_json(text) if bare else text)) > 1

"""Templates that never end, fill the memory or leave the sandbox raise an error."""

from __future__ import annotations

import resource
import time
from typing import Any

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hearthd.text.templates import template_budget
from hearthd.text.templates.template_budget import LimitExceeded
from hearthd.text.templates.template_sandbox import LimitedEnvironment

# Each list has the one before it twice.
NESTED = "{% set l0 = ['x'] %}" + "".join(
    f"{{% set l{i} = [] %}}" + 2 * f"{{% set _ = l{i}.append(l{i - 1}) %}}" for i in range(1, 40)
)
BIG = "{% set s = namespace(x='abcdefgh' * 100000) %}"  # 800 000 characters
GROWN = (
    "{{% set n = namespace(x={}) %}}{{% for i in range(99) %}}{{% set n.x = {} %}}{{% endfor %}}"
)
# A macro keeps what it is given besides its arguments, twice what it had before.
SURPLUS = (
    "{{% set n = namespace(x='a') %}}{{% macro m() %}}{{% set n.x = {} %}}{{% endmacro %}}"
    "{{% for i in range(40) %}}{{% set _ = m({}) %}}{{% endfor %}}"
)
LONG = "{% set a = range(99999) | list %}{% set b = range(99999) | list %}"
LOOP = "{% for i in range(99999) %}"
MESSAGES = [{"role": "user", "content": "Hello\nthere"}, {"role": "assistant", "content": "Hi"}]


@pytest.fixture
def environment() -> LimitedEnvironment:
    return LimitedEnvironment(functions={})


def render(environment: LimitedEnvironment, source: str, **variables: Any) -> str:
    template, _ = environment.load(source)
    return environment.render(template, variables)


@pytest.mark.parametrize(
    "source",
    [
        f"{LOOP}{LOOP}{{% endfor %}}{{% endfor %}}",
        f"{LOOP}{{% for j in range(99999) if false %}}{{% endfor %}}{{% endfor %}}",
        f"{LOOP}{{% for j in range(99999) if loop.x %}}{{% endfor %}}{{% endfor %}}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) ~ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        f"{LOOP}{{{{ range(999) | map('string') | first }}}}{{% endfor %}}",
        f"{LOOP}{{% set x = range(999) | sort | first %}}{{% endfor %}}",
        f"{LONG}{'{% if a == b %}{% endif %}' * 1000}",
        f"{LONG}{'{% if a is eq(b) %}{% endif %}' * 1000}",
        f"{LONG}{'{% set x = a[:] %}' * 1000}",
    ],
)
def test_time_is_limited(
    environment: LimitedEnvironment, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(template_budget, "MAX_SECONDS", 0.05)
    monkeypatch.setattr(template_budget, "MAX_BYTES", 2**50)
    began = time.thread_time()
    with pytest.raises(LimitExceeded, match=r"takes longer than 0\.05 s"):
        render(environment, source)
    assert time.thread_time() - began < 3  # without a limit ten seconds to years


def test_a_range_has_a_limit(environment: LimitedEnvironment) -> None:
    with pytest.raises(OverflowError, match="Range too big"):
        render(environment, "{% for i in range(10 ** 9) %}{% endfor %}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10 ** 10 }}",
        "{{ 10 ** 10 * [1] }}",
        GROWN.format("'a'", "n.x + n.x"),
        GROWN.format("'a'", "n.x ~ n.x"),
        GROWN.format("'aa'", "n.x.replace('a', n.x)"),
        GROWN.format("'aa'", "n.x | replace('a', n.x)"),
        GROWN.format("'aa'", "n.x.join(n.x)"),
        GROWN.format("'aa'", "n.x | join(n.x)"),
        GROWN.format("'a'", "'%s%s' % (n.x, n.x)"),
        GROWN.format("'a'", "'{0}{0}'.format(n.x)"),
        "{{ ('{0}' * 2000).format('x' * 100000) | length }}",
        GROWN.format("[1]", "[n.x, n.x]"),
        GROWN.format("[1]", "n.x + n.x"),
        GROWN.format("[1]", "{'a': n.x, 'b': n.x}"),
        GROWN.format("[1]", "dict(a=n.x, b=n.x)"),
        f"{BIG}{{% set l = [] %}}{LOOP}{{% set _ = l.append(s.x ~ i) %}}{{% endfor %}}",
        f"{{% set l = [] %}}{LOOP}{LOOP}{{% set _ = l.append(1) %}}{{% endfor %}}{{% endfor %}}",
        NESTED + "{{ l39 | string }}",
        SURPLUS.format("varargs", "n.x, n.x") + "{{ n.x == 1 }}",
        SURPLUS.format("varargs", "n.x, n.x") + "{% set y = n.x ~ 1 %}",
        SURPLUS.format("kwargs", "a=n.x, b=n.x"),
        "{% macro m(i) %}{% if i %}{{ m(i - 1, *varargs) }}{% endif %}{% endmacro %}"
        "{{ m(99, *range(99999)) }}",
        GROWN.format("'a'", "cycler(n.x, n.x).items"),
        GROWN.format("{}", "dict(a=n.x.items(), b=n.x.items())"),
        GROWN.format("{}", "{'a': n.x.values(), 'b': n.x.keys(), 'c': n.x.values()}"),
        LONG + "".join(f"{{% set x{i} = a[:] %}}" for i in range(99)),
        BIG + "".join(f"{{% set x{i} = s.x[1:] %}}" for i in range(99)),
        GROWN.format("'<'", "n.x | escape ~ n.x"),
        GROWN.format("'a\n'", "n.x | indent(99) ~ n.x"),
        f"{BIG}{LOOP}{{{{ s.x }}}}{{% endfor %}}",
        f"{BIG}{{% set y %}}{LOOP}{{{{ s.x ~ i }}}}{{% endfor %}}{{% endset %}}",
        f"{BIG}{{{{ range(99999) | map('replace', '0', s.x) | first }}}}",
        BIG + "".join(f"{{% set a{i} = s.x ~ {i} %}}" for i in range(999)),
        "{{ ('abb' * 5000000).split('a') | length }}",
        "{{ ('ab ' * 5000000).split() | length }}",
        "{{ ('ab\n' * 5000000).splitlines() | length }}",
        "{{ ('ab ' * 5000000) | wordcount }}",
        "{{ ('ab ' * 5000000) | title | length }}",
        "{{ ('&' * 9000000) | escape | length }}",
        "{{ ([1] * 9999) | tojson(separators=['a' * 99999, 'b']) }}",
    ],
)
def test_memory_is_limited(
    environment: LimitedEnvironment, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(template_budget, "MAX_SECONDS", 60)
    monkeypatch.setattr(template_budget, "MAX_BYTES", 16 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(LimitExceeded, match="makes more than 16777216 bytes"):
        render(environment, source)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 3 * template_budget.MAX_BYTES >> 10


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ 10 ** 10 ** 10 }}", "number of more than 64 bits"),
        (GROWN.format("3", "n.x * n.x"), "number of more than 64 bits"),
        ("{{ '%999999999d' % 1 }}", "wider than 100 characters"),
        ("{{ '%*d' % (999999999, 1) }}", "wider than 100 characters"),
        ("{{ '%999999999d' | format(1) }}", "wider than 100 characters"),
        ("{{ 5 | round(-999999999) }}", "round: got -999999999, expected at most 100"),
        ("{{ [1] | tojson(indent=999999999) }}", "tojson: got 999999999"),
        ("{{ [1] | batch(999999999, 1) | list }}", "batch: got 999999999"),
        ("{{ ('ab' * 200000) | sort }}", "sort: got 400000 items"),
        ("{{ [[1], [2]] | sum(start=[]) }}", "sum: got a list, expected numbers"),
        ("{{ messages | indent }}", "indent: got list, expected a text"),
        ("{{ 'a'.ljust(999999999) }}", "'ljust' of 'str' object is unsafe"),
        ("{{ '{:999999999}'.format(1) }}", "'format' of 'str' object is unsafe"),
        ("{{ (1).to_bytes(999999999, 'big') }}", "'to_bytes' of 'int' object is unsafe"),
        ("{{ 'a'.encode() }}", "'encode' of 'str' object is unsafe"),
        ("{{ lipsum(n=999999999) }}", "'lipsum' is undefined"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ cycler.__init__.__globals__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ messages.copy().append(1) }}", "unsafe"),
        ("{{ (messages + []).append(1) }}", "unsafe"),
        ("{{ [1].extend(messages) }}", "unsafe"),
        ("{% set l = [] %}{{ l.append(l) }}{{ l }}", "recursion"),
        ("{% set l = [] %}{% set m = [l, l] %}{{ l.append('x') }}", "unsafe"),
        ("{% set l = [] %}{% set m = [] %}{{ m.append(l) }}{{ l.append('x') }}", "unsafe"),
        ("{% set l = [] %}{% set d = dict(a=l) %}{{ l.append('x') }}", "unsafe"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{% extends '../x' %}", "no loader"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
    ],
)
def test_a_step_with_a_large_result_is_rejected(
    environment: LimitedEnvironment, source: str, message: str
) -> None:
    messages = [dict(message) for message in MESSAGES]
    with pytest.raises((jinja2.TemplateError, TypeError, RecursionError), match=message):
        render(environment, source, messages=messages)
    assert messages == MESSAGES


@pytest.mark.parametrize(
    "source",
    ["{% if %}", "x" * 200_001, "{{ 'a' | center(9) }}", "{{ 1" + " + 1" * 9999 + " }}"],
)
def test_an_invalid_template_is_rejected(environment: LimitedEnvironment, source: str) -> None:
    with pytest.raises(jinja2.TemplateError):
        environment.load(source)


@pytest.mark.parametrize(
    ("unit", "count"),
    [("{{ a }}", 28_000), ("{% if a %}{% set b = 1 %}{% endif %}", 5500), ("{{ a ~ a }}", 18_000)],
)
def test_compiling_many_statements_or_values_is_rejected(
    environment: LimitedEnvironment, unit: str, count: int
) -> None:
    with pytest.raises(LimitExceeded, match="more than 10000 names, values"):
        environment.load(unit * count)


def test_a_constant_is_not_computed_while_the_template_is_loaded(
    environment: LimitedEnvironment,
) -> None:
    environment.load("{{ 'a' * 10 ** 10 }}{{ 10 ** 10 ** 10 }}{{ 'a' | replace('a', 'b') }}")


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("{{ 1 + 2 * 3 ** 2 }} {{ 7 % 4 }} {{ '%05.2f %s' % (1.5, 'a') }}", "19 3 01.50 a"),
        ("{{ 'a' ~ 1 ~ none }} {{ 'ab' * 2 }} {{ [1] + [2] }}", "a1None abab [1, 2]"),
        ("{{ messages | map(attribute='role') | join(', ') }}", "user, assistant"),
        ("{% if messages | selectattr('x') %}yes{% endif %}", "yes"),  # an iterator is true
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ 'a b' | replace(' ', '-') | upper | indent(2, true) }}", "  A-B"),
        ("{% for k, v in {'a': 1}.items() if v %}{{ k }}{{ loop.last }}{% endfor %}", "aTrue"),
        ("{% set n = namespace(a=[]) %}{% set n.a = n.a + [1] %}{{ n.a }}", "[1]"),
        ("{% set l = [1] %}{% set _ = l.append(2) %}{{ l.pop(0) }}{{ l }}", "1[2]"),
        ("{% set n = namespace(a=[]) %}{% set _ = n.a.append('x') %}{{ n.a | join }}", "x"),
        (
            "{{ [[1]] == [[1]] }} {{ [1] is iterable }} {{ [messages] | first | length }}",
            "True True 2",
        ),
        ("{% macro m(a, b='y') %}{{ a ~ b }}{% endmacro %}{{ m('x') }}", "xy"),
        ("{% set x %}{{ 'in' }}{% endset %}{{ x | trim }}", "in"),
        ("{{ messages[0].content.split('\n')[-1].strip().title() }}", "There"),
        ("{{ {'a': [1, 'é']} | tojson }} {{ (1, 2) }}", '{"a": [1, "é"]} (1, 2)'),
        ("{% for m in messages recursive %}{{ loop.index }}{% endfor %}", "12"),
        ("{{ [3, 1, 2] | sort | first }} {{ 2.567 | round(1) }} {{ '5' | int + 1 }}", "1 2.6 6"),
        ("{% filter upper %}a{{ 'b' }}{% endfilter %}", "AB"),
    ],
)
def test_the_limits_do_not_change_what_templates_write(
    environment: LimitedEnvironment, source: str, written: str
) -> None:
    assert render(environment, source, messages=MESSAGES) == written
    plain = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    if "tojson" not in source:
        assert plain.from_string(source).render(messages=MESSAGES) == written


def test_a_long_conversation_is_far_from_the_limits(environment: LimitedEnvironment) -> None:
    """4 MB of text in 2000 messages, put together piece by piece at the end of each."""
    talk = [{"role": "user", "content": "word " * 400} for _ in range(2000)]
    source = "{% for m in messages %}{{ '<' ~ m.role + '>' + m.content | trim }}\n{% endfor %}"
    assert len(render(environment, source, messages=talk)) > 3_900_000


@pytest.mark.parametrize(
    ("form", "values"),
    [("<{}|{}>", "1, 'a'"), ("{1}{0}{1}", "1, none"), ("{a}{{}}", "a=[1]"), ("", "1")],
)
def test_format_writes_what_jinja_does(
    environment: LimitedEnvironment, form: str, values: str
) -> None:
    """Hunyuan's Hy3 makes the names of its tokens so."""
    source = f"{{{{ {form!r}.format({values}) }}}}"
    expected = ImmutableSandboxedEnvironment().from_string(source).render()
    assert render(environment, source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "'{0.__class__}'.format(1)", "'{0[0]}'.format([1])", "'{0:999999999}'.format(1)",
        "'{0!r}'.format(1)", "'{0:{1}}'.format(1, 99)", "'{a}'.format_map({'a': 1})",
        "('{' ~ '0.__class__}').format(1)",
    ],
)  # fmt: skip
def test_format_reaches_no_attributes_and_sets_no_widths(
    environment: LimitedEnvironment, source: str
) -> None:
    with pytest.raises((jinja2.TemplateError, TypeError)):
        render(environment, f"{{{{ {source} }}}}")

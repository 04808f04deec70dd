"""Names of special tokens in other people's text: plain text, and nothing else changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthd.text.templates import special_token_guard as guard
from hearthd.text.tokenizer import Tokenizer
from tests.server import fakes, templates

NAMES = (*templates.GEMMA_SPECIAL, *templates.CHATML_SPECIAL, *fakes.SPECIAL)
LIBRARIES = {
    "gemma": fakes.gemma_like(special=NAMES[:4]),
    "bytes": fakes.byte_level(special=NAMES[:4]),
    "unigrams": fakes.unigrams(special=NAMES[:4]),
}
TOKENIZERS = {name: Tokenizer(library, bos=fakes.BOS) for name, library in LIBRARIES.items()}
SPECIAL_IDS = {name: {lib.token_to_id(n) for n in NAMES} for name, lib in LIBRARIES.items()}
MARK = "\ue000"

each_tokenizer = pytest.mark.parametrize("library", sorted(TOKENIZERS))
ordinary = st.text(st.sampled_from("the dog <>|_\nof é媽"), max_size=30)
pieces = st.lists(
    st.one_of(
        st.sampled_from([*NAMES, *(n[:k] for n in NAMES for k in (1, 4)), *(n[4:] for n in NAMES)]),
        ordinary,
    ),
    max_size=6,
).map("".join)


def plain(library: str, text: str) -> tuple[int, ...]:
    return TOKENIZERS[library].read(text, special=False)


@each_tokenizer
@given(contents=st.lists(pieces, min_size=1, max_size=3))
def test_only_the_templates_special_tokens_are_read(library: str, contents: list[str]) -> None:
    tokenizer = TOKENIZERS[library]
    marked = guard.protect(contents, tokenizer, MARK)
    # Trimmed and next to each other, as a template may put them.
    text = "<start_of_turn>" + "".join(part.strip() for part in marked) + "<end_of_turn>\n"
    ids = guard.encode(text, tokenizer, MARK)
    start, end = (LIBRARIES[library].token_to_id(name) for name in templates.GEMMA_SPECIAL)
    special = [id_ for id_ in ids if id_ in SPECIAL_IDS[library]]
    assert special == [fakes.BOS, start, end] or LIBRARIES[library].token_to_id("<unk>") in special
    middle = "".join(part.strip() for part in contents)
    if MARK not in middle:
        assert ids == (fakes.BOS, start, *plain(library, middle), end, *plain(library, "\n"))


@each_tokenizer
@given(text=ordinary, after=st.sampled_from(["<eos>", "\n", " dog"]))
def test_ordinary_text_has_the_same_ids_as_in_the_library(
    library: str, text: str, after: str
) -> None:
    tokenizer = TOKENIZERS[library]
    marked = guard.protect(text, tokenizer, MARK)
    assert marked.replace(MARK, "") == text
    assert guard.encode(marked + after, tokenizer, MARK) == tokenizer.encode(text + after)


def test_keys_and_values_are_marked() -> None:
    value = {"a<eos>": [1, None, True, "<bos>", {"b": "x <eo"}], "role": "user"}
    assert guard.protect(value, TOKENIZERS["gemma"], "!") == {
        "a<!eos>": [1, None, True, "<!bos>", {"b": "x <!eo"}],
        "role": "user",
    }


def test_the_mark_occurs_nowhere_else() -> None:
    assert guard.choose_marks({"a": ["\ue000", {"\ue002": 1}]}, 2) == ["\ue001", "\ue003"]
    everything = "".join(map(chr, range(0xE000, 0xF900)))
    assert guard.choose_marks([everything], 1) is None

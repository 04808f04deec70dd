"""/v1/completions, /v1/models and the errors, by the real `openai` client, on a fake model."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import openai
import pytest

from tests.fake_runtime import FakeRuntime
from tests.patience import wait_until
from tests.server import fakes
from tests.server.openai_servers import LIBRARY, TOKENIZER, chatty, client_of, scripted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from openai.types import Completion


def ask(client: openai.OpenAI, **fields: Any) -> Completion:
    completion: Completion = client.completions.create(
        **{"model": "any", "prompt": "the dog", "max_tokens": 12, **fields}
    )
    return completion


def chunks(client: openai.OpenAI, **fields: Any) -> list[Completion]:
    return list(
        client.completions.create(
            **{"model": "any", "prompt": "the dog", "max_tokens": 12, "stream": True, **fields}
        )
    )


def texts(answer: Completion) -> list[str]:
    return [choice.text for choice in answer.choices]


def test_an_answer_equals_that_of_generate(client: openai.OpenAI) -> None:
    answer = ask(client, seed=3)
    same: Any = client.post(
        "/../generate", body={"prompt": "the dog", "max_tokens": 12, "seed": 3}, cast_to=object
    )
    assert texts(answer) == [same["text"]]
    assert answer.id.startswith("cmpl-")
    assert answer.object == "text_completion"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(TOKENIZER.encode("the dog"))
    assert answer.usage.completion_tokens == 12


def test_a_suffix_is_the_text_behind_the_gap(client: openai.OpenAI) -> None:
    """As in /infill, for which llama.cpp's names of the tokens count."""
    with pytest.raises(openai.InternalServerError, match="no tokens to fill in the middle") as none:
        ask(client, suffix="the fox")
    assert none.value.status_code == 501
    for names in (
        ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
        ("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"),
        ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
        ("<|prefix|>", "<|suffix|>", "<|middle|>"),
    ):
        library = fakes.gemma_like(special=names)
        with client_of(fakes.fake_service(library, context=64)) as filler:
            answer = ask(filler, suffix="the fox", temperature=0)
            infill = {"input_prefix": "the dog", "input_suffix": "the fox", "n_predict": 12}
            same: Any = filler.post("/../infill", body={**infill, "temperature": 0}, cast_to=object)
            before, behind, gap = (name.replace("\u2581", " ") for name in names)
            assert same["prompt"] == f"<bos>{before}the dog{behind}the fox{gap}"
            assert texts(answer) == [same["content"]]
            assert answer.usage is not None
            assert answer.usage.prompt_tokens == same["tokens_evaluated"]
            echoed, *_ = texts(ask(filler, suffix="the fox", temperature=0, echo=True))
            assert echoed == f"the dog{same['content']}"


def test_the_default_is_sixteen_tokens(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="any", prompt="the dog")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 2},
        {"prompt": ["the dog", "a fox"], "n": 2},
        {"logprobs": 2},
        {"echo": True},
        {"stop": ["o", "a"]},
    ],
)
def test_a_stream_joins_to_the_answer(client: openai.OpenAI, fields: dict[str, Any]) -> None:
    fields = {**fields, "seed": 1, "extra_body": {"cache_prompt": False}}
    whole = ask(client, **fields)
    *pieces, last = chunks(client, stream_options={"include_usage": True}, **fields)
    assert last.usage == whole.usage
    for choice in whole.choices:
        choice_pieces = [c.choices[0] for c in pieces if c.choices[0].index == choice.index]
        assert "".join(piece.text for piece in choice_pieces) == choice.text
        assert choice_pieces[-1].finish_reason == choice.finish_reason
        assert all(piece.finish_reason is None for piece in choice_pieces[:-1])
        if choice.logprobs:
            for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                logprobs = [
                    e for p in choice_pieces if p.logprobs for e in getattr(p.logprobs, name)
                ]
                assert logprobs == getattr(choice.logprobs, name)


def test_a_prompt_has_the_same_answer_alone_and_in_a_list(client: openai.OpenAI) -> None:
    ids = list(TOKENIZER.encode("a fox"))
    alone = [ask(client, seed=9, n=2, prompt=prompt) for prompt in ("the dog", ids)]
    expected = [text for answer in alone for text in texts(answer)]
    together = ask(client, seed=9, n=2, prompt=["the dog", "a fox"])
    assert texts(together) == expected
    assert [choice.index for choice in together.choices] == [0, 1, 2, 3]
    by_ids = ask(client, seed=9, n=2, prompt=[list(TOKENIZER.encode("the dog")), ids])
    assert texts(by_ids) == expected
    assert together.usage is not None
    prompts = [answer.usage.prompt_tokens for answer in alone if answer.usage]
    assert together.usage.prompt_tokens == sum(prompts)
    assert together.usage.completion_tokens == 4 * 12


@pytest.mark.parametrize("slots", [1, 8])
def test_other_requests_do_not_change_an_answer(client: openai.OpenAI, slots: int) -> None:
    expected = texts(ask(client, seed=42))
    with client_of(chatty(slots=slots)) as other, ThreadPoolExecutor(8) as pool:
        noise = [pool.submit(ask, other, prompt="a fox", seed=k) for k in range(4)]
        pending = [pool.submit(ask, other, seed=42) for _ in range(4)]
        assert [texts(one.result()) for one in pending] == [expected] * 4
        assert all(texts(one.result()) for one in noise)


def test_echo_puts_the_prompt_in_front(client: openai.OpenAI) -> None:
    (plain,) = texts(ask(client, seed=1))
    assert texts(ask(client, seed=1, echo=True)) == ["the dog" + plain]
    ids = list(TOKENIZER.encode("the dog"))
    assert texts(ask(client, seed=1, echo=True, prompt=ids)) == ["the dog" + plain]


def scores(ids: Sequence[int]) -> list[float]:
    """The log-probability of each token but the first, from the logits after those before it."""
    model = FakeRuntime(vocab_size=LIBRARY.get_vocab_size(), context=256)
    logprobs = []
    for place in range(len(ids) - 1):
        logits = model.decode([0], [ids[place]], [place])[0].astype(np.float64)
        logprobs.append(
            logits[ids[place + 1]] - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        )
    return logprobs


@pytest.mark.parametrize("fields", [{"max_tokens": 0}, {"max_tokens": 3}, {"n": 2}])
@pytest.mark.parametrize("stream", [False, True])
def test_echo_with_logprobs_scores_the_prompt(
    client: openai.OpenAI, fields: dict[str, Any], stream: bool
) -> None:
    ids = [fakes.BOS, *TOKENIZER.read("the quick dog jumps over")]
    options = {"prompt": ids, "echo": True, "logprobs": 2, "temperature": 0, **fields}
    if stream:
        parts = [c.choices[0] for c in chunks(client, **options) if c.choices[0].index == 0]
        logprobs = [part.logprobs for part in parts if part.logprobs]
        joined = [entry for part in logprobs for entry in part.token_logprobs or []]
        text = "".join(part.text for part in parts)
    else:
        answer = ask(client, **options)
        whole = answer.choices[0].logprobs
        assert whole is not None
        joined, text = list(whole.token_logprobs or []), answer.choices[0].text
        names = whole.tokens or []
        assert names[1 : len(ids)] == [TOKENIZER.bytes_of(token).decode() for token in ids[1:]]
        tops = whole.top_logprobs or []
        assert tops[0] is None
        assert all(len(top) == 2 for top in tops[1:])
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == len(ids)
        assert answer.usage.completion_tokens == fields.get("max_tokens", 12) * fields.get("n", 1)
    assert joined[0] is None
    assert joined[1 : len(ids)] == pytest.approx(scores(ids), abs=1e-4)
    assert len(joined) == len(ids) + fields.get("max_tokens", 12)
    assert text.startswith("the quick dog jumps over")


def test_log_probabilities_join_to_the_text() -> None:
    text = "the quick dog jumps over."
    with client_of(scripted(text)) as client:
        prompt = "<|im_start|>assistant\n"
        choice = ask(client, prompt=prompt, logprobs=2, max_tokens=99).choices[0]
    assert choice.text == text
    logprobs = choice.logprobs
    assert logprobs is not None
    assert "".join(logprobs.tokens or []) == text
    offsets = logprobs.text_offset or []
    for token, offset, chosen, top in zip(
        logprobs.tokens or [],
        offsets,
        logprobs.token_logprobs or [],
        logprobs.top_logprobs or [],
        strict=True,
    ):
        assert text[offset:].startswith(token)
        assert len(top) == 2
        assert top[token] == chosen == max(top.values())


def test_bytes_that_are_not_text_are_escaped() -> None:
    with client_of(scripted("é")) as client:
        prompt = "<|im_start|>assistant\n"
        choice = ask(client, prompt=prompt, logprobs=0).choices[0]
    assert choice.text == "é"
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == ["bytes:\\xc3", "bytes:\\xa9"]


MANY_TOKENS = "the é\N{FOX FACE}\u2603\u2603 dog \u2603 jumps"


def read_label(label: str) -> bytes:
    escaped = label.removeprefix("bytes:")
    return bytes.fromhex(escaped.replace("\\x", "")) if escaped != label else label.encode()


@pytest.mark.parametrize("as_ids", [False, True])
def test_offsets_count_characters_not_tokens(as_ids: bool) -> None:
    """OpenAI gives each token of a character the offset of the character."""
    written = f"{MANY_TOKENS}<|im_start|>assistant\n"
    with client_of(scripted(MANY_TOKENS)) as client:
        prompt: Any = list(TOKENIZER.encode(written)) if as_ids else written
        choice = ask(client, prompt=prompt, echo=True, logprobs=0, max_tokens=99).choices[0]
    # The text of ids has no special tokens, and the tokenizer adds <bos>.
    hidden = {"<bos>", "<|im_start|>"} if as_ids else {"<bos>"}
    shown = written.replace("<|im_start|>", "") if as_ids else written
    assert choice.text == shown + MANY_TOKENS
    logprobs = choice.logprobs
    assert logprobs is not None
    read = b""
    for label, offset in zip(logprobs.tokens or [], logprobs.text_offset or [], strict=True):
        assert offset == len(read.decode(errors="ignore"))
        read += b"" if label in hidden else read_label(label)
    assert read.decode() == choice.text


def test_models_lists_the_one_model(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.object) == ("fake-model", "model")
    assert client.models.retrieve("fake-model").id == "fake-model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["the dog", ""]}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": [1, "x"]}, "prompt[0]"),
        ({"prompt": [5, 10**6]}, "prompt[1]"),
        ({"prompt": "the dog " * 400}, "prompt"),
        ({"prompt": [5], "suffix": "x"}, "prompt"),
        ({"echo": True, "logprobs": 1, "suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 0, "echo": True}, "max_tokens"),
        ({"prompt": [2], "max_tokens": 0, "echo": True, "logprobs": 1}, "max_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"n": 17}, "n"),
        ({"temperature": -1}, "temperature"),
        ({"extra_body": {"nonsense": None, "bad_words": ["x"]}}, "bad_words"),
    ],
)
def test_an_invalid_request_is_rejected_by_field(
    client: openai.OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **fields)
    assert caught.value.param == param
    too_long = "exceeds the available context size" in caught.value.message
    assert caught.value.type == (
        "exceed_context_size_error" if too_long else "invalid_request_error"
    )


def test_errors_map_to_openais_exceptions() -> None:
    with client_of(fakes.fake_service(LIBRARY, poison=300)) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            ask(client, prompt=[300])
        assert caught.value.type == "server_error"
        with pytest.raises(openai.APIError, match="token 300 is poison"):
            chunks(client, prompt=[300])
        with pytest.raises(openai.NotFoundError):
            client.files.list()
        with pytest.raises(openai.APITimeoutError):
            ask(client, timeout=1e-6)


def test_a_draining_server_maps_to_openais_exception() -> None:
    service = chatty()
    with client_of(service) as client:
        service.drain()
        with pytest.raises(openai.InternalServerError) as caught:
            ask(client)
        assert caught.value.status_code == 503


@pytest.mark.parametrize("streamed", [False, True])
def test_a_disconnect_cancels_all_choices_and_no_other_request(streamed: bool) -> None:
    service = fakes.fake_service(LIBRARY, delay=0.01, context=5000, slots=4, batch=4)
    with client_of(service) as client, ThreadPoolExecutor(1) as pool:
        other = pool.submit(ask, client, max_tokens=60, seed=1)
        if streamed:
            stream = client.completions.create(
                model="m", prompt="the dog", n=3, max_tokens=4000, stream=True
            )
            next(iter(stream))
            stream.close()
        else:
            with pytest.raises(openai.APITimeoutError):
                ask(client, n=3, max_tokens=4000, timeout=httpx.Timeout(0.2))
        assert len(other.result().choices[0].text) > 0
        wait_until(lambda: service.idle)

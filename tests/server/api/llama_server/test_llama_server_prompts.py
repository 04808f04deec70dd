"""What llama-server's clients send besides plain prompts: objects, named templates, counts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import openai
import pytest

from hearthd.server.app import Guards
from hearthd.server.process.listening import bound_sockets
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.model_pool import ModelPool
from hearthd.server.setting_files import read_template
from hearthd.server.settings import BadSettings, Settings
from tests.patience import wait_until
from tests.server import adapter_folders as folders
from tests.server import fakes
from tests.server.openai_servers import LIBRARY, TOKENIZER, chatty

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

PROMPT = "the quick brown fox"
TALK = [{"role": "system", "content": "the dog"}, {"role": "user", "content": "the fox"}]
CONVERSATION = (
    ("system", " Be brief. "),
    ("user", "Hello"),
    ("assistant", "Hi there"),
    ("user", " Name a\ncolour "),
)
# What llama_chat_apply_template of llama-cpp-python 0.3.36 returns for CONVERSATION.
RENDERED = {
    "chatml": "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
    "<|im_start|>assistant\nHi there<|im_end|>\n<|im_start|>user\n Name a\ncolour <|im_end|>\n"
    "<|im_start|>assistant\n",
    "command-r": "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be brief.<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hello<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Hi there<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Name a\ncolour<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    "gemma": "<start_of_turn>user\nBe brief.\n\nHello<end_of_turn>\n<start_of_turn>model\n"
    "Hi there<end_of_turn>\n<start_of_turn>user\nName a\ncolour<end_of_turn>\n"
    "<start_of_turn>model\n",
    "llama3": "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nHi there<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nName a\ncolour<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "phi3": "<|system|>\n Be brief. <|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\n"
    "Hi there<|end|>\n<|user|>\n Name a\ncolour <|end|>\n<|assistant|>\n",
    "rwkv-world": "System: Be brief.\n\nUser: Hello\n\nAssistant: Hi there\n\n"
    "User: Name a\ncolour\n\nAssistant:",
    "zephyr": "<|system|>\n Be brief. <|endoftext|>\n<|user|>\nHello<|endoftext|>\n<|assistant|>\n"
    "Hi there<|endoftext|>\n<|user|>\n Name a\ncolour <|endoftext|>\n<|assistant|>\n",
}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty()) as client:
        yield client


def complete(client: httpx.Client, **fields: Any) -> Any:
    body = {"prompt": PROMPT, "n_predict": 6, "temperature": 0, **fields}
    response = client.post("/completion", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_prompt_can_be_an_object(client: httpx.Client) -> None:
    expected = complete(client)["content"]
    as_object = {"prompt_string": PROMPT}
    assert complete(client, prompt=as_object)["content"] == expected
    ids = list(TOKENIZER.encode(PROMPT))
    assert [one["content"] for one in complete(client, prompt=[ids, as_object])] == [expected] * 2
    image = {"prompt_string": PROMPT, "multimodal_data": ["iVBORw0KGgo="]}
    refused = client.post("/completion", json={"prompt": image})
    assert refused.status_code == 400
    assert "no images" in refused.json()["error"]["message"]


def test_ignore_eos_is_listed_as_forbidden_tokens() -> None:
    service = fakes.fake_service(LIBRARY, context=256)
    ends = service.manifest.special_tokens.eos
    with fakes.running(service) as client:
        forbidden = complete(client, ignore_eos=True)["generation_settings"]["logit_bias"]
        assert forbidden == [{"token": end, "bias": None} for end in ends]
        assert complete(client)["generation_settings"]["logit_bias"] == []
        pairs = complete(client, logit_bias={"5": -1, "the": False})
    biases = pairs["generation_settings"]["logit_bias"]
    assert biases == [{"token": 5, "bias": -1.0}, {"token": "the", "bias": None}]


def test_biases_of_texts_in_both_forms_forbid_their_tokens(client: httpx.Client) -> None:
    words = complete(client, n_predict=40, ignore_eos=True)["content"].split(" ")[:2]
    as_object = dict.fromkeys(words, -100)
    for form in (as_object, [[word, -100] for word in words]):
        ids = {id_ for word in words for id_ in TOKENIZER.read(word)}
        answer = complete(client, n_predict=40, logit_bias=form, return_tokens=True)
        assert not ids & set(answer["tokens"])


def test_verbose_returns_the_prompt(client: httpx.Client) -> None:
    body = {"messages": TALK, "max_tokens": 2}
    expected = client.post("/apply-template", json={"messages": TALK}).json()["prompt"]
    answer = client.post("/v1/chat/completions", json={**body, "verbose": True}).json()
    assert answer["__verbose"] == {"prompt": expected}
    assert "__verbose" not in client.post("/v1/chat/completions", json=body).json()
    prefilled = [*TALK, {"role": "assistant", "content": "the lazy"}]
    answer = client.post(
        "/v1/chat/completions",
        json={
            "messages": prefilled,
            "max_tokens": 2,
            "verbose": True,
            "continue_final_message": True,
            "add_generation_prompt": False,
        },
    ).json()
    assert answer["__verbose"]["prompt"] == expected + "the lazy"


def test_the_tokens_of_a_conversation_are_counted(client: httpx.Client) -> None:
    usage = client.post("/v1/chat/completions", json={"messages": TALK, "max_tokens": 1}).json()
    expected = usage["usage"]["prompt_tokens"]
    for path in ("/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"):
        counted = client.post(path, json={"messages": TALK}).json()
        assert counted == {"object": "response.input_tokens", "input_tokens": expected}
    with openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="none", max_retries=0) as real:
        items: Any = TALK
        assert real.responses.input_tokens.count(model="any", input=items).input_tokens == expected


@pytest.mark.parametrize("name", RENDERED)
def test_templates_have_names(name: str) -> None:
    template = read_template(Settings.model_validate({"chat_template": name}))
    messages = [{"role": role, "content": content} for role, content in CONVERSATION]
    with fakes.running(fakes.fake_service(LIBRARY, template=template, context=256)) as client:
        answer = client.post("/apply-template", json={"messages": messages}).json()
    assert answer["prompt"] == f"<bos>{RENDERED[name]}"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "chatmll",
            "chat_template: got 'chatmll', expected .* rwkv-world, zephyr; did you mean chatml",
        ),
        ("ChatML", "; did you mean chatml"),
        ("xyz", "expected the source of a template, .*zephyr$"),
        ("{folder}/chat.jinja", "zephyr; for a file: --chat-template-file {folder}/chat.jinja$"),
        ("long " * 1000, "zephyr$"),
    ],
)
def test_a_text_that_is_not_a_template_is_rejected(
    given: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "chat.jinja").write_text("Hello")
    settings = {"chat_template": given.format(folder=tmp_path)}
    with pytest.raises(BadSettings, match=message.format(folder=tmp_path)):
        read_template(Settings.model_validate(settings))


def test_a_file_that_has_no_template_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "chat.jinja"
    settings = Settings.model_validate({"chat_template_file": file})
    with pytest.raises(BadSettings, match=f"^chat_template_file: {file} cannot .*: No such file"):
        read_template(settings)
    file.write_text("Hello")
    with pytest.raises(BadSettings, match=f"^chat_template_file: got {file}, expected the source"):
        read_template(settings)


def test_the_tokens_of_embedded_texts_are_counted(client: httpx.Client) -> None:
    def counted() -> float:
        name = 'hearth_prompt_tokens_total{model="fake-model",source="model"}'
        lines = client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    before = counted()
    usage = client.post("/v1/embeddings", json={"input": ["the dog", "fox"]}).json()["usage"]
    assert counted() - before == usage["prompt_tokens"] > 0


def test_slots_can_be_turned_off() -> None:
    with fakes.running(chatty(), guards=Guards(slots=False)) as client:
        refused = client.get("/slots")
    assert refused.status_code == 501
    assert refused.json()["error"]["type"] == "not_supported_error"


def test_a_free_slot_has_no_rest_of_an_answer(client: httpx.Client) -> None:
    complete(client)

    def slots_are_free() -> bool:
        return not any(slot["is_processing"] for slot in client.get("/slots").json())

    wait_until(slots_are_free)  # the engine frees a slot after the answer's last event
    for slot in client.get("/slots").json():
        assert slot["next_token"] == [{"n_decoded": 0, "n_remain": -1}]


def test_the_model_has_a_path_names_and_tags(tmp_path: Path) -> None:
    service = fakes.fake_service(LIBRARY)
    names = Settings.model_validate({"alias": "fake-model, code"}).names
    deployment = Deployment(
        names[0], lambda _: service, folder=tmp_path / "tiny", aliases=names, tags=("small",)
    )
    deployment.serve(service)
    with fakes.running(ModelPool([deployment])) as client:
        (model,) = client.get("/v1/models").json()["data"]
        props = client.get("/props").json()
    assert (model["id"], model["aliases"]) == ("fake-model", ["fake-model", "code"])
    assert model["tags"] == ["small"]
    assert props["model_path"] == "tiny"


def test_several_addresses_share_a_port() -> None:
    with bound_sockets("127.0.0.1, 127.0.0.2", 0) as (first, second):
        assert first.getsockname()[1] == second.getsockname()[1]
        assert second.getsockname()[0] == "127.0.0.2"


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost", True),
        ("http://localhost:8080", True),
        ("http://127.0.0.1:3000", True),
        ("https://[::1]:3000", True),
        ("https://a.example", True),
        ("http://web.mydomain.fr", False),
        ("http://notlocalhost", False),
        ("http://localhost.evil.com", False),
    ],
)
def test_localhost_is_every_origin_of_this_machine(origin: str, allowed: bool) -> None:
    guards = Guards(cors_origins=("localhost", "https://a.example"))
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    with fakes.running(chatty(), guards=guards) as client:
        answer = client.options("/completions", headers=headers)
    assert answer.headers.get("access-control-allow-origin") == (origin if allowed else None)
    if allowed:
        assert answer.headers["access-control-allow-credentials"] == "true"


def test_any_origin_has_no_credentials() -> None:
    headers = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    with fakes.running(chatty(), guards=Guards(cors_origins=("*",))) as client:
        answer = client.options("/completions", headers=headers)
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers


@pytest.fixture
def adapted(tmp_path: Path) -> Iterator[httpx.Client]:
    folders.write(tmp_path / "shakespeare", folders.tensors(0))
    service = fakes.fake_service(
        LIBRARY, lora_dir=tmp_path, adapters=folders.PLACES, slots=4, batch=4, context=256
    )
    with fakes.running(service) as client:
        client.post("/lora-adapters/load", json={"path": "shakespeare"}).raise_for_status()
        yield client


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_the_scale_of_an_adapter_is_set_for_all_requests(
    adapted: httpx.Client, scale: float
) -> None:
    base = complete(adapted)["content"]
    changed = adapted.post("/lora-adapters", json=[{"id": 0, "scale": scale}])
    assert changed.status_code == 200
    assert (complete(adapted)["content"] == base) == (scale == 0)


def test_requests_with_other_scales_run_in_parallel(adapted: httpx.Client) -> None:
    scales = [0.0, 0.0, 0.3, 0.7, 1.0, 1.0]

    def ask(scale: float) -> str:
        lora = [{"id": 0, "scale": scale}]
        answer = complete(adapted, lora=lora, seed=42, cache_prompt=False, n_predict=12)
        return str(answer["content"])

    alone = [ask(scale) for scale in scales]
    with ThreadPoolExecutor(len(scales)) as pool:
        together = list(pool.map(ask, scales))
    assert together == alone
    assert alone[0] == alone[1] != alone[5] == alone[4]

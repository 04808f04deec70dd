"""What clients send: adapters, batches, grammars, and the bodies and headers of requests."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from safetensors.numpy import save

from hearthd.bundle.lora.adapter_factors import read_factors
from hearthd.bundle.lora.adapter_folder import TENSORS
from hearthd.bundle.lora.adapter_settings import CONFIG, BadAdapter
from hearthd.bundle.parsing import strict_json
from hearthd.sampling.constraint import ConstraintFailed
from hearthd.server.batch.files import Answers, BadBatch, Requests
from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.grammar import Grammar, Grammars, GrammarType
from hearthd.text.tokenizer import Tokenizer
from tests.server import adapter_folders, fakes
from tools.fuzz.guided.asgi_client import Request, answer
from tools.fuzz.mutations import damaged_bytes, damaged_json
from tools.fuzz.reader import Reader, in_json

if TYPE_CHECKING:
    from tools.fuzz.reader import Files

_GGUF = "adapter.gguf"
_STEPS = 12  # tokens of an answer that follows a grammar

# --- adapters


def _adapter() -> Files:
    config = {
        "peft_type": "LORA", "r": 2, "lora_alpha": 8.0, "bias": "none", "use_rslora": False,
        "target_modules": ["up_proj"], "rank_pattern": {}, "inference_mode": True,
    }  # fmt: skip
    return {CONFIG: in_json(config), TENSORS: save(adapter_folders.tensors(seed=0, rank=2))}


def _gguf_adapter() -> Files:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _GGUF
        return {_GGUF: adapter_folders.write_gguf(path, adapter_folders.tensors(0)).read_bytes()}


def _read_gguf_adapter(folder: Path) -> None:
    _read_adapter(folder / _GGUF)


def _read_adapter(path: Path) -> None:
    factors = read_factors(path, adapter_folders.PLACES)
    assert [array.shape for array in factors.arrays] == [
        array.shape[1:] for array in adapter_folders.PLACES.arrays
    ]


# --- batches


def _batch() -> Files:
    bodies = {"a": {"prompt": "Hello"}, "b": {"prompt": "Hello", "max_tokens": 2}}
    lines = [
        {"custom_id": name, "method": "POST", "url": "/v1/completions", "body": body}
        for name, body in bodies.items()
    ]
    answered: dict[str, Any] = {
        "id": "batch_req_1",
        "custom_id": "a",
        "response": {},
        "error": None,
    }
    return {
        "requests.jsonl": b"\n".join(in_json(line) for line in lines) + b"\n",
        "answers.jsonl": in_json(answered) + b"\n",
    }


def _read_batch(folder: Path) -> None:
    requests = Requests(folder / "requests.jsonl")
    with Answers(folder / "answers.jsonl", requests) as answers:
        remaining = list(requests.remaining(answers.answered))
    assert len(remaining) == len(requests) - len(answers.answered)
    for request in remaining:
        json.loads(request.body)


# --- grammars

_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{1,8}$", "maxLength": 8},
        "size": {"type": "integer", "minimum": -3, "exclusiveMaximum": 4},
        "tags": {"type": "array", "items": {"enum": ["a", 1, None]}, "minItems": 1, "maxItems": 3},
        "next": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "null"}]},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"leaf": {"not": {"const": 3}}},
}
_GBNF = """\
root ::= item ("," ws item)* # a comment
item ::= "a" | [0-9a-f]{2,4} | "\\n" | [^"\\\\\\x00-\\x1f]+ | (yes no?)+
ws ::= [ \\t]*
yes ::= "yes"
no ::= "no"
"""
_LARK = 'start: "a" (B | c)+\nB: /[0-9]{1,3}/\nc: "x"i | %json {"type": "integer"}\n'
_GRAMMARS: dict[str, tuple[GrammarType, str]] = {
    "schema": ("json_schema", json.dumps(_SCHEMA)),
    "partial-schema": ("partial_schema", json.dumps({**_SCHEMA, "format": "date"})),
    "regex": ("regex", r"(?i)[a-f\d]{2,3}(-|\.)+\w*(yes|no)?[^\s,]"),
    "gbnf": ("lark", _GBNF),
    "lark": ("lark", _LARK),
    "choice": ("choice", json.dumps(["yes", "no", "é\n"])),
}
assert {type_ for type_, _ in _GRAMMARS.values()} < set(get_args(GrammarType))


@functools.cache
def _grammars() -> Grammars:
    library = fakes.gemma_like()
    tokenizer = Tokenizer(library, bos=fakes.BOS)
    return Grammars(tokenizer, vocab_size=library.get_vocab_size(), ends=(fakes.EOS,))


def _read_grammar(type_: GrammarType, folder: Path) -> None:
    """Compile a grammar, and follow it for some tokens."""
    value = (folder / "grammar").read_bytes().decode(errors="replace")
    if type_ in ("json_schema", "partial_schema", "choice"):
        try:
            parsed = strict_json.parse(value)
        except ValueError:
            return  # the body of the request would be rejected
        texts = isinstance(parsed, list) and parsed and all(isinstance(x, str) for x in parsed)
        if not (texts if type_ == "choice" else isinstance(parsed, dict)):
            return
    rules = _grammars().rules(Grammar(type_, value))
    try:
        for step in range(_STEPS):
            if rules.finished:
                return
            (tokens,) = rules.allowed().nonzero()
            rules.accept(int(tokens[(step * 7919) % len(tokens)]))
    except ConstraintFailed:
        return


# --- requests

_TURN = [{"role": "user", "content": "Hi"}]
_FUNCTION = {
    "name": "add",
    "description": "Add",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
_SAMPLING = {
    "max_tokens": 4, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 1,
    "stop": ["x"], "logit_bias": {"5": 1.5}, "presence_penalty": 0.1, "frequency_penalty": 0.1,
}  # fmt: skip
BODIES: dict[str, Any] = {
    "/v1/completions": {
        **_SAMPLING, "prompt": ["Hi", "a b"], "n": 2, "logprobs": 2, "echo": True, "suffix": None,
    },
    "/v1/chat/completions": {
        **_SAMPLING, "messages": _TURN, "stream": True, "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": _FUNCTION}], "tool_choice": "auto",
        "logprobs": True, "top_logprobs": 2, "response_format": {"type": "text"},
    },
    "/v1/responses": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "instructions": "Be brief.", "max_output_tokens": 4, "store": False,
        "text": {"format": {"type": "json_object"}}, "tools": [{"type": "function", **_FUNCTION}],
    },
    "/v1/messages": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "max_tokens": 4, "system": "Be brief.", "stop_sequences": ["x"], "stream": True,
        "tools": [{"name": "add", "input_schema": _FUNCTION["parameters"]}],
        "thinking": {"type": "disabled"},
    },
    "/generate": {"prompt": "Hi", "max_tokens": 3, "grammar": 'root ::= "a" | "b"'},
    "/completion": {
        "prompt": [5, "Hi"], "n_predict": 3, "n_probs": 2, "mirostat": 0, "dry_multiplier": 0.5,
        "samplers": ["top_k", "temperature"], "json_schema": {"type": "integer"}, "stream": False,
        "lora": [{"id": 0, "scale": 0.5}],
    },
    "/infill": {"input_prefix": "a", "input_suffix": "b", "prompt": "c", "n_predict": 2},
    "/v1/fim/completions": {"prompt": "a", "suffix": "b", "max_tokens": 2, "random_seed": 1},
    "/v1/embeddings": {"input": ["Hi", [5, 6]], "encoding_format": "base64", "dimensions": 2},
    "/embedding": {"content": ["Hi"], "embd_normalize": 2},
    "/v1/rerank": {"query": "Hi", "documents": ["a", {"text": "b"}], "top_n": 1},
    "/tokenize": {"content": "Hi", "add_special": True, "with_pieces": True},
    "/detokenize": {"tokens": [5, 6, 7]},
    "/apply-template": {"messages": _TURN, "chat_template_kwargs": {"a": 1}},
    "/lora-adapters": [{"id": 0, "scale": 1.0}],
    "/lora-adapters/load": {"path": "orders", "name": "orders"},
    "/models/load": {"model": "fake-model"},
}  # fmt: skip
_REQUEST = {
    "method": "POST",
    "path": "/v1/completions",
    "query": "model=fake-model",
    "headers": {
        "content-type": "application/json", "x-request-id": "abc", "accept": "*/*",
        "origin": "http://localhost", "authorization": "Bearer key", "content-length": "15",
        "accept-encoding": "gzip", "if-none-match": "x", "range": "bytes=0-9",
    },
    "body": [json.dumps({"prompt": "Hi", "max_tokens": 2, "stream": True})],
    "leave": 3,
}  # fmt: skip


def _send_body(path: str, folder: Path) -> None:
    answer(Request(path=path, body=((folder / "body.json").read_bytes(),)))


def _send_request(folder: Path) -> None:
    """A request of any method and path, with any headers that uvicorn lets through."""
    try:
        fields = json.loads((folder / "request.json").read_bytes())
        request = Request(
            method=str(fields["method"]),
            path=str(fields["path"]),
            query=str(fields["query"]).encode(errors="replace"),
            headers=tuple(
                (name.lower().encode("latin-1", "replace"), str(value).encode("latin-1", "replace"))
                for name, value in dict(fields["headers"]).items()
            ),
            body=tuple(str(part).encode(errors="surrogatepass") for part in fields["body"]),
            leave=int(fields["leave"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return
    if all(value.isdigit() for name, value in request.headers if name == b"content-length"):
        answer(request)


REQUESTS = (
    Reader(
        name="adapter",
        files=functools.cache(_adapter),
        damage={CONFIG: damaged_json, TENSORS: damaged_bytes},
        read=_read_adapter,
        refusals=(BadAdapter,),
    ),
    Reader(
        name="adapter-gguf",
        files=functools.cache(_gguf_adapter),
        damage={_GGUF: damaged_bytes},
        read=_read_gguf_adapter,
        refusals=(BadAdapter,),
    ),
    Reader(
        name="batch",
        files=functools.cache(_batch),
        damage={"requests.jsonl": damaged_bytes, "answers.jsonl": damaged_bytes},
        read=_read_batch,
        refusals=(BadBatch,),
    ),
    *(
        Reader(
            name=f"grammar-{name}",
            files=functools.partial(dict, {"grammar": value.encode()}),
            damage={"grammar": damaged_json if value.startswith(("{", "[")) else damaged_bytes},
            read=functools.partial(_read_grammar, type_),
            refusals=(InvalidRequest,),
        )
        for name, (type_, value) in _GRAMMARS.items()
    ),
    *(
        Reader(
            name=f"http{path}",
            files=functools.partial(dict, {"body.json": in_json(body)}),
            damage={"body.json": damaged_json},
            read=functools.partial(_send_body, path),
            refusals=(),
        )
        for path, body in BODIES.items()
    ),
    Reader(
        name="http-request",
        files=functools.partial(dict, {"request.json": in_json(_REQUEST)}),
        damage={"request.json": damaged_json},
        read=_send_request,
        refusals=(),
    ),
)

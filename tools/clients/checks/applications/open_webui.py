"""The backend of Open WebUI, with both of its connections to the server."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import (
    CHAT,
    EMBEDDINGS,
    GREETING,
    LENGTH,
    MESSAGES,
    RESULT,
    SCHEMA,
    SCHEMA_OF_CITY,
    STREAM,
    STREAMED_TOOLS,
    TOOL,
    TOOLS,
    Feature,
    main,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_START = 600  # seconds until the backend answers: it imports 1.7 GB of packages
_REQUIRED = {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "required"}


class OpenWebUI:
    """A backend that runs without accounts; it gets the requests that its page sends."""

    def __init__(self, client: Any, model: str) -> None:
        self._client = client
        self._model = model
        token = self.post("/api/v1/auths/signin", {"email": "", "password": ""})["token"]
        client.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        response = self._client.get(path)
        response.raise_for_status()
        return response.json()

    def post(self, path: str, body: Any) -> Any:
        """The JSON that answers a body."""
        response = self._client.post(path, json=body)
        response.raise_for_status()
        return response.json()

    def lists(self, path: str, key: str) -> bool:
        """Whether a list has the model."""
        return any(str(each[key]).startswith(self._model) for each in self._list(path))

    def _list(self, path: str) -> list[dict[str, Any]]:
        answer = self.get(path)
        models: list[dict[str, Any]] = answer.get("data") or answer.get("models") or []
        return models

    def message(self, **fields: Any) -> dict[str, Any]:
        """The answer to a conversation, over OpenAI's connection."""
        answer = self.post("/api/chat/completions", self._body(fields))
        message: dict[str, Any] = answer["choices"][0]["message"]
        return message

    def deltas(self, **fields: Any) -> list[dict[str, Any]]:
        """The parts of a streamed answer."""
        body = {**self._body(fields), "stream": True}
        with self._client.stream("POST", "/api/chat/completions", json=body) as response:
            lines = [line.removeprefix("data: ") for line in response.iter_lines()]
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return [choice["delta"] for event in events for choice in event.get("choices", [])]

    def streams(self) -> bool:
        """Whether a stream and a whole answer are the same."""
        joined = "".join(delta.get("content") or "" for delta in self.deltas())
        return bool(joined) and joined == self.message()["content"]

    def calls(self) -> bool:
        """Whether a tool is called, and its result read."""
        asked = self.message(messages=MESSAGES, **_REQUIRED)
        (call,) = asked["tool_calls"][:1]
        require(call["function"]["name"] == TOOL["name"], call)
        result = {"role": "tool", "tool_call_id": call["id"], "content": RESULT}
        return bool(self.message(messages=[*MESSAGES, asked, result])["content"])

    def streams_calls(self) -> bool:
        """Whether the arguments of a call arrive in parts."""
        parts = [
            call["function"]["arguments"]
            for delta in self.deltas(messages=MESSAGES, **_REQUIRED)
            for call in delta.get("tool_calls") or []
            if call["index"] == 0
        ]
        return len(parts) > 1 and json.loads("".join(parts))["city"] in ("Paris", "Rome")

    def matches_schema(self) -> bool:
        """Whether an answer matches a JSON schema."""
        form = {"name": "city", "schema": SCHEMA_OF_CITY}
        answer = self.message(response_format={"type": "json_schema", "json_schema": form})
        return isinstance(json.loads(answer["content"])["city"], str)

    def chats_over_ollama(self) -> bool:
        """Whether Ollama's connection answers."""
        options = {"num_predict": LENGTH, "temperature": 0}
        greeting = [{"role": "user", "content": GREETING}]
        body = {"model": f"{self._model}:latest", "messages": greeting, "options": options}
        return bool(self.post("/ollama/api/chat", {**body, "stream": False})["message"]["content"])

    def embeds(self) -> bool:
        """Whether Ollama's connection embeds texts."""
        body = {"model": f"{self._model}:latest", "input": [GREETING, "Hello."]}
        return len(self.post("/ollama/api/embed", body)["embeddings"]) == len(body["input"])

    def titles(self) -> bool:
        """Whether a conversation gets a title. Requests for its tags have no limit of tokens."""
        body = {"model": self._model, "messages": MESSAGES}
        answer = self.post("/api/v1/tasks/title/completions", body)
        return bool(answer["choices"][0]["message"]["content"])

    def finds_in_documents(self) -> bool:
        """Whether a file is embedded, and found by a question."""
        text = {"file": ("dogs.txt", b"The dog is called Ada.", "text/plain")}
        parameters = {"process_in_background": "false"}
        response = self._client.post("/api/v1/files/", files=text, params=parameters)
        response.raise_for_status()
        body = {"collection_name": f"file-{response.json()['id']}", "query": "dog", "k": 1}
        found = self.post("/api/v1/retrieval/query/doc", body)
        return "Ada" in found["documents"][0][0]

    def _body(self, fields: dict[str, Any]) -> dict[str, Any]:
        greeting = [{"role": "user", "content": GREETING}]
        body = {"model": self._model, "messages": greeting, "stream": False}
        return {**body, "max_tokens": LENGTH, "temperature": 0, **fields}


@contextlib.contextmanager
def running(base: str, model: str) -> Iterator[OpenWebUI]:
    """The backend, as long as the block."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = Path(sys.executable).parent / "open-webui"
    with tempfile.TemporaryDirectory() as folder:
        backend = subprocess.Popen(
            [str(program), "serve", "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            env=_variables(base, model, folder),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            httpx = importlib.import_module("httpx")
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=_START) as client:
                _wait(client, backend)
                yield OpenWebUI(client, model)
        finally:
            backend.terminate()
            backend.wait()


def _variables(base: str, model: str, folder: str) -> dict[str, str]:
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return given | {
        "ANONYMIZED_TELEMETRY": "false",
        "DATA_DIR": folder,
        "OFFLINE_MODE": "true",
        "OLLAMA_BASE_URL": base,
        "OPENAI_API_BASE_URL": f"{base}/v1",
        "OPENAI_API_KEY": "none",
        "RAG_EMBEDDING_ENGINE": "openai",
        "RAG_EMBEDDING_MODEL": model,
        "RAG_OPENAI_API_BASE_URL": f"{base}/v1",
        "RAG_OPENAI_API_KEY": "none",
        "WEBUI_AUTH": "false",
        "WEBUI_SECRET_KEY": "none",
    }


def _wait(client: Any, backend: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline and backend.poll() is None:
        with contextlib.suppress(Exception):
            client.get("/health").raise_for_status()
            return
        time.sleep(1)
    raise TimeoutError(f"the backend does not answer; exit status {backend.poll()}")


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the backend."""
    with running(base, model) as backend:
        yield "model list", lambda: backend.lists("/api/models", "id")
        yield "Ollama: model list", lambda: backend.lists("/ollama/api/tags", "name")
        yield "Ollama: version", lambda: backend.get("/ollama/api/version")["version"]
        yield CHAT, lambda: backend.message()["content"]
        yield STREAM, backend.streams
        yield TOOLS, backend.calls
        yield STREAMED_TOOLS, backend.streams_calls
        yield SCHEMA, backend.matches_schema
        yield "Ollama: chat", backend.chats_over_ollama
        yield "Ollama: loaded models", lambda: backend.lists("/ollama/api/ps", "name")
        yield EMBEDDINGS, backend.embeds
        yield "title", backend.titles
        yield "documents", backend.finds_in_documents


if __name__ == "__main__":
    main(features)

"""The package `google-genai`: contents, chats, functions, schemas, token counts and embeddings."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import (
    CHAT,
    EMBEDDINGS,
    GREETING,
    LENGTH,
    NEXT,
    QUESTION,
    RESULT,
    SCHEMA,
    SCHEMA_OF_CITY,
    STREAM,
    STREAMED_TOOLS,
    TOOL,
    TOOLS,
    Feature,
    city_model,
    get_weather,
    main,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES = {"type": "STRING", "enum": ["yes", "no"]}


class Gemini:
    """The client of a server. A configuration is a dict with the names of the package."""

    def __init__(self, base: str, model: str) -> None:
        genai = importlib.import_module("google.genai")
        options = {"base_url": base, "retry_options": {"attempts": 1}}
        self.client: Any = genai.Client(api_key="none", http_options=options)
        self.types: Any = genai.types
        self.error: type[Exception] = genai.errors.ClientError
        self._model = model

    def generate(self, contents: Any = GREETING, **config: Any) -> Any:
        """An answer."""
        given = {"max_output_tokens": LENGTH, "temperature": 0, **config}
        return self.client.models.generate_content(
            model=self._model, contents=contents, config=given
        )

    def stream(self, contents: Any = GREETING, **config: Any) -> list[Any]:
        """The parts of an answer."""
        given = {"max_output_tokens": LENGTH, "temperature": 0, **config}
        stream = self.client.models.generate_content_stream
        return list(stream(model=self._model, contents=contents, config=given))

    def streams_the_answer(self) -> bool:
        """Whether a stream and a whole answer are the same, with the same counts."""
        answer, parts = self.generate(), self.stream()
        usage = answer.usage_metadata, parts[-1].usage_metadata
        counts = [(u.prompt_token_count, u.candidates_token_count) for u in usage]
        require(counts[0] == counts[1] and None not in counts[0], usage)
        require(parts[-1].candidates[0].finish_reason, parts[-1])
        return bool("".join(part.text or "" for part in parts) == answer.text)

    def tools(self, *, stream: bool) -> None:
        """Two turns with a function."""
        declared = {"name": TOOL["name"], "description": TOOL["description"]}
        function = {**declared, "parameters_json_schema": TOOL["parameters"]}
        contents: list[Any] = []
        for question in (QUESTION, NEXT):
            contents.append({"role": "user", "parts": [{"text": question}]})
            called = self._turn(contents, function, "ANY", stream=stream)
            # A small model repeats its call up to the limit, and the API cannot forbid that.
            call = called[0].function_call
            require(call and "city" in call.args, called)
            result = {"name": call.name, "response": {"output": RESULT}}
            contents += [
                {"role": "model", "parts": called[:1]},
                {"role": "user", "parts": [{"function_response": result}]},
            ]
            answer = self._turn(contents, function, "NONE", stream=stream)
            require(answer, "no parts")
            contents.append({"role": "model", "parts": answer})

    def _turn(
        self, contents: list[Any], function: dict[str, Any], mode: str, *, stream: bool
    ) -> list[Any]:
        config: dict[str, Any] = {
            "tools": [{"function_declarations": [function]}],
            "tool_config": {"function_calling_config": {"mode": mode}},
            "automatic_function_calling": {"disable": True},
        }
        ask = self.stream if stream else lambda *given, **named: [self.generate(*given, **named)]
        answers = ask(contents, **config)
        return [part for answer in answers for part in answer.candidates[0].content.parts or ()]

    def automatic_function_calling(self) -> bool:
        """A Python function that the package calls."""
        answer = self.generate(
            QUESTION,
            tools=[get_weather],
            tool_config={"function_calling_config": {"mode": "ANY"}},
            automatic_function_calling={"maximum_remote_calls": 2},
        )
        parts = [part for turn in answer.automatic_function_calling_history for part in turn.parts]
        responses = [part.function_response.response for part in parts if part.function_response]
        require(responses, answer)
        return all("Sunny in " in response["result"] for response in responses)

    def schema(self) -> bool:
        """An answer with the schema of a model of Pydantic."""
        config = {"response_mime_type": "application/json", "response_schema": city_model()}
        return self.generate(**config).parsed.city in ("Paris", "Rome")

    def json_schema(self) -> bool:
        """An answer with a JSON Schema."""
        config = {"response_mime_type": "application/json", "response_json_schema": SCHEMA_OF_CITY}
        return "city" in json.loads(self.generate(**config).text)

    def enum(self) -> bool:
        """An answer with one of several texts."""
        config = {"response_mime_type": "text/x.enum", "response_schema": _NAMES}
        return self.generate("Is the sky blue?", **config).text in _NAMES["enum"]

    def logprobs(self) -> bool:
        """The log-probabilities of an answer."""
        (candidate,) = self.generate(response_logprobs=True, logprobs=2).candidates
        result = candidate.logprobs_result
        tops = [top.candidates for top in result.top_candidates]
        require(all(len(top) == 2 for top in tops), result)
        return len(tops) == len(result.chosen_candidates) and candidate.avg_logprobs < 0

    def candidates(self) -> bool:
        """Several answers."""
        answers = self.generate(candidate_count=2, temperature=1, top_k=40, seed=1).candidates
        return len({answer.content.parts[0].text for answer in answers}) == 2

    def chats(self) -> bool:
        """A chat whose messages are whole answers and streams."""
        chat = self.client.chats.create(model=self._model, config={"max_output_tokens": 16})
        first = chat.send_message("My name is Ada.")
        streamed = list(chat.send_message_stream("What is my name?"))
        require(first.text and any(part.text for part in streamed), streamed)
        history = chat.get_history(curated=True)
        counts = first.usage_metadata, streamed[-1].usage_metadata
        require(counts[1].prompt_token_count > counts[0].prompt_token_count, counts)
        return [turn.role for turn in history[:2]] == ["user", "model"] and len(history) > 3

    def counts(self) -> bool:
        """The tokens of a prompt."""
        counted = self.client.models.count_tokens(model=self._model, contents=GREETING)
        usage = self.generate(GREETING).usage_metadata
        return bool(counted.total_tokens == usage.prompt_token_count > 0)

    def embeds(self) -> bool:
        """The vectors of texts."""
        embed = self.client.models.embed_content
        vectors = embed(model=self._model, contents=["a", "b"]).embeddings
        config = {"output_dimensionality": 8}
        (cut,) = embed(model=self._model, contents="a", config=config).embeddings
        return len(vectors) == 2 and len(cut.values) == 8 < len(vectors[0].values)

    def models(self) -> bool:
        """The list of models, and one of them."""
        names = [model.name for model in self.client.models.list()]
        model = self.client.models.get(model=self._model)
        return model.name in names and "generateContent" in model.supported_actions

    def errors(self) -> bool:
        """Errors with the codes and words of Google."""
        for ask in (self.generate, self.stream):
            try:
                ask(top_p=2)
            except self.error as error:
                given: Any = error
                require((given.code, given.status) == (400, "INVALID_ARGUMENT"), error)
                require("topP" in given.message, error)
            else:
                return False
        return True

    async def asynchronous(self) -> bool:
        """A stream of the asynchronous client."""
        stream = await self.client.aio.models.generate_content_stream(
            model=self._model, contents=GREETING, config={"max_output_tokens": 16}
        )
        return bool([part async for part in stream])


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    gemini = Gemini(base, model)
    yield CHAT, lambda: gemini.generate(system_instruction="Be brief.").text
    yield STREAM, gemini.streams_the_answer
    yield TOOLS, lambda: gemini.tools(stream=False)
    yield STREAMED_TOOLS, lambda: gemini.tools(stream=True)
    yield SCHEMA, gemini.schema
    yield EMBEDDINGS, gemini.embeds
    yield "JSON Schema", gemini.json_schema
    yield "enum", gemini.enum
    yield "automatic function calling", gemini.automatic_function_calling
    yield "logprobs", gemini.logprobs
    yield "candidates", gemini.candidates
    yield "chats", gemini.chats
    yield "count_tokens", gemini.counts
    yield "models.list, models.get", gemini.models
    yield "errors", gemini.errors
    yield "asynchronous stream", gemini.asynchronous


if __name__ == "__main__":
    main(features)

"""Small real tokenizers, a manifest for a fake runtime, and a server in a thread."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import httpx
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
from typing_extensions import override

from hearthd.bundle import (
    FORMAT,
    NO_PRESET,
    Compiler,
    EntryPoint,
    Footprint,
    Golden,
    GoldenStep,
    Hearth,
    ImageInput,
    KernelBuild,
    LanguageManifest,
    Preset,
    Provenance,
    SoundInput,
    SpecialTokens,
    Target,
)
from hearthd.runtime.interface import read_prompt
from hearthd.server.app import Guards, create_app
from hearthd.server.process.listening import bound_sockets, url
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import LocalLanguageService
from hearthd.server.services.model_pool import ModelPool
from hearthd.text import tokenizer_json
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime
from tests.patience import PATIENCE
from tests.server.prompt_server import PromptServer
from tests.server.tls import trusting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from starlette.types import ASGIApp

    from hearthd.bundle import PublicKey
    from hearthd.server.api.stored.store import Store
    from hearthd.server.process.listening import Tls
    from hearthd.server.services.engine_options import Speculation
    from hearthd.server.services.service import Service
    from hearthd.text.overflow import Overflow

# The provenance of bundles without weights.
NOWHERE = Provenance(
    model="none",
    options={},
    tried=(),
    hearth=Hearth(version="0", revision=None, modified=False),
    sources=(),
    graph="",
    compiler=Compiler(name="none", version="0", flags=()),
    kernels=KernelBuild(names=("linear_int8_g32",), instructions="portable"),
    tools={},
)
# What the manifests of fake runtimes have in common.
MANIFEST_FIELDS: dict[str, Any] = {
    "format": FORMAT,
    "architecture": "fake",
    "config": {},
    "precision": "f32",
    "target": Target(name="host", triple="x86_64-linux-gnu", cpu="generic", features=()),
    "statistics": {},
    "provenance": NOWHERE,
    "files": (),
}
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>"]
EOS, BOS, UNK = range(1, 4)
_CORPUS = [
    "the quick brown fox jumps over the lazy dog, then the dog jumps over the fox.",
    "  runs   of    spaces,\nlines\n\nand words: stop, stopped, stopping.",
]


def gemma_like(*, special: Sequence[str] = ()) -> tokenizers.Tokenizer:
    """A tokenizer like Gemma's: BPE with byte fallback, U+2581 for a space.

    `special` are further special tokens, after the vocabulary.
    """
    tokenizer = tokenizers.Tokenizer(
        models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=380,
        special_tokens=[*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    # The trainer makes added tokens of all its special tokens; in Gemma, bytes are ordinary tokens.
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] in SPECIAL]
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(data))
    tokenizer.add_special_tokens(list(special))
    return tokenizer


def unigrams(*, special: Sequence[str] = ()) -> tokenizers.Tokenizer:
    """SentencePiece's unigrams as a server reads them; `special` as in gemma_like.

    The names of special tokens are in the vocabulary, with the highest score, as in published
    files.
    """
    names = [*SPECIAL, *special]
    pieces = [*sorted({*"".join(_CORPUS), *"<>|_"}), "the", "dog", "ing"]
    vocabulary = [*((name, 0.0) for name in names), *((piece, -3.0) for piece in pieces)]
    tokenizer = tokenizers.Tokenizer(models.Unigram(vocabulary, UNK, False))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(names)
    return tokenizer_json.build(tokenizer_json.for_answers(json.loads(tokenizer.to_str())))


def byte_level(
    *,
    special: Sequence[str] = (),
    corpus: Sequence[str] = _CORPUS,
    vocab_size: int = 330,
    use_regex: bool = True,
) -> tokenizers.Tokenizer:
    """A tokenizer like GPT-2's: BPE over bytes; `special` as in gemma_like.

    Without `use_regex`, words are not split before they are merged.
    """
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens(list(special))
    return tokenizer


def manifest_of(
    runtime: FakeRuntime, *, eos: tuple[int, ...] = (), pooling: str = "mean"
) -> LanguageManifest:
    """The manifest of a fake runtime, with golden values from that runtime."""
    config = {
        "hidden": runtime.hidden,
        "pooling": pooling,
        "answers": f"{runtime.spread} {runtime.habit}",
    }
    return LanguageManifest(
        **{**MANIFEST_FIELDS, "config": config},
        storages={},
        vocab_size=runtime.vocab_size,
        context=runtime.context,
        slots=runtime.slots,
        tolerance=1e-3,
        special_tokens=SpecialTokens(bos=BOS, eos=eos),
        caches=(),
        entry_points=(),
        adapters=runtime.adapters,
        golden=golden_of(runtime),
        footprint=Footprint(laid_out=0, read=0, looked_up=0, calls={"image": 0, "sound": 0}),
    )


def golden_of(
    runtime: FakeRuntime, prompt: tuple[int, ...] = (BOS, 5, 6), steps: int = 3
) -> tuple[Golden, ...]:
    """The golden values of a prompt: its greedy continuation and the five largest logits."""
    twin = FakeRuntime(
        vocab_size=runtime.vocab_size,
        context=64,
        chunk=8,
        spread=runtime.spread,
        habit=runtime.habit,
    )
    logits = read_prompt(twin, prompt)
    golden_steps = []
    for position in range(len(prompt), len(prompt) + steps):
        best = [int(i) for i in logits.argsort()[::-1][:5]]
        golden_steps.append(
            GoldenStep(token_ids=tuple(best), logits=tuple(float(logits[i]) for i in best))
        )
        logits = twin.decode([0], [best[0]], [position])[0]
    return (Golden(prompt="", prompt_ids=prompt, steps=tuple(golden_steps)),)


def deployed(service: Service, *later: Service | Exception) -> Deployment:
    """A deployment whose reloads open the services in `later`, or raise the errors in it."""
    rest = iter(later)

    def open_again(_reserved: int) -> Service:
        opened = next(rest, LookupError("there is no other bundle"))
        if isinstance(opened, Exception):
            raise opened
        return opened

    deployment = Deployment(service.name, open_again)
    deployment.serve(service)
    return deployment


def pool(service: Service, *later: Service | Exception, **options: Any) -> ModelPool:
    """A pool with one model, as `deployed` makes it."""
    return ModelPool([deployed(service, *later)], **options)


def _client_of(address: str) -> httpx.Client:
    """A client of http://..., https://... or unix:PATH."""
    if address.startswith("unix:"):
        socket_file = httpx.HTTPTransport(uds=address.removeprefix("unix:"))
        return httpx.Client(base_url="http://any", transport=socket_file, timeout=PATIENCE)
    return httpx.Client(base_url=address, verify=trusting(), timeout=PATIENCE)


@contextlib.contextmanager
def _served(server: PromptServer, host: str, send_buffer: int | None) -> Iterator[socket.socket]:
    """Run a server in a thread, which drains when the block ends; gives its socket."""
    with contextlib.ExitStack() as addresses:
        (bound,) = addresses.enter_context(bound_sockets(host, 0))
        if send_buffer is not None:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        bound.listen()  # a client may connect before the server begins
        thread = threading.Thread(target=server.serve_on, args=(bound,))
        thread.start()
        try:
            yield bound
        finally:
            server.end()
            thread.join(PATIENCE)
        assert not thread.is_alive()


@contextlib.contextmanager
def running(
    service: Service | ModelPool,
    *,
    wait: bool = True,
    guards: Guards | None = None,
    before: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    client_timeout: float = 30,
    send_buffer: int | None = None,
    later: Sequence[Service | Exception] = (),
    webui: bool = True,
    tls: Tls | None = None,
    on_start: Callable[[], object] = lambda: None,
    host: str = "127.0.0.1",
    prefix: str = "",
    home: Path | None = None,
    store: Store | None = None,
    trusted_proxies: Sequence[str] = (),
) -> Iterator[httpx.Client]:
    """A client of a real server in a thread, which drains when the block ends.

    It serves a service, or a pool of models. Reloads open the services in `later`, one after the
    other. `before` may wrap the application in middleware. `send_buffer` limits how many bytes of
    an unread answer the kernel keeps; without it, it keeps some megabytes. With `tls`, which is of
    tests/server/certificates.py, the server speaks HTTPS. `host`, `prefix` and `trusted_proxies` as
    in `hearth serve`; `home` and `store` as in create_app.
    """
    ready = threading.Event()

    def start() -> None:
        ready.set()
        on_start()

    models = service if isinstance(service, ModelPool) else pool(service, *later)
    app = create_app(
        models,
        on_start=start,
        guards=guards or Guards(),
        webui=webui,
        prefix=prefix,
        home=home,
        store=store,
    )
    app.add_middleware(before)
    server = PromptServer(
        app, models, client_timeout=client_timeout, tls=tls, trusted_proxies=trusted_proxies
    )
    with _served(server, host, send_buffer) as bound, _client_of(url(bound, tls)) as client:
        assert not wait or ready.wait(PATIENCE)
        yield client


@dataclass(frozen=True)
class Script:
    """The answer of a model after the last `cue` in its input, and the token that ends it."""

    cue: tuple[int, ...]
    answer: tuple[int, ...]
    end: int


@dataclass(kw_only=True)
class ScriptedRuntime(FakeRuntime):
    """A fake runtime whose answers follow a script."""

    script: Script

    @override
    def _append(self, slot: int, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
        logits = super()._append(slot, tokens, start)
        read, cue = self._read[slot], list(self.script.cue)
        for at in range(len(read), len(cue) - 1, -1):
            if read[at - len(cue) : at] == cue:
                answer = [*self.script.answer, self.script.end]
                logits[answer[min(len(read) - at, len(answer) - 1)]] = 1e3
                break
        return logits


def _tower(kind: Literal["image", "sound"], rows: int) -> EntryPoint:
    return EntryPoint(name=kind, kind=kind, batch=1, tokens=rows, keys=1)


def fake_service(
    tokenizer: tokenizers.Tokenizer,
    *,
    speculation: Speculation = "auto",
    template: str | None = None,
    script: Script | None = None,
    name: str = "fake-model",
    pooling: str = "mean",
    lora_dir: Path | None = None,
    keys: tuple[PublicKey, ...] = (),
    golden: tuple[Golden, ...] | None = None,
    overflow: Overflow = "error",
    images: ImageInput | None = None,
    sound: SoundInput | None = None,
    preset: Preset = NO_PRESET,
    fetch_images: bool = False,
    cache_dir: Path | None = None,
    **runtime: Any,
) -> LocalLanguageService:
    """A service with a FakeRuntime that has the tokenizer's vocabulary size and these fields.

    Its bundle has the runtime's own golden values, or `golden`, and reads images and sound
    if it has their settings.
    """
    fields = {"vocab_size": tokenizer.get_vocab_size(), "context": 64, **runtime}
    fake = ScriptedRuntime(script=script, **fields) if script else FakeRuntime(**fields)
    wrapped = Tokenizer(tokenizer, bos=BOS, context=fake.context)
    manifest = manifest_of(fake, eos=(script.end,) if script else (), pooling=pooling)
    towers = [_tower("image", fake.context)] if images else []
    towers += [_tower("sound", fake.context)] if sound else []
    manifest = replace(
        manifest, images=images, sound=sound, entry_points=tuple(towers), preset=preset
    )
    return LocalLanguageService(
        fake,
        wrapped,
        manifest if golden is None else replace(manifest, golden=golden),
        EngineOptions(
            speculation=speculation,
            lora_dir=lora_dir,
            keys=keys,
            overflow=overflow,
            fetch_images=fetch_images,
            cache_dir=cache_dir,
        ),
        name=name,
        template=ChatTemplate(template, wrapped, eos=EOS) if template else None,
    )

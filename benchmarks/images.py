"""Measure how long a tower takes for an image, and how long other streams wait meanwhile.

    python -m benchmarks.images BUNDLE photo.png --mtmd PATH/llama-mtmd-cli \\
        --llama-cpp MODEL.gguf MMPROJ.gguf --json images.json

Of an image that is cut into parts, the time is the first part's: a tower takes as long for
each. llama-mtmd-cli reads the same image with as many threads, in turn with the tower of the
bundle, and says how long its encoder takes. Then the bundle is served to a client that streams an
answer, while another one asks about an image that is not in the cache: the gap is the longest time
between two pieces of the stream from that request to its answer. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from benchmarks.inputs import existing_bundle, existing_path
from benchmarks.report.figures import Figure, Rounds, figures_table, print_figures
from benchmarks.report.machine import describe_machine, versions, versions_line, write_json
from benchmarks.serving.load_client import Answer, ask, connect
from benchmarks.serving.server_commands import hearth
from benchmarks.serving.server_process import ServerFailed, running
from benchmarks.tower_divergence import prompt_of
from hearthd.baker.memory_bandwidth import physical_cores
from hearthd.runtime.open_bundle import open_bundle

if TYPE_CHECKING:
    import httpx

    from hearthd.runtime.language_model import IreeRuntime
    from hearthd.server.engine.prompt import ImageRows

_FIGURES = (
    Figure("tower", "tower for an image, s"),
    Figure("gap_alone", "largest gap of a stream alone, ms"),
    Figure("gap", "largest gap while an image is read, ms"),
)
_GOALS = {"tower": 0.5}
_ENCODED = re.compile(r"encoding done in (\d+) ms")
_STREAMED = 400  # tokens of an answer of the stream that waits
_LEAD = 2.0  # seconds of it before the image is sent
_MODEL_TIMEOUT = 1200.0


def tower_seconds(runtime: IreeRuntime, image: ImageRows) -> float:
    """The time of the tower for an image, or for a part of one."""
    began = time.perf_counter()
    for _ in runtime.read_media(image.media):
        pass
    return time.perf_counter() - began


def mtmd_seconds(arguments: argparse.Namespace) -> float:
    """The same of llama-mtmd-cli, which is ended after the first part."""
    model, projector = arguments.llama_cpp
    command = [arguments.mtmd, "-m", model, "--mmproj", projector, "--image", arguments.image]
    command += ["-p", "?", "-n", "1", "-t", str(arguments.threads)]
    command += ["--chat-template", arguments.chat_template] if arguments.chat_template else []
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            lines: list[str] = []
            for line in process.stderr:
                lines.append(line)
                if found := _ENCODED.search(line):
                    return int(found[1]) / 1000
        finally:
            process.kill()
    sys.exit(f"images: llama-mtmd-cli: {''.join(lines)[-500:]}")


def new_image(path: Path, number: int) -> str:
    """The image as a data URI, with other pixels in its first row."""
    pixels = np.array(Image.open(path).convert("RGB"))
    pixels[0] = np.random.default_rng(number).integers(0, 256, pixels[0].shape)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


async def streams(client: httpx.AsyncClient, stop: asyncio.Event) -> list[Answer]:
    """Answers that are streamed one after the other, until the event is set."""
    # Tokens of a model with random weights may have no text, and arrive unseen.
    response = await client.post("/tokenize", json={"content": "a"})
    always = {str(response.json()["tokens"][-1]): 100}
    answers: list[Answer] = []
    while not stop.is_set():
        prompt = f"A story, {len(answers)}:"
        answers.append(await ask(client, prompt, _STREAMED, logit_bias=always))
    return answers


async def gaps(url: str, image: str) -> dict[str, float]:
    """The largest gap of streams alone, and while another client asks about an image."""
    stop = asyncio.Event()
    async with connect(url) as client:
        streamed = asyncio.create_task(streams(client, stop))
        await asyncio.sleep(_LEAD)
        parts = [{"type": "image_url", "image_url": {"url": image}}, {"type": "text", "text": "?"}]
        began = time.perf_counter()
        response = await client.post(
            "/v1/chat/completions",
            json={"messages": [{"role": "user", "content": parts}], "max_tokens": 1},
            timeout=_MODEL_TIMEOUT,
        )
        ended = time.perf_counter()
        stop.set()
        response.raise_for_status()
        answers = await streamed
    spans = {"gap_alone": (0.0, began), "gap": (began, ended)}
    found = {
        name: [1000 * gap for answer in answers for gap in answer.gaps([span])]
        for name, span in spans.items()
    }
    if not all(found.values()):
        sys.exit("images: the stream came in one piece: is each token of its text bytes alone?")
    return {name: max(gaps) for name, gaps in found.items()}


def main() -> None:
    """Measure, print the table and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=existing_bundle)
    parser.add_argument("image", type=existing_path)
    parser.add_argument("--mtmd", type=existing_path, help="llama-mtmd-cli")
    parser.add_argument(
        "--llama-cpp", type=existing_path, nargs=2, metavar=("MODEL.gguf", "MMPROJ.gguf")
    )
    parser.add_argument("--chat-template", metavar="NAME", help="for a GGUF file that has none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    measured: dict[str, Rounds] = {"hearth": []}
    manifest, runtime = open_bundle(arguments.bundle, threads=arguments.threads)
    image = prompt_of(arguments.bundle, manifest, arguments.image).images[0]
    for _ in range(arguments.rounds):
        measured["hearth"].append({"tower": tower_seconds(runtime, image)})
        if arguments.mtmd is not None:
            measured.setdefault("mtmd", []).append({"tower": mtmd_seconds(arguments)})
        seconds = {name: f"{rounds[-1]['tower']:.2f} s" for name, rounds in measured.items()}
        sys.stderr.write(f"tower: {seconds}\n")
    del runtime
    try:
        with running(hearth(arguments.bundle, arguments.threads)) as server:
            for number, figures in enumerate(measured["hearth"]):
                figures |= asyncio.run(gaps(server.url, new_image(arguments.image, number)))
    except ServerFailed as error:
        sys.exit(f"images: {error}")
    machine, used = describe_machine(arguments.threads), versions()
    print(f"{machine}\n{versions_line(used)}")  # noqa: T201
    table = figures_table(f"{manifest.precision} tower", _FIGURES, measured, _GOALS)
    print_figures(table)
    if arguments.json is not None:
        write_json(arguments.json, machine, used, [table], rounds=measured)


if __name__ == "__main__":
    main()

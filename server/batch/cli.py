"""`hearth batch`: answer a file of requests with a bundle in this process, or with a server."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hearthd import flags
from hearthd.bundle import BundleError, bundle_home
from hearthd.runtime.system.interrupts import at_interrupt
from hearthd.server.batch.batch_targets import UrlTarget, in_process
from hearthd.server.batch.files import Answers, BadBatch, Requests
from hearthd.server.batch_requests.batch_request import BatchTarget, CannotReach
from hearthd.server.batch_requests.runner import Counts, run
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.language_service import open_language_service
from hearthd.server.services.model_pool import ModelPool
from hearthd.text.control_characters import print_line
from hearthd.text.errors import RequestError

# Exceptions that end the command, each with its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = {
    BadBatch: 2,
    BundleError: 1,
    CannotReach: 1,
    RequestError: 1,
}
_PARALLEL = 8  # requests to a server at a time, by default

RequestsFile = Annotated[
    Path, typer.Argument(metavar="REQUESTS", help="File of requests, in JSON lines.")
]
AnswersFile = Annotated[
    Path, typer.Option(metavar="ANSWERS", help="File of answers, to write or to continue.")
]
Bundle = Annotated[
    Path | None,
    typer.Option(
        metavar="BUNDLE",
        parser=bundle_home.named_bundle,
        autocompletion=bundle_home.completed_names,
        help=f"Answer with this bundle, in this process. {bundle_home.BUNDLE_HELP}",
    ),
]
Url = Annotated[str | None, typer.Option(metavar="URL", help="Answer with the server at this URL.")]
ApiKey = Annotated[
    str | None,
    typer.Option(metavar="KEY", envvar="HEARTH_API_KEY", help="API key of the server."),
]
Parallel = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Requests to run at the same time. Default: 2 per slot of the bundle, 8 with --url.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="CPU threads. Default: one per physical core."),
]

OnRay = Annotated[
    bool,
    typer.Option("--ray", help="Answer with several engines, on the machines of a Ray cluster."),
]
Engines = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Engines of --ray. Default: as many as its CPUs allow."),
]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=flags.GroupedOptions)
def _batch(
    requests: RequestsFile,
    *,
    out: AnswersFile,
    bundle: Bundle = None,
    url: Url = None,
    api_key: ApiKey = None,
    parallel: Parallel = None,
    threads: Threads = None,
    ray: OnRay = False,
    engines: Engines = None,
) -> None:
    """Answer a file of requests in the format of OpenAI's API.

    Each line of REQUESTS has a custom_id of its own, a url, which is any POST route of the server,
    and a body. Answers are appended to ANSWERS as they come. The same command continues a batch
    that was stopped, also by kill -9: each request is answered once.

    \b
        hearth batch requests.jsonl --out answers.jsonl --bundle gemma3-270m
    """
    if (bundle is None) == (url is None):
        raise typer.BadParameter("give either --bundle or --url.")
    if ray and (bundle is None or threads is None or parallel is not None):
        raise typer.BadParameter("--ray needs --bundle and --threads, and excludes --parallel.")
    if engines is not None and not ray:
        raise typer.BadParameter("--engines needs --ray.")
    todo = Requests(requests)
    with Answers(out, todo) as answers, at_interrupt(lambda: _remaining(todo, answers)):
        if url is not None:
            with UrlTarget(url, api_key=api_key, parallel=parallel or _PARALLEL) as target:
                counts = asyncio.run(_run(todo, answers, target))
        elif ray and bundle is not None and threads is not None:
            counts = _on_ray(todo, answers, bundle, threads, engines)
        else:
            assert bundle is not None, "one of them is given"
            counts = asyncio.run(_in_process(todo, answers, bundle, parallel, threads))
    failed = f", {counts.failed} with an error" if counts.failed else ""
    count = f"{len(todo)} request{'' if len(todo) == 1 else 's'}"
    print_line(f"{count}: {counts.answered} answered now{failed}", to_stderr=True)


def _remaining(requests: Requests, answers: Answers) -> str:
    answered = len(answers.answered)
    return f"{answered} of {len(requests)} answered; run it again to continue"


async def _in_process(
    requests: Requests, answers: Answers, bundle: Path, parallel: int | None, threads: int | None
) -> Counts:
    service = open_language_service(bundle, threads=threads)
    slots = len(service.state().slots)
    deployment = Deployment(service.name, lambda _: open_language_service(bundle, threads=threads))
    deployment.serve(service)
    async with in_process(ModelPool([deployment]), parallel or 2 * slots) as target:
        return await _run(requests, answers, target)


def _on_ray(
    requests: Requests, answers: Answers, bundle: Path, threads: int, engines: int | None
) -> Counts:
    from hearthd.server.batch.ray_data import recipe_of, run_on_ray

    recipe = recipe_of(bundle, threads)
    with _progress(requests, answers) as on_answer:
        return run_on_ray(requests, answers, recipe, engines, on_answer)


async def _run(requests: Requests, answers: Answers, target: BatchTarget) -> Counts:
    with _progress(requests, answers) as on_answer:
        return await run(requests, answers, target, on_answer)


@contextlib.contextmanager
def _progress(requests: Requests, answers: Answers) -> Iterator[Callable[[], None]]:
    """A bar in a terminal; yields what to call after each answer."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda: None
        return
    with Progress(
        TextColumn("answered"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as bar:
        task = bar.add_task("", total=len(requests), completed=len(answers.answered))
        yield lambda: bar.advance(task)

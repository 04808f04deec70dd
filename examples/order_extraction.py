"""A task with a right answer, to tune an adapter for: the fields of a one-line order, as JSON.

    python -m examples.order_extraction make --out orders
    hearth tune gemma3 --data orders/train.jsonl --out orders/adapter
    hearth bake gemma3 --adapter orders/adapter --out orders/bundle
    hearth serve orders/bundle &
    python -m examples.order_extraction score --data orders/test.jsonl

An answer is right if it is JSON with exactly the fields of the order. No sentence of the test is
among those that are learned.
"""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import httpx
import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

COUNTS = {
    "1": 1, "one": 1, "a single": 1, "2": 2, "two": 2, "a pair of": 2, "3": 3, "three": 3, "4": 4,
    "four": 4, "5": 5, "five": 5, "6": 6, "half a dozen": 6, "7": 7, "seven": 7, "8": 8, "9": 9,
    "ten": 10, "11": 11, "12": 12, "a dozen": 12, "fifteen": 15, "18": 18, "twenty": 20, "25": 25,
    "thirty": 30, "48": 48, "fifty": 50, "75": 75, "a hundred": 100, "120": 120,
}  # fmt: skip
KINDS = "red blue green black white small large wooden steel paper cotton round folding".split()
GOODS = "mug chair lamp table basket towel bowl plate clock mirror jacket bottle spoon tray".split()
CITIES = (
    "Oslo", "Paris", "Lima", "Cairo", "Berlin", "Porto", "Kyoto", "Dublin", "Quito", "Vienna",
    "Madrid", "Boston", "Prague", "Lagos", "Hanoi", "Tunis",
)  # fmt: skip
# `other` is a count and `place` a city that are not ordered.
SENTENCES = (
    "Please send {count} {items} to {city}.",
    "I need {count} {items}, delivery to {city}.",
    "{count} {items} for {city}, thanks!",
    "Ship to {city}: {count} {items}",
    "Could our {city} office get {count} {items}?",
    "We want {count} {items}. Not {place} this time, {city} please.",
    "Make it {count} {items} instead of {other}, to {city}.",
    "From {place} to {city}: {count} {items}.",
    "My friend in {place} wants {count} {items} sent to {city}.",
    "Last time it was {other}, now {count} {items} go to {city}.",
    "For {city}, order {count} {items} and bill the shop in {place}.",
    "hi, {city} has run out of {items}, {count} more please",
)
PROMPT = "Order: {text}\nJSON with count, item, city:"


@dataclass(frozen=True)
class Order:
    """The fields that an answer has."""

    count: int
    item: str
    city: str


def orders(seed: int, count: int) -> list[tuple[str, Order]]:
    """Different sentences with their orders."""
    rng = random.Random(seed)
    result: dict[str, Order] = {}
    while len(result) < count:
        said, other = rng.sample(sorted(COUNTS), 2)
        city, other_city = rng.sample(CITIES, 2)
        item = f"{rng.choice(KINDS)} {rng.choice(GOODS)}"
        number = COUNTS[said]
        text = rng.choice(SENTENCES).format(
            count=said,
            items=item if number == 1 else f"{item}s",
            city=city,
            other=other.removesuffix(" of"),
            place=other_city,
        )
        result[text[0].upper() + text[1:]] = Order(number, item, city)
    return list(result.items())


def line(text: str, order: Order) -> dict[str, str]:
    """An example as `hearth tune` reads it."""
    return {"prompt": PROMPT.format(text=text), "completion": f" {json.dumps(asdict(order))}"}


def is_right(answer: str, completion: str) -> bool:
    """Whether an answer has the fields of the completion and no others."""
    try:
        return bool(json.loads(answer) == json.loads(completion))
    except ValueError:
        return False


def write(path: Path, lines: Iterable[dict[str, str]]) -> None:
    """Write JSON lines."""
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in lines), encoding="utf-8")


app = typer.Typer(add_completion=False, help=__doc__, rich_markup_mode=None)


@app.command()
def make(
    out: Annotated[Path, typer.Option(help="Folder for train.jsonl and test.jsonl.")] = Path(
        "orders"
    ),
    learned: Annotated[int, typer.Option(help="Orders to learn.")] = 1200,
    tested: Annotated[int, typer.Option(help="Orders to test.")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the orders.")] = 0,
) -> None:
    """Write the examples for training and for the test."""
    lines = [line(*order) for order in orders(seed, learned + tested)]
    out.mkdir(parents=True, exist_ok=True)
    write(out / "train.jsonl", lines[:learned])
    write(out / "test.jsonl", lines[learned:])


@app.command()
def score(
    data: Annotated[Path, typer.Option(help="test.jsonl, as `make` writes it.")] = Path(
        "orders/test.jsonl"
    ),
    url: Annotated[str, typer.Option(help="A server of the model.")] = "http://127.0.0.1:8080",
    limit: Annotated[int | None, typer.Option(help="Cases to ask. Default: all.")] = None,
) -> None:
    """Ask a server all cases, and print the share of right answers and the first wrong ones."""
    cases = [json.loads(row) for row in data.read_text(encoding="utf-8").splitlines()][:limit]
    with httpx.Client(base_url=url, timeout=600) as client, ThreadPoolExecutor(8) as pool:

        def answer(case: dict[str, Any]) -> str:
            body = {"model": "any", "prompt": case["prompt"], "max_tokens": 40, "temperature": 0}
            reply = client.post("/v1/completions", json=body | {"stop": ["\n"]})
            return str(reply.raise_for_status().json()["choices"][0]["text"])

        answers = list(pool.map(answer, cases))
    pairs = list(zip(answers, cases, strict=True))
    wrong = [(said, case) for said, case in pairs if not is_right(said, case["completion"])]
    for said, case in wrong[:5]:
        typer.echo(f"wrong: {said!r} instead of {case['completion']!r}: {case['prompt']!r}")
    right = len(cases) - len(wrong)
    typer.echo(f"{right} of {len(cases)} right: {right / len(cases):.1%}")


if __name__ == "__main__":
    app()

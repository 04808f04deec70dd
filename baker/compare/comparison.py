"""Compare two models given by name, or record the answers of one."""

from __future__ import annotations

import contextlib
import datetime
import os
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from hearthd.baker.compare.measurement.passages import (
    answer_passage,
    default_prompts,
    read_texts,
    recorded_passages,
    shipped_texts,
    text_passage,
)
from hearthd.baker.compare.measurement.side_by_side import compare
from hearthd.baker.compare.report.summary import build_report
from hearthd.baker.compare.sides.open_side import SideOptions, is_endpoint, opened, vocabulary_of
from hearthd.baker.compare.sides.recording import Best, Case, Recording, RecordingError
from hearthd.baker.compare.sides.side import RecordedSide, SideError, greedy_answer
from hearthd.baker.compare.sides.vocabulary import BundleVocabulary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hearthd.baker.compare.measurement.passages import Passage
    from hearthd.baker.compare.report.summary import Report
    from hearthd.baker.compare.sides.prediction import Prediction
    from hearthd.baker.compare.sides.side import Side
    from hearthd.baker.compare.sides.vocabulary import Vocabulary
    from hearthd.baker.progress import Progress

# Positions that llama.cpp allocates, unless a text is longer.
_LLAMA_CONTEXT = 4096
# Top tokens per position in a recording.
_TOP = 5


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The passages to compare, and how to open the sides.

    texts      text files; empty: the shipped texts
    positions  the maximum number of tokens per text; None: no limit
    answers    tokens per answer; 0: no answers
    tokenizer  a bundle with the vocabulary, if neither side has one
    top        the number of top tokens to request from an endpoint
    threads    of models in this process; None: all available CPUs
    """

    texts: tuple[Path, ...]
    positions: int | None
    answers: int
    tokenizer: Path | None
    top: int
    threads: int | None


def compare_sides(a_name: str, b_name: str, options: CompareOptions, progress: Progress) -> Report:
    """Compare B with A. Raises UnreadableText, SideError, and what `opened` raises."""
    with contextlib.ExitStack() as stack:
        with progress.stage("open both models"):
            a, b = _open_both(a_name, b_name, options, stack)
        _check_vocabularies(a, b)
        vocabulary = _chosen_vocabulary(options) or a.vocabulary or b.vocabulary
        passages, notes = _passages(a, b, options, vocabulary, progress)
        with progress.stage(
            "compare predictions", sum(passage.compared_positions for passage in passages)
        ) as advance:
            result = compare(a, b, passages, lambda: advance(1))
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return build_report(a, b, result, vocabulary, notes, created=now, hearth=version("hearthd"))


def record_side(name: str, options: CompareOptions, progress: Progress) -> Recording:
    """Record the greedy answers of a side to the default prompts; raises as compare_sides."""
    with contextlib.ExitStack() as stack:
        with progress.stage("open the model"):
            known = _chosen_vocabulary(options) or vocabulary_of(name)
            side = stack.enter_context(_opened("A", name, known, options))
        vocabulary = _required(known or side.vocabulary)
        prompts, notes = _prompts(vocabulary, side.context, options.answers)
        with progress.stage("record answers", len(prompts) * options.answers) as advance:
            cases = []
            for case_name, prompt_ids in prompts.items():
                best = []
                for prediction in greedy_answer(side, prompt_ids, options.answers):
                    best.append(_best(prediction))
                    advance(1)
                cases.append(_case(case_name, prompt_ids, best, vocabulary))
    meta = {"model": name, "kind": side.about.side_type, **side.about.details}
    meta |= {"top5": "per generated token: [token id, natural-log probability], best first"}
    if notes:
        meta["left out"] = " ".join(notes)
    return Recording(meta=meta, cases=tuple(cases))


def _best(prediction: Prediction) -> Best:
    tokens = [token for token in prediction.best(_TOP) if token >= 0]
    logprobs = [prediction.logprob(token) for token in tokens]
    return Best(
        token_ids=tuple(tokens), logprobs=tuple(value for value in logprobs if value is not None)
    )


def _case(
    name: str, prompt_ids: tuple[int, ...], best: Sequence[Best], vocabulary: Vocabulary
) -> Case:
    greedy_ids = tuple(row.token_ids[0] for row in best)
    return Case(
        name=name,
        prompt=default_prompts()[name],
        prompt_ids=prompt_ids,
        greedy_ids=greedy_ids,
        text=vocabulary.detokenize(greedy_ids),
        best=tuple(best),
    )


def _opened(
    letter: str, name: str, vocabulary: Vocabulary | None, options: CompareOptions
) -> contextlib.AbstractContextManager[Side]:
    """Open a side; the API key is in OPENAI_API_KEY_A, OPENAI_API_KEY_B or OPENAI_API_KEY."""
    key = os.environ.get(f"OPENAI_API_KEY_{letter}", os.environ.get("OPENAI_API_KEY"))
    side_options = SideOptions(
        threads=options.threads,
        llama_context=max(_LLAMA_CONTEXT, options.positions or 0),
        top=options.top,
        vocabulary=vocabulary,
        key=key,
    )
    return opened(name, side_options)


def _open_both(
    a_name: str, b_name: str, options: CompareOptions, stack: contextlib.ExitStack
) -> tuple[Side, Side]:
    """Open both sides, an endpoint last: it needs the vocabulary of the other side."""
    known = _chosen_vocabulary(options) or vocabulary_of(a_name) or vocabulary_of(b_name)
    a_first = not is_endpoint(a_name)
    names = [("A", a_name), ("B", b_name)]
    sides: dict[str, Side] = {}
    for letter, name in names if a_first else reversed(names):
        sides[letter] = stack.enter_context(_opened(letter, name, known, options))
        known = known or sides[letter].vocabulary
    return sides["A"], sides["B"]


def _chosen_vocabulary(options: CompareOptions) -> Vocabulary | None:
    return None if options.tokenizer is None else BundleVocabulary.of(options.tokenizer)


def _required(vocabulary: Vocabulary | None) -> Vocabulary:
    if vocabulary is None:
        raise SideError(
            "no side can tokenize a text; name a bundle with the vocabulary: --tokenizer BUNDLE"
        )
    return vocabulary


def _check_vocabularies(a: Side, b: Side) -> None:
    """Raise SideError if the vocabularies have different sizes."""
    if a.vocab_size is not None and b.vocab_size is not None and a.vocab_size != b.vocab_size:
        raise SideError(
            f"the vocabulary of A has {a.vocab_size} tokens, and B's has {b.vocab_size}: "
            "models with different vocabularies cannot be compared"
        )


def _passages(
    a: Side, b: Side, options: CompareOptions, vocabulary: Vocabulary | None, progress: Progress
) -> tuple[list[Passage], list[str]]:
    """The passages, and notes about texts and prompts that are cut or left out."""
    contexts = [side.context for side in (a, b) if side.context is not None]
    context = min(contexts, default=None)
    for side in (a, b):
        if isinstance(side, RecordedSide):
            return _recorded(side, options, context, (a, b)), []
    known = _required(vocabulary)
    passages, notes = _texts(a, b, options, known, context)
    if not options.answers:
        return passages, notes
    prompts, left_out = _prompts(known, context, options.answers)
    with progress.stage("generate the answers of A", len(prompts) * options.answers) as advance:
        for name, prompt_ids in prompts.items():
            answer = []
            for prediction in greedy_answer(a, prompt_ids, options.answers):
                answer.append(prediction.greedy)
                advance(1)
            passages.append(answer_passage(name, prompt_ids, tuple(answer)))
    return passages, notes + left_out


def _recorded(
    side: RecordedSide, options: CompareOptions, context: int | None, sides: tuple[Side, Side]
) -> list[Passage]:
    if options.texts:
        raise SideError(f"{side.about.name} is a recording, which has answers only: remove --text")
    passages = list(recorded_passages(side.recording))
    known = [side.vocab_size for side in sides if side.vocab_size is not None]
    for passage in passages:
        if context is not None and len(passage.token_ids) - 1 > context:
            needed = len(passage.token_ids) - 1
            raise RecordingError(
                f"{passage.name} needs {needed} positions, the other side has {context}: "
                f"bake it with --context {needed} or more"
            )
        largest = max(passage.token_ids)
        if known and largest >= min(known):
            raise RecordingError(
                f"{passage.name} has token {largest}, the other side has {min(known)} tokens: "
                "it was recorded with another model"
            )
    return passages


def _texts(
    a: Side, b: Side, options: CompareOptions, vocabulary: Vocabulary, context: int | None
) -> tuple[list[Passage], list[str]]:
    texts = read_texts(options.texts) if options.texts else shipped_texts()
    limits = [limit for limit in (options.positions, context) if limit is not None]
    passages, notes = [], []
    for name, text in texts.items():
        passage = text_passage(name, text, vocabulary, min(limits, default=None))
        token_count = len(vocabulary.tokenize(text))
        if token_count > len(passage.token_ids):
            notes.append(
                f"{name}: only the first {len(passage.token_ids)} of {token_count} tokens "
                "are compared."
            )
        readings = {s.vocabulary.tokenize(text) for s in (a, b) if s.vocabulary is not None}
        if len(readings) > 1:
            notes.append(
                f"{name}: the tokenizers of A and B differ; both sides read the tokens of A."
            )
        passages.append(passage)
    return passages, notes


def _prompts(
    vocabulary: Vocabulary, context: int | None, steps: int
) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """The default prompts that fit the context with their answer, and a note about the others."""
    prompts = {name: vocabulary.tokenize(text) for name, text in default_prompts().items()}
    fit = {
        name: ids
        for name, ids in prompts.items()
        if context is None or len(ids) + steps - 1 <= context
    }
    left_out = ", ".join(prompts.keys() - fit.keys())
    notes = [
        f"Prompts left out because they do not fit the context of {context} tokens: {left_out}."
    ]
    return fit, notes if left_out else []

"""Recordings are read strictly and written so that they are read again."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.baker.compare.measurement.passages import STEPS, default_prompts, recorded_passages
from hearthd.baker.compare.sides.recording import RecordingError, read_recording, write_recording

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parents[2] / "golden" / "gemma3_270m_llamacpp_f32.json"


def small() -> dict[str, Any]:
    """A recording of one case with two tokens."""
    return {
        "meta": {"engine": "by hand"},
        "cases": {
            "one": {
                "prompt": "p",
                "prompt_ids": [2, 5],
                "greedy_ids": [7, 8],
                "text": "t",
                "top5": [[[7, -0.1], [8, -2.5]], [[8, -0.2], [7, -2.0]]],
            }
        },
    }


def test_a_recording_of_llama_cpp_is_read() -> None:
    recording = read_recording(GOLDEN)
    assert len(recording.cases) == 10
    assert max(len(case.prompt_ids) for case in recording.cases) == 1355
    for case in recording.cases:
        assert len(case.greedy_ids) == STEPS
        for best in case.best:
            assert len(best.token_ids) == 5
            assert sum(math.exp(logprob) for logprob in best.logprobs) <= 1 + 1e-4


def test_a_recording_is_written_as_it_was_read(tmp_path: Path) -> None:
    copied = tmp_path / "copy.json"
    write_recording(copied, read_recording(GOLDEN))
    assert json.loads(copied.read_text("utf-8")) == json.loads(GOLDEN.read_text("utf-8"))


def test_the_default_prompts_equal_those_of_the_golden_recording() -> None:
    recorded = {case.name: case.prompt for case in read_recording(GOLDEN).cases}
    assert default_prompts() == recorded


def test_only_the_positions_of_an_answer_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(small()), encoding="utf-8")
    (passage,) = recorded_passages(read_recording(path))
    assert passage.token_ids == (2, 5, 7, 8)
    assert (passage.start, passage.compared_positions) == (2, 2)


def change(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """An edit of `small()`'s case at a path of keys and indices."""

    def edit(data: dict[str, Any]) -> None:
        *front, last = (int(key) if key.isdigit() else key for key in path.split("."))
        place: Any = data["cases"]["one"]
        for key in front:
            place = place[key]
        place[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda data: data.pop("meta"), "bad.json: meta: missing field"),
        (lambda data: data.update(extra=1), "extra: unknown field"),
        (lambda data: data.update(cases=[]), r"cases: got \[\], expected a JSON object"),
        (lambda data: data.update(cases={}), "cases: expected at least one"),
        (lambda data: data["cases"]["one"].pop("text"), r"cases\.one\.text: missing field"),
        (change("prompt", 5), r"one\.prompt: got 5, expected a valid string"),
        (change("prompt_ids", []), r"cases\.one: expected token ids"),
        (change("prompt_ids.0", -1), r"one\.prompt_ids\[0\]: got -1, expected greater than"),
        (change("greedy_ids.1", True), r"one\.greedy_ids\[1\]: got true, expected a valid integer"),
        (change("top5", [[[7, -0.1], [8, -2.5]]]), "one.top5: expected 2 rows"),
        (change("top5.1", [[8, -0.2]]), r"top5\[1\]: expected at least two"),
        (change("top5.0.0.1", 0.1), r"top5\[0\]: expected log-probabilities"),
        (change("top5.0.0.1", float("nan")), "NaN is not a number"),
        (change("top5.0.0.1", -3.0), r"top5\[0\]: expected the best first"),
        (change("top5.1", [[7, -0.1], [8, -2.5]]), r"top5\[1\]: expected token 8 first"),
        (change("top5.1.1.0", "x"), r'top5\[1\]\[1\]\[0\]: got "x", expected a valid integer'),
    ],
)
def test_an_invalid_recording_is_an_error_that_names_the_field(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None], says: str
) -> None:
    data = copy.deepcopy(small())
    edit(data)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(RecordingError, match=says):
        read_recording(path)


def test_a_file_that_is_not_json_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot be read as JSON"):
        read_recording(tmp_path / "absent.json")
    (tmp_path / "text.json").write_text("top5", encoding="utf-8")
    with pytest.raises(RecordingError, match="cannot be read as JSON"):
        read_recording(tmp_path / "text.json")

"""The options of a bake: what is typed, what is recorded, and what is read back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

from hearthd.baker import cli
from hearthd.baker.hub import download
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.bake_options import (
    BadOption,
    BakeOptions,
    bake_options,
    recorded_options,
)
from hearthd.bundle import CALIBRATION, DRAFTER, NO_PRESET, NotABundle
from hearthd.flag_names import flag
from hearthd.models.precision import NAMED_PRECISIONS
from tests.conftest import Silent, options_for

if TYPE_CHECKING:
    from hearthd.baker.pipeline.bake_options import Kind
    from hearthd.baker.progress import Progress
    from hearthd.bundle import Preset

# A value of every option that is recorded, by the kind of models that takes it, and its record.
VALUES: dict[Kind, dict[str, tuple[Any, Any]]] = {
    "language model": {
        "as_": ("llama", "llama"),
        "mmproj": (Path("weights/mmproj-f16.gguf"), "mmproj-f16.gguf"),
        "adapter": (Path("orders/adapter"), "adapter"),
        "precision": ("int8-g32", "int8-g32"),
        "max_kl": (0.5, 0.5),
        "calibration": (Path("texts/days.txt"), CALIBRATION),
        "kv_cache": ("int8", "int8"),
        "activations": ("int16", "int16"),
        "context": (256, 256),
        "slots": (3, 3),
        "max_memory": ("1GiB", 2**30),
        "drafter": (Path("drafts/drafter"), DRAFTER),
        "image_max_tokens": (256, 256),
        "adapters": (8, 8),
        "rank": (4, 4),
        "target": ("aarch64", "aarch64"),
    },
    "encoder": {
        "precision": ("f32", "f32"),
        "context": (64, 64),
        "target": ("host", "host"),
    },
    "GRU": {
        "steps": (2, 2),
        "batch": (1, 1),
        "form": ("loop", "loop"),
        "batch_first": (True, True),
        "target": ("host", "host"),
    },
}
LANGUAGE = VALUES["language model"]


@pytest.mark.parametrize("kind", VALUES)
def test_a_record_is_read_as_it_was_given(kind: Kind, tmp_path: Path) -> None:
    values = VALUES[kind]
    options = bake_options({name: value for name, (value, _) in values.items()})
    record = options.record(kind)
    assert record == {name: recorded for name, (_, recorded) in values.items()}
    assert all(type(value) in (str, int, float, bool) for value in record.values())
    for name in ("adapter", "mmproj"):  # they are not in the bundle
        record.pop(name, None)
    again = bake_options(recorded_options(record, tmp_path), strict=True)
    assert again.record(kind) == record
    if kind == "language model":
        assert again.calibration == tmp_path / CALIBRATION
        assert again.drafter == tmp_path / DRAFTER


def test_every_recorded_option_has_a_value_here() -> None:
    fields = BakeOptions.model_fields.keys() - {
        "model", "weights", "size", "out", "recompile", "verify_later",
    }  # fmt: skip
    given = {name for values in VALUES.values() for name in values}
    assert fields - given == {"max_bytes"}  # which excludes max_kl


def test_resolved_values_replace_those_that_are_not_given() -> None:
    options = bake_options({"slots": 2})
    assert options.record("language model", slots=2, context=99) == {
        "context": 99,
        "slots": 2,
        "target": "host",
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"precision": "fp4"}, "--precision: got 'fp4', expected .*int8-g32.*, auto$"),
        ({"precision": "int8"}, "--precision: got 'int8', .*; int8 was renamed to int8-g32$"),
        ({"precision": "mixed"}, "--precision: got 'mixed', expected f32, .*, auto$"),
        ({"kv_cache": "q8"}, "--kv-cache: got 'q8', expected 'f16', 'f32', 'int8' or 'int4'$"),
        ({"activations": "q8"}, "--activations: got 'q8', expected 'int16' or 'int8'$"),
        ({"as_": "llamas"}, "^--as: got 'llamas', expected .*, llama, "),
        ({"slots": 0}, "--slots: got 0, expected greater than or equal to 1"),
        ({"slots": "many"}, "--slots: got 'many', expected a valid integer"),
        ({"max_memory": "much"}, "--max-memory: got 'much', expected a number of bytes, or"),
        ({"max_bytes": 0}, "--max-bytes: got 0, expected greater than 0"),
        ({"rank": 300, "adapters": 1}, "--rank: got 300, expected less than or equal to 256"),
        ({"rank": 4}, "^--rank needs --adapters$"),
        ({"max_kl": 1.0, "max_bytes": 1}, "^--max-kl and --max-bytes: got both, expected one"),
        ({"quality": 1}, "--quality: got 1, expected no field of this name"),
    ],
)
def test_an_invalid_option_is_named_by_its_flag(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOption, match=message) as error:
        bake_options(values)
    assert "\n" not in str(error.value)


def test_a_record_has_no_text_for_a_number() -> None:
    assert bake_options({"slots": "2"}).slots == 2
    with pytest.raises(BadOption, match="--slots: got '2', expected a valid integer"):
        bake_options({"slots": "2"}, strict=True)


def test_options_are_checked_before_the_weights_are_read(tmp_path: Path) -> None:
    missing = tmp_path / "no such file"
    with pytest.raises(BadOption, match="--kv-cache"):
        bake(options_for(tmp_path / "out", weights=missing, kv_cache="q8"), Silent())


# --- the command


def typed(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> BakeOptions:
    """The options that `hearth bake ARGUMENTS` bakes with."""
    given: list[BakeOptions] = []

    def caught(options: BakeOptions, _: Progress, preset: Preset) -> Path:
        assert preset == NO_PRESET
        given.append(options)
        return Path()

    monkeypatch.setattr(cli, "bake", caught)
    monkeypatch.setattr(cli, "_show", lambda *_, **__: None)
    typer.main.get_command(cli.app).main([*arguments], standalone_mode=False)
    return given[0]


def test_every_option_is_a_flag(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values: dict[str, Any] = {name: value for name, (value, _) in LANGUAGE.items()}
    monkeypatch.chdir(tmp_path)
    for path in (value for value in values.values() if isinstance(value, Path)):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    values |= {"weights": Path("w"), "out": Path("o"), "size": "1b", "steps": 2, "batch": 3}
    values |= {"form": "loop"}
    flags = [text for name, value in values.items() for text in (flag(name), str(value))]
    switches = {"batch_first": True, "recompile": True, "verify_later": True}
    options = typed("gemma3", *flags, *map(flag, switches), monkeypatch=monkeypatch)
    assert options == bake_options({"model": "gemma3", **switches, **values})
    assert {*values, *switches, "model", "max_bytes"} == BakeOptions.model_fields.keys()


def test_a_path_in_place_of_a_name_is_that_of_the_weights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gemma3").touch()
    monkeypatch.chdir(tmp_path)
    assert typed("gemma3", monkeypatch=monkeypatch) == bake_options({"model": "gemma3"})
    for path in ("./gemma3", str(tmp_path)):
        assert typed(path, monkeypatch=monkeypatch) == bake_options({"weights": path})
    with pytest.raises(BadOption, match=r"--weights: got .*, but MODEL names the weights"):
        typed("./gemma3", "--weights", "x", monkeypatch=monkeypatch)
    with pytest.raises(BadOption, match=r"MODEL: got 'gema3', expected a GGUF file, .*gemma3"):
        typed("gema3", monkeypatch=monkeypatch)
    (tmp_path / "link").symlink_to("gone")
    with pytest.raises(NotABundle, match=r"^link: a symbolic link to gone, which does not exist;"):
        typed("link", monkeypatch=monkeypatch)


def test_a_drafter_of_the_hub_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Unchecked: it need not be a model that is served alone."""

    def downloaded(reference: str, _: Progress, **options: bool) -> Path:
        assert (reference, options["drafts"]) == ("hf:a/small", True)
        return tmp_path

    monkeypatch.setattr(download, "download", downloaded)
    options = typed("gemma3", "--drafter", "hf:a/small", monkeypatch=monkeypatch)
    assert options.drafter == tmp_path


def test_help_has_every_option_with_its_values() -> None:
    command = typer.main.get_command(cli.app)
    text = command.get_help(command.make_context("bake", ["x"]))
    for name in BakeOptions.model_fields.keys() - {"model"}:
        assert re.search(rf"^  {flag(name)} ", text, re.MULTILINE), name
    assert "--kv-cache f16|f32|int8|int4 " in text
    flat = " ".join(text.split())
    assert all(f"{name}: " in flat for name in NAMED_PRECISIONS)


def test_a_path_can_begin_with_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/user")
    options = bake_options({"mmproj": "~/mmproj.gguf", "calibration": "a~/b"})
    assert options.mmproj == Path("/home/user/mmproj.gguf")
    assert options.calibration == Path("a~/b")

"""Flags of other programs: a user who types one reads which flag of Hearth it is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from hearthd.cli import main
from hearthd.other_flags import instead_of

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("serve", "-m", "a.gguf"), "-m; give it as MODEL, without a flag"),
        (("serve", "-hf", "a/b"), "-hf; give it as MODEL, without a flag"),
        (("bake", "a", "-f", "Modelfile"), "-f; give it as MODEL, without a flag"),
        (("run", "a", "-f", "b"), '-f; give it as PROMPT "$(cat FILE)", without a flag'),
        (("serve", "a.gguf", "-c", "4096"), "-c; use --context"),
        (("serve", "a.gguf", "--ctx-size=4096"), "--ctx-size; use --context"),
        (("serve", "a.gguf", "-ngl", "99"), "-ngl; omit it: Hearth computes on the CPU"),
        (("serve", "a.gguf", "--ngl", "99"), "--ngl; omit it: Hearth computes on the CPU"),
        (
            ("run", "a.gguf", "--n_gpu_layers=9"),
            "--n_gpu_layers; omit it: Hearth computes on the CPU",
        ),
        (("run", "a.gguf", "--no-mmproj"), "--no-mmproj; use --mmproj none"),
        (("serve", "a.gguf", "--rope-scale", "2"), "--rope-scale; omit it: the model says it"),
        (("serve", "a.gguf", "-rea", "off"), "-rea; omit it: each request sets it"),
        (("serve", "a.gguf", "-np", "2"), "-np; use --slots"),
        (("serve", "a.gguf", "-ctk", "q8_0"), "-ctk; use --kv-cache"),
        (("serve", "a.gguf", "--temp", "0"), "--temp; use --temperature"),
        (("serve", "a.gguf", "--verbose"), "--verbose; use --log-level debug"),
        (("serve", "a.gguf", "--cache-reuse", "256"), "--cache-reuse; omit it: Hearth chooses it"),
        (("serve", "a.gguf", "--no-context-shift"), "--no-context-shift; use --overflow"),
        (("serve", "--grammar-file", "a"), "--grammar-file; omit it: each request sets it"),
        (("run", "--grammar-file", "a"), '--grammar-file; use --grammar "$(cat FILE)"'),
        (
            ("run", "a.gguf", "--think=false"),
            "--think; use --chat-template-kwargs '{\"enable_thinking\": false}'",
        ),
        (("run", "a.gguf", "--temp", "0"), "--temp; use --temperature"),
        (
            ("run", "a.gguf", "-n", "16", "--seed", "-1", "-p", "Hello"),
            "-n; use --max-tokens. No such option: -p; give it as PROMPT, without a flag",
        ),
        (
            ("run", "a.gguf", "--sead", "1", "--temp", "0"),
            "--sead. No such option: --temp; use --temperature",
        ),
        (("generate", "a.gguf", "-p", "Hello"), "-p; give it as PROMPT, without a flag"),
        (("run", "a.gguf", "--verbose"), "--verbose; omit it: the last line has the speed"),
    ],
)
def test_a_flag_of_another_program_is_answered_with_the_one_of_hearth(
    arguments: Sequence[str],
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["hearth", *arguments])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    command = f"hearth {arguments[0]}"
    assert capsys.readouterr().err == f"{command}: No such option: {hint}. See {command} --help.\n"


def test_a_flag_that_the_command_lacks_is_not_named() -> None:
    assert instead_of("--ctx-size", {"--out"}) is None
    assert instead_of("--prot", {"--port"}) is None

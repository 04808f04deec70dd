"""The table of types: what llama-quantize is told, and the cells of a row."""

from __future__ import annotations

from benchmarks.gguf_types import MIXES, has_parts, recipe_of, row_of, table_of
from hearthd.baker.parameters.native import NATIVE

MEASURED = {
    "bytes": 0.5625,
    "bundle": 1.0004,
    "difference": 0.0,
    "kl": 0.00273,
    "kl_exact": 0.00272,
    "kl_llama": 0.00379,
}


def test_a_type_has_all_matrices_and_a_mix_its_own_recipe() -> None:
    assert recipe_of("IQ2_S")[-3:] == ("--tensor-type", ".*=iq2_s", "Q8_0")
    assert recipe_of("MXFP4_MOE") == MIXES["MXFP4_MOE"]


def test_a_row_has_speeds_where_they_were_measured() -> None:
    quality = ("Q4_0", "0.5625", "1.000", "0", "0.0027", "0.0027", "0.0038")
    assert row_of("Q4_0", MEASURED) == (*quality, "", "", "", "")
    speeds = {"decode_128": 200.0, "their_decode_128": 100.0, "prefill_512": 900.4}
    assert row_of("Q4_0", MEASURED | speeds) == (*quality, "200", "x 2.00", "900", "")


def test_a_table_without_speeds_has_no_columns_for_them() -> None:
    assert table_of("", {"Q4_0": MEASURED}).headings[-1] == "KL of llama.cpp"
    speeds = {"decode_128": 200.0, "prefill_512": 900.0}
    assert len(table_of("", {"Q4_0": MEASURED, "Q4_1": MEASURED | speeds}).headings) == 11


def test_the_heads_of_two_types_have_two_parts() -> None:
    assert [name for name in NATIVE if has_parts(name)] == ["Q8_0", "Q6_K"]

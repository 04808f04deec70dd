"""References to models, and the files that they name in a repository."""

from __future__ import annotations

import pytest

from hearthd.baker.hub.file_choice import RepositoryFile, choose
from hearthd.baker.hub.hub_errors import HubError
from hearthd.baker.hub.reference import BadReference, Reference, is_reference, parse_reference

LINK = "https://huggingface.co/org/Repo-1.5_b"


@pytest.mark.parametrize(
    ("text", "quant", "file", "revision"),
    [
        ("hf:org/Repo-1.5_b", None, None, "main"),
        ("hf:org/Repo-1.5_b:q4_k_m", "q4_k_m", None, "main"),
        ("hf:org/Repo-1.5_b/m.gguf", None, "m.gguf", "main"),
        ("hf:org/Repo-1.5_b/Q8_0/m.GGUF", None, "Q8_0/m.GGUF", "main"),
        (LINK, None, None, "main"),
        (f"{LINK}/", None, None, "main"),
        (f"{LINK}:Q8_0", "Q8_0", None, "main"),
        (f"{LINK}/tree/v2", None, None, "v2"),
        (f"{LINK}/blob/main/m.gguf", None, "m.gguf", "main"),
        (f"{LINK}/resolve/main/a%20b/m.gguf?download=true", None, "a b/m.gguf", "main"),
        ("http://hf.co/org/Repo-1.5_b", None, None, "main"),
        ("hf.co/org/Repo-1.5_b:Q8_0", "Q8_0", None, "main"),  # as Ollama names it
        ("huggingface.co/org/Repo-1.5_b/blob/v2/m.gguf", None, "m.gguf", "v2"),
        ("hf://org/Repo-1.5_b/m.gguf", None, "m.gguf", "main"),
    ],
)
def test_a_reference_names_repository_quant_and_file(
    text: str, quant: str | None, file: str | None, revision: str
) -> None:
    assert is_reference(text)
    assert parse_reference(text) == Reference(
        repository="org/Repo-1.5_b", quant=quant, file=file, revision=revision
    )


@pytest.mark.parametrize("text", ["hf:org/repo", "hf:org/repo:Q8_0", "hf:org/repo/m.gguf"])
def test_a_reference_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_reference(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "hf:", "hf:org", "hf:org/", "hf:/repo", "hf:org/repo:", "hf:org/repo:Q4/x", "hf:../repo",
        "hf:org/repo/m.gguf:Q8_0", "hf:org/re po", "https://huggingface.co/", "org/repo",
        "https://huggingface.co/datasets/org/repo", "hf:org/repo/model.safetensors",
        "hf:org/repo/../m.gguf", "hf:org/repo//m.gguf",
    ],
)  # fmt: skip
def test_another_text_is_rejected_with_the_forms(text: str) -> None:
    with pytest.raises(BadReference, match=r"expected (hf:ORG/REPO, |one that ends in \.gguf)"):
        parse_reference(text)


def test_a_repository_without_prefix_is_named_with_it() -> None:
    with pytest.raises(BadReference, match=r"; did you mean hf:org/repo:Q8_0\?$"):
        parse_reference("org/repo:Q8_0")
    with pytest.raises(BadReference, match=r"huggingface\.co$"):
        parse_reference("repo")


@pytest.mark.parametrize(
    ("text", "is_of_ollama"), [("llama3.2", True), ("llama3.2:1b", True), ("hf:org", False)]
)
def test_a_name_of_ollama_is_said_to_be_another_on_the_hub(text: str, is_of_ollama: bool) -> None:
    with pytest.raises(BadReference) as refused:
        parse_reference(text)
    assert ("Ollama's library has another name" in str(refused.value)) == is_of_ollama


@pytest.mark.parametrize("text", ["gemma3", "model.gguf", "./hf", "https://example.org/a/b"])
def test_a_name_or_a_path_is_not_a_reference(text: str) -> None:
    assert not is_reference(text)


def files(*paths: str) -> list[RepositoryFile]:
    return [RepositoryFile(path=path, bytes=1) for path in paths]


def chosen(paths: list[str], text: str = "hf:org/repo") -> list[str]:
    return [file.path for file in choose(files(*paths), parse_reference(text))]


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["m-Q2_K.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf"], "m-Q4_K_M.gguf"),
        (["m-Q2_K.gguf", "m.q8_0.gguf"], "m.q8_0.gguf"),
        (["README.md", "imatrix.gguf", "mmproj-Q8_0.gguf", "m-Q5_0.gguf", "m.gguf"], "m-Q5_0.gguf"),
        (["mtp-m-Q4_K_M.gguf", "m-MTP-Q4_K_M.gguf", "m.gguf"], "m-MTP-Q4_K_M.gguf"),
        (["Q4_K_M/model.gguf", "Q4_K_M-x/model.gguf"], "Q4_K_M-x/model.gguf"),
        (["config.json", "model.safetensors", "m.gguf"], "m.gguf"),
    ],
)
def test_the_default_is_that_of_llama_server(paths: list[str], expected: str) -> None:
    assert chosen(paths) == [expected]


def test_a_quant_is_found_whatever_its_case() -> None:
    paths = ["m-Q4_K_M.gguf", "m-Q4_0.gguf", "m-Q4_0_4_4.gguf"]
    assert chosen(paths, "hf:org/repo:q4_0") == ["m-Q4_0.gguf"]
    assert chosen(paths, "hf:org/repo/m-Q4_0_4_4.gguf") == ["m-Q4_0_4_4.gguf"]


@pytest.mark.parametrize(
    "text", ["hf:o/r", "hf:o/r:q4_k_m", "hf:o/r/q/m-Q4_K_M-00002-of-00003.gguf"]
)
def test_all_shards_of_a_split_file_are_chosen_in_order(text: str) -> None:
    shards = [f"q/m-Q4_K_M-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    others = ["q/m-Q2_K.gguf", "m-Q4_K_M-00002-of-00003.gguf", "q/m-Q4_K_M-00001-of-00002.gguf"]
    assert chosen([*reversed(shards), *others], text) == shards


def test_a_folder_is_what_a_bake_reads_with_the_tensors_last() -> None:
    read = ["1_Pooling/config.json", "README.md", "config.json", "tokenizer.json"]
    tensors = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    others = ["onnx/model.safetensors", "pytorch_model.bin", "consolidated.safetensors", "a.onnx"]
    paths = chosen([*others, *tensors, *read])
    assert sorted(paths[: len(read)]) == read
    assert paths[len(read) :] == tensors


@pytest.mark.parametrize(
    ("paths", "text", "message"),
    [
        (["m-Q8_0.gguf", "n-IQ4_XS.gguf"], "hf:o/r:Q2_K", "no GGUF file has Q2_K; it has Q8_0, I"),
        (["m-Q8_0.gguf"], "hf:o/r/n.gguf", "no such file; it has Q8_0"),
        (["model.bin", "config.json"], "hf:o/r", "neither GGUF files nor config.json with model.s"),
        (["model.safetensors", "config.json"], "hf:o/r:Q8_0", "no GGUF file; omit :Q8_0"),
        (
            ["m-Q4_K_M-00001-of-00003.gguf", "m-Q4_K_M-00002-of-00003.gguf", "m-Q3_K_S.gguf"],
            "hf:o/r",
            r"no m-Q4_K_M-00003-of-00003\.gguf, which is shard 3 of 3 of a .*; it has Q3_K_S$",
        ),
    ],
)
def test_a_missing_file_is_reported_with_the_existing_ones(
    paths: list[str], text: str, message: str
) -> None:
    with pytest.raises(HubError, match=message):
        chosen(paths, text)

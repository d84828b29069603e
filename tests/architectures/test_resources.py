"""The four files that an engine reads beside the weights (1.6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninfer_convert.architectures import Request, Resource
from tests.architectures import small
from tests.architectures.building import build, refusal, resources

ROLES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
KIND = small.KINDS["dense"]


def given(role: str, content: bytes) -> Request:
    return Request(resources=(Resource("text", role, content, f"elsewhere/{role}"),))


def test_they_are_kept_verbatim_and_in_order(tmp_path: Path) -> None:
    small.write(tmp_path, KIND, **{"generation_config.json": '{ "eos_token_id": 0}\n'})
    found = build(tmp_path).resources
    assert [resource.role for resource in found] == list(ROLES)
    assert [resource.component for resource in found] == ["text"] * 4
    assert [resource.content for resource in found] == [(tmp_path / role).read_bytes() for role in ROLES]


def test_all_that_are_missing_are_told_with_the_way_out(tmp_path: Path) -> None:
    small.write(tmp_path, KIND)
    for role in ROLES:
        (tmp_path / role).unlink()
    assert refusal(tmp_path) == [
        ("missing-resource", f"there is no {role}: put it there, or give it with --resource {role}=PATH")
        for role in ROLES
    ]


def test_one_that_is_given_stands_in_for_the_file(tmp_path: Path) -> None:
    small.write(tmp_path, KIND)
    (tmp_path / "chat_template.jinja").unlink()
    assert [code for code, _ in refusal(tmp_path)] == ["missing-resource"]
    found = build(tmp_path, request=given("chat_template.jinja", b"mine")).resources
    assert [resource.role for resource in found] == list(ROLES)
    assert found[2].content == b"mine"
    assert build(tmp_path, request=given("chat_template.jinja", b"x")).resources[2].origin.startswith("elsewhere")


def test_a_role_that_the_component_does_not_have(tmp_path: Path) -> None:
    small.write(tmp_path, KIND)
    message = f"preprocessor_config.json is no resource of text; it has {', '.join(ROLES)}"
    assert refusal(tmp_path, request=given("preprocessor_config.json", b"{}")) == [("unknown-resource", message)]


@pytest.mark.parametrize(
    ("role", "content", "message"),
    [
        ("chat_template.jinja", b"", "is empty"),
        ("chat_template.jinja", b"ab\xff", "is not UTF-8 at byte 2"),
        ("tokenizer.json", b"", "is empty"),
        ("tokenizer.json", b"\xff", "is not UTF-8 at byte 0"),
        ("generation_config.json", b"[]", "is no JSON object"),
        ("generation_config.json", b"{", "is not JSON: "),
        ("tokenizer_config.json", b'{"a": 1, "a": 2}', "has the member 'a' twice in one object"),
    ],
)
def test_one_that_an_engine_cannot_read(tmp_path: Path, role: str, content: bytes, message: str) -> None:
    small.write(tmp_path, KIND)
    (tmp_path / role).write_bytes(content)
    ((code, found),) = refusal(tmp_path)
    assert code == "bad-resource"
    assert message in found


def test_tokens_must_fit_the_embedding(tmp_path: Path) -> None:
    small.write(tmp_path, KIND, **resources(tokens=small.V))
    assert refusal(tmp_path) == []
    small.write(tmp_path, KIND, **resources(tokens=small.V + 1))
    assert refusal(tmp_path) == [("bad-tokens", "gives tokens ids beyond the vocabulary of 24: 24")]


def test_a_missing_file_and_tokens_that_disagree_are_told_together(tmp_path: Path) -> None:
    decoder = {"added_tokens_decoder": {"7": {"content": "<stop>"}}}
    small.write(tmp_path, KIND, **{"tokenizer_config.json": decoder})
    (tmp_path / "chat_template.jinja").unlink()
    missing, tokens = refusal(tmp_path)
    assert missing[0] == "missing-resource"
    assert tokens == (
        "bad-tokens",
        'id 7 is "<end>" in tokenizer.json (added_tokens), but "<stop>" in tokenizer_config.json '
        "(added_tokens_decoder)",
    )


def test_added_tokens_need_not_stand_in_both_files(tmp_path: Path) -> None:
    small.write(tmp_path, KIND, **{"tokenizer_config.json": {}})
    assert refusal(tmp_path) == []


def test_tensors_and_resources_are_refused_together(tmp_path: Path) -> None:
    small.write(tmp_path, small.Kind(extra=("surplus",)))
    (tmp_path / "tokenizer.json").unlink()
    assert [code for code, _ in refusal(tmp_path)] == ["unknown-tensor", "missing-resource"]

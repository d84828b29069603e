"""The public token domain, and what a tokenizer's files must agree on (1.6, 7.3)."""

from __future__ import annotations

from typing import Any

import pytest

from ninfer_convert.architectures.tokens import token_faults

VOCABULARY = 10


def faults(
    vocab: Any = None,
    added: Any = None,
    decoder: Any = None,
    stops: Any = None,
    vocabulary: int = VOCABULARY,
    **tokenizer: Any,
) -> list[tuple[str, str]]:
    """(file, message) for tokens 0 to 3, with what differs."""
    tokenizer = {
        "model": {"vocab": {"a": 0, "b": 1, "c": 2} if vocab is None else vocab},
        "added_tokens": [{"id": 3, "content": "<end>"}] if added is None else added,
        **tokenizer,
    }
    config = {"added_tokens_decoder": {"3": {"content": "<end>"}} if decoder is None else decoder}
    generation = {} if stops is None else {"eos_token_id": stops}
    return [(fault.file, fault.message) for fault in token_faults(tokenizer, config, generation, vocabulary)]


def test_ids_may_stand_in_any_of_the_three_places() -> None:
    assert faults() == []
    assert faults(vocab={"a": 0, "b": 1, "c": 2, "<end>": 3}) == []
    assert faults(added=[], decoder={"3": {"content": "<end>"}}) == []
    assert faults(added=[{"id": 3, "content": "<end>"}], decoder={}) == []
    assert token_faults({"model": {"vocab": {"a": 0}}}, {}, {}, 1) == []


@pytest.mark.parametrize("stops", [3, 0, [0, 3], []])
def test_generation_stops_at_known_tokens(stops: Any) -> None:
    assert faults(stops=stops) == []


@pytest.mark.parametrize(
    ("stops", "bad"), [(4, "4"), (-1, "-1"), ([0, 4, 5], "4, 5"), ("3", '"3"'), (True, "true"), ([None], "null")]
)
def test_generation_stops_at_none_that_is_not_a_token(stops: Any, bad: str) -> None:
    message = f"eos_token_id names what is none of the 4 tokens: {bad}"
    assert faults(stops=stops) == [("generation_config.json", message)]


CONFLICTS: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    (
        {"decoder": {"3": {"content": "<stop>"}}},
        [
            (
                "tokenizer_config.json",
                'id 3 is "<end>" in tokenizer.json (added_tokens), but "<stop>" in tokenizer_config.json '
                "(added_tokens_decoder)",
            )
        ],
    ),
    (
        {"decoder": {"4": {"content": "<end>"}}},
        [
            (
                "tokenizer_config.json",
                'token "<end>" is id 3 in tokenizer.json (added_tokens), but id 4 in tokenizer_config.json '
                "(added_tokens_decoder)",
            )
        ],
    ),
    (
        {"vocab": {"a": 0, "b": 1, "c": 1}, "added": [{"id": 2, "content": "<end>"}], "decoder": {}},
        [("tokenizer.json", 'id 1 is "b" in tokenizer.json (model.vocab), but "c" in tokenizer.json (model.vocab)')],
    ),
    (
        {"added": [{"id": 2, "content": "<\n>"}], "decoder": {}},
        [
            (
                "tokenizer.json",
                'id 2 is "c" in tokenizer.json (model.vocab), but "<\\n>" in tokenizer.json (added_tokens)',
            )
        ],
    ),
]


@pytest.mark.parametrize(("members", "expected"), CONFLICTS)
def test_files_that_disagree_are_named_with_their_members(
    members: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert faults(**members) == expected


@pytest.mark.parametrize(
    ("members", "file", "message"),
    [
        ({"vocab": []}, "tokenizer.json", "model.vocab is no object of tokens and their ids"),
        ({"model": []}, "tokenizer.json", "model.vocab is no object of tokens and their ids"),
        ({"added": {}}, "tokenizer.json", ""),
        ({"added": {"id": 3}}, "tokenizer.json", "added_tokens is no list"),
        ({"decoder": [1]}, "tokenizer_config.json", "added_tokens_decoder is no object"),
        (
            {"vocab": {"a": 0, "b": True, "c": 2}},
            "tokenizer.json",
            "model.vocab has an entry that is no token with a whole number as its id",
        ),
        (
            {"added": [3]},
            "tokenizer.json",
            "added_tokens has an entry that is no token with a whole number as its id",
        ),
        (
            {"added": [{"id": 3, "content": None}]},
            "tokenizer.json",
            "added_tokens has an entry that is no token with a whole number as its id",
        ),
        *(
            (
                {"decoder": {id: {"content": "<end>"}}},
                "tokenizer_config.json",
                "added_tokens_decoder has an entry that is no token with a whole number as its id",
            )
            for id in ("three", "", "-3", "3.0", "³", "9" * 5000)
        ),
    ],
)
def test_members_of_another_kind(members: dict[str, Any], file: str, message: str) -> None:
    assert faults(**members) == ([(file, message)] if message else [])


def test_ids_beyond_the_vocabulary() -> None:
    message = "gives tokens ids beyond the vocabulary of 10: 10"
    assert faults(vocab={"a": 0, "b": 1, "c": 2, "d": 10}) == [("tokenizer.json", message)]
    message = "gives tokens ids beyond the vocabulary of 10: -1, 11, 12 and 1 more"
    vocab = {"a": 0, "b": 1, "c": 2, "w": -1, "x": 11, "y": 12, "z": 13}
    assert faults(vocab=vocab) == [("tokenizer.json", message)]


def test_ids_that_no_token_has() -> None:
    both = "; tokenizer_config.json neither"
    message = f"gives no token to the ids 1{both}"
    assert faults(vocab={"a": 0, "c": 2}) == [("tokenizer.json", message)]
    message = f"gives no token to the ids 3, 4, 5 and 3 more{both}"
    assert faults(added=[], decoder={"9": {"content": "<end>"}}) == [("tokenizer.json", message)]
    message = f"gives no token to the ids 4, 5, 6 and 4294967287 more{both}"
    assert faults(decoder={str(2**32 - 2): {"content": "<far>"}}, vocabulary=2**32 - 1) == [("tokenizer.json", message)]
    assert faults(vocab={}, added=[], decoder={}) == [("tokenizer.json", f"has no tokens{both}")]


def test_everything_is_told_at_once() -> None:
    found = faults(vocab={"a": 0, "b": 0, "c": 11}, added=[1], decoder={"x": 1}, stops=77)
    assert len(found) == 4

"""The public token domain: ids that have a token, and what a tokenizer's files must agree on (qwen35.md 1.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from ninfer_convert.strict_json import spelled

TOKENIZER, TOKENIZER_CONFIG, GENERATION = "tokenizer.json", "tokenizer_config.json", "generation_config.json"

_SHOWN = 3


@dataclass(frozen=True)
class Fault:
    """What is wrong, the end of a sentence that begins with the file's name."""

    file: str
    message: str


@dataclass(frozen=True)
class _Entry:
    """A token's id as the member `member` of `file` gives it."""

    file: str
    member: str
    id: Any
    content: Any

    @property
    def well_formed(self) -> bool:
        return type(self.id) is int and isinstance(self.content, str)


def token_faults(
    tokenizer: Mapping[str, Any], tokenizer_config: Mapping[str, Any], generation: Mapping[str, Any], vocabulary: int
) -> list[Fault]:
    """Why an engine would refuse the tokens of these files; `vocabulary` is the number of rows of the embedding.

    Ids and tokens must agree wherever they stand, every id from 0 to the last must have a token, none may lie beyond
    the vocabulary, and generation must stop at one of them.
    """
    faults: list[Fault] = []
    entries = []
    for entry in _entries(tokenizer, tokenizer_config, faults):
        if entry.well_formed:
            entries.append(entry)
        else:
            faults.append(
                Fault(entry.file, f"{entry.member} has an entry that is no token with a whole number as its id")
            )
    faults += _disagreements(entries)
    beyond = {entry.id: entry for entry in entries if not 0 <= entry.id < vocabulary}
    if beyond:
        message = f"gives tokens ids beyond the vocabulary of {vocabulary}: {_some(list(beyond))}"
        faults.append(Fault(next(iter(beyond.values())).file, message))
    if faults:
        return faults
    ids = {entry.id for entry in entries}
    if not ids:
        return [Fault(TOKENIZER, f"has no tokens; {TOKENIZER_CONFIG} neither")]
    missing = max(ids) + 1 - len(ids)
    if missing:
        # As the last id may be anything below 2^32, no list of all that are missing is made.
        first = list(islice((id for id in count() if id not in ids), min(missing, _SHOWN)))
        return [Fault(TOKENIZER, f"gives no token to the ids {_some(first, missing)}; {TOKENIZER_CONFIG} neither")]
    return _bad_stops(generation, len(ids))


def _entries(
    tokenizer: Mapping[str, Any], tokenizer_config: Mapping[str, Any], faults: list[Fault]
) -> Iterator[_Entry]:
    """Every token with its id; what holds none of the expected shape becomes a fault."""
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        yield from (_Entry(TOKENIZER, "model.vocab", id, content) for content, id in vocabulary.items())
    else:
        faults.append(Fault(TOKENIZER, "model.vocab is no object of tokens and their ids"))
    added = tokenizer.get("added_tokens") or []
    if isinstance(added, list):
        yield from (_Entry(TOKENIZER, "added_tokens", *_id_and_content(token)) for token in added)
    else:
        faults.append(Fault(TOKENIZER, "added_tokens is no list"))
    decoder = tokenizer_config.get("added_tokens_decoder") or {}
    if isinstance(decoder, dict):
        for id, token in decoder.items():
            number = int(id) if id.isascii() and id.isdecimal() and len(id) < 20 else None
            yield _Entry(TOKENIZER_CONFIG, "added_tokens_decoder", number, _id_and_content(token)[1])
    else:
        faults.append(Fault(TOKENIZER_CONFIG, "added_tokens_decoder is no object"))


def _id_and_content(token: object) -> tuple[Any, Any]:
    return (token.get("id"), token.get("content")) if isinstance(token, dict) else (None, None)


def _disagreements(entries: list[_Entry]) -> Iterator[Fault]:
    """Ids of two tokens, and tokens of two ids."""
    by_id: dict[int, _Entry] = {}
    by_content: dict[str, _Entry] = {}
    for entry in entries:
        first = by_id.setdefault(entry.id, entry)
        if first.content != entry.content:
            yield _differ(f"id {entry.id}", first, spelled(first.content), entry, spelled(entry.content))
        first = by_content.setdefault(entry.content, entry)
        if first.id != entry.id:
            yield _differ(f"token {spelled(entry.content)}", first, f"id {first.id}", entry, f"id {entry.id}")


def _differ(what: str, first: _Entry, one: str, second: _Entry, other: str) -> Fault:
    message = f"{what} is {one} in {first.file} ({first.member}), but {other} in {second.file} ({second.member})"
    return Fault(second.file, message)


def _bad_stops(generation: Mapping[str, Any], tokens: int) -> list[Fault]:
    stops = generation.get("eos_token_id")
    listed = stops if isinstance(stops, list) else [] if stops is None else [stops]
    bad = [stop for stop in listed if not (type(stop) is int and 0 <= stop < tokens)]
    message = f"eos_token_id names what is none of the {tokens} tokens: {_some(bad)}"
    return [Fault(GENERATION, message)] if bad else []


def _some(items: list[Any], total: int | None = None) -> str:
    """The first of them, and how many more there are; `total` where not all of them are in the list."""
    shown = ", ".join(map(spelled, items[:_SHOWN]))
    more = (len(items) if total is None else total) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown

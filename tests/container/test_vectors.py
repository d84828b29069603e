"""The containers of the specification's vectors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ninfer_convert.container import Artifact, TensorObject, open_artifact
from ninfer_convert.errors import ArtifactError
from tests.oracle import container

GOLDEN = Path(__file__).parent.parent / "golden" / "containers"
BROKEN: dict[str, str] = json.loads((GOLDEN / "broken.json").read_text("utf-8"))
CONTENT: dict[str, str] = json.loads((GOLDEN / "content.json").read_text("utf-8"))
AT_OPEN = sorted(name for name, fault in BROKEN.items() if not fault.startswith("reading:"))
AT_READING = sorted(name for name, fault in BROKEN.items() if fault.startswith("reading:"))
VALID = ("valid.ninfer", "valid-padded.ninfer", "valid-unknown-format.ninfer", "sharded.ninfer")

SAID = {
    "bad-empty.ninfer": "is empty",
    "bad-magic.ninfer": "version 2; only version 3",
    "bad-json-length.ninfer": "directory takes 1000000000000000 bytes",
    "bad-json-length-zero.ninfer": "directory takes 0 bytes",
    "bad-json-syntax.ninfer": "is not JSON",
    "bad-json-utf8.ninfer": "is not UTF-8",
    "bad-duplicate-member.ninfer": "'bindings' twice",
    "bad-nan.ninfer": "NaN",
    "bad-truncated.ninfer": "4396 bytes long; expected 4642",
    "bad-trailing.ninfer": "1 byte behind its payload",
    "bad-unknown-root.ninfer": r"^extra: no such member",
    "bad-missing-files.ninfer": r"^files: is missing",
    "bad-float-offset.ninfer": r"^objects\[1\].offset: 256.0",
    "bad-bool-bytes.ninfer": r"^objects\[0\].bytes: true",
    "bad-negative.ninfer": r"^objects\[0\].offset: -1",
    "bad-huge-shape.ninfer": r"^objects\[0\].shape: .* below 2\^64",
    "bad-zero-dim.ninfer": r"^objects\[0\].shape: \[0, 4\]",
    "bad-rank17.ninfer": r"^objects\[0\].shape: a list of 17",
    "bad-duplicate-id.ninfer": r'^objects\[1\].id: "a" is the id of an earlier object',
    "bad-overlap.ninfer": r"^objects\[1\].offset: 0 lies inside objects\[0\]",
    "bad-order.ninfer": r"^objects\[1\].offset: 256 is below the offset 528 of objects\[0\]",
    "bad-outside.ninfer": r"^objects\[2\]: ends at byte 1000528 of a payload of 546",
    "bad-unaligned.ninfer": r"^objects\[1\].offset: 257; expected a multiple of 256",
    "bad-wrong-bytes.ninfer": r"^objects\[0\].bytes: 44; .* takes 48",
    "bad-wrong-layout.ninfer": r"^objects\[0\]: row_split_k128_v1 does not store fp32; it stores",
    "bad-binding-missing.ninfer": r'^bindings.z.object: there is no object "nope"',
    "bad-binding-resource.ninfer": r'^bindings.z.object: "r" is a resource; expected a tensor',
    "bad-binding-both.ninfer": r"^bindings.z: has both object and parts",
    "bad-range.ninfer": r'^bindings.z.parts\[0\].range: ends at element 13; "a" has 12',
    "bad-range-empty.ninfer": r"^bindings.z.parts\[0\].range: \[3, 3\] is no range",
    "bad-use-twice.ninfer": r"^uses\[1\]: the same parameter and input as uses\[0\]",
    "bad-use-unbound.ninfer": r'^uses\[1\].parameter: "q" is not bound',
    "bad-policy.ninfer": r'^uses\[0\].activation_policy: "AllowA2"; expected A16Only or AllowA8 or AllowA4',
    "bad-target.ninfer": r'^components.text.target: "vision" is no other component',
    "bad-resource-ref.ninfer": r'^components.text.resources.x: "a" is a tensor; expected a resource',
    "bad-divisors.ninfer": r"^objects\[0\]: contiguous_le_v1 keeps no weight divisors",
    "bad-part-escape.ninfer": r'^files\[1\].path: "../evil" is no plain file name',
    "bad-part-self.ninfer": r"^files\[1\].path: .* is the entry's own name",
    "bad-part-missing.ninfer": "is missing",
    "bad-unknown-component-member.ninfer": r"^components.text.extra: no such member",
    "bad-unknown-use-member.ninfer": r"^uses\[0\].extra: no such member",
    "bad-unknown-binding-member.ninfer": r"^bindings.m.extra: no such member",
    "bad-unknown-object-member.ninfer": r"^objects\[0\].extra: no such member",
    "bad-proposal-outside-text.ninfer": r"^components.mtp.proposal: only the component 'text' has one",
    "bad-proposal-full-rows.ninfer": r"^components.text.proposal.rows: no such member",
    "bad-proposal-no-rows.ninfer": r"^components.text.proposal.rows: is missing",
    "bad-empty-name.ninfer": r"^metadata.name: ",
    "bad-nul-id.ninfer": r"^objects\[0\].id: .* without U\+0000",
    "bad-offset-overflow.ninfer": r"^objects\[2\]: offset and bytes add up to more than 2\^64 - 1",
    "bad-first-path.ninfer": r"^files\[0\].path: .* expected null",
    "bad-components-empty.ninfer": r"^components: .* non-empty object",
    "bad-objects-empty.ninfer": r"^objects: .* non-empty list",
    "bad-aux-shape.ninfer": r"^uses\[0\].auxiliaries.activation_input_divisor: has 12 elements; expected a scalar",
    "bad-surrogate.ninfer": "lone surrogate",
    "bad-huge-number.ninfer": "1e999.* beyond binary64",
    "bad-deep.ninfer": "deeper than 64",
    "bad-bom.ninfer": "byte order mark",
    "bad-gap-byte.ninfer": "other than zero between its directory, which ends at 779, and its payload at 4096",
    "bad-duplicate-in-config.ninfer": "'model_type' twice",
    "bad-part-magic.ninfer": "begins with 4e 49 4e 50 52 54 00 02",
    "bad-part-index.ninfer": "is part 2; expected part 1",
    "bad-part-id.ninfer": "belongs to the artifact",
    "bad-part-header.ninfer": "other than zero between its header and its payload",
    "bad-part-short.ninfer": "is 12015 bytes long; expected 12018",
}
"""What is said of each: the member and what was found."""


def whole_payload(artifact: Artifact) -> bytes:
    return artifact.read(0, artifact.files.payload_bytes)


def test_every_vector_is_tested() -> None:
    assert set(SAID) == set(BROKEN)
    entries = {path.name for path in GOLDEN.glob("*.ninfer")}
    assert entries == {*BROKEN, *CONTENT, *VALID}
    assert (len(AT_OPEN), len(AT_READING), len(CONTENT)) == (58, 6, 15)


@pytest.mark.parametrize("name", AT_OPEN)
def test_a_broken_directory_or_framing_is_refused_at_open(name: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        open_artifact(GOLDEN / name)
    problem = caught.value.problems[0]
    assert re.search(SAID[name], problem.message)
    assert problem.path == str(GOLDEN / name)


@pytest.mark.parametrize("name", AT_READING)
def test_a_broken_part_is_refused_when_it_is_read(name: str) -> None:
    with open_artifact(GOLDEN / name) as artifact:
        entry_bytes = artifact.directory.files[0].payload_bytes
        assert len(artifact.read(0, entry_bytes)) == entry_bytes
        with pytest.raises(ArtifactError) as caught:
            artifact.read(entry_bytes, 1)
        problem = caught.value.problems[0]
        assert re.search(SAID[name], problem.message)
        assert problem.path == str(GOLDEN / str(artifact.directory.files[1].path))
        with pytest.raises(ArtifactError):
            whole_payload(artifact)


@pytest.mark.parametrize("name", sorted((*CONTENT, *VALID)))
def test_sound_containers_open_and_give_their_bytes(name: str) -> None:
    expected = container.read(GOLDEN / name)
    with open_artifact(GOLDEN / name) as artifact:
        assert artifact.artifact_id == expected.artifact_id.hex()
        assert whole_payload(artifact) == expected.payload
        for object in artifact.directory.objects:
            read = artifact.object_reader(object)
            assert bytes(read(0, object.bytes)) == expected.object_bytes(object.id)
            assert bytes(read(1, 2)) == expected.object_bytes(object.id)[1:3]


def test_an_unknown_format_is_listed_and_not_decoded() -> None:
    with open_artifact(GOLDEN / "valid-unknown-format.ninfer") as artifact:
        future, known, _ = artifact.directory.objects
        assert isinstance(future, TensorObject)
        assert isinstance(known, TensorObject)
        assert (future.format, future.layout) == ("q3_future", "row_future_v1")
        with pytest.raises(ArtifactError, match="a: cannot be decoded: unknown format 'q3_future'"):
            artifact.words(future, 0, 1)
        assert artifact.words(known, 0, 4).codes.shape == (4, 64)


def test_a_part_opened_for_the_entry_is_recognised() -> None:
    with pytest.raises(ArtifactError, match=r"is a part of a \.ninfer artifact; open its entry"):
        open_artifact(GOLDEN / "sharded.ninfer.part-0001")

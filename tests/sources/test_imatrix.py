"""Importance matrices: both formats, the peers' vectors, names, coverage, and files that are not to be believed."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import MODEL_ARCH
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.sources.gguf import open_gguf
from ninfer_convert.sources.imatrix import ImportanceMatrix, open_imatrix
from ninfer_convert.sources.imatrix_names import entries
from ninfer_convert.values import ImportanceEntry
from tests.oracle.imatrix import legacy

Array = NDArray[Any]

FIXTURE = Path(__file__).parent.parent / "golden" / "imatrix"
EXPECTED = load_file(FIXTURE / "expected.safetensors")


def write_gguf(path: Path, tensors: dict[str, Array]) -> Path:
    writer = gguf.GGUFWriter(path, "imatrix")
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def written(folder: Path, content: bytes) -> Path:
    path = folder / "imatrix.gguf"
    path.write_bytes(content)
    return path


def refusals(path: Path) -> list[Problem]:
    with pytest.raises(SourceError) as caught:
        open_imatrix(path)
    for problem in caught.value.problems:
        assert problem.path == str(path)
    return list(caught.value.problems)


def shape_for(vectors: Array) -> tuple[int, ...]:
    return (24, *vectors.shape) if vectors.ndim == 1 else (vectors.shape[0], 24, vectors.shape[1])


@pytest.mark.parametrize("suffix", ["gguf", "dat"])
def test_vectors_are_those_that_llama_cpp_reads(suffix: str) -> None:
    matrix = open_imatrix(FIXTURE / f"imatrix.{suffix}")
    assert matrix.kind == ("gguf" if suffix == "gguf" else "legacy")
    assert set(matrix.entries) == set(EXPECTED)
    assert len(EXPECTED) == 6
    assert (matrix.datasets, matrix.chunks) == (("calibration.txt",), 4)
    for name, wanted in EXPECTED.items():
        found = matrix.find(name, shape_for(wanted))
        assert found is not None
        assert found.entry == name
        assert found.values.dtype == np.float64
        assert found.values.shape == wanted.shape
        if wanted.any():
            assert np.array_equal(found.values, wanted)
            assert found.warnings == ()


@pytest.mark.parametrize("suffix", ["gguf", "dat"])
def test_the_format_is_told_by_content(tmp_path: Path, suffix: str) -> None:
    other = tmp_path / ("imatrix.dat" if suffix == "gguf" else "imatrix.gguf")
    other.write_bytes((FIXTURE / f"imatrix.{suffix}").read_bytes())
    assert open_imatrix(other).kind == ("gguf" if suffix == "gguf" else "legacy")


@pytest.mark.parametrize("tail", [b"", struct.pack("<i", 7), struct.pack("<ii", 7, 8) + b"wiki.txt"])
def test_the_older_format_may_end_with_chunks_and_the_data_set(tmp_path: Path, tail: bytes) -> None:
    matrix = open_imatrix(written(tmp_path, legacy([("a", 2, [2.0, 4.0])], tail)))
    found = matrix.find("a", (5, 2))
    assert found is not None
    assert found.values.tolist() == [1.0, 2.0]
    assert matrix.chunks == (7 if tail else None)
    assert matrix.datasets == (("wiki.txt",) if len(tail) > 4 else ())


def test_what_was_never_counted_is_unweighted(tmp_path: Path) -> None:
    matrix = open_imatrix(written(tmp_path, legacy([("a", 0, [2.0, 4.0])])))
    found = matrix.find("a", (5, 2))
    assert found is not None
    assert found.values.tolist() == [1.0, 1.0]
    assert found.warnings == ()


def test_newer_sums_are_ignored(tmp_path: Path) -> None:
    one = np.ones((1, 4), np.float32)
    path = write_gguf(tmp_path / "m.gguf", {"a.in_sum": -one, "a.in_sum2": 3 * one, "a.counts": 2 * one[:, :1]})
    found = open_imatrix(path).find("a", (9, 4))
    assert found is not None
    assert found.values.tolist() == [1.5] * 4


@pytest.mark.parametrize("suffix", ["gguf", "dat"])
def test_a_vector_of_zeros_is_unweighted_and_warned_about(suffix: str) -> None:
    found = open_imatrix(FIXTURE / f"imatrix.{suffix}").find("blk.0.attn_output.weight", (24, 128))
    assert found is not None
    assert found.values.tolist() == [1.0] * 128
    (warning,) = found.warnings
    assert warning.code == "zero-importance"
    assert warning.tensor == "blk.0.attn_output.weight"
    assert "its vector is all zero" in warning.message


def test_one_expert_of_zeros(tmp_path: Path) -> None:
    values = [0.0] * 4 + [1.0, 0.0, 0.0, 2.0]
    found = open_imatrix(written(tmp_path, legacy([("bank", 1, values)]))).find("bank", (2, 3, 4))
    assert found is not None
    assert found.values.tolist() == [[1.0] * 4, [1.0, 0.0, 0.0, 2.0]]
    assert "1 of its 2 vectors are all zero" in found.warnings[0].message


@pytest.mark.parametrize("suffix", ["gguf", "dat"])
@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("blk.0.attn_q.weight", (24, 256), "holds 128 values, but blk.0.attn_q.weight of [24, 256] needs one vector"),
        ("blk.0.attn_q.weight", (24, 64), "needs one vector of 64 values"),
        ("blk.0.attn_q.weight", (3, 24, 128), "[3, 24, 128] needs 3 vectors of 128 values"),
        ("blk.0.ffn_up_exps.weight", (24, 128), "needs one vector of 128 values"),
        ("blk.0.ffn_up_exps.weight", (2, 24, 128), "needs 2 vectors of 128 values"),
        ("blk.0.ffn_up_exps.weight", (4, 24, 100), "needs 4 vectors of 100 values"),
        ("model.layers.0.mlp.experts.4.up_proj.weight", (24, 128), "needs vector 4 of 128 values"),
    ],
)
def test_an_entry_of_another_length_is_refused(suffix: str, name: str, shape: tuple[int, ...], sentence: str) -> None:
    matrix = open_imatrix(FIXTURE / f"imatrix.{suffix}")
    with pytest.raises(SourceError) as caught:
        matrix.find(name, shape)
    (problem,) = caught.value.problems
    assert problem.code == "importance-length"
    assert problem.tensor == name
    assert problem.path == str(FIXTURE / f"imatrix.{suffix}")
    assert sentence in problem.message


@pytest.mark.parametrize("suffix", ["gguf", "dat"])
def test_experts_by_number_and_by_bank(suffix: str) -> None:
    matrix = open_imatrix(FIXTURE / f"imatrix.{suffix}")
    wanted = EXPECTED["blk.0.ffn_up_exps.weight"]
    for expert in range(4):
        found = matrix.find(f"model.layers.0.mlp.experts.{expert}.up_proj.weight", (24, 128))
        assert found is not None
        assert np.array_equal(found.values, wanted[expert])
    bank = matrix.find("model.language_model.layers.0.mlp.experts.gate_up_proj", (4, 48, 128))
    assert bank is not None
    assert np.array_equal(bank.values, wanted)


FAMILIES = [arch for arch in MODEL_ARCH if any(family in arch.name for family in ("LLAMA", "QWEN", "GEMMA"))]
NAMES = [
    *(f"model.layers.3.self_attn.{name}_proj.weight" for name in "qkvo"),
    *(f"model.layers.3.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
    "model.layers.3.mlp.gate.weight",
    "model.layers.3.mlp.shared_expert_gate.weight",
    *(f"model.layers.3.mlp.shared_expert.{name}_proj.weight" for name in ("gate", "up", "down")),
    *(f"model.layers.3.mlp.experts.{name}_proj.weight" for name in ("gate", "up", "down")),
    "model.layers.3.mlp.experts.gate_up_proj",
    "model.layers.3.block_sparse_moe.gate.weight",
    *(f"model.layers.3.block_sparse_moe.experts.{name}.weight" for name in ("w1", "w2", "w3")),
    *(f"model.layers.3.feed_forward.{name}_proj.weight" for name in ("gate", "up", "down")),
    *(f"model.layers.3.feed_forward.shared_expert.{name}_proj.weight" for name in ("gate", "up", "down")),
    "model.layers.3.feed_forward.router.weight",
    *(f"model.layers.3.linear_attn.in_proj_{name}.weight" for name in ("qkv", "qkvz", "z", "a", "b", "ba")),
    "model.layers.3.router.proj.weight",
    "model.layers.3.experts.gate_up_proj",
    "model.layers.3.experts.down_proj",
    "model.layers.3.per_layer_input_gate.weight",
    "model.layers.3.per_layer_projection.weight",
    "model.per_layer_model_projection.weight",
    "model.embed_tokens.weight",
    "lm_head.weight",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_llama_cpps(name: str) -> None:
    """The first of ours is what the gguf package calls it in some architecture of these families."""
    theirs = {
        found if found.endswith(".weight") else f"{found}.weight"
        for arch in FAMILIES
        if (found := gguf.get_tensor_name_map(arch, 4).get_name(name, (".weight",)))
    }
    if "feed_forward.down_proj" in name:  # The package also takes it for a shared expert's, of no model of these.
        theirs.discard("blk.3.ffn_up_shexp.weight")
    theirs = {found for found in theirs if ".time_mix_" not in found}
    own, *ours = entries(name)
    assert own == ImportanceEntry(name)
    assert {ours[0].name} == theirs
    assert all(entry.expert is None for entry in ours)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("model.language_model.layers.12.mlp.down_proj.weight", [("blk.12.ffn_down.weight", None)]),
        ("language_model.model.layers.12.mlp.down_proj.weight", [("blk.12.ffn_down.weight", None)]),
        ("layers.12.mlp.down_proj.weight", [("blk.12.ffn_down.weight", None)]),
        ("model.layers.1.block_sparse_moe.experts.7.w3.weight", [("blk.1.ffn_up_exps.weight", 7)]),
        ("model.layers.1.mlp.experts.12.down_proj.weight", [("blk.1.ffn_down_exps.weight", 12)]),
        ("lm_head.weight", [("output.weight", None), ("token_embd.weight", None)]),
        ("model.layers.1.input_layernorm.weight", []),
        ("model.layers.1.linear_attn.out_proj.weight", []),
        ("model.visual.layers.1.self_attn.q_proj.weight", []),
        ("mtp.layers.1.self_attn.q_proj.weight", []),
        (f"model.layers.{'9' * 5000}.self_attn.q_proj.weight", []),
    ],
)
def test_names_of_models_inside_models_and_of_experts(name: str, wanted: list[tuple[str, int | None]]) -> None:
    assert [*entries(name)][1:] == [ImportanceEntry(*entry) for entry in wanted]


def test_an_entry_that_is_known_comes_after_the_own_name(tmp_path: Path) -> None:
    vectors = {"mine": [1.0, 2.0], "blk.0.attn_q.weight": [3.0, 4.0]}
    matrix = open_imatrix(written(tmp_path, legacy([(name, 1, vector) for name, vector in vectors.items()])))
    known = ImportanceEntry("blk.0.attn_q.weight")
    for name, entry in (("text/query", "blk.0.attn_q.weight"), ("mine", "mine")):
        found = matrix.find(name, (8, 2), known)
        assert found is not None
        assert found.entry == entry
        assert found.values.tolist() == vectors[entry]
    assert matrix.find("model.layers.0.self_attn.q_proj.weight", (8, 2), ImportanceEntry("other")) is None


def test_columns_of_a_known_entry_are_put_in_the_parameters_order(tmp_path: Path) -> None:
    matrix = open_imatrix(written(tmp_path, legacy([("x", 1, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])])))
    found = matrix.find("text/output", (8, 6), ImportanceEntry("x", columns=((4, 6), (0, 2), (2, 4))))
    assert found is not None
    assert found.values.tolist() == [4.0, 5.0, 0.0, 1.0, 2.0, 3.0]
    expert = ImportanceEntry("x", expert=1, columns=((1, 2), (0, 1)))
    found = matrix.find("text/output", (8, 2), expert)
    assert found is not None
    assert found.values.tolist() == [3.0, 2.0]


BAD = [float("nan"), float("inf"), float("-inf"), -1.0]


@pytest.mark.parametrize("value", BAD)
def test_numbers_that_cannot_be_are_refused_in_every_entry(tmp_path: Path, value: float) -> None:
    content = legacy([("good", 1, [1.0]), ("a", 1, [1.0, value, 2.0, value]), ("b", 1, [value])])
    first, second = refusals(written(tmp_path, content))
    assert (first.code, first.tensor, second.tensor) == ("bad-importance", "a", "b")
    assert first.message.startswith(f"a: 2 values of 4 cannot be, the first at index 1: {value}; ")
    good = np.ones((2, 4), np.float32)
    bad = good.copy()
    bad[1, 2] = value
    path = write_gguf(tmp_path / "m.gguf", {"a.in_sum2": bad, "a.counts": good[:, :1]})
    assert refusals(path)[0].message.startswith("a: 1 value of 8 cannot be, the first at index 6")
    path = write_gguf(tmp_path / "m.gguf", {"a.in_sum2": good, "a.counts": bad[:, 2:3]})
    assert refusals(path)[0].message.startswith("a: 1 count of 2 cannot be, the first at index 1")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "it ends after 0 bytes"),
        (b"\0\0\0\0", "it would hold 0 entries"),
        (b"<!DOCTYPE html><html>not found</html>", "it would hold 1329865020 entries"),
        (legacy([("a", 1, [1.0])], count=-1), "it would hold -1 entries"),
        (legacy([("a", 1, [1.0])] * 40, count=99), "it would hold 99 entries"),
        (legacy([("a", 1, [1.0, 2.0])])[:-1], "it ends after 24 bytes, 1 too early"),
        (legacy([("a", 1, [1.0]), ("a", 1, [1.0])]), "entry 2 is called a, as an earlier one is"),
        (legacy([("a", -1, [1.0])]), "entry 1, a, would have 1 value of -1 calls"),
        (legacy([("a", 1, []), ("b", 1, [1.0])]), "entry 1, a, would have 0 values of 1 call"),
        (legacy([("a", 1, [1.0])], struct.pack("<ii", 1, 2) + b"xyz"), "1 byte too many"),
        (legacy([("a", 1, [1.0])], b"\0\0"), "it ends after"),
        (legacy([("a", 1, [1.0])], struct.pack("<ii", 1, -2)), "the data set would have a name of -2 bytes"),
        (struct.pack("<ii", 1, 1 << 30) + bytes(64), "entry 1 would have a name of 1073741824 bytes"),
        (struct.pack("<ii", 1, 1) + b"\xff" + bytes(64), "entry 1 has a name that is not UTF-8"),
        (struct.pack("<iiiii", 1, 0, 1, 1 << 30, 0), "too early"),
    ],
)
def test_damaged_files_of_the_older_format(tmp_path: Path, content: bytes, sentence: str) -> None:
    (problem,) = refusals(written(tmp_path, content))
    assert problem.code == "bad-imatrix"
    assert problem.message.startswith("is no importance matrix, or a damaged one: it is not GGUF")
    assert sentence in problem.message


def test_gguf_files_that_are_no_matrix(tmp_path: Path) -> None:
    one = np.ones((1, 4), np.float32)
    model = write_gguf(tmp_path / "model.gguf", {"blk.0.attn_q.weight": one})
    assert refusals(model)[0].code == "no-imatrix"
    broken = write_gguf(
        tmp_path / "broken.gguf",
        {
            "a.in_sum2": one,
            "b.counts": one[:, :1],
            "c.in_sum2": one.astype(np.float16),
            "c.counts": one[:, :1],
            "d.in_sum2": np.ones((3, 4), np.float32),
            "d.counts": np.ones((2, 1), np.float32),
        },
    )
    problems = {problem.tensor: problem.message for problem in refusals(broken)}
    assert problems == {
        "a": "a: there is .in_sum2 without .counts",
        "b": "b: there is .counts without .in_sum2",
        "c": "c: .in_sum2 and .counts are stored as F16 and F32, not F32",
        "d": "d: .in_sum2 of shape [3, 4] does not go with .counts of shape [2, 1]",
    }


def test_paths_that_lead_to_no_file(tmp_path: Path) -> None:
    assert refusals(tmp_path / "missing.dat")[0].code == "no-such-file"
    assert refusals(tmp_path)[0].code == "not-a-file"
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"
    assert refusals(written(tmp_path, pointer))[0].code == "lfs-pointer"


@pytest.mark.parametrize("after", [False, True], ids=["before its header is read", "before its values are read"])
@pytest.mark.parametrize("replaced", [False, True], ids=["written to", "replaced"])
def test_a_file_that_changes_between_digest_and_values_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool, replaced: bool
) -> None:
    first, second = (
        write_gguf(tmp_path / name, {"a.in_sum2": np.full((1, 4), value, "f4"), "a.counts": np.ones((1, 1), "f4")})
        for name, value in (("first", 2.0), ("second", 3.0))
    )

    def change_and_open(*arguments: Any) -> Any:
        opened = open_gguf(*arguments) if after else None
        if replaced:
            second.replace(first)
        else:
            first.write_bytes(second.read_bytes())
            os.utime(first, ns=(1, 1))
        return opened or open_gguf(*arguments)

    monkeypatch.setattr("ninfer_convert.sources.imatrix.open_gguf", change_and_open)
    ((code, path),) = [(problem.code, problem.path) for problem in refusals(first)]
    assert (code, path) == ("file-changed", str(first))


def test_the_digest_is_the_files(tmp_path: Path) -> None:
    """SHA-256 of one byte sequence, so that provenance can name it."""
    matrix: ImportanceMatrix = open_imatrix(written(tmp_path, legacy([("a", 1, [1.0])])))
    assert matrix.size == 21
    assert matrix.sha256 == "348a912e1b75e7185cb35330a9ae92535dd850f705a2633c625a20c33f7a2753"


@pytest.mark.parametrize("suffix", ["gguf", "dat"])
@given(data=st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_breaks_the_reader(tmp_path: Path, suffix: str, data: st.DataObject) -> None:
    """Cut short, bytes changed, bytes doubled: read, or refused with a sentence."""
    content = bytearray((FIXTURE / f"imatrix.{suffix}").read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, min(len(content) - 1, 400)))
        content[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    content = content[: data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))]
    path = written(tmp_path, bytes(content))
    with suppress(SourceError):
        matrix = open_imatrix(path)
        assert matrix.entries
        for name in matrix.entries:
            matrix.find(name, (8, 128))

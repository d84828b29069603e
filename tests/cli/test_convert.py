"""convert: where the artifact goes, what is printed, what is refused and leaves the folder as it was."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.checkpoints import RECIPE, make, tensors
from tests.cli.program import ok, run
from tests.support import TINY_LLAMA, write_safetensors


def listing(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_finished_conversion_says_what_it_made(tmp_path: Path) -> None:
    folder = make(tmp_path)
    ran = ok("model.safetensors", "--recipe", "r.toml", cwd=folder)
    lines = ran.stdout.splitlines()
    assert lines[0] == "model.ninfer"
    facts = dict(line.split(maxsplit=1) for line in lines[1:] if not line.startswith("  bits"))
    size = (folder / "model.ninfer").stat().st_size
    before = sum(len(data) for _, _, data in tensors().values())
    assert facts["size"].startswith(f"{before / 1000:.2f} kB -> {size / 1000:.2f} kB (")
    assert "/s" in facts["time"]
    artifact_id = (folder / "model.ninfer").read_bytes()[16:32].hex()
    assert facts["id"] == artifact_id
    assert any(line.startswith("  bits per weight  ") for line in lines)
    assert ran.stderr == ""
    assert "no faults" in ok("verify", "model.ninfer", cwd=folder).stdout


def test_the_result_as_json(tmp_path: Path) -> None:
    folder = make(tmp_path)
    result = ok("model.safetensors", "-r", "r.toml", "--json", "--name", "Tiny", cwd=folder).result
    artifact = folder / "model.ninfer"
    size = artifact.stat().st_size
    assert result["path"] == "model.ninfer"
    assert result["artifact_id"] == artifact.read_bytes()[16:32].hex()
    assert result["files"] == [{"path": "model.ninfer", "bytes": size}]
    assert result["artifact_bytes"] == size
    assert result["source_bytes"] == sum(len(data) for _, _, data in tensors().values())
    assert result["elements"] == 6 * 128 + 3 * 4 * 64 + 64 + 5
    assert result["bits_per_weight"]["stored"] == 8 * size / result["elements"]
    assert result["seconds"] > 0
    assert result["warnings"] == []


def test_profile_tells_the_seconds_of_each_stage(tmp_path: Path) -> None:
    folder = make(tmp_path)
    result = ok("model.safetensors", "-r", "r.toml", "--profile", "--json", cwd=folder).result
    assert list(result["stages"]) == ["read", "decode", "encode", "pack", "write", "digest", "flush"]
    assert all(result["stages"][stage] > 0 for stage in ("read", "encode", "pack", "write", "digest", "flush"))
    lines = ok("model.safetensors", "-r", "r.toml", "--profile", "--force", cwd=folder).stdout.splitlines()
    assert [line.split()[0] for line in lines[-7:]] == list(result["stages"])


def test_the_word_convert_may_stand_in_front_and_changes_nothing(converted: Path) -> None:
    for words in (("convert",), ()):
        ok(*words, "-o", "a.ninfer", "--name=A model", "--recipe=r.toml", "--force", "model.safetensors", cwd=converted)
        assert (converted / "a.ninfer").read_bytes() == (converted / "model.ninfer").read_bytes()


def test_quiet_prints_nothing_but_what_is_wrong(tmp_path: Path) -> None:
    folder = make(tmp_path)
    ran = ok("model.safetensors", "-r", "r.toml", "--quiet", cwd=folder)
    assert (ran.stdout, ran.stderr) == ("", "")
    ran = run("model.safetensors", "-r", "r.toml", "--quiet", cwd=folder)
    assert ran.status == 1
    assert ran.stderr.startswith("error: model.ninfer: exists already")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("model.safetensors", "model.ninfer"),
        ("sub/model-00001-of-00001.safetensors", "model.ninfer"),
        ("sub", "sub.ninfer"),
        ("sub/", "sub.ninfer"),
        (".", "work.ninfer"),
        ("link", "sub.ninfer"),
        ("sub/model.safetensors.index.json", "model.ninfer"),
        ("models--org--Name-7B/snapshots/0123abcd", "Name-7B.ninfer"),
    ],
)
def test_the_default_name_is_the_inputs(tmp_path: Path, given: str, expected: str) -> None:
    folder = make(tmp_path / "work")
    shard = make(folder / "sub", "model-00001-of-00001.safetensors") / "model-00001-of-00001.safetensors"
    names = ", ".join(f'"{name}": "{shard.name}"' for name in tensors())
    (folder / "sub" / "model.safetensors.index.json").write_text(f'{{"weight_map": {{{names}}}}}')
    (folder / "link").symlink_to("sub")
    make(folder / "models--org--Name-7B" / "snapshots" / "0123abcd")
    plan = ok("plan", given, "-r", "r.toml", "--json", cwd=folder).result
    assert [file["path"] for file in plan["files"]] == [expected]


def test_output_may_name_a_file_or_an_existing_folder(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder / "out").mkdir()
    assert (
        ok("model.safetensors", "-r", "r.toml", "-o", "out", "--json", cwd=folder).result["path"] == "out/model.ninfer"
    )
    ok("model.safetensors", "-r", "r.toml", "-o", "out/any name.bin", cwd=folder)
    assert sorted(os.listdir(folder / "out")) == ["any name.bin", "model.ninfer"]


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("missing/x.ninfer", "missing: there is no such folder"),
        ("missing/", "missing/: there is no such folder"),
        ("r.toml/x.ninfer", "r.toml: is not a folder"),
        ("r.toml", "r.toml: is a file of the recipe itself"),
        ("older", "older: exists already"),
        ("model.safetensors", "model.safetensors: is a file of the checkpoint itself"),
    ],
)
def test_an_impossible_output_is_refused_before_any_work(tmp_path: Path, out: str, said: str) -> None:
    folder = make(tmp_path)
    (folder / "older").write_bytes(b"older")
    before = listing(folder)
    ran = run("model.safetensors", "-r", "r.toml", "-o", out, cwd=folder)
    assert (ran.status, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"error: {said}")
    assert listing(folder) == before


def test_force_replaces_an_artifact_and_never_an_input(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder / "model.ninfer").write_bytes(b"older")
    ran = run("model.safetensors", "-r", "r.toml", cwd=folder)
    assert ran.status == 1
    assert (folder / "model.ninfer").read_bytes() == b"older"
    ok("model.safetensors", "-r", "r.toml", "--force", cwd=folder)
    assert "no faults" in ok("verify", "model.ninfer", cwd=folder).stdout
    before = listing(folder)
    for out in ("model.safetensors", "./model.safetensors"):
        ran = run("model.safetensors", "-r", "r.toml", "--force", "-o", out, cwd=folder)
        assert ran.status == 1
        assert "choose another name" in ran.stderr
    assert listing(folder) == before


@pytest.mark.parametrize(
    ("recipe", "input", "said"),
    [
        ("nothing.toml", "model.safetensors", "error: no file 'nothing.toml' and no built-in recipe"),
        ("r.toml", "modle.safetensors", "error: modle.safetensors: does not exist; did you mean model.safetensors?"),
        ("bad.toml", "model.safetensors", "error: bad.toml:3:10: unknown format 'q4_g64'"),
    ],
)
def test_a_refusal_names_what_is_wrong_and_leaves_nothing(tmp_path: Path, recipe: str, input: str, said: str) -> None:
    folder = make(tmp_path)
    (folder / "bad.toml").write_text('schema = 1\n[[assign]]\nformat = "q4_g64"\nselect = "*"\n')
    before = listing(folder)
    ran = run(input, "-r", recipe, cwd=folder)
    assert (ran.status, ran.stdout) == (1, "")
    assert ran.stderr.startswith(said)
    assert "Traceback" not in ran.stderr
    errors = run(input, "-r", recipe, "--json", cwd=folder).failure["errors"]
    assert len(errors) == ran.stderr.count("error: ")
    assert listing(folder) == before


def test_errors_carry_file_line_column_and_tensor_in_json(tmp_path: Path) -> None:
    folder = make(tmp_path, recipe=f'{RECIPE}\n[[assign]]\nselect = "layers.9.*"\nformat = "q4"\n')
    line = RECIPE.count("\n") + 4
    (error,) = run("model.safetensors", "-r", "r.toml", "--json", cwd=folder).failure["errors"]
    assert (error["file"], error["line"], error["column"]) == ("r.toml", line, 10)
    nan = dict(tensors()) | {"layers.0.up.weight": ("F32", (1, 2), b"\x00\x00\xc0\x7f" * 2)}
    write_safetensors(folder / "nan.safetensors", nan)
    (folder / "r.toml").write_text(RECIPE)
    (error,) = run("nan.safetensors", "-r", "r.toml", "--json", cwd=folder).failure["errors"]
    assert error["tensor"] == "layers.0.up.weight"
    assert not (folder / "nan.ninfer").exists()


def test_many_errors_are_cut_with_their_number_but_not_in_json(tmp_path: Path) -> None:
    wrong = "".join(f'[[assign]]\nselect = "no.{number}"\nformat = "bf16"\n' for number in range(30))
    folder = make(tmp_path, recipe=RECIPE + wrong)
    stderr = run("model.safetensors", "-r", "r.toml", cwd=folder).stderr
    assert stderr.count("error: ") == 20
    assert stderr.endswith("... and 10 more, 30 in all\n")
    assert len(run("model.safetensors", "-r", "r.toml", "--json", cwd=folder).failure["errors"]) == 30


def test_a_warning_of_the_run_is_told_once_a_tensor(tmp_path: Path) -> None:
    folder = make(tmp_path)
    nan = dict(tensors()) | {"layers.0.norm.weight": ("F32", (2,), b"\x00\x00\xc0\x7f" * 2)}
    write_safetensors(folder / "nan.safetensors", nan)
    ran = ok("nan.safetensors", "-r", "r.toml", cwd=folder)
    assert ran.stderr.startswith("warning: layers.0.norm.weight: 2 ")
    assert ran.stderr.count("\n") == 1
    result = ok("nan.safetensors", "-r", "r.toml", "--force", "--json", cwd=folder).result
    assert [warning["tensor"] for warning in result["warnings"]] == ["layers.0.norm.weight"]


def test_set_name_and_no_digest_shape_the_artifact(tmp_path: Path) -> None:
    folder = make(tmp_path)
    options = ("--set", "*.up.weight:format=q8_g32_fp16", "--name", "Tiny", "--no-digest")
    ok("model.safetensors", "-r", "r.toml", *options, cwd=folder)
    info = ok("info", "model.ninfer", "--json", cwd=folder).result
    assert info["metadata"] == {"name": "Tiny"}
    assert info["provenance"]["overrides"]["set"] == ["*.up.weight:format=q8_g32_fp16"]
    assert {share["name"] for share in info["formats"]} == {"q8_g32_fp16", "q4_g64_fp16", "bf16", "fp32"}
    assert not any("sha256" in made for made in info["provenance"]["objects"].values())


def test_parts_and_their_replacement(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    shutil.copytree(TINY_LLAMA, folder)
    result = ok(".", "-r", "q8", "--max-file-bytes", "64KiB", "--json", "-o", "t.ninfer", cwd=folder).result
    assert [file["path"] for file in result["files"]][:2] == ["t.ninfer", "t.ninfer.part-0001"]
    assert all(file["bytes"] == (folder / file["path"]).stat().st_size <= 65536 for file in result["files"])
    told = ok("info", "t.ninfer", cwd=folder).stdout
    assert "t.ninfer.part-0001" in told
    one = ok(".", "-r", "q8", "--force", "-o", "t.ninfer", "--json", cwd=folder).result
    assert [file["path"] for file in one["files"]] == ["t.ninfer"]
    assert not list(folder.glob("*.part-*"))


def test_a_cap_too_small_is_wrong_usage(tmp_path: Path) -> None:
    folder = make(tmp_path)
    ran = run("model.safetensors", "-r", "r.toml", "--max-file-bytes", "100", cwd=folder)
    assert ran.status == 2
    assert "the smallest cap that works is" in ran.stderr
    assert not (folder / "model.ninfer").exists()


def test_no_number_of_threads_and_no_memory_cap_changes_a_byte(converted: Path) -> None:
    for options in (("--jobs", "1"), ("--jobs", "1000"), ("--memory", "16MiB", "--jobs", "64")):
        ok(
            "model.safetensors",
            "-r",
            "r.toml",
            "--name",
            "A model",
            "-o",
            "b.ninfer",
            "--force",
            *options,
            cwd=converted,
        )
        assert (converted / "b.ninfer").read_bytes() == (converted / "model.ninfer").read_bytes()


@pytest.mark.parametrize("command", ["convert", "plan"])
def test_a_folder_that_is_missing_is_told_before_anything_is_read(tmp_path: Path, command: str) -> None:
    ran = run(command, "nothing.safetensors", "-r", "q4", "-o", "missing/x.ninfer", cwd=tmp_path)
    assert (ran.status, ran.stderr) == (1, "error: missing: there is no such folder; make it first\n")

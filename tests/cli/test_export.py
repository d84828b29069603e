"""export: folders, single files, GGUF; what stands there is replaced with --force alone."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, decoded, environment, ok, run
from tests.oracle import safetensors
from tests.support import TINY_LLAMA, write_sparse_safetensors

GOLDEN = Path(__file__).parent.parent / "golden" / "gguf"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder(converted: Path) -> None:
    ran = ok("export", "parts.ninfer", "-o", "out", cwd=converted)
    assert ran.stderr == ""
    assert names(converted / "out") == ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]
    *files, size, parameters, took = ran.stdout.splitlines()
    assert sorted(files) == [f"out/{name}" for name in names(converted / "out")]
    total = sum(path.stat().st_size for path in (converted / "out").iterdir())
    assert size == f"  size        {total / 1000:.0f} kB"
    assert parameters == "  parameters  20: 15 decoded, 5 word for word"
    assert took.startswith("  time        ")
    assert ok("compare", "parts.ninfer", "out", "--fail-over", "max=0", cwd=converted).status == 0


def test_a_file_of_the_tensors_alone(converted: Path) -> None:
    before = names(converted)
    ran = ok("export", "model.ninfer", "-o", "m.safetensors", cwd=converted)
    assert names(converted) == sorted([*before, "m.safetensors"])
    assert ran.stdout.startswith("m.safetensors\n")
    assert "  left out    tokenizer.json\n" in ran.stdout
    tensors = safetensors.read((converted / "m.safetensors").read_bytes())
    assert {name: (dtype, shape) for name, (dtype, shape, _) in tensors.items()} == {
        "layers.0.bias": ("F32", [5]),
        "layers.0.experts": ("F32", [3, 4, 64]),
        "layers.0.norm.weight": ("BF16", [64]),
        "layers.0.up.weight": ("F32", [6, 128]),
    }


def test_shards_and_bf16_as_json(converted: Path) -> None:
    ran = ok(
        *("export", "parts.ninfer", "-o", "out", "--dtype", "bf16", "--max-shard-bytes", "100kB", "--json"),
        cwd=converted,
    )
    result = ran.result
    assert [file["path"] for file in result["files"]][-2:] == [
        "out/model-00005-of-00005.safetensors",
        "out/model.safetensors.index.json",
    ]
    assert all((converted / file["path"]).stat().st_size == file["bytes"] for file in result["files"])
    assert (result["parameters"], result["decoded"], result["left_out"], result["warnings"]) == (20, 15, [], [])
    index = json.loads((converted / "out" / "model.safetensors.index.json").read_text())
    assert len(index["weight_map"]) == 20
    assert ok("info", "out", cwd=converted).stdout.count("BF16") == 1


def test_a_gguf_back_to_the_byte(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('schema = 1\nname = "keep"\n')
    ok(GOLDEN / "q2_0.gguf", "-r", "r.toml", cwd=tmp_path)
    ran = ok("export", "q2_0.ninfer", "-o", "q2_0.gguf", "--quiet", cwd=tmp_path)
    assert (ran.stdout, ran.stderr) == ("", "")
    assert (tmp_path / "q2_0.gguf").read_bytes() == (GOLDEN / "q2_0.gguf").read_bytes()


def test_what_gguf_has_no_type_for(converted: Path) -> None:
    ran = run("export", "model.ninfer", "-o", "m.gguf", cwd=converted)
    assert (ran.status, ran.stdout) == (1, "")
    assert ran.stderr == (
        "error: GGUF has no type for q4_g64_fp16, in which 2 parameters (layers.0.experts, layers.0.up.weight) are "
        "kept; export as safetensors\n"
    )
    ran = run("export", "model.ninfer", "-o", "m.gguf", "--json", cwd=converted)
    assert [(error["code"], error["tensor"]) for error in ran.failure["errors"]] == [("not-gguf", "layers.0.experts")]


def test_existing_files(converted: Path) -> None:
    (converted / "out").mkdir()
    (converted / "out" / "model.safetensors").write_text("older")
    before = names(converted)
    ran = run("export", "model.ninfer", "-o", "out", cwd=converted)
    assert ran.status == 1
    assert ran.stderr.startswith("error: out/model.safetensors: exists already; force its replacement")
    assert names(converted) == before
    ok("export", "model.ninfer", "-o", "out", "--force", cwd=converted)
    assert names(converted / "out") == ["model.safetensors", "tokenizer.json"]


def test_names_of_a_checkpoint(tmp_path: Path) -> None:
    rename = "[[rename]]\nmatch = 'model\\.(.*)'\nto = '\\1'\n"
    (tmp_path / "r.toml").write_text(f'schema = 1\nname = "t"\n{rename}')
    ok(TINY_LLAMA, "-r", "r.toml", cwd=tmp_path)
    ok("export", "tiny-llama.ninfer", "-o", "own.safetensors", cwd=tmp_path)
    ok("export", "tiny-llama.ninfer", "-o", "like.safetensors", "--like", TINY_LLAMA, cwd=tmp_path)
    own, like = (json.loads(ok("info", f"{n}.safetensors", "--json", cwd=tmp_path).stdout) for n in ("own", "like"))
    assert {f"model.{t['name']}" for t in own["tensors"]} == {t["name"] for t in like["tensors"]}
    original = ok("info", TINY_LLAMA, "--json", cwd=tmp_path).result
    assert {t["name"] for t in like["tensors"]} == {t["name"] for t in original["tensors"]}
    ran = run("export", "tiny-llama.ninfer", "-o", "x.safetensors", "--like", GOLDEN / "q2_0.gguf", cwd=tmp_path)
    assert ran.status == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith("error: 20 of the 20 parameters were made from no tensor of ")
    assert line.endswith("; give the checkpoint that the artifact was made from")


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-o", ""),
        ("-o", "x", "y"),
        ("-o", "x", "--dtype", "fp16"),
        ("-o", "x", "--max-shard-bytes", "0"),
        ("-o", "x.gguf", "--dtype", "bf16"),
        ("-o", "x.gguf", "--max-shard-bytes", "1GB"),
        ("-o", "x.safetensors", "--max-shard-bytes", "1GB"),
    ],
)
def test_wrong_usage(converted: Path, options: tuple[str, ...]) -> None:
    before = names(converted)
    ran = run("export", "model.ninfer", *options, cwd=converted)
    assert (ran.status, ran.stdout) == (2, "")
    assert names(converted) == before


def test_what_cannot_be_read(converted: Path) -> None:
    (converted / "parts.ninfer.part-0001").unlink()
    for artifact in ("none.ninfer", "model.safetensors", "parts.ninfer"):
        ran = run("export", artifact, "-o", "out", cwd=converted)
        assert (ran.status, ran.stdout) == (1, "")
        assert not (converted / "out").exists()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an artifact of 2^28 weights in 4 bits: a gigabyte when decoded."""
    folder = tmp_path_factory.mktemp("large")
    write_sparse_safetensors(folder / "m.safetensors", {"w.weight": ("BF16", (1 << 16, 1 << 12), 1 << 29)})
    ok("m.safetensors", "-r", "q4", "--quiet", cwd=folder)
    return folder


@pytest.mark.parametrize("out", ["out", "out.safetensors"])
def test_a_signal_ends_it_and_leaves_nothing(large: Path, out: str) -> None:
    before = names(large)
    process = subprocess.Popen(
        [*PROGRAM, "export", "m.ninfer", "-o", out, "--quiet"],
        cwd=large,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while names(large) == before:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (143, b"")
    assert decoded(stderr) == "error: stopped by SIGTERM; no partial file is left behind\n"
    assert names(large) == before

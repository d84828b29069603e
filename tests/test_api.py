"""The public Python API: light to import, whole, and what its functions do together."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ninfer_convert
from tests.cli.program import environment
from tests.support import TINY_LLAMA, gaussian, write_safetensors


def test_the_import_alone_loads_nothing() -> None:
    code = "import sys, ninfer_convert; print(*sorted(m for m in sys.modules if m.split('.')[0] not in STDLIB))"
    code = "import sys; STDLIB = {*sys.stdlib_module_names, *sys.modules}\n" + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout.split() == ["ninfer_convert"]


def test_every_public_name_is_there_and_typed() -> None:
    """What type checkers read and what is loaded are the same, name by name."""
    tree = ast.parse(Path(ninfer_convert.__file__).read_text("utf-8"))
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    homes = {alias.name: node.module for node in typed.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(homes) == ninfer_convert.__all__
    for name, module in homes.items():
        assert module is not None
        value = getattr(ninfer_convert, name)
        assert value is getattr(sys.modules[module], name)
        assert value.__doc__
        assert name in dir(ninfer_convert)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'ninfer_convert' has no attribute 'konvert'"):
        ninfer_convert.konvert  # noqa: B018


def test_from_a_checkpoint_to_a_judged_artifact(tmp_path: Path) -> None:
    from ninfer_convert import compare, convert, load_recipe, open_artifact, plan, verify

    assert load_recipe("q4").name == "q4"
    planned = plan(TINY_LLAMA, "q4")
    path = tmp_path / "tiny.ninfer"
    result = convert(TINY_LLAMA, "q4", path)
    assert result.path == path
    assert verify(str(path)).ok
    found = compare(path, TINY_LLAMA)
    assert found.judge({"sqnr": 15.0, "cosine": 0.99}) == ()
    with open_artifact(path) as artifact:
        assert list(artifact) == list(planned.directory.bindings)
        weight = artifact["model.layers.0.mlp.up_proj.weight"]
        assert (weight.shape, weight.format) == ((128, 128), "q4_g64_fp16")
        rows = weight.numpy(rows=(8, 12))
        assert rows.shape == (4, 128)
        codes, scales = weight.codes(rows=(8, 12)), weight.scales(rows=(8, 12)).view(np.float16)
        assert np.array_equal(rows, codes * np.repeat(scales.astype(np.float32), 64, axis=1))


def test_options_and_progress(tmp_path: Path) -> None:
    from ninfer_convert import Progress, Running, Shaping, convert, open_artifact

    values = gaussian((16, 64))
    source = write_safetensors(tmp_path / "m.safetensors", {"w": ("F32", values.shape, values.tobytes())})
    seen: list[Progress] = []
    shaping = Shaping(overrides=("w:format=q8_g32_fp16",), name="mine")
    path = tmp_path / "m.ninfer"
    convert(source, "bf16", path, shaping=shaping, running=Running(jobs=2, digest=False), progress=seen.append)
    assert seen[-1].done == seen[-1].total == values.nbytes
    with open_artifact(path) as artifact:
        assert artifact["w"].format == "q8_g32_fp16"
        assert artifact.directory.metadata["name"] == "mine"

"""How far an importance matrix covers a checkpoint, under the names that its architecture gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninfer_convert.pipeline.coverage import cover
from ninfer_convert.sources.imatrix import open_imatrix
from tests.architectures import small
from tests.oracle import imatrix


def written(folder: Path, lengths: dict[str, int]) -> Path:
    """A matrix of the older format: one vector of ones for each name."""
    path = folder / "imatrix.dat"
    path.write_bytes(imatrix.legacy([(name, 1, [1.0] * length) for name, length in lengths.items()]))
    return path


@pytest.mark.parametrize("kind", ["dense", "experts of their own", "experts in banks"])
def test_logical_names_are_found_by_what_the_architecture_knows(tmp_path: Path, kind: str) -> None:
    small.write(tmp_path / "model", small.KINDS[kind])
    dense = {"ffn_gate": small.H, "ffn_down": small.F}
    experts = {"ffn_gate_exps": small.E * small.H, "ffn_down_exps": small.E * small.FE}
    own = {"attn_output": small.A * small.D, **(dense if kind == "dense" else experts)}
    lengths = {f"blk.1.{name}.weight": length for name, length in own.items()} | {"blk.9.attn_q.weight": small.H}
    coverage = cover(open_imatrix(written(tmp_path, lengths)), str(tmp_path / "model"))
    assert coverage.architecture == "qwen3_5"
    assert coverage.unused == ("blk.9.attn_q.weight",)
    layer = "text/layers/1"
    assert coverage.users["blk.1.attn_output.weight"] == [f"{layer}/attention/output"]
    if kind == "dense":
        assert coverage.users["blk.1.ffn_gate.weight"] == [f"{layer}/mlp/gate"]
    else:
        down = [f"{layer}/moe/experts/{expert}/down" for expert in range(small.E)]
        assert coverage.users["blk.1.ffn_down_exps.weight"] == down
    assert {parameter.name for parameter in coverage.missing} >= {"text/token_embedding", f"{layer}/attention/query"}
    assert len(coverage.parameters) == len(coverage.missing) + sum(map(len, coverage.users.values()))

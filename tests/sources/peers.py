"""The peers' own checkpoints, and their words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.config import read_config
from ninfer_convert.sources.encoded import classify
from tests.oracle import safetensors

if TYPE_CHECKING:
    from ninfer_convert.values import Encoding, Source, Words
    from tests.sources.weights import Array


GOLDEN = Path(__file__).parent.parent / "golden" / "encoded"

BF16_ROWS, FP16_ROWS = "fp8_e4m3fn_row_bf16", "fp8_e4m3fn_row_fp16"


def peer(folder: str) -> dict[str, Source]:
    """The encoded weights of a checkpoint that a peer wrote."""
    checkpoint = open_checkpoint(GOLDEN / folder)
    classification = classify(checkpoint, read_config(checkpoint))
    return {module.parameter: classification.sources[module.parameter] for module in classification.modules}


def stored(folder: str) -> dict[str, bytes]:
    tensors = safetensors.read((GOLDEN / folder / "model.safetensors").read_bytes())
    return {name: data for name, (_, _, data) in tensors.items()}


def facts(source: Source) -> Encoding:
    assert source.encoding is not None
    return source.encoding


def scales_of(words: Words) -> Array:
    assert words.scales is not None
    return words.scales

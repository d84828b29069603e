"""Parameters read through their bindings: the oracle's values and words, for any rows and any elements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ninfer_convert.container import Binding, Part
from ninfer_convert.errors import ArtifactError
from ninfer_convert.formats import FORMATS
from ninfer_convert.pipeline.stored import OpenArtifact, StoredParameter, open_artifact
from tests.oracle import container
from tests.pipeline import artifacts

Array = NDArray[Any]
Mixed = tuple[OpenArtifact, dict[str, artifacts.Stored]]


def same(found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def test_the_formats_are_all_there_are() -> None:
    assert set(artifacts.EVERY_FORMAT) == set(FORMATS)
    assert len(artifacts.EVERY_FORMAT) == 30


@pytest.mark.parametrize("format", artifacts.EVERY_FORMAT)
def test_every_format_reads_as_the_oracle_says(format: str, tmp_path: Path) -> None:
    wanted = artifacts.stored(format)
    with open_artifact(artifacts.write(tmp_path / "a.ninfer", {"w": wanted})) as artifact:
        found = artifact["w"]
        assert (found.name, found.shape, found.format) == ("w", wanted.shape, format)
        assert (found.elements, found.nbytes) == (wanted.values.size, len(wanted.payload))
        rows = wanted.shape[0]
        for cut in (None, (0, rows), (1, rows), (0, 1), (rows - 1, rows), (rows // 2 - 1, rows // 2 + 1)):
            chosen = slice(*cut) if cut else slice(None)
            same(found.numpy(rows=cut), wanted.values[chosen])
            codes = wanted.codes.reshape(rows, -1)[chosen]
            same(found.codes(rows=cut), codes.reshape(-1) if wanted.codes.ndim == 1 else codes)
            if wanted.scales is not None:
                same(found.scales(rows=cut), wanted.scales[chosen])


@pytest.mark.parametrize("format", ["bf16", "gguf_q4_k"])
def test_formats_without_scales_of_their_own_say_so(format: str, tmp_path: Path) -> None:
    path = artifacts.write(tmp_path / "a.ninfer", {"w": artifacts.stored(format)})
    with open_artifact(path) as artifact, pytest.raises(ValueError, match=f"w: {format} keeps no scales"):
        artifact["w"].scales()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    """Objects of many formats, and parameters bound to them in every way; parts of 12 kB, which cut planes."""
    objects = {
        "q4": artifacts.stored("q4_g64_fp16", 7, 130, 1),
        "q6": artifacts.stored("q6_g64_fp16", 4, 130, 2),
        "bf16": artifacts.stored("bf16", 3, 130, 3),
        "fp4": artifacts.stored("nvfp4"),
        "int32": artifacts.stored("int32", 2, 3, 4),
        "q8": artifacts.stored("q8_g32_fp16", 12, 33, 5),
        "scalar": artifacts.floats("fp32", np.array(2.5)),
        "five": artifacts.floats("bf16", np.arange(12.0).reshape(1, 2, 3, 1, 2)),
        "blocks": artifacts.stored("gguf_q6_k"),
    }
    bindings = {
        "regions": Binding(None, (Part("q4", 0, 7 * 130), Part("q6", 0, 4 * 130), Part("bf16", 0, 3 * 130))),
        "bank": Binding(None, (Part("q8", 0, 12 * 33),)),
        "bank of nobody": Binding(None, (Part("q8", 0, 12 * 33),)),
        "query": Binding(None, (Part("fp4", 0, 64 * 128),)),
        "key": Binding(None, (Part("fp4", 64 * 128, 256 * 128),)),
        "pieces": Binding(None, (Part("bf16", 100, 300), Part("q4", 3, 777), Part("fp4", 129, 130))),
        "numbers": Binding("int32"),
        "tied": Binding("q6"),
        "q6[0].weight": Binding("q6"),
        "scalar": Binding("scalar"),
        "five": Binding("five"),
        "blocks": Binding("blocks"),
    }
    shapes = {"regions": {"shape": [14, 130]}, "bank": {"shape": [3, 4, 33]}}
    path = tmp_path_factory.mktemp("mixed") / "a.ninfer"
    artifacts.write(path, objects, bindings, {"parameters": shapes}, limit=16 << 10)
    with open_artifact(path) as artifact:
        assert len(artifact.directory.files) >= 3
        yield artifact, objects


def expected(name: str, objects: dict[str, artifacts.Stored]) -> Array:
    whole = artifacts.fused(objects, ["q4", "q6", "bf16"])
    flat = objects["fp4"].values.reshape(-1)
    return {
        "regions": whole.reshape(14, 130),
        "bank": objects["q8"].values.reshape(3, 4, 33),
        "bank of nobody": objects["q8"].values,
        "query": objects["fp4"].values[:64],
        "key": objects["fp4"].values[64:],
        "pieces": np.concatenate(
            [objects["bf16"].values.reshape(-1)[100:300], objects["q4"].values.reshape(-1)[3:777], flat[129:130]]
        ),
        "numbers": objects["int32"].values,
        "tied": objects["q6"].values,
        "q6[0].weight": objects["q6"].values,
        "scalar": np.array(2.5, np.float32),
        "five": np.arange(12, dtype=np.float32).reshape(1, 2, 3, 1, 2),
        "blocks": objects["blocks"].values,
    }[name]


def test_every_binding_reads_as_its_elements(mixed: Mixed) -> None:
    artifact, objects = mixed
    assert len(artifact) == len(list(artifact)) == 12
    for name in artifact:
        wanted = expected(name, objects)
        assert artifact[name].shape == wanted.shape
        same(artifact[name].numpy(), wanted)
        for rows in list(combinations(range(min(len(wanted), 15) + 1), 2))[::5] if wanted.ndim else ():
            same(artifact[name].numpy(rows=rows), wanted[slice(*rows)])


@given(st.data())
def test_any_elements_read_alike(mixed: Mixed, data: st.DataObject) -> None:
    artifact, objects = mixed
    name = data.draw(st.sampled_from(list(artifact)))
    flat = expected(name, objects).reshape(-1)
    begin = data.draw(st.integers(0, flat.size - 1))
    end = data.draw(st.integers(begin + 1, min(flat.size, begin + 2000)))
    same(artifact[name].values(begin, end), flat[begin:end])
    spans = list(artifact[name].cut(begin, end))
    assert sum(span.elements for span in spans) == end - begin
    assert all(span.elements > 0 for span in spans)


def test_words_of_rows_that_lie_in_one_object(mixed: Mixed) -> None:
    artifact, objects = mixed
    regions = artifact["regions"]
    assert regions.format == "q4_g64_fp16+q6_g64_fp16+bf16"
    same(regions.codes(rows=(2, 7)), objects["q4"].codes[2:7])
    scales = objects["q6"].scales
    assert scales is not None
    same(regions.scales(rows=(7, 9)), scales[:2])
    same(regions.codes(rows=(11, 12)), objects["bf16"].codes[:130])
    same(artifact["bank"].codes(rows=(1, 3)), objects["q8"].codes[4:])
    words = artifact["key"].words(rows=(63, 65))
    assert words.divisors is not None
    assert words.divisors.tolist() == [0.75, 12.5]
    same(words.codes, objects["fp4"].codes[127:129])


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("regions", None, r"lies in 3 objects, q4 \(q4_g64_fp16\), q6 \(q6_g64_fp16\), bf16 \(bf16\)"),
        ("regions", (6, 8), "lies in 2 objects"),
        ("pieces", (200, 300), "does not begin and end with rows of q4"),
    ],
)
def test_words_that_no_rows_hold_are_refused(mixed: Mixed, name: str, rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mixed[0][name].words(rows)


@pytest.mark.parametrize("rows", [(0, 0), (5, 4), (-1, 2), (0, 15), (14, 15)])
def test_rows_that_are_not_there_are_refused(mixed: Mixed, rows: Any) -> None:
    for read in (StoredParameter.numpy, StoredParameter.codes, StoredParameter.scales):
        with pytest.raises(IndexError, match=rf"regions: rows {rows[0]}:{rows[1]} are no part of \[14, 130\]"):
            read(mixed[0]["regions"], rows=rows)


def test_a_scalar_has_no_rows(mixed: Mixed) -> None:
    with pytest.raises(IndexError, match="scalar"):
        mixed[0]["scalar"].numpy(rows=(0, 1))


@pytest.mark.parametrize("span", [(0, 0), (-1, 4), (1819, 1821), (5, 3)])
def test_elements_that_are_not_there_are_refused(mixed: Mixed, span: tuple[int, int]) -> None:
    with pytest.raises(IndexError, match="1820"):
        mixed[0]["regions"].values(*span)


def test_an_unknown_name_is_answered_with_the_nearest(mixed: Mixed) -> None:
    artifact, _ = mixed
    with pytest.raises(KeyError, match=r"did you mean 'q6\[0\].weight'"):
        artifact["q6[0].weigh"]
    assert "q6[0].weigh" not in artifact
    assert "tied" in artifact
    assert artifact.get("q6[0].weigh") is None


@pytest.mark.parametrize(
    "recorded",
    [
        None,
        7,
        {"shape": [12, 33]},
        {"w": {"shape": [5, 80]}},
        {"w": {"shape": [-12, -33]}},
        {"w": {"shape": [12.0, 33]}},
        {"w": {"shape": "12, 33"}},
        {"w": {"shape": [True, 396]}},
        {"w": [12, 33]},
    ],
)
def test_an_unsound_recorded_shape_is_passed_by(recorded: Any, tmp_path: Path) -> None:
    q8 = artifacts.stored("q8_g32_fp16", 12, 33)
    bindings = {"w": Binding(None, (Part("q8", 0, 396),))}
    path = artifacts.write(tmp_path / "a.ninfer", {"q8": q8}, bindings, {"parameters": recorded})
    with open_artifact(path) as artifact:
        same(artifact["w"].numpy(), q8.values)


def test_without_a_recorded_shape_equal_rows_make_a_matrix(tmp_path: Path) -> None:
    objects = {"a": artifacts.stored("q4_g64_fp16", 2, 65), "b": artifacts.stored("q5_g64_fp16", 3, 65)}
    objects["c"] = artifacts.stored("bf16", 2, 64)
    whole, cut = (Part("a", 0, 130), Part("b", 65, 195)), (Part("a", 0, 130), Part("c", 0, 128))
    bindings = {"rows": Binding(None, whole), "elements": Binding(None, cut)}
    bindings["shifted"] = Binding(None, (Part("a", 5, 70), Part("b", 0, 65)))
    with open_artifact(artifacts.write(tmp_path / "a.ninfer", objects, bindings)) as artifact:
        assert artifact["rows"].shape == (4, 65)
        assert artifact["elements"].shape == (258,)
        assert artifact["shifted"].shape == (130,)


def test_an_object_of_unknown_format_is_listed_and_refused_when_it_is_read(tmp_path: Path) -> None:
    record = {"id": "new", "kind": "tensor", "shape": [2, 3], "format": "q3_future", "layout": "x_v1"}
    root = {
        "components": {"text": {"config": {}}},
        "objects": [{**record, "offset": 0, "bytes": 9}],
        "bindings": {"w": {"object": "new"}},
        "uses": [],
        "files": [{"path": None, "payload_bytes": 9}],
    }
    container.write(tmp_path / "a.ninfer", root, bytes(9))
    with open_artifact(tmp_path / "a.ninfer") as artifact:
        assert (artifact["w"].shape, artifact["w"].format, artifact["w"].nbytes) == ((2, 3), "q3_future", 9)
        with pytest.raises(ArtifactError, match="unknown format 'q3_future'"):
            artifact["w"].numpy()


def test_long_parameters_are_read_in_pieces(tmp_path: Path) -> None:
    values = np.arange((1 << 22) + 5, dtype=np.float32)
    with open_artifact(artifacts.write(tmp_path / "a.ninfer", {"w": artifacts.floats("fp32", values)})) as artifact:
        same(artifact["w"].numpy(), values)
        same(artifact["w"].numpy(rows=(3, (1 << 22) + 4)), values[3:-1])

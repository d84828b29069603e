"""`check`: an artifact held against what a plan gives, by its directory and by every byte."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ninfer_convert.errors import NumericError, SourceError
from ninfer_convert.pipeline import against
from ninfer_convert.pipeline.check import CheckReport, check
from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.planned import Shaping
from ninfer_convert.pipeline.run import Running, run
from tests.oracle import container
from tests.pipeline.checking import GOLDEN, RECIPE, found, make, planned, tensors
from tests.support import gaussian, write_safetensors

if TYPE_CHECKING:
    from ninfer_convert.pipeline.progress import Progress


def told(report: CheckReport) -> list[str]:
    return [difference.message for difference in report.differences]


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the directory of an artifact of one file, and leave its payload."""
    held = container.read(path)
    root = json.loads(held.text)
    change(root)
    container.write(path, root, held.payload, held.artifact_id)


class TestEqual:
    @pytest.mark.parametrize("full", [False, True])
    def test_what_was_made_is_what_is_planned(self, tmp_path: Path, full: bool) -> None:
        plan = make(tmp_path)
        path = tmp_path / "m.ninfer"
        report = check(path, plan, full=full)
        assert report == CheckReport(str(path), full, ())
        assert report.ok

    @pytest.mark.parametrize("running", [Running(max_file_bytes=8192), Running(digest=False)])
    def test_neither_the_division_into_files_nor_digests_matter(self, tmp_path: Path, running: Running) -> None:
        plan = make(tmp_path, running=running)
        assert len(list(tmp_path.glob("m.ninfer*"))) == (2 if running.max_file_bytes else 1)
        assert found(tmp_path, plan).ok

    def test_overrides_that_change_no_decision_do_not_matter(self, tmp_path: Path) -> None:
        make(tmp_path)
        other = planned(tmp_path, overrides=("fp8.weight:format=fp8_e4m3fn_row_bf16",), requantize=True)
        assert other.directory.provenance["overrides"]["set"]
        assert found(tmp_path, other).ok

    def test_a_gguf_and_its_blocks(self, tmp_path: Path) -> None:
        (tmp_path / "r.toml").write_text('schema = 1\nname = "keep"\n[defaults]\nF16 = "bf16"\n')
        plan = make_plan(str(GOLDEN / "blocks.gguf"), str(tmp_path / "r.toml"), Shaping())
        run(plan, tmp_path / "m.ninfer", Running())
        assert found(tmp_path, plan).ok
        assert found(tmp_path, plan, full=False).ok

    @pytest.mark.parametrize("piece", [1, 700, 1 << 20])
    @pytest.mark.parametrize("jobs", [1, 4])
    def test_neither_pieces_nor_threads_change_the_report(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, jobs: int
    ) -> None:
        plan = make(tmp_path)
        path = tmp_path / "m.ninfer"
        data = bytearray(path.read_bytes())
        source = random.Random(3)
        for place in source.sample(range(len(data) - plan.payload_bytes, len(data)), 30):
            data[place] ^= 0x55
        path.write_bytes(data)
        expected = found(tmp_path, plan)
        assert len(expected.differences) > 5
        monkeypatch.setattr(against, "PIECE_BYTES", piece)
        assert check(path, plan, full=True, jobs=jobs) == expected

    def test_progress_counts_the_bytes_that_are_read_again(self, tmp_path: Path) -> None:
        plan = make(tmp_path)
        seen: list[Progress] = []
        check(tmp_path / "m.ninfer", plan, full=True, jobs=3, progress=seen.append)
        done = [now.done for now in seen]
        assert done == sorted(done)
        assert done[-1] == plan.source_bytes
        assert {now.total for now in seen} == {plan.source_bytes}
        assert {now.parameter for now in seen} == set(tensors())


class TestDirectory:
    def changed(self, folder: Path, change: Callable[[dict[str, Any]], Any]) -> list[str]:
        """What is told of an artifact whose directory was changed: the same with and without the payload."""
        plan = make(folder)
        edit(folder / "m.ninfer", change)
        report = found(folder, plan, full=False)
        assert found(folder, plan).differences == report.differences
        return told(report)

    def test_values_that_differ(self, tmp_path: Path) -> None:
        def change(root: dict[str, Any]) -> None:
            root["components"]["text"]["config"]["eps"] = 1e-5
            root["components"]["text"]["config"]["nested"]["x"][1] = 2.0
            root["metadata"]["license"] = "apache"
            root["provenance"]["objects"]["weight/000000"]["method"] = "magic"

        assert self.changed(tmp_path, change) == [
            'provenance.objects[weight/000000].method is "magic"; the plan gives "grouped_absmax"',
            "components[text].config.eps is 1e-05; the plan gives 1e-06",
            "components[text].config.nested.x is [1, 2.0]; the plan gives [1, 2]",
            'metadata.license is "apache"; the plan gives "mit"',
        ]

    def test_what_is_missing_or_too_much(self, tmp_path: Path) -> None:
        def change(root: dict[str, Any]) -> None:
            del root["bindings"]["half"]
            root["bindings"]["more"] = {"object": "weight/000000"}
            root["uses"] = [{"parameter": "bank", "input": "x", "activation_policy": "A16Only"}]
            root["provenance"]["note"] = "x" * 200
            root["components"]["text"]["config"]["names"].append("b")
            root["provenance"]["tool"] = None
            del root["metadata"]

        shown = '"' + "x" * 96 + "..."
        assert self.changed(tmp_path, change) == [
            'provenance.tool is null; the plan gives {"name": "ninfer-convert", "encoding": 1}',
            f"provenance.note is not in the plan; it is {shown}",
            'components[text].config.names[1] is not in the plan; it is "b"',
            'bindings[half] is missing; the plan gives {"object": "weight/000004"}',
            'bindings[more] is not in the plan; it is {"object": "weight/000000"}',
            'uses[bank] is not in the plan; it is {"x": {"parameter": "bank", "input": "x", '
            '"activation_policy": "A16Only"}}',
            'metadata is missing; the plan gives {"license": "mit"}',
        ]

    def test_objects_and_parameters_are_named(self, tmp_path: Path) -> None:
        plan = make(tmp_path)
        edit(tmp_path / "m.ninfer", lambda root: root["bindings"].update({"ids": {"object": "weight/000000"}}))
        edit(tmp_path / "m.ninfer", lambda root: root["provenance"]["objects"]["weight/000001"].update(stored=["F32"]))
        edit(tmp_path / "m.ninfer", lambda root: root["provenance"]["parameters"]["bank"].update(shape=[12, 130]))
        owners = [(each.object, each.parameter) for each in found(tmp_path, plan).differences]
        assert owners == [("weight/000001", None), (None, "bank"), (None, "ids")]

    def test_another_order_of_the_same(self, tmp_path: Path) -> None:
        def change(root: dict[str, Any]) -> None:
            root["bindings"] = dict(reversed(root["bindings"].items()))

        assert self.changed(tmp_path, change) == ["the directory holds what the plan gives, in another order"]

    def test_provenance_of_another_program(self, tmp_path: Path) -> None:
        records: list[dict[str, Any]] = [{}, {"objects": 3}, {"objects": {"weight/000000": "x"}}, {"overrides": []}]
        for record in records:
            plan = make(tmp_path, running=Running(force=True))
            edit(tmp_path / "m.ninfer", partial(dict.update, provenance=record))
            messages = told(found(tmp_path, plan))
            assert any(message.startswith("provenance.tool is missing") for message in messages)

    def test_names_with_control_characters_are_escaped(self, tmp_path: Path) -> None:
        (message,) = self.changed(
            tmp_path, lambda root: root["bindings"].update({"a\x1b[1m": {"object": "weight/000000"}})
        )
        assert message.startswith(r"bindings[a\x1b[1m] is not in the plan")

    def test_another_recipe_or_header_is_seen_by_its_digest(self, tmp_path: Path) -> None:
        make(tmp_path)
        (tmp_path / "r.toml").write_text(RECIPE + "# the same, said otherwise\n")
        (message,) = told(found(tmp_path, planned(tmp_path)))
        assert re.fullmatch(
            r'provenance\.recipe\.files\[0\]\.sha256 is "[0-9a-f]{64}"; the plan gives "[0-9a-f]{64}"', message
        )
        (tmp_path / "r.toml").write_text(RECIPE)
        write_safetensors(tmp_path / "m.safetensors", dict(sorted(tensors().items(), reverse=True)))
        *_, message = told(found(tmp_path, planned(tmp_path)))
        assert message.startswith("provenance.sources[model].files[0].header_sha256 is ")

    def test_objects_stored_otherwise_are_told_by_the_directory_alone(self, tmp_path: Path) -> None:
        make(tmp_path)
        other = planned(tmp_path, overrides=("bank:format=q4_g64_fp16",))
        report = found(tmp_path, other)
        assert {difference.code for difference in report.differences} == {"size", "directory"}
        assert report.differences[0].message == (
            f"the payload is {container.read(tmp_path / 'm.ninfer').directory['files'][0]['payload_bytes']} bytes "
            f"long; the plan gives {other.payload_bytes}"
        )
        assert 'objects[weight/000000].format (bank) is "q5_g64_fp16"; the plan gives "q4_g64_fp16"' in told(report)
        moved = [message for message in told(report) if "offset" in message]
        assert len(moved) == 1
        assert "objects stand at other offsets than the plan gives, weight/000001 (" in moved[0]

    def test_objects_that_only_moved_are_compared(self, tmp_path: Path) -> None:
        """Everything behind the bank lies elsewhere, and is the same."""
        make(tmp_path)
        other = planned(tmp_path, overrides=("bank:format=q4_g64_fp16",))
        path = tmp_path / "m.ninfer"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        payload = [each for each in found(tmp_path, other).differences if each.code == "payload"]
        assert [each.parameter for each in payload] == ["norm.weight"]


class TestBroken:
    def test_an_artifact_that_cannot_be_opened_is_none_of_these(self, tmp_path: Path) -> None:
        plan = make(tmp_path)
        path = tmp_path / "m.ninfer"
        path.write_bytes(path.read_bytes()[:-1])
        (difference,) = found(tmp_path, plan).differences
        assert difference.code == "truncated"
        assert difference.message.startswith(f"{path}: is ")

    def test_what_lies_in_a_missing_part_cannot_be_compared(self, tmp_path: Path) -> None:
        plan = make(tmp_path, running=Running(max_file_bytes=8192))
        (tmp_path / "m.ninfer.part-0001").unlink()
        (missing,) = found(tmp_path, plan, full=False).differences
        assert (missing.code, missing.object) == ("part-missing", None)
        full = found(tmp_path, plan).differences
        assert full[0] == missing
        assert {difference.code for difference in full[1:]} == {"unreadable"}
        assert full[1].message.endswith("part-0001: this part of the artifact is missing")
        assert len({difference.object for difference in full[1:]}) == len(full) - 1

    def test_what_cannot_be_read_is_raised(self, tmp_path: Path) -> None:
        plan = make(tmp_path)
        with pytest.raises(SourceError):
            check(tmp_path / "none.ninfer", plan)
        os.truncate(tmp_path / "m.safetensors", 1000)
        with pytest.raises(SourceError):
            found(tmp_path, plan)
        assert found(tmp_path, plan, full=False).ok

    def test_what_convert_refuses_is_raised(self, tmp_path: Path) -> None:
        make(tmp_path)
        values = gaussian((3, 4, 130), 1)
        values[0, 0, 0] = np.nan
        write_safetensors(tmp_path / "m.safetensors", {**tensors(), "bank": ("F32", (3, 4, 130), values.tobytes())})
        with pytest.raises(NumericError, match="bank"):
            found(tmp_path, planned(tmp_path))

    def test_aliases_that_convert_refuses_are_refused_here(self, tmp_path: Path) -> None:
        share = '[[share]]\nparameter = "half"\nwith = "norm.weight"\n[defaults]\nF16 = "fp32"\n'
        half = ("F32", (5,), tensors()["norm.weight"][2])
        write_safetensors(tmp_path / "m.safetensors", {**tensors(), "half": half})
        (tmp_path / "r.toml").write_text(f'schema = 1\nname = "t"\n{share}')
        plan = planned(tmp_path)
        run(plan, tmp_path / "m.ninfer", Running())
        assert found(tmp_path, plan).ok
        data = bytearray((tmp_path / "m.safetensors").read_bytes())
        data[-60] ^= 1
        (tmp_path / "m.safetensors").write_bytes(data)
        with pytest.raises(SourceError, match=r"half: its words are not those of norm\.weight"):
            found(tmp_path, planned(tmp_path))


def test_it_writes_nothing(tmp_path: Path) -> None:
    plan = make(tmp_path)
    copy = shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-copy")
    found(tmp_path, plan)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in copy.iterdir())
    assert all((copy / path.name).read_bytes() == path.read_bytes() for path in tmp_path.iterdir())

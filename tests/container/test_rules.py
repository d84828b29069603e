"""What the records of a directory must be to one another (container.md 2 and 3)."""

from __future__ import annotations

from typing import Any

import pytest

from ninfer_convert.formats import FORMATS
from ninfer_convert.layouts import LAYOUTS
from tests.container.directories import faults, fp32, future, parse, parts, problems, resource, root, tensor, whole

U64 = 2**64 - 1
BIG = future("big", [2**63], 0)


def bound(objects: list[Any], **bindings: Any) -> dict[str, Any]:
    return root(objects, bindings=bindings)


class TestFiles:
    def test_any_plain_name_is_a_part(self) -> None:
        for name in ("x", "model.ninfer.part-0001", "...", "a b", "C:x", "é", "model.ninfer.", "MODEL.NINFER"):
            assert faults(root(files=files(546, (name, 10)))) == []

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\\b", "a\0", "model.ninfer"])
    def test_other_names_are_refused(self, name: str) -> None:
        assert faults(root(files=files(546, (name, 10)))) == [("path", "files[1].path")]

    def test_names_do_not_repeat(self) -> None:
        assert faults(root(files=files(546, ("x", 1), ("y", 1), ("x", 1)))) == [("path", "files[3].path")]

    def test_the_entry_alone_has_no_name(self) -> None:
        first = [{"path": "x", "payload_bytes": 546}]
        assert faults(root(files=first)) == [("path", "files[0].path")]
        assert faults(root(files=[*files(546), *files(1)])) == [("path", "files[1].path")]
        assert faults(root(files=[{"path": 3, "payload_bytes": 546}])) == [("type", "files[0].path")]

    def test_the_payload_stays_in_64_bits(self) -> None:
        assert faults(root([BIG], files=files(U64 - 1, ("x", 1)))) == []
        assert faults(root([BIG], files=files(U64, ("x", 1)))) == [("overflow", "files")]


def files(first: int, *others: tuple[str, int]) -> list[Any]:
    return [
        {"path": None, "payload_bytes": first},
        *({"path": name, "payload_bytes": payload} for name, payload in others),
    ]


class TestObjects:
    def test_ids_are_unique_over_both_kinds(self) -> None:
        assert faults(root([fp32("a", [1], 0), resource("a", 4, 1)])) == [("duplicate-id", "objects[1].id")]
        assert faults(root([resource("a", 0, 1), resource("a", 1, 1)])) == [("duplicate-id", "objects[1].id")]

    def test_they_are_ordered_by_offset(self) -> None:
        value = root([resource("a", 10, 1), resource("b", 9, 1), resource("c", 11, 1)])
        assert faults(value) == [("order", "objects[1].offset")]

    def test_they_do_not_overlap(self) -> None:
        touching = root([resource("a", 0, 10), resource("b", 10, 1)])
        assert faults(touching) == []
        for offset in (0, 9):
            value = root([resource("a", 0, 10), resource("b", offset, 1), resource("c", 10, 1)])
            assert faults(value) == [("overlap", "objects[1].offset")]

    def test_an_overlap_with_an_object_further_back_is_found(self) -> None:
        value = root([resource("a", 0, 100), resource("b", 10, 1), resource("c", 99, 1)])
        assert faults(value) == [("overlap", "objects[1].offset"), ("overlap", "objects[2].offset")]
        assert "objects[0], which ends at 100" in problems(value)[1].message

    def test_they_lie_inside_the_payload(self) -> None:
        value = root([resource("a", 0, 4), resource("b", 4, 4)], files=files(7))
        assert faults(value) == [("outside", "objects[1]")]
        assert faults(root([resource("a", 0, 4), resource("b", 4, 4)], files=files(3, ("x", 5)))) == []

    def test_the_payload_may_go_on_behind_them(self) -> None:
        assert faults(root([resource("a", 0, 4)], files=files(9))) == []

    def test_their_ends_stay_in_64_bits(self) -> None:
        assert faults(root([future("a", [1], U64 - 1, 1)], files=files(U64))) == []
        assert faults(root([future("a", [1], U64, 1)], files=files(U64))) == [("overflow", "objects[0]")]

    def test_resources_lie_at_any_offset(self) -> None:
        assert faults(root([resource("a", 3, 4), resource("b", 7, 1)])) == []

    def test_known_tensors_are_aligned(self) -> None:
        value = root([resource("r", 0, 1), fp32("a", [1], 128)])
        assert faults(value) == [("alignment", "objects[1].offset")]

    @pytest.mark.parametrize(
        ("shape", "format", "layout", "bytes", "divisors"),
        [
            ([7168, 5120], "q4_g64_fp16", "row_split_k128_v1", 19_496_960, None),
            ([7168, 5120], "q5_g64_fp16", "row_split_k128_v1", 24_084_480, None),
            ([14336, 5120], "fp8_e4m3fn_row_bf16", "row_scale_v1", 73_428_992, None),
            ([14336, 5120], "nvfp4", "block_scale_k16_m128x4_v1", 41_287_684, None),
            ([14336, 5120], "nvfp4", "block_scale_k16_m128x4_v1", 41_287_684, 1),
            ([14336, 5120], "nvfp4", "block_scale_k16_m128x4_v1", 41_287_688, 2),
            ([2, 130], "q5_g64_fp16", "row_split_k128_v1", 528, None),
            ([2, 160], "fp8_e4m3fn_row_fp16", "row_interleaved_v1", 324, None),
            ([], "fp32", "contiguous_le_v1", 4, None),
            ([1] * 15 + [3], "bf16", "contiguous_le_v1", 6, 1),
        ],
    )
    def test_bytes_are_the_encoded_size(
        self, shape: list[int], format: str, layout: str, bytes: int, divisors: int | None
    ) -> None:
        more = {} if divisors is None else {"divisors": divisors}
        assert faults(root([tensor("a", shape, format, layout, 0, bytes, **more)])) == []
        for wrong in (bytes - 1, bytes + 1):
            assert faults(root([tensor("a", shape, format, layout, 0, wrong, **more)])) == [
                ("size", "objects[0].bytes")
            ]

    def test_no_size_is_too_large_to_compare(self) -> None:
        value = root([tensor("a", [2**62, 2], "fp32", "contiguous_le_v1", 0, U64)])
        assert faults(value) == [("size", "objects[0].bytes")]

    def test_no_layout_stores_what_it_is_not_for(self) -> None:
        for format in FORMATS:
            refused = [
                layout
                for layout in LAYOUTS
                if ("misfit", "objects[0]") in faults(root([tensor("a", [128, 256], format, layout, 0, 1)]))
            ]
            assert len(refused) == len(LAYOUTS) - 1

    @pytest.mark.parametrize(
        ("shape", "format", "layout", "rule"),
        [
            ([64], "q4_g64_fp16", "row_split_k128_v1", "has rank 1"),
            ([2, 3, 64], "q8_g32_fp16", "row_split_k128_v1", "has rank 3"),
            ([64, 64], "nvfp4", "block_scale_k16_m128x4_v1", "multiple of 128"),
            ([128, 48], "nvfp4", "block_scale_k16_m128x4_v1", "multiple of 64"),
            ([2, 255], "gguf_q4_k", "gguf_blocks_v1", "multiple of 256"),
        ],
    )
    def test_rank_and_geometry_are_the_layouts(self, shape: list[int], format: str, layout: str, rule: str) -> None:
        (problem,) = problems(root([tensor("a", shape, format, layout, 0, 1)]))
        assert problem.code == "misfit"
        assert rule in problem.message

    @pytest.mark.parametrize(
        ("shape", "format", "layout", "bytes", "divisors"),
        [
            ([256, 64], "nvfp4", "block_scale_k16_m128x4_v1", 9220 + 8, 3),
            ([256, 64], "nvfp4", "block_scale_k16_m128x4_v1", 9216 + 16, 4),
            ([4, 64], "q4_g64_fp16", "row_split_k128_v1", 272, 2),
            ([4], "fp32", "contiguous_le_v1", 16, 2),
        ],
    )
    def test_divisors_are_nvfp4s_in_whole_tiles(
        self, shape: list[int], format: str, layout: str, bytes: int, divisors: int
    ) -> None:
        value = root([tensor("a", shape, format, layout, 0, bytes, divisors=divisors)])
        assert faults(value) == [("misfit", "objects[0]")]

    def test_what_is_not_known_is_checked_for_its_place_alone(self) -> None:
        for format, layout in (("q3_future", "row_split_k128_v1"), ("fp32", "row_future_v1"), ("x", "y")):
            strange = tensor("a", [3, 5, 7], format, layout, 3, 1, divisors=9)
            assert faults(root([resource("r", 0, 2), strange])) == []
            assert faults(root([resource("r", 0, 4), strange])) == [("overlap", "objects[1].offset")]


class TestComponents:
    def test_any_name_is_a_component(self) -> None:
        assert faults(root(components={"ngram": {"config": {}}})) == []

    def test_a_target_is_another_component(self) -> None:
        def pair(target: str) -> dict[str, Any]:
            return root(components={"text": {"config": {}}, "mtp": {"config": {}, "target": target}})

        assert faults(pair("text")) == []
        for target in ("mtp", "Text", "vision"):
            assert faults(pair(target)) == [("reference", "components.mtp.target")]

    def test_roles_name_resources(self) -> None:
        def holding(id: str) -> dict[str, Any]:
            return root(components={"text": {"config": {}, "resources": {"tokenizer.json": id, "other": "r"}}})

        assert faults(holding("r")) == []
        for id in ("a", "nope"):
            assert faults(holding(id)) == [("reference", 'components.text.resources["tokenizer.json"]')]


class TestBindings:
    OBJECTS = (
        fp32("a", [3, 4], 0),
        fp32("s", [], 256),
        tensor("q", [2, 130], "q5_g64_fp16", "row_split_k128_v1", 512, 528),
    )

    def test_ranges_count_logical_elements(self) -> None:
        whole_range = parts(("q", 0, 260))
        assert faults(bound(list(self.OBJECTS), w=whole_range)) == []
        for span in (("q", 0, 261), ("s", 0, 2), ("a", 12, 13)):
            assert faults(bound(list(self.OBJECTS), w=parts(span))) == [("range", "bindings.w.parts[0].range")]

    def test_objects_may_be_bound_as_often_as_wanted(self) -> None:
        value = bound(
            list(self.OBJECTS),
            tied=whole("a"),
            head=whole("a"),
            rows=parts(("a", 4, 12)),
            overlapping=parts(("a", 0, 8), ("a", 4, 12), ("s", 0, 1)),
        )
        assert faults(value) == []

    def test_every_part_is_checked(self) -> None:
        value = bound(list(self.OBJECTS), w=parts(("a", 0, 12), ("nope", 0, 1), ("s", 0, 1), ("a", 0, 13)))
        assert faults(value) == [
            ("reference", "bindings.w.parts[1].object"),
            ("range", "bindings.w.parts[3].range"),
        ]

    def test_resources_are_no_parameters(self) -> None:
        value = bound([resource("r", 0, 9)], w=whole("r"), v=parts(("r", 0, 1)))
        assert faults(value) == [("reference", "bindings.w.object"), ("reference", "bindings.v.parts[0].object")]

    def test_the_elements_of_a_parameter_stay_in_64_bits(self) -> None:
        assert faults(bound([BIG], w=parts(("big", 0, 2**63), ("big", 1, 2**63)))) == []
        assert faults(bound([BIG], w=parts(("big", 0, 2**63), ("big", 0, 2**63)))) == [("overflow", "bindings.w.parts")]


class TestUses:
    def test_each_parameter_and_input_once(self) -> None:
        pairs = [("w", "x"), ("w", "y"), ("v", "x"), ("w", "x"), ("w", "x")]
        value = root(
            bindings={"w": whole("a"), "v": whole("a")},
            uses=[{"parameter": parameter, "input": input} for parameter, input in pairs],
        )
        assert faults(value) == [("duplicate-use", "uses[3]"), ("duplicate-use", "uses[4]")]

    def test_the_parameter_is_bound(self) -> None:
        value = root(uses=[{"parameter": "w", "input": "x"}])
        assert faults(value) == [("reference", "uses[0].parameter")]


GGUF = tensor("g", [4, 2048], "gguf_q4_k", "gguf_blocks_v1", 0, 4 * 8 * 144)


def using(role: str, auxiliary: Any, parameter: Any = GGUF, binding: Any = None) -> dict[str, Any]:
    """A use of an object with the auxiliary `x`."""
    auxiliary = {**auxiliary, "offset": 1 << 16}
    use = {"parameter": "w", "input": "i", "auxiliaries": {role: binding or whole("x")}}
    return root([parameter, auxiliary], bindings={"w": whole(parameter["id"])}, uses=[use])


def direct(format: str, shape: list[int]) -> Any:
    size = 2 if format == "bf16" else 4
    for extent in shape:
        size *= extent
    return tensor("x", shape, format, "contiguous_le_v1", 0, size)


class TestAuxiliaries:
    @pytest.mark.parametrize(
        ("role", "auxiliary"),
        [
            ("activation_input_divisor", direct("fp32", [])),
            ("hadamard_signs", direct("bf16", [2048])),
            ("input_columns", direct("int32", [2048])),
        ],
    )
    def test_each_role_has_its_format_and_count(self, role: str, auxiliary: Any) -> None:
        where = f"uses[0].auxiliaries.{role}"
        assert faults(using(role, auxiliary)) == []
        in_parts = parts(("x", 0, auxiliary["shape"][0] if auxiliary["shape"] else 1))
        assert faults(using(role, auxiliary, binding=in_parts)) == []
        for format in {"fp32", "bf16", "int32"} - {auxiliary["format"]}:
            assert faults(using(role, direct(format, auxiliary["shape"]))) == [("auxiliary", where)]
        for shape in ([1024], [4096], [2]):
            assert faults(using(role, direct(auxiliary["format"], shape))) == [("auxiliary", where)]

    def test_signs_come_in_multiples_of_1024(self) -> None:
        for columns, accepted in ((1024, True), (1536, False), (512, False)):
            parameter = tensor("g", [4, columns], "gguf_q4_k", "gguf_blocks_v1", 0, 4 * columns // 256 * 144)
            value = using("hadamard_signs", direct("bf16", [columns]), parameter)
            assert faults(value) == ([] if accepted else [("auxiliary", "uses[0].auxiliaries.hadamard_signs")])

    def test_input_columns_are_for_gguf_formats(self) -> None:
        matrix = tensor("m", [4, 64], "q4_g64_fp16", "row_split_k128_v1", 0, 272)
        (problem,) = problems(using("input_columns", direct("int32", [64]), matrix))
        assert problem.message.endswith('"w" is stored as q4_g64_fp16; only gguf formats have input_columns')
        unknown = future("m", [4, 64], 0)
        assert faults(using("input_columns", direct("int32", [64]), unknown)) == []

    def test_signs_serve_every_format(self) -> None:
        matrix = tensor("m", [4, 1024], "q4_g64_fp16", "row_split_k128_v1", 0, 2048 + 128)
        assert faults(using("hadamard_signs", direct("bf16", [1024]), matrix)) == []

    def test_the_columns_of_a_flat_object_are_not_known(self) -> None:
        flat = fp32("m", [4096], 0)
        assert faults(using("hadamard_signs", direct("bf16", [1024]), flat)) == []

    def test_other_roles_are_refused(self) -> None:
        (problem,) = problems(using("activation_divisor", direct("fp32", [])))
        assert problem.code == "auxiliary"
        assert "did you mean activation_input_divisor?" in problem.message

    def test_their_bindings_obey_the_same_rules(self) -> None:
        role = "activation_input_divisor"
        scalar = direct("fp32", [])
        for binding, fault in (
            (whole("nope"), ("reference", f"uses[0].auxiliaries.{role}.object")),
            (parts(("x", 0, 2)), ("range", f"uses[0].auxiliaries.{role}.parts[0].range")),
            ({"object": "x", "parts": []}, ("binding", f"uses[0].auxiliaries.{role}")),
        ):
            assert faults(using(role, scalar, binding=binding)) == [fault]


class TestWhatDependsOnARefusedRecord:
    def test_a_reference_to_a_refused_object_is_no_second_fault(self) -> None:
        broken = {**fp32("a", [3, 4], 0), "shape": [0]}
        value = root(
            [broken, resource("r", 256, 1)],
            components={"text": {"config": {}, "resources": {"x": "a"}}},
            bindings={"w": whole("a"), "v": parts(("a", 0, 99))},
            uses=[{"parameter": "w", "input": "x", "auxiliaries": {"activation_input_divisor": whole("a")}}],
        )
        assert faults(value) == [("shape", "objects[0].shape")]

    @pytest.mark.parametrize("broken", [3, {}, {**fp32("a", [1], 0), "id": ""}])
    def test_without_its_id_nothing_is_said_of_references(self, broken: Any) -> None:
        value = root([broken, resource("r", 256, 1)], bindings={"w": whole("a")})
        assert {member.split(".")[0] for _, member in faults(value)} == {"objects[0]"}

    def test_a_refused_object_is_left_out_of_order_and_overlap(self) -> None:
        far = {**resource("b", 500, 10), "bytes": 0}
        assert faults(root([resource("a", 0, 4), far, resource("c", 4, 4)])) == [("integer", "objects[1].bytes")]

    def test_without_objects_nothing_is_said_of_references(self) -> None:
        value = {**root(bindings={"w": whole("a")}), "objects": 1}
        assert faults(value) == [("type", "objects")]

    def test_without_bindings_nothing_is_said_of_uses(self) -> None:
        value = {**root(uses=[{"parameter": "w", "input": "x"}]), "bindings": 1}
        assert faults(value) == [("type", "bindings")]

    def test_a_use_of_a_refused_binding_is_no_second_fault(self) -> None:
        value = root(bindings={"w": {"object": "a", "parts": []}}, uses=[{"parameter": "w", "input": "x"}])
        assert faults(value) == [("binding", "bindings.w")]

    def test_a_target_that_is_refused_is_no_second_fault(self) -> None:
        value = root(components={"text": {"config": 1}, "mtp": {"config": {}, "target": "text"}})
        assert faults(value) == [("type", "components.text.config")]

    def test_without_the_files_nothing_is_said_of_the_payloads_end(self) -> None:
        value = root(files=[{"path": None, "payload_bytes": 1}, {"path": "x", "payload_bytes": 0}])
        assert faults(value) == [("integer", "files[1].payload_bytes")]

    def test_a_tensor_that_fits_no_layout_has_no_size(self) -> None:
        value = root([tensor("a", [3], "q4_g64_fp16", "row_split_k128_v1", 0, 7)])
        assert faults(value) == [("misfit", "objects[0]")]


def test_thousands_of_faults_are_all_told() -> None:
    names = {f"w{number}": whole("nope") for number in range(5000)}
    found = problems(root(bindings=names))
    assert [problem.message.split(".")[1] for problem in found] == list(names)


def test_a_directory_without_parameters_is_legal() -> None:
    directory = parse(root())
    assert dict(directory.bindings) == {}
    assert directory.uses == ()

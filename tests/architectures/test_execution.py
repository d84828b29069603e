"""What an engine refuses of a recipe's decisions, and what it binds but is not known to compute (7.3, 7.4)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path

import pytest

from ninfer_convert import plan
from ninfer_convert.architectures import Outcome
from ninfer_convert.architectures.qwen3_5.config import read_text_config
from ninfer_convert.architectures.qwen3_5.execution import unknown_banks, unread
from ninfer_convert.errors import Problem, RecipeError
from ninfer_convert.recipe import Use
from tests.architectures import small
from tests.architectures.building import resources, write_files, write_headers
from tests.architectures.facts import PARENTS_35B, Facts, facts_27b, facts_35b

HEAD = 'schema = 1\nname = "r"\n'
FREE = '[[assign]]\nselect = "text/layers/*/{attention,gdn}/*"\nformat = "q5_g64_fp16"\n'
PAIRS = (
    FREE
    + '[[assign]]\nselect = "text/layers/*/{attention,gdn}/{query,key}"\nformat = "q4_g64_fp16"\n'
    + '[[assign]]\nselect = "text/layers/*/mlp/*"\nformat = "q4_g64_fp16"\n'
)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("27b")
    facts = facts_27b()
    write_headers(folder, facts.tensors)
    write_files(folder, {"config.json": facts.config, **resources()})
    return folder


def warnings(folder: Path, recipe: Path | str) -> list[str]:
    return [problem.message for problem in plan(folder, recipe).warnings if problem.code == "no-kernel"]


def written(folder: Path, text: str) -> Path:
    path = folder / "r.toml"
    path.write_text(HEAD + text, encoding="utf-8")
    return path


END = "bind, but may not run: the engine is known to compute with the objects"
WAYS = {
    "attention/": (
        "query + key + gate + value as nvfp4, fp8_e4m3fn_row_bf16 or bf16, or query + key as q4_g64_fp16 and gate + "
        "value as q5_g64_fp16, or query + key as t2_g128_fp16 and gate + value as t2_g128_fp16, or query as gguf_* and "
        "key as gguf_* and gate as gguf_* and value as gguf_*"
    ),
    "gdn/": (
        "query + key + value + z as nvfp4 or fp8_e4m3fn_row_bf16, or query + key as q4_g64_fp16 and value + z as "
        "q5_g64_fp16, or query + key as t2_g128_fp16 and value + z as t2_g128_fp16, or query as gguf_* and key as "
        "gguf_* and value as gguf_* and z as gguf_*"
    ),
    "mlp/": "gate + up as any format, or gate as gguf_* and up as gguf_*",
}


def test_the_pairs_of_the_dense_model(dense: Path, tmp_path: Path) -> None:
    assert warnings(dense, written(tmp_path, PAIRS)) == []


def test_one_bank_of_the_dense_model(dense: Path) -> None:
    assert warnings(dense, "bf16") == [
        f"gdn/: query + key + value + z as bf16 in 48 layers (text/layers/0/gdn/...) {END} {WAYS['gdn/']}"
    ]


def test_banks_of_a_format_without_a_kernel(dense: Path, tmp_path: Path) -> None:
    assert warnings(dense, written(tmp_path, FREE)) == [
        f"gdn/: query + key + value + z as q5_g64_fp16 in 48 layers (text/layers/0/gdn/...) {END} {WAYS['gdn/']}",
        "attention/: query + key + gate + value as q5_g64_fp16 in 16 layers (text/layers/3/attention/...) "
        f"{END} {WAYS['attention/']}",
    ]


def test_what_stands_apart(dense: Path, tmp_path: Path) -> None:
    separate = '[[separate]]\nselect = "text/layers/7/attention/key"\n[[separate]]\nselect = "text/layers/0/mlp/up"\n'
    assert warnings(dense, written(tmp_path, PAIRS + separate)) == [
        f"mlp/: gate, up apart, as q4_g64_fp16 in 1 layer (text/layers/0/mlp/...) {END} {WAYS['mlp/']}",
        "attention/: query, key, gate, value apart, as q4_g64_fp16, q5_g64_fp16 in 1 layer "
        f"(text/layers/7/attention/...) {END} {WAYS['attention/']}",
    ]


GROUPS_35B = (*PARENTS_35B, ("moe/shared/down",))
Q8 = "q8_g32_fp16"
FORMATS_35B = (Q8, Q8, "bf16", "bf16", "q4_g64_fp16", "q5_g64_fp16", Q8, Q8)


def outcome(groups: Iterable[tuple[str, ...]], formats: Iterable[str], layers: int) -> Outcome:
    """The same objects in each layer."""
    of_names: dict[str, tuple[str, ...]] = {}
    places: dict[str, tuple[int, int]] = {}
    objects = count()
    for layer in range(layers):
        for members, format in zip(groups, formats, strict=True):
            object = next(objects)
            for index, name in enumerate(members):
                of_names[f"text/layers/{layer}/{name}"] = (format,)
                places[f"text/layers/{layer}/{name}"] = (object, index)
    return Outcome(of_names, places)


def banks_of(facts: Facts, formats: Iterable[str], groups: tuple[tuple[str, ...], ...] = GROUPS_35B) -> list[str]:
    text = read_text_config(facts.config, "config.json")
    return list(unknown_banks(text, outcome(groups, formats, 40)))


def with_format(index: int, *formats: str) -> tuple[str, ...]:
    return (*FORMATS_35B[:index], *formats, *FORMATS_35B[index + len(formats) :])


@pytest.mark.parametrize(
    "formats",
    [
        FORMATS_35B,
        with_format(5, "q6_g64_fp16"),
        with_format(4, Q8, Q8),
        with_format(4, "nvfp4", "nvfp4", "nvfp4", "nvfp4"),
    ],
)
def test_banks_of_the_model_with_experts(formats: tuple[str, ...]) -> None:
    assert banks_of(facts_35b(fused=True), formats) == []


@pytest.mark.parametrize(
    ("index", "format", "folder"),
    [
        (0, "q4_g64_fp16", "attention/"),
        (1, "bf16", "gdn/"),
        (3, "fp32", "moe/"),
        (4, "q5_g64_fp16", "moe/"),
        (4, Q8, "moe/"),
        (5, "q4_g64_fp16", "moe/"),
        (6, "q4_g64_fp16", "moe/"),
        (7, "bf16", "moe/"),
        (7, "nvfp4", "moe/"),
    ],
)
def test_banks_of_experts_of_a_format_without_a_kernel(index: int, format: str, folder: str) -> None:
    (message,) = banks_of(facts_35b(fused=True), with_format(index, format))
    assert message.startswith(folder)
    assert f" {END} " in message


BANKS_27B = (
    ("attention/query", "attention/key", "attention/gate", "attention/value"),
    ("gdn/query", "gdn/key", "gdn/value", "gdn/z"),
    ("mlp/gate", "mlp/up"),
)
PAIRS_27B = (
    ("attention/query", "attention/key"),
    ("attention/gate", "attention/value"),
    ("gdn/query", "gdn/key"),
    ("gdn/value", "gdn/z"),
    ("mlp/gate", "mlp/up"),
)
APART_27B = tuple((name,) for bank in BANKS_27B for name in bank)
Q4, Q5, T2, FP8 = "q4_g64_fp16", "q5_g64_fp16", "t2_g128_fp16", "fp8_e4m3fn_row_bf16"


@pytest.mark.parametrize(
    ("groups", "formats", "folders"),
    [
        (BANKS_27B, ("nvfp4", "nvfp4", "nvfp4"), []),
        (BANKS_27B, (FP8, FP8, "bf16"), []),
        (BANKS_27B, ("bf16", "fp8_e4m3fn_row_fp16", Q8), ["gdn/"]),
        (BANKS_27B, (Q8, "nvfp4", Q4), ["attention/"]),
        (PAIRS_27B, (Q4, Q5, Q4, Q5, "fp32"), []),
        (PAIRS_27B, (T2, T2, T2, T2, T2), []),
        (PAIRS_27B, (T2, Q5, Q5, Q4, Q4), ["attention/", "gdn/"]),
        (PAIRS_27B, ("nvfp4", "nvfp4", FP8, FP8, FP8), ["attention/", "gdn/"]),
        (APART_27B, ("gguf_q4_k", "gguf_q6_k") * 5, []),
        (APART_27B, ("gguf_q4_k", "gguf_q4_k", "bf16", "gguf_q8_0") + (Q8,) * 6, ["attention/", "gdn/", "mlp/"]),
    ],
)
def test_banks_of_the_dense_model(
    groups: tuple[tuple[str, ...], ...], formats: tuple[str, ...], folders: list[str]
) -> None:
    text = read_text_config(facts_27b().config, "config.json")
    found = [message.split(":")[0] for message in unknown_banks(text, outcome(groups, formats, 64))]
    assert sorted(found) == folders


def test_the_projections_of_the_decay_must_be_one_bank_beside_experts() -> None:
    groups = (*GROUPS_35B[:2], ("gdn/a_projection",), *GROUPS_35B[3:], ("gdn/b_projection",))
    (message,) = banks_of(facts_35b(fused=True), (*FORMATS_35B, "bf16"), groups)
    assert "a_projection, b_projection apart, as bf16 in 30 layers" in message


def test_experts_in_another_order_are_no_bank() -> None:
    swapped = (*GROUPS_35B[:4], GROUPS_35B[4][::-1], *GROUPS_35B[5:])
    (message,) = banks_of(facts_35b(fused=True), FORMATS_35B, swapped)
    assert "experts/0/gate to experts/255/up apart, as q4_g64_fp16" in message


GATE, UP = "text/layers/5/mlp/gate", "text/layers/5/mlp/up"
EMBEDDING, HEADS = "text/token_embedding", "text/output_head"


def divided(policy: str, *divisors: float | None, second: str | None = None) -> Outcome:
    """Gate and up as one nvfp4 object, with the divisors of their inputs."""
    known = [{} if divisor is None else {"activation_input_divisor": divisor} for divisor in divisors]
    uses = [
        Use(name, "text/layers/5/ffn_input", said, auxiliaries, None)
        for name, said, auxiliaries in zip((GATE, UP), (policy, second or policy), known, strict=True)
    ]
    formats = {EMBEDDING: ("bf16",), GATE: ("nvfp4",), UP: ("nvfp4",)}
    return Outcome(formats, {GATE: (0, 0), UP: (0, 1)}, uses)


def test_an_nvfp4_bank_is_computed_by_one_policy_with_one_divisor() -> None:
    assert list(unread(divided("AllowA4", 0.5, 0.5))) == []
    assert list(unread(divided("AllowA8", None, 0.5))) == []
    assert list(unread(divided("AllowA4", 0.5, 0.25))) == [
        f"{GATE} to {UP} bind as nvfp4 in one object with several activation_input_divisors, but the engine computes "
        "4-bit activations with one"
    ]
    assert list(unread(divided("AllowA4", 0.5, 0.5, second="A16Only"))) == [
        f"{GATE} to {UP} bind as nvfp4 in one object with several activation policies, but the engine computes all of "
        "it by the strictest"
    ]


def test_a_ternary_embedding_needs_a_rotated_head() -> None:
    def made(**auxiliaries: str) -> Outcome:
        uses = [Use(HEADS, "text/final_hidden", "A16Only", auxiliaries, None)]
        return Outcome({EMBEDDING: ("t2_g128_fp16",)}, {EMBEDDING: (0, 0)}, uses)

    assert list(unread(made(hadamard_signs="signs"))) == []
    (message,) = unread(made())
    assert message == (
        "text/token_embedding as t2_g128_fp16 binds, but the engine reads that only beside a rotated head, one whose "
        "use has hadamard_signs: give them in a [[use]] of text/output_head, or choose another format"
    )


def test_what_is_computed_by_itself_is_one_region(dense: Path, tmp_path: Path) -> None:
    cut = '[[assign]]\nselect = "text/layers/{0..3}/mlp/down"\nrows = [0, 128]\nformat = "q8_g32_fp16"\n'
    assert warnings(dense, written(tmp_path, PAIRS + cut)) == [
        "text/layers/0/mlp/down (and 3 more) bind in pieces by rows, but the engine computes with one region of one "
        "object"
    ]


def test_what_layers_have_together_is_on_one_device(dense: Path, tmp_path: Path) -> None:
    group = '[[group]]\nselect = ["text/layers/0/mlp/down", "text/layers/5/mlp/down"]\n'
    found = plan(dense, written(tmp_path, PAIRS + group)).warnings
    assert [(problem.code, problem.message) for problem in found] == [
        (
            "one-device",
            "text/layers/0/mlp/down and text/layers/5/mlp/down are in one object, which an engine refuses where their "
            "layers are on other devices",
        )
    ]


def test_sizes_that_no_kernel_is_made_for(tmp_path: Path) -> None:
    small.write(tmp_path, small.KINDS["experts in banks"])
    found = plan(tmp_path, "q4").warnings
    assert [(problem.code, problem.message) for problem in found if problem.code in ("geometry", "no-kernel")] == [
        (
            "geometry",
            "queries of 144, keys of 48 and a hidden size of 128 bind, but the engine computes full attention of 6144, "
            "1024 and 5120 or of 4096, 512 and 2048 only",
        ),
        (
            "geometry",
            "keys of 32, values of 192 and a hidden size of 128 bind, but the engine computes linear attention of "
            "2048, 6144 and 5120 or of 2048, 4096 and 2048 only",
        ),
        (
            "geometry",
            "2 of 3 experts of 128, a shared one of 136 and a hidden size of 128 bind, but the engine computes 8 of "
            "256 of 512, 512 and 2048 only",
        ),
    ]


def refused(folder: Path, recipe: Path) -> list[Problem]:
    with pytest.raises(RecipeError) as caught:
        plan(folder, recipe)
    return list(caught.value.problems)


def test_a_parameter_that_an_engine_would_miss(tmp_path: Path) -> None:
    small.write(tmp_path, small.KINDS["dense"])
    skip = '[[skip]]\nselect = "text/final_norm"\nreason = "small"\n'
    (problem,) = refused(tmp_path, written(tmp_path, skip))
    assert (problem.code, problem.line) == ("not-bound", 3)
    assert problem.message == "text/final_norm is left out, but an engine that binds qwen3_5 needs it"


def test_a_parameter_that_an_engine_would_find_in_another_shape(tmp_path: Path) -> None:
    small.write(tmp_path, small.KINDS["dense"])
    turned = '[[assign]]\nselect = "text/layers/1/attention/key"\nformat = "bf16"\ntranspose = true\n'
    (problem,) = refused(tmp_path, written(tmp_path, turned))
    assert (problem.code, problem.line) == ("not-bound", 6)
    assert problem.message == "text/layers/1/attention/key would be [128, 48], but an engine binds it as [48, 128]"


def test_what_no_engine_binds_may_be_left_out_and_turned(tmp_path: Path) -> None:
    small.write(tmp_path, small.KINDS["dense"])
    recipe = 'architecture = "generic"\n[[skip]]\nselect = "model.language_model.norm.weight"\nreason = "small"\n'
    planned = plan(tmp_path, written(tmp_path, recipe))
    assert planned.model.unbindable is not None
    assert len(planned.resolution.skipped) == 1

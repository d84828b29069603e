"""Which format every tensor of known models gets under each built-in recipe."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from itertools import chain

import pytest

from ninfer_convert.formats.stored import STORED_TYPES
from ninfer_convert.recipe import Subject, builtin_recipes, load_recipe, resolve
from tests.architectures.facts import Facts, facts_27b, facts_35b
from tests.oracle.globs import alternatives
from tests.recipe.models import LAYERS, MODELS, Role, Tensor
from tests.recipe.support import Parameter, formats

STORED = {"BF16": "bf16", "F16": "fp32", "F32": "fp32"}
"""What a kept tensor is stored as."""

Choice = str | None
"""A format; None: as it is stored."""

TABLE: dict[str, dict[Role, Choice]] = {
    "q4": {"matrix": "q4_g64_fp16", "embedding": "q5_g64_fp16"},
    "q5": {"matrix": "q5_g64_fp16", "embedding": "q6_g64_fp16"},
    "q6": {"matrix": "q6_g64_fp16", "embedding": "q6_g64_fp16"},
    "q8": {"matrix": "q8_g32_fp16", "embedding": "q8_g32_fp16"},
    "q4_search": {"matrix": "q4_g64_fp16", "embedding": "q5_g64_fp16"},
    "q4_imatrix": {"matrix": "q4_g64_fp16", "embedding": "q5_g64_fp16"},
    "q4_mixed": {"matrix": "q4_g64_fp16", "finer": "q5_g64_fp16", "embedding": "q5_g64_fp16"},
    "fp8": {"matrix": "fp8_e4m3fn_row_bf16", "embedding": "fp8_e4m3fn_row_bf16"},
    "bf16": {"matrix": "bf16", "embedding": "bf16", "kept": "bf16"},
    "fp32": {"matrix": "fp32", "embedding": "fp32", "kept": "fp32"},
    "gguf": {"matrix": None, "embedding": None},
    "import": {"matrix": None, "embedding": None},
}
"""Where a row does not say: finer tensors are as all matrices, kept ones as they are stored, indices int32."""

OUTER: dict[str, dict[Role, Choice]] = {"q4_mixed": {"matrix": "q5_g64_fp16"}}
"""What is otherwise in the first and the last eighth of the layers."""

QUANTIZING = [name for name in TABLE if name not in ("bf16", "fp32", "gguf", "import")]


def expected(recipe: str, tensor: Tensor) -> str:
    """The format of a tensor under a recipe."""
    outer = tensor.layer is not None and not LAYERS // 8 <= tensor.layer < LAYERS - LAYERS // 8
    row = {"kept": None, "index": "int32"} | TABLE[recipe] | (OUTER.get(recipe, {}) if outer else {})
    return row.get(tensor.role, row["matrix"]) or STORED[tensor.stored]


def test_every_builtin_for_all_architectures_has_its_row() -> None:
    recipes = [load_recipe(builtin.name) for builtin in builtin_recipes()]
    assert {recipe.name for recipe in recipes if recipe.architecture == "auto"} == set(TABLE)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("recipe", TABLE)
def test_every_tensors_format(recipe: str, model: str) -> None:
    tensors = MODELS[model]
    resolution = resolve(load_recipe(recipe), tensors)
    assert formats(resolution) == {tensor.name: expected(recipe, tensor) for tensor in tensors}
    assert resolution.warnings == (), "of import neither: it is its whole point that no format is assigned"


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("recipe", TABLE)
def test_the_roles_hold_for_every_floating_type(recipe: str, stored: str) -> None:
    tensors = [tensor for tensor in MODELS["experts"] if tensor.role != "index"]
    tensors = [dataclasses.replace(tensor, stored=stored) for tensor in tensors]
    wanted = {tensor.name: expected(recipe, tensor) for tensor in tensors}
    assert formats(resolve(load_recipe(recipe), tensors)) == wanted


@pytest.mark.parametrize("recipe", QUANTIZING)
def test_quantized_tensors_need_requantize_and_kept_ones_are_decoded(recipe: str) -> None:
    tensors = [
        Tensor("attn_q.weight", "matrix", "Q8_0", (256, 256), ("gguf_q8_0", "q8_g32_fp16")),
        Tensor("ffn_gate_inp.weight", "kept", "Q8_0", (8, 256), ("gguf_q8_0", "q8_g32_fp16")),
    ]
    resolution = resolve(load_recipe(recipe), tensors, requantize=True)
    assert formats(resolution) == {"attn_q.weight": TABLE[recipe]["matrix"], "ffn_gate_inp.weight": "fp32"}


def test_the_quantizing_recipes_keep_the_same_names() -> None:
    kept = {}
    for name in QUANTIZING:
        recipe = load_recipe(name)
        *_, bf16, fp32 = recipe.assigns
        assert (bf16.says, fp32.says) == ({"format": "bf16"}, {"format": "fp32"})
        globs = [selector.glob.text for selector in bf16.select]
        assert globs == [selector.glob.text for selector in fp32.select]
        kept[name] = globs
        assert globs == kept["q4"] != []


@pytest.mark.parametrize("recipe", TABLE)
def test_every_builtin_says_what_becomes_of_f16_and_i64(recipe: str) -> None:
    defaults = load_recipe(recipe).defaults
    assert (defaults["F16"], defaults["I64"]) == ("fp32", "int32")
    assert len(defaults) == 2 or recipe in ("gguf", "import")


def test_gguf_keeps_every_block_that_a_format_keeps_and_decodes_the_others() -> None:
    blocks = [stored for stored in STORED_TYPES.values() if stored.kind == "block"]
    tensors = [
        Tensor(stored.name, "matrix", stored.name, (128, 256), (stored.identical,) if stored.identical else ())
        for stored in blocks
    ]
    resolution = resolve(load_recipe("gguf"), tensors)
    assert formats(resolution) == {stored.name: stored.identical or "bf16" for stored in blocks}
    assert resolution.defaults_applied == {stored.name: 1 for stored in blocks if not stored.identical}
    assert resolution.warnings == ()
    assert len(blocks) == 27


def test_import_sends_whatever_has_no_format_of_its_own_to_bfloat16() -> None:
    defaults = load_recipe("import").defaults
    decoded = {name for name, stored in STORED_TYPES.items() if stored.quantized and not stored.identical}
    assert {stored for stored, format in defaults.items() if format == "bf16"} == decoded


@pytest.mark.parametrize(
    ("stored", "shape", "exact", "expected"),
    [
        ("NVFP4", (256, 128), ("nvfp4",), "nvfp4"),
        ("NVFP4", (64, 128), ("nvfp4",), "bf16"),
        ("FP8_ROW", (3, 5), ("fp8_e4m3fn_row_fp16",), "fp8_e4m3fn_row_fp16"),
        ("FP8_ROW", (3, 5), (), "bf16"),
        ("GPTQ", (128, 128), (), "bf16"),
    ],
)
def test_import_keeps_encoded_weights_where_that_is_exact(
    stored: str, shape: tuple[int, ...], exact: tuple[str, ...], expected: str
) -> None:
    weight = Parameter("w", shape, stored, exact, identical=next(iter(exact), None))
    resolution = resolve(load_recipe("import"), [weight])
    assert formats(resolution) == {"w": expected}
    assert resolution.defaults_applied == ({stored: 1} if expected == "bf16" else {})


def test_import_keeps_the_blocks_of_a_gguf() -> None:
    tensors = [Parameter("a", stored="Q4_K", exact=("gguf_q4_k",)), Parameter("b", stored="NVFP4", exact=("nvfp4",))]
    assert formats(resolve(load_recipe("import"), tensors)) == {"a": "gguf_q4_k", "b": "bf16"}


@pytest.mark.parametrize("recipe", ["q4_search", "q4_imatrix"])
def test_searching_recipes_are_q4_by_another_method(recipe: str) -> None:
    tensors = MODELS["experts"]
    plain, searched = (resolve(load_recipe(name), tensors).decisions for name in ("q4", recipe))
    for name, pieces in plain.items():
        for one, other in zip(pieces, searched[name], strict=True):
            grouped = one.method.name == "grouped_absmax"
            assert other.method.name == ("grouped_search" if grouped else one.method.name)
            assert (other.format, other.layout, other.shape) == (one.format, one.layout, one.shape)


def logical(facts: Facts) -> list[Parameter]:
    """The parameters of a known model, of its experts the first one."""
    return [
        Parameter(fact.name, fact.shape, direct=fact.direct, locked=None if fact.free else "bf16 only")
        for fact in facts.parameters
        if not re.search("experts/[1-9]", fact.name)
    ]


DENSE = logical(facts_27b())
WITH_EXPERTS = logical(facts_35b(fused=True))


@pytest.mark.parametrize("recipe", TABLE)
@pytest.mark.parametrize("subjects", [DENSE, WITH_EXPERTS], ids=["dense", "experts"])
def test_every_logical_parameters_format(recipe: str, subjects: Sequence[Parameter]) -> None:
    """What no recipe decides is in the architecture's direct format, as is what is locked to that."""
    layers = 1 + max(int(subject.name.split("/")[2]) for subject in subjects if "/layers/" in subject.name)
    wanted = {}
    for subject in subjects:
        role: Role = "finer" if subject.name.endswith(("/value", "/down")) else "matrix"
        layer = int(subject.name.split("/")[2]) if "/layers/" in subject.name else None
        outer = layer is not None and not layers // 8 <= layer < layers - layers // 8
        role = role if layer is not None else "embedding"
        row = TABLE[recipe] | (OUTER.get(recipe, {}) if outer else {})
        format = row.get(role, row["matrix"])
        wanted[subject.name] = subject.direct if subject.locked or format is None else format
    assert formats(resolve(load_recipe(recipe), subjects)) == wanted


LLAMA = [
    *(Parameter(f"text/{name}") for name in ("token_embedding", "output_head")),
    *(
        Parameter(f"text/layers/{layer}/{name}")
        for layer in range(16)
        for name in ("attention/query", "attention/value", "mlp/down")
    ),
]
ARCHITECTURES: Mapping[str, Mapping[str, Sequence[Subject]]] = {
    "auto": {**MODELS, "llama": LLAMA, "qwen3_5": DENSE, "qwen3_5 with experts": WITH_EXPERTS},
    "qwen3_5": {"qwen3_5": DENSE, "qwen3_5 with experts": WITH_EXPERTS},
}
"""Parameters of models by what a recipe says of the architecture."""


@pytest.mark.parametrize("name", [builtin.name for builtin in builtin_recipes()])
def test_nothing_that_a_recipe_selects_is_dead(name: str) -> None:
    recipe = load_recipe(name)
    names = set()
    for model, subjects in ARCHITECTURES[recipe.architecture].items():
        if recipe.architecture == "auto" or ("experts" in model) == ("a3b" in name):
            resolve(recipe, subjects)
            names |= {subject.name for subject in subjects}
    selected = [table.select for table in recipe.assigns] + [table.select for table in recipe.separates]
    for selector in chain.from_iterable(selected):
        # A range of layers may go beyond those of the models here.
        for one in alternatives(re.sub(r"\{[0-9]+\.\.[0-9]+\}", "*", selector.glob.text)):
            assert any(re.fullmatch(one, name) for name in names), (selector.glob.text, one)
    # No built-in recipe has any other table that selects.
    assert not any((recipe.groups, recipe.shares, recipe.skips, recipe.renames, recipe.uses))

"""Uses: policies, auxiliaries, divisors (recipes.md, Use under Skips; qwen35.md 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ninfer_convert.recipe import Resolution, resolve
from tests.recipe.support import HEAD, Parameter, load, placed, refused


@dataclass(frozen=True)
class Input:
    """A use as an architecture knows it."""

    parameter: str
    input: str
    activation_policy: str | None = None
    auxiliaries: Mapping[str, str | float] = field(default_factory=dict)


LAYERS = [Parameter(f"l/{layer}/{kind}") for layer in (0, 1) for kind in ("q", "k", "norm")]
INPUTS = [Input(f"l/{layer}/{kind}", f"l/{layer}/in") for layer in (0, 1) for kind in ("q", "k")]


def run(
    folder: Path, text: str, parameters: Sequence[Parameter] = LAYERS, inputs: Sequence[Input] = INPUTS
) -> Resolution:
    return resolve(load(folder, HEAD + text), parameters, inputs=inputs)


def uses(
    folder: Path, text: str, parameters: Sequence[Parameter] = LAYERS, inputs: Sequence[Input] = INPUTS
) -> list[tuple[str, str, str, dict[str, str | float]]]:
    found = run(folder, text, parameters, inputs).uses
    return [(use.parameter, use.input, use.activation_policy, dict(use.auxiliaries)) for use in found]


def use(parameter: str, input: str, *more: str) -> str:
    return "\n".join(["[[use]]", f"parameter = '{parameter}'", f"input = '{input}'", *more, ""])


def policies(folder: Path, text: str) -> dict[tuple[str, str], str]:
    return {(parameter, input): policy for parameter, input, policy, _ in uses(folder, text)}


def test_every_use_says_its_policy_a16only_unless_said_otherwise(tmp_path: Path) -> None:
    assert uses(tmp_path, "") == [(given.parameter, given.input, "A16Only", {}) for given in INPUTS]
    assert uses(tmp_path, "", LAYERS, [Input("l/0/q", "i", "AllowA8")]) == [("l/0/q", "i", "AllowA8", {})]
    assert uses(tmp_path, use("l/0/norm", "i"), LAYERS, []) == [("l/0/norm", "i", "A16Only", {})]


def test_an_assign_applies_to_all_uses_of_its_matches_the_last_one_wins(tmp_path: Path) -> None:
    text = "[[assign]]\nselect = 'l/0/*'\nactivation_policy = 'AllowA8'\n"
    text += "[[assign]]\nselect = ['l/*/q', 'l/1/norm']\nactivation_policy = 'AllowA4'\n"
    assert policies(tmp_path, text + use("l/0/q", "other")) == {
        ("l/0/q", "l/0/in"): "AllowA4",
        ("l/0/k", "l/0/in"): "AllowA8",
        ("l/1/q", "l/1/in"): "AllowA4",
        ("l/1/k", "l/1/in"): "A16Only",
        ("l/0/q", "other"): "AllowA4",
    }


def test_a_policy_survives_a_later_format(tmp_path: Path) -> None:
    text = "[[assign]]\nselect = 'l/0/q'\nactivation_policy = 'AllowA8'\n"
    text += "[[assign]]\nselect = '*'\nformat = 'q8_g32_fp16'\nwhere.rank = 2\n"
    assert policies(tmp_path, text)["l/0/q", "l/0/in"] == "AllowA8"


def test_a_policy_of_nothing_with_a_use_is_an_error(tmp_path: Path) -> None:
    text = "[[assign]]\nselect = '*norm'\nactivation_policy = 'AllowA8'\n"
    (problem,) = refused(lambda: run(tmp_path, text))
    assert placed([problem]) == [("no-use", 7, 21)]
    assert problem.message == "activation_policy applies to uses, and no selected parameter has one"


def test_a_use_amends_member_by_member_and_new_ones_come_last(tmp_path: Path) -> None:
    inputs = [Input("l/0/q", "l/0/in", "AllowA8", {"hadamard_signs": "s", "input_columns": "c"}), *INPUTS[1:]]
    parameters = [*LAYERS, Parameter("s", (256,)), Parameter("c", (256,), "I32")]
    text = use("l/*/q", "l/*/extra", "activation_policy = 'AllowA4'")
    text += use("l/0/q", "l/0/in", "auxiliaries = { hadamard_signs = 'l/0/norm', activation_input_divisor = 0.1 }")
    found = uses(tmp_path, text, parameters, inputs)
    assert found[0] == (
        "l/0/q",
        "l/0/in",
        "AllowA8",
        {"hadamard_signs": "l/0/norm", "input_columns": "c", "activation_input_divisor": 0.10000000149011612},
    )
    assert [(parameter, input) for parameter, input, *_ in found[4:]] == [
        ("l/0/q", "l/0/extra"),
        ("l/1/q", "l/1/extra"),
    ]


def test_what_a_use_says_comes_before_what_an_assign_says(tmp_path: Path) -> None:
    text = use("l/0/q", "l/0/in", "activation_policy = 'A16Only'")
    text += "[[assign]]\nselect = '*'\nactivation_policy = 'AllowA8'\n"
    assert policies(tmp_path, text)["l/0/q", "l/0/in"] == "A16Only"
    assert policies(tmp_path, text)["l/0/k", "l/0/in"] == "AllowA8"


def test_the_rule_is_the_use_that_spoke_last(tmp_path: Path) -> None:
    text = use("l/*/q", "l/*/in") + use("l/0/*", "l/*/in".replace("*", "0"))
    lines = {
        use.parameter: use.rule.place.line if use.rule else None
        for use in run(tmp_path, text).uses
        if use.input == "l/0/in"
    }
    assert lines == {"l/0/q": 8, "l/0/k": 8, "l/0/norm": 8}
    assert [use.rule for use in run(tmp_path, "").uses] == [None] * 4


def test_captured_texts_fill_inputs_and_auxiliaries(tmp_path: Path) -> None:
    parameters = [*LAYERS, Parameter("signs/0"), Parameter("signs/1")]
    text = use("l/*/{q,k}", "l/*/in", "auxiliaries.hadamard_signs = 'signs/*'")
    found = uses(tmp_path, text, parameters)
    assert [auxiliaries for *_, auxiliaries in found] == [
        {"hadamard_signs": "signs/0"},
        {"hadamard_signs": "signs/0"},
        {"hadamard_signs": "signs/1"},
        {"hadamard_signs": "signs/1"},
    ]


def test_a_name_without_stars_stands_for_all(tmp_path: Path) -> None:
    text = use("l/*/q", "shared_input", "auxiliaries.hadamard_signs = 'l/0/norm'")
    assert [found[1:] for found in uses(tmp_path, text, LAYERS, [])] == [
        ("shared_input", "A16Only", {"hadamard_signs": "l/0/norm"}),
        ("shared_input", "A16Only", {"hadamard_signs": "l/0/norm"}),
    ]


def test_uses_of_what_is_not_stored(tmp_path: Path) -> None:
    skip = "[[skip]]\nselect = 'l/0/q'\nreason = 'r'\n"
    assert ("l/0/q", "l/0/in") not in policies(tmp_path, skip)
    (problem,) = refused(lambda: run(tmp_path, skip + use("l/*/q", "l/*/in")))
    assert problem.message == "l/0/q: is skipped and has no uses"
    (problem,) = refused(lambda: run(tmp_path, use("nothing", "in")))
    assert problem.code == "nothing-matches"
    assert run(tmp_path, use("nothing", "in", "optional = true")).uses == run(tmp_path, "").uses


def test_an_auxiliary_must_be_stored(tmp_path: Path) -> None:
    text = "[[skip]]\nselect = 'l/1/norm'\nreason = 'r'\n"
    text += use("l/0/q", "in", "auxiliaries = { hadamard_signs = 'nowhere', input_columns = 'l/1/norm' }")
    assert [problem.message for problem in refused(lambda: run(tmp_path, text))] == [
        "l/0/q: its auxiliary hadamard_signs is to be nowhere, which is not stored",
        "l/0/q: its auxiliary input_columns is to be l/1/norm, which is not stored",
    ]


# Divisors.

NVFP4 = "[[assign]]\nselect = '*'\nformat = 'nvfp4'\nactivation_policy = 'AllowA4'\n"


def nvfp4(name: str, input_divisor: float | None) -> Parameter:
    return Parameter(name, (128, 64), "NVFP4", ("nvfp4",), divisors=(2.0,), input_divisor=input_divisor)


def divisors(folder: Path, text: str, *parameters: Parameter) -> list[object]:
    inputs = [Input(parameter.name, "in") for parameter in parameters]
    found = uses(folder, NVFP4 + text, parameters, inputs)
    return [auxiliaries.get("activation_input_divisor") for *_, auxiliaries in found]


def test_an_imported_weights_own_divisor_becomes_its_uses(tmp_path: Path) -> None:
    assert divisors(tmp_path, "", nvfp4("a", 3.0), nvfp4("b", 2.0)) == [3.0, 2.0]


def test_the_members_of_a_parent_take_the_smallest(tmp_path: Path) -> None:
    text = "[[group]]\nselect = ['a', 'b', 'c']\n"
    assert divisors(tmp_path, text, nvfp4("a", 3.0), nvfp4("b", 2.0), nvfp4("c", None)) == [2.0, 2.0, 2.0]


def test_what_the_recipe_says_comes_first(tmp_path: Path) -> None:
    text = use("a", "in", "auxiliaries = { activation_input_divisor = 7 }")
    assert divisors(tmp_path, text, nvfp4("a", 3.0), nvfp4("b", 2.0)) == [7.0, 2.0]


def test_decoded_weights_take_no_divisor(tmp_path: Path) -> None:
    text = "[[assign]]\nselect = '*'\nformat = 'bf16'\n"
    found = uses(tmp_path, text, [nvfp4("a", 3.0)], [Input("a", "in")])
    assert found == [("a", "in", "A16Only", {})]


def test_4_bit_activations_of_nvfp4_need_a_divisor(tmp_path: Path) -> None:
    (problem,) = refused(lambda: run(tmp_path, NVFP4, [nvfp4("a", None)], [Input("a", "in")]))
    assert placed([problem]) == [("no-divisor", 8, 21)]
    assert problem.message == ("a: AllowA4 of nvfp4 needs an activation_input_divisor for in: give it in a [[use]]")
    with_use = NVFP4 + use("a", "in", "auxiliaries = { activation_input_divisor = 2.5 }")
    assert run(tmp_path, with_use, [nvfp4("a", None)], []).uses[0].auxiliaries == {"activation_input_divisor": 2.5}
    other = "[[assign]]\nselect = '*'\nformat = 'q8_g32_fp16'\nactivation_policy = 'AllowA4'\n"
    assert run(tmp_path, other, [Parameter("a")], [Input("a", "in")]).uses[0].activation_policy == "AllowA4"


def test_a_cut_weight_needs_one_if_any_piece_of_it_does(tmp_path: Path) -> None:
    text = NVFP4 + "[[assign]]\nselect = 'a'\nrows = [0, 128]\nformat = 'bf16'\n"
    bank = Parameter("a", (256, 64), "NVFP4", ("nvfp4",), divisors=(2.0,))
    (problem,) = refused(lambda: run(tmp_path, text, [bank], [Input("a", "in")]))
    assert problem.code == "no-divisor"


def test_an_alias_keeps_uses_of_its_own_and_needs_its_own_divisor(tmp_path: Path) -> None:
    parameters = [nvfp4("a", 3.0)]
    inputs = [Input("a", "in"), Input("b", "in")]
    text = "[[share]]\nparameter = 'b'\nwith = 'a'\n[[assign]]\nselect = 'a'\nformat = 'nvfp4'\n"
    found = uses(tmp_path, text, parameters, inputs)
    assert found == [("a", "in", "A16Only", {"activation_input_divisor": 3.0}), ("b", "in", "A16Only", {})]
    text += "[[assign]]\nselect = '?'\nactivation_policy = 'AllowA4'\n"
    (problem,) = refused(lambda: run(tmp_path, text, parameters, inputs))
    assert (problem.code, problem.tensor) == ("no-divisor", "b")


@pytest.mark.parametrize("format", ["bf16", "fp8_e4m3fn_row_bf16"])
def test_8_bit_activations_need_none(tmp_path: Path, format: str) -> None:
    text = f"[[assign]]\nselect = 'l/*/q'\nformat = '{format}'\nactivation_policy = 'AllowA8'\n"
    assert policies(tmp_path, text)["l/0/q", "l/0/in"] == "AllowA8"

"""From the fields that assigns decide to formats, methods and layouts that go together (recipes.md, Deciding)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import unknown
from ninfer_convert.formats import FORMATS
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.layouts import Tensor, get_layout, usual_layout
from ninfer_convert.methods import METHODS, usual_method
from ninfer_convert.recipe.resolution import Piece, Rule
from ninfer_convert.recipe.schema import AUTO, CALLABLE
from ninfer_convert.recipe.selection import rows_and_columns

if TYPE_CHECKING:
    from ninfer_convert.formats import Format
    from ninfer_convert.layouts import Layout
    from ninfer_convert.methods import Method
    from ninfer_convert.recipe.complaints import Complaints
    from ninfer_convert.recipe.deciding import Region, Verdict
    from ninfer_convert.recipe.model import Place, Recipe
    from ninfer_convert.recipe.selection import Subject
    from ninfer_convert.values import Shape

ALWAYS_REFUSED = "refuse"
"""`non_finite` of every format but the direct ones."""

_SPELLED = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


@dataclass(frozen=True)
class _Choice:
    """What a region is stored as, before its shape is looked at; equal choices side by side are one object."""

    rows: tuple[int, int] | None = field(compare=False)
    verdict: Verdict = field(compare=False)
    format: Format
    layout: Layout
    method: str
    parameters: Mapping[str, Any]
    non_finite: str


class Pieces:
    """Makes the pieces of parameters; what does not go together becomes a complaint."""

    def __init__(self, recipe: Recipe, complaints: Complaints, allow_code: bool, requantize: bool) -> None:
        self._recipe = recipe
        self._complaints = complaints
        self._allow_code = allow_code
        self._requantize = requantize
        self.defaulted: dict[str, set[str]] = {}
        """Names of the parameters that took a `[defaults]` entry, by stored type."""

    def of(self, subject: Subject, regions: Sequence[Region]) -> tuple[Piece, ...]:
        """The objects of one parameter, in row order."""
        if 0 in subject.shape:
            sentence = f"shape {list(subject.shape)} has no elements and cannot be stored; leave it out with [[skip]]"
            self._complaints.add(self._complaints.nowhere, "zero-elements", sentence, subject.name)
            return ()
        stored = stored_type(subject.stored)
        if stored.kind == "opaque":
            sentence = f"stored as {stored.described}, which cannot be converted; leave it out with [[skip]]"
            self._complaints.add(self._complaints.nowhere, "opaque-type", sentence, subject.name)
            return ()
        choices = [self._choose(subject, region) for region in regions]
        fitted = [self._fit(subject, choice) for choice in _joined(choice for choice in choices if choice)]
        return tuple(piece for piece in fitted if piece)

    def _choose(self, subject: Subject, region: Region) -> _Choice | None:
        verdict = region.verdict
        said = {key: assign.says[key] for key, assign in verdict.items()}
        format = FORMATS[said["format"]] if "format" in said else self._untouched(subject, region)
        method = format and self._method(subject, format, said, verdict)
        layout = format and self._layout(format, said, verdict)
        if not (format and method and layout):
            return None
        parameters = said.get("parameters", {})
        self._check_parameters(method, parameters, verdict)
        quantized = stored_type(subject.stored).quantized
        if method.quantizes and quantized and not self._requantize:
            sentence = (
                f"stored as {subject.stored}; {method.name} would quantize its decoded values once more: "
                "pass --requantize if that is meant"
            )
            self._complaints.add(self._place(verdict, "method", "format"), "requantize", sentence, subject.name)
        non_finite = said.get("non_finite", "warn") if format.category == "direct" else ALWAYS_REFUSED
        return _Choice(region.rows, verdict, format, layout, method.name, parameters, non_finite)

    def _untouched(self, subject: Subject, region: Region) -> Format | None:
        """The format where no assign gives one."""
        if subject.direct is not None:
            return FORMATS[subject.direct]
        stored = stored_type(subject.stored)
        kept = subject.identical
        if kept is not None and (not stored.quantized or _holds(kept, part_of(subject.shape, region.rows))):
            return FORMATS[kept]
        default = self._recipe.defaults.get(stored.name)
        if default is not None:
            self.defaulted.setdefault(stored.name, set()).add(subject.name)
            return FORMATS[default]
        target = "int32" if stored.kind in ("integer", "bool") else "bf16" if stored.quantized else "fp32"
        sentence = (
            f"no assign gives a format, and none keeps what is stored as {stored.name}; "
            f'add {stored.name} = "{target}" under [defaults], or assign one'
        )
        self._complaints.add(self._complaints.nowhere, "no-default", sentence, subject.name)
        return None

    def _method(self, subject: Subject, format: Format, said: Mapping[str, Any], verdict: Verdict) -> Method | None:
        if "method" not in said:
            usual = usual_method(format.name, subject.exact)
            if usual is None:
                sentence = f"no built-in method makes {format.name} from values"
                self._complaints.add(self._place(verdict, "format"), "no-method", sentence, subject.name)
            return usual
        name = said["method"]
        place = self._place(verdict, "method")
        if CALLABLE.fullmatch(name) and not self._allow_code:
            sentence = f"method {name} runs the recipe's own code: pass --allow-code"
            self._complaints.add(place, "code-not-allowed", sentence)
            return None
        method = METHODS.get(name)
        if method is None:
            self._complaints.add(place, "unknown-method", unknown("method", name, METHODS))
        elif format.name not in method.formats:
            made = ", ".join(method.formats)
            self._complaints.add(place, "method-format", f"method {name} does not make {format.name}; it makes {made}")
            return None
        return method

    def _layout(self, format: Format, said: Mapping[str, Any], verdict: Verdict) -> Layout | None:
        name = said.get("layout", AUTO)
        if name == AUTO:
            return usual_layout(format.name)
        layout = get_layout(name)
        if format.name not in layout.formats:
            sentence = layout.misfit(Tensor(format, (1, 1))) or ""
            self._complaints.add(self._place(verdict, "layout"), "layout-format", sentence)
            return None
        return layout

    def _check_parameters(self, method: Method, parameters: Mapping[str, Any], verdict: Verdict) -> None:
        for name, value in parameters.items():
            expected = method.parameters.get(name)
            if expected is None:
                sentence = (
                    unknown(f"parameter of {method.name}", name, method.parameters)
                    if method.parameters
                    else f"{method.name} takes no parameters, and {name} is one"
                )
            elif type(value) is not expected and not (expected is float and type(value) is int):
                sentence = f"parameter {name} of {method.name} must be {_SPELLED[expected]}"
            else:
                continue
            self._complaints.add(self._place(verdict, "parameters"), "bad-parameter", sentence)

    def _fit(self, subject: Subject, choice: _Choice) -> Piece | None:
        """The choice as an object of its shape, if it can be one."""
        shape = part_of(subject.shape, choice.rows)
        place = self._place(choice.verdict, "format")
        folded = _folded(choice.format, shape)
        if folded is None:
            sentence = (
                f"rank {len(shape)}, but {choice.format.name} takes matrices of rank 2 and banks of rank 3; "
                "keep others out with where = { rank = [2, 3] }"
            )
            self._complaints.add(place, "rank", sentence, subject.name)
            return None
        misfit = choice.layout.misfit(Tensor(choice.format, folded))
        if misfit is not None:
            self._complaints.add(place, "misfit", f"{misfit}; choose another format for it", subject.name)
            return None
        return Piece(
            rows=None if shape == subject.shape else choice.rows,
            shape=folded,
            format=choice.format.name,
            layout=choice.layout.name,
            method=choice.method,
            parameters=choice.parameters,
            non_finite=choice.non_finite,
            rule=_rule(choice.verdict),
        )

    def _place(self, verdict: Verdict, *fields: str) -> Place:
        """Where the first of these fields that an assign decides is given."""
        for name in fields:
            if name in verdict:
                return verdict[name].places[name]
        return self._complaints.nowhere


def _joined(choices: Iterable[_Choice]) -> Iterator[_Choice]:
    before: _Choice | None = None
    for choice in choices:
        if before is not None and before == choice and before.rows and choice.rows:
            before = replace(before, rows=(before.rows[0], choice.rows[1]))
            continue
        if before is not None:
            yield before
        before = choice
    if before is not None:
        yield before


def part_of(shape: Shape, rows: tuple[int, int] | None) -> Shape:
    """The shape of rows [begin, end) of the first axis, of the whole for None."""
    return shape if rows is None else (rows[1] - rows[0], *shape[1:])


def _folded(format: Format, shape: Shape) -> Shape | None:
    """The shape of the object that holds `shape`: banks become rows (recipes.md, Ranks); None for a wrong rank."""
    if format.category == "direct":
        return shape
    return rows_and_columns(shape) if len(shape) in (2, 3) else None


def _holds(format: str, shape: Shape) -> bool:
    folded = _folded(FORMATS[format], shape)
    return folded is not None and usual_layout(format).misfit(Tensor(FORMATS[format], folded)) is None


def _rule(verdict: Verdict) -> Rule | None:
    """Who gave the format, else the last that gave anything: verdicts are found from the last assign on."""
    if not verdict:
        return None
    return Rule.of(verdict.get("format") or next(iter(verdict.values())))

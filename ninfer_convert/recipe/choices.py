"""From the fields that assigns decide to formats, methods and layouts that go together (recipes.md, Deciding)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import printable, unknown
from ninfer_convert.formats import FORMATS
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.layouts import Tensor, get_layout, usual_layout
from ninfer_convert.methods import METHODS, usual_method
from ninfer_convert.methods.callable import CallableMethod
from ninfer_convert.methods.code import CodeFault, CodeFile, read_code
from ninfer_convert.methods.import_encoded import IMPORT_ENCODED
from ninfer_convert.recipe.keys import BACK_REFERENCE
from ninfer_convert.recipe.schema import AUTO
from ninfer_convert.recipe.selection import Subject
from ninfer_convert.recipe.shapes import divisors_of, folded, has_rank, part_of, swapped

if TYPE_CHECKING:
    from ninfer_convert.formats import Format
    from ninfer_convert.layouts import Layout
    from ninfer_convert.methods import Method
    from ninfer_convert.recipe.complaints import Complaints
    from ninfer_convert.recipe.deciding import Region, Verdict
    from ninfer_convert.recipe.model import Place, Recipe
    from ninfer_convert.values import Shape

ALWAYS_REFUSED = "refuse"
"""`non_finite` of every format but the direct ones."""

Locate = Callable[[Subject, "str | None", "str | None"], "Subject | str"]
"""`locate(parameter, source, tensor)`: the parameter as it is read from another source (None: the main one) and from
the tensor of that name (None: its own there); or a sentence that says why it cannot be."""


def nowhere_else(parameter: Subject, source: str | None, tensor: str | None) -> str:
    """A `Locate` for checkpoints that stand alone."""
    return "cannot be read from elsewhere"


_SPELLED = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


@dataclass(frozen=True)
class Choice:
    """What a region is stored as, before the object is looked at; equal choices side by side are one object.

    Parameters that are alike share theirs. `subject` is the parameter where its values are read, or one that is like it
    in all but its name. `misfit` is the format to take where the layout cannot hold the object, `instead_of` the one
    for which this was taken.
    """

    subject: Subject = field(compare=False)
    rows: tuple[int, int] | None = field(compare=False)
    verdict: Verdict = field(compare=False)
    format: Format
    layout: Layout
    method: Method
    parameters: Mapping[str, Any]
    non_finite: str
    source: str | None
    tensor: str | None
    transpose: bool
    misfit: str | None
    instead_of: str | None = None

    @property
    def shape(self) -> Shape:
        """The logical shape of the region."""
        shape = self.subject.shape
        return part_of(swapped(shape) if self.transpose else shape, self.rows)

    @property
    def divisors(self) -> Sequence[float]:
        """The weight divisors of the region."""
        return divisors_of(self.subject, self.rows)


@dataclass(frozen=True)
class Choices:
    """Makes the choices of parameters; what does not go together becomes a complaint.

    `sources` are the names that were given, beside the main one.
    """

    recipe: Recipe
    complaints: Complaints
    allow_code: bool
    requantize: bool
    sources: Collection[str]
    locate: Locate
    defaulted: Counter[str] = field(default_factory=Counter)
    """How many parameters took a `[defaults]` entry, by stored type."""
    code: dict[Path, CodeFile] = field(default_factory=dict)
    """Files of functions that have been read."""
    _made: dict[Hashable, tuple[tuple[Choice, ...], Collection[str]]] = field(default_factory=dict)
    """Choices, and the stored types that took an entry for them, by all that they follow from: their regions and what
    the parameter is, where its values are read from its own place."""

    def of(self, subject: Subject, regions: tuple[Region, ...]) -> tuple[Choice, ...] | None:
        """One for each object of a parameter, in row order; None where something is wrong with any."""
        alike = (regions, traits(subject))
        made = self._made.get(alike)
        if made is None:
            defaulted: dict[str, None] = {}
            choices = self._choices(subject, regions, defaulted)
            if choices is None:
                return None
            made = choices, defaulted
            if not any(region.verdict.elsewhere for region in regions):
                self._made[alike] = made
        choices, types = made
        for stored in types:
            self.defaulted[stored] += 1
        return choices

    def _choices(
        self, subject: Subject, regions: Sequence[Region], defaulted: dict[str, None]
    ) -> tuple[Choice, ...] | None:
        """As `of`; stored types that take an entry of `[defaults]` become keys of `defaulted`."""
        if 0 in subject.shape:
            sentence = f"shape {list(subject.shape)} has no elements and cannot be stored; leave it out with [[skip]]"
            self.complaints.add(self.complaints.nowhere, "zero-elements", sentence, subject.name)
            return None
        stored = stored_type(subject.stored)
        if stored.kind == "opaque":
            sentence = f"stored as {stored.described}, which cannot be converted; leave it out with [[skip]]"
            self.complaints.add(self.complaints.nowhere, "opaque-type", sentence, subject.name)
            return None
        choices = [self._choose(subject, region, defaulted) for region in regions]
        if None in choices:
            return None
        joined = tuple(_joined(choice for choice in choices if choice))
        if len(joined) == 1 and joined[0].rows is not None:
            return (replace(joined[0], rows=None),)
        return joined

    def instead(self, name: str, choice: Choice) -> Choice | None:
        """What the parameter is stored as where the layout cannot hold the object of its choice, which names a `misfit`
        format."""
        format = FORMATS[choice.misfit or ""]
        method = self._method(name, choice.subject, format, {}, choice.verdict, "misfit")
        if method is None or not self._may_quantize(name, choice.subject, method, choice.verdict, "misfit"):
            return None
        return replace(
            choice,
            format=format,
            layout=usual_layout(format.name),
            method=method,
            parameters={},
            non_finite=_non_finite(format, choice.verdict),
            misfit=None,
            instead_of=choice.format.name,
        )

    def place(self, verdict: Verdict, *fields: str) -> Place:
        """Where the first of these fields that an assign decides is given."""
        for name in fields:
            if name in verdict:
                return verdict.places[name]
        return self.complaints.nowhere

    def _choose(self, parameter: Subject, region: Region, defaulted: dict[str, None]) -> Choice | None:
        verdict = region.verdict
        said = verdict.said
        source, tensor = said.get("source"), _tensor_name(parameter, verdict)
        subject = self._located(parameter, source, tensor, verdict)
        if subject is None or not self._may_transpose(subject, region):
            return None
        format = FORMATS[said["format"]] if "format" in said else self._untouched(subject, region, defaulted)
        method = format and self._method(subject.name, subject, format, said, verdict, "format")
        layout = format and self._layout(format, said, verdict)
        if not (format and method and layout):
            return None
        transpose = said.get("transpose", False)
        if transpose and method is IMPORT_ENCODED:
            sentence = f"transpose moves values, and {method.name} copies encoded words as they stand"
            self.complaints.add(self.place(verdict, "transpose"), "transpose", sentence, subject.name)
            return None
        parameters = said.get("parameters", {})
        if not self._takes(method, parameters, verdict):
            return None
        if not self._may_quantize(subject.name, subject, method, verdict, "method", "format"):
            return None
        return Choice(
            subject,
            region.rows,
            verdict,
            format,
            layout,
            method,
            parameters,
            _non_finite(format, verdict),
            source,
            tensor,
            transpose,
            said.get("misfit"),
        )

    def _located(self, parameter: Subject, source: str | None, tensor: str | None, verdict: Verdict) -> Subject | None:
        """The parameter where its values are read."""
        if source is None and tensor is None:
            return parameter
        if source is not None and source not in self.sources:
            sentence = f"source {printable(source)} is not given: pass --source {printable(source)}=PATH"
            self.complaints.add(self.place(verdict, "source"), "source-not-given", sentence)
            return None
        found = self.locate(parameter, source, tensor)
        if isinstance(found, str):
            sentence = found
        elif parameter.shape in (found.shape, swapped(found.shape)):
            return found
        else:
            sentence = f"has shape {list(found.shape)} there, not {list(parameter.shape)}"
        self.complaints.add(self.place(verdict, "tensor", "source"), "source-tensor", sentence, parameter.name)
        return None

    def _may_transpose(self, subject: Subject, region: Region) -> bool:
        verdict = region.verdict
        if not verdict.said.get("transpose"):
            return True
        if len(subject.shape) < 2:
            sentence = f"transpose swaps the last two axes, and rank {len(subject.shape)} has fewer"
        elif region.rows is not None:
            sentence = "transpose is about a whole parameter, and rows cut this one"
        else:
            return True
        self.complaints.add(self.place(verdict, "transpose"), "transpose", sentence, subject.name)
        return False

    def _untouched(self, subject: Subject, region: Region, defaulted: dict[str, None]) -> Format | None:
        """The format where no assign gives one."""
        if subject.direct is not None:
            return FORMATS[subject.direct]
        stored = stored_type(subject.stored)
        kept = subject.identical
        if kept is not None and (not stored.quantized or _holds(FORMATS[kept], subject, region.rows)):
            return FORMATS[kept]
        default = self.recipe.defaults.get(stored.name)
        if default is not None:
            defaulted[stored.name] = None
            return FORMATS[default]
        target = "int32" if stored.kind in ("integer", "bool") else "bf16" if stored.quantized else "fp32"
        sentence = (
            f"no assign gives a format, and none keeps what is stored as {stored.name}; "
            f'add {stored.name} = "{target}" under [defaults], or assign one'
        )
        self.complaints.add(self.complaints.nowhere, "no-default", sentence, subject.name)
        return None

    def _method(
        self, name: str, subject: Subject, format: Format, said: Mapping[str, Any], verdict: Verdict, by: str
    ) -> Method | None:
        """The method that is said, or the usual one of the format that the field `by` gives."""
        if "method" not in said:
            usual = usual_method(format.name, subject.exact)
            if usual is None:
                sentence = (
                    f"no built-in method makes {format.name} from values: take a grouped format such as q6_g64_fp16, a "
                    "checkpoint that holds it already, or a method of your own"
                )
                self.complaints.add(self.place(verdict, by), "no-method", sentence, name)
            return usual
        asked = said["method"]
        place = self.place(verdict, "method")
        method = METHODS[asked] if asked in METHODS else self._callable(asked, place)
        if method is not None and format.name not in method.formats:
            made = ", ".join(method.formats)
            self.complaints.add(place, "method-format", f"method {asked} does not make {format.name}; it makes {made}")
            return None
        return method

    def _callable(self, name: str, place: Place) -> Method | None:
        """The recipe's own function that is called `name` at `place`; its file is read, and not run."""
        if not self.allow_code:
            sentence = f"method {name} runs the recipe's own code: pass --allow-code"
            self.complaints.add(place, "code-not-allowed", sentence)
            return None
        file, _, function = name.rpartition(":")
        path = place.folder / file
        try:
            code = self.code.get(path) or read_code(path)
            code.check(function)
        except CodeFault as fault:
            self.complaints.add(place, "bad-callable", f"method {printable(name)}: {fault}")
            return None
        self.code[path] = code
        return CallableMethod(code, function)

    def _layout(self, format: Format, said: Mapping[str, Any], verdict: Verdict) -> Layout | None:
        name = said.get("layout", AUTO)
        if name == AUTO:
            return usual_layout(format.name)
        layout = get_layout(name)
        if format.name not in layout.formats:
            sentence = layout.misfit(Tensor(format, (1, 1))) or ""
            self.complaints.add(self.place(verdict, "layout"), "layout-format", sentence)
            return None
        return layout

    def _takes(self, method: Method, parameters: Mapping[str, Any], verdict: Verdict) -> bool:
        """Whether the method takes these parameters."""
        sentences = [_refused(method, name, value) for name, value in parameters.items()]
        for sentence in filter(None, sentences):
            self.complaints.add(self.place(verdict, "parameters"), "bad-parameter", sentence)
        return not any(sentences)

    def _may_quantize(self, name: str, subject: Subject, method: Method, verdict: Verdict, *fields: str) -> bool:
        """Whether values that are decoded from codes, if these are, may be quantized again."""
        if not (method.quantizes and stored_type(subject.stored).quantized) or self.requantize:
            return True
        if verdict.said.get("requantize"):
            return True
        sentence = (
            f"{method.name} would quantize decoded values once more: "
            "say requantize = true, or pass --requantize, if that is meant"
        )
        self.complaints.add(self.place(verdict, *fields), "requantize", sentence, name, subject.stored)
        return False


def traits(subject: Subject) -> Hashable:
    """All that a parameter's choices follow from beside its regions, where its values are read from its own place."""
    return (
        subject.shape,
        subject.stored,
        subject.identical,
        tuple(subject.exact),
        subject.direct,
        tuple(subject.divisors),
        subject.input_divisor,
    )


def _holds(format: Format, subject: Subject, rows: tuple[int, int] | None) -> bool:
    """Whether the format's layout can store a region of a parameter's own words."""
    shape = part_of(subject.shape, rows)
    divisors = divisors_of(subject, rows)
    tensor = Tensor(format, folded(format, shape), len(divisors) if len(set(divisors)) > 1 else 1)
    return has_rank(format, shape) and usual_layout(format.name).misfit(tensor) is None


def _non_finite(format: Format, verdict: Verdict) -> str:
    if format.category != "direct":
        return ALWAYS_REFUSED
    return str(verdict.said.get("non_finite", "warn"))


def _tensor_name(parameter: Subject, verdict: Verdict) -> str | None:
    """The tensor that is said, with what the stars of the assign's glob take for its references."""
    if "tensor" not in verdict:
        return None
    assign = verdict["tensor"]
    captured = assign.select[0].glob.captures(parameter.name) or ()
    return BACK_REFERENCE.sub(lambda reference: captured[int(reference[1]) - 1], assign.says["tensor"])


def _refused(method: Method, name: str, value: Any) -> str | None:
    """Why a method does not take a parameter."""
    if method.parameters is None:
        return None
    expected = method.parameters.get(name)
    if expected is None and method.parameters:
        return unknown("parameter", name, method.parameters, f"of {method.name}")
    if expected is None:
        return f"{method.name} takes no parameters, and {name} is one"
    if type(value) is expected or (expected is float and type(value) is int):
        return None
    return f"parameter {name} of {method.name} must be {_SPELLED[expected]}"


def _joined(choices: Iterable[Choice]) -> Iterator[Choice]:
    before: Choice | None = None
    for choice in choices:
        if before is not None and before == choice and before.rows and choice.rows:
            before = replace(before, rows=(before.rows[0], choice.rows[1]))
            continue
        if before is not None:
            yield before
        before = choice
    if before is not None:
        yield before

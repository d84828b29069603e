"""`ninfer-convert compare`: how far an artifact's values lie from those of a checkpoint or of another artifact."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ninfer_convert.cli import render
from ninfer_convert.cli.options import debug_option, jobs_option, json_option, quiet_option
from ninfer_convert.cli.progress import progress
from ninfer_convert.errors import SHOWN_AT_MOST, unknown
from ninfer_convert.pipeline.metrics import MEASURES

if TYPE_CHECKING:
    from ninfer_convert.cli.output import Output
    from ninfer_convert.errors import Problem
    from ninfer_convert.pipeline.compare import Comparison, ParameterComparison
    from ninfer_convert.pipeline.metrics import Metrics


def _thresholds(ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, float]:
    """METRIC=VALUE texts by metric; of one that is given twice the last."""
    found = {}
    for text in texts:
        metric, _, number = text.partition("=")
        if metric not in MEASURES:
            raise click.BadParameter(f"{text!r}: {unknown('metric', metric, MEASURES)}", ctx, parameter)
        try:
            found[metric] = float(number)
        except ValueError:
            found[metric] = math.nan
        if not math.isfinite(found[metric]):
            raise click.BadParameter(f"{text!r}: {number!r} is no number; write {metric}=VALUE", ctx, parameter)
    return found


@click.command()
@click.argument("a")
@click.argument("b")
@click.option(
    "--sort",
    type=click.Choice((*MEASURES, "name")),
    default="sqnr",
    show_default=True,
    help="Order of the parameters: by name, or by a metric, the worst first.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    default=SHOWN_AT_MOST,
    show_default=True,
    help="Parameters to list; 0 for all.",
)
@click.option(
    "--fail-over",
    "thresholds",
    multiple=True,
    metavar="METRIC=VALUE",
    callback=_thresholds,
    help="End with status 3 if a parameter's max, rms or relative is above VALUE, or its sqnr or cosine below; "
    "may be repeated.",
)
@jobs_option
@quiet_option
@json_option
@debug_option
@click.pass_obj
def command(output: Output, a: str, b: str, sort: str, limit: int, thresholds: Mapping[str, float], jobs: int) -> int:
    """Hold the values of the artifact A against those of B, a checkpoint or an artifact: for each parameter and in
    total the largest error, the RMS error and the relative one, the SQNR in dB, the cosine; or that all words are
    identical.

    With --fail-over what one side lacks without its having been skipped, a shape that differs and a NaN or infinity
    of one side alone end with status 3 too. With --json every parameter is told.

    \b
    ninfer-convert compare model.ninfer model.safetensors
    ninfer-convert compare new.ninfer old.ninfer --sort max --limit 5
    ninfer-convert compare model.ninfer model/ --fail-over sqnr=18 --fail-over max=0.5
    """
    from ninfer_convert.pipeline.compare import compare

    with progress(output, "comparing") as report:
        found = compare(a, b, jobs=jobs, progress=report)
    failures = found.judge(thresholds)
    parameters = _sorted(found.parameters, sort)
    if output.json:
        output.document(_document(found, parameters, failures))
    else:
        output.text(_lines(output, found, parameters[: limit or None], sort, failures))
    return 3 if failures else 0


def _sorted(parameters: Sequence[ParameterComparison], key: str) -> list[ParameterComparison]:
    from ninfer_convert.natural import natural_key

    if key == "name":
        return sorted(parameters, key=lambda parameter: natural_key(parameter.name))
    sign = -1 if MEASURES[key] == "above" else 1

    def order(parameter: ParameterComparison) -> float:
        value = sign * float(getattr(parameter.metrics, key))
        return -math.inf if math.isnan(value) else value

    return sorted(parameters, key=order)


def _lines(
    output: Output, found: Comparison, listed: Sequence[ParameterComparison], sort: str, failures: Sequence[Problem]
) -> Iterator[str]:
    failed = _listed("failed", [failure.message for failure in failures])
    if output.quiet:
        yield from render.facts(failed)
        return
    header = ("parameter", "format", "reference", "max", "rms", "relative", "SQNR dB", "cosine", "remarks")
    rows = [(p.name, p.format, p.reference, *_numbers(p.metrics), _remarks(p)) for p in listed]
    total = ("total", "", "", *_numbers(found.total), "")
    yield from render.table(header, [*rows, total], right=header[3:8], heading=output.heading)
    yield ""
    yield from render.facts((*_facts(found, len(listed), sort), *failed))


def _facts(found: Comparison, listed: int, sort: str) -> Iterator[tuple[str, str]]:
    yield "compared", f"{found.a} with {found.b}"
    total, identical = len(found.parameters), sum(parameter.identical for parameter in found.parameters)
    number = "all" if found.identical else f"{identical:,} of" if identical else "none of"
    yield "identical", f"the words of {number} {render.plural(total, 'parameter')}"
    if listed < total:
        order = "by name" if sort == "name" else f"the worst by {sort}"
        yield "listed", f"{listed:,} of {total:,}, {order}; --limit 0 lists all"
    shapes = [f"{each.name}: {render.shape(each.a)}, {render.shape(each.b)}" for each in found.shapes]
    yield from _listed("shapes differ", shapes)
    yield from _listed("only in A", found.only_in_a)
    yield from _listed("only in B", found.only_in_b)
    yield from _listed("skipped", [f"{name}: {reason}" for name, reason in found.skipped.items()])


def _listed(what: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield from ((what, name) for name in names[:SHOWN_AT_MOST])
    if len(names) > SHOWN_AT_MOST:
        yield what, f"... and {len(names) - SHOWN_AT_MOST:,} more, {len(names):,} in all"


def _numbers(metrics: Metrics) -> tuple[str, ...]:
    errors = (f"{error:.3g}" for error in (metrics.max, metrics.rms, metrics.relative))
    return (*errors, f"{metrics.sqnr:.2f}", f"{metrics.cosine:.6f}")


def _remarks(parameter: ParameterComparison) -> str:
    remarks = []
    if parameter.identical:
        remarks.append("identical words")
    if parameter.integral:
        remarks.append("whole numbers, not in the total")
    if parameter.non_finite:
        disagreeing = f", {parameter.disagreeing:,} disagree" if parameter.disagreeing else ""
        remarks.append(f"{parameter.non_finite:,} NaN or infinite{disagreeing}")
    return "; ".join(remarks)


def _document(
    found: Comparison, parameters: Sequence[ParameterComparison], failures: Sequence[Problem]
) -> dict[str, Any]:
    return {
        "a": found.a,
        "b": found.b,
        "ok": not failures,
        "identical": found.identical,
        "total": _record(found.total),
        "parameters": [
            {
                "name": each.name,
                "counterpart": each.counterpart,
                "shape": each.shape,
                "format": each.format,
                "reference": each.reference,
                "integral": each.integral,
                "identical": each.identical,
                "non_finite": each.non_finite,
                "disagreeing": each.disagreeing,
                **_record(each.metrics),
            }
            for each in parameters
        ],
        "only_in_a": found.only_in_a,
        "only_in_b": found.only_in_b,
        "shapes": [{"name": each.name, "a": each.a, "b": each.b} for each in found.shapes],
        "skipped": [{"name": name, "reason": reason} for name, reason in found.skipped.items()],
        "failures": [
            {"code": failure.code, "message": failure.message, "parameter": failure.tensor} for failure in failures
        ],
    }


def _record(metrics: Metrics) -> dict[str, float | None]:
    """Every metric; JSON has no infinity, which is null."""
    values = {name: float(getattr(metrics, name)) for name in MEASURES}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}

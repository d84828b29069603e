"""Artifacts of the oracle's bytes to verify, and what is found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.container.directories import root
from tests.oracle import container

if TYPE_CHECKING:
    from ninfer_convert.pipeline.verify import VerifyReport


def codes(report: VerifyReport) -> list[str]:
    return [fault.code for fault in report.faults]


def warned(report: VerifyReport) -> list[str]:
    return [warning.code for warning in report.warnings]


def write(path: Path, objects: list[Any], payload: bytes, **members: Any) -> str:
    """Another program's artifact: a directory without digests, a payload, an id of its own."""
    container.write(path, root(objects, **members), payload)
    return str(path)

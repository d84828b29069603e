"""The `.ninfer` container: its directory as values, reading it with every rule checked, writing it safely.

Bytes of objects are opaque here: what they mean belongs to `layouts` and `formats`.
"""

from __future__ import annotations

from ninfer_convert.container.auxiliaries import AUXILIARIES, AuxiliaryRole
from ninfer_convert.container.destination import check_destination
from ninfer_convert.container.directory import (
    DIGEST_PLACEHOLDER,
    members,
    parse_directory,
    serialize,
    without_digests,
)
from ninfer_convert.container.files import FilePlan, plan_files
from ninfer_convert.container.reader import Artifact, open_artifact
from ninfer_convert.container.records import (
    Binding,
    Component,
    Directory,
    File,
    Object,
    Part,
    Proposal,
    ResourceObject,
    TensorObject,
    Use,
)
from ninfer_convert.container.temporaries import remove_leftovers
from ninfer_convert.container.writer import ArtifactWriter

__all__ = [
    "AUXILIARIES",
    "DIGEST_PLACEHOLDER",
    "Artifact",
    "ArtifactWriter",
    "AuxiliaryRole",
    "Binding",
    "Component",
    "Directory",
    "File",
    "FilePlan",
    "Object",
    "Part",
    "Proposal",
    "ResourceObject",
    "TensorObject",
    "Use",
    "check_destination",
    "members",
    "open_artifact",
    "parse_directory",
    "plan_files",
    "remove_leftovers",
    "serialize",
    "without_digests",
]

"""What a file is, by its content: a checkpoint that can be read, or the one sentence that helps with what it is.

Suffixes decide nothing where the content speaks (cache blobs have none); they only choose between explanations.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ninfer_convert.errors import Problem, SourceError, printable
from ninfer_convert.paths import AGAIN, regular_file, translated

Kind = Literal["safetensors", "gguf", "json"]

_LOOKED_AT = 512
_SPACE = b"\xef\xbb\xbf \t\r\n"


@dataclass(frozen=True)
class _Signature:
    """Files that begin with one of `starts` (after white space, any case, where `text`) are `what`."""

    code: str
    starts: tuple[bytes, ...]
    what: str
    advice: str
    text: bool = False


_SIGNATURES = (
    _Signature(
        "web-page",
        (b"<!doctype", b"<html", b"<?xml", b"<head"),
        "a web page in place of the file",
        AGAIN,
        text=True,
    ),
    _Signature(
        "artifact",
        (b"NINFER\x00\x03",),
        "a .ninfer artifact, where a checkpoint is needed",
        "info, verify and export take an artifact, check and compare take it first",
    ),
    _Signature("artifact", (b"NINPRT\x00\x03",), "a part of a .ninfer artifact", "see info of its .ninfer file"),
    _Signature(
        "pickle",
        (*(bytes([0x80, protocol]) for protocol in range(2, 6)), b"PK\x03\x04"),
        "a pickle or zip archive, as PyTorch's .bin, .pt and .pth files are",
        "reading one can run code, so save the model as safetensors first",
    ),
    _Signature(
        "old-ggml",
        (b"lmgg", b"fmgg", b"tjgg", b"algg"),
        "a GGML, GGMF, GGJT or GGLA file from before GGUF",
        "convert it to GGUF, or take a GGUF of the model",
    ),
    _Signature("hdf5", (b"\x89HDF\r\n\x1a\n",), "an HDF5 file", "save the model as safetensors first"),
    _Signature("numpy", (b"\x93NUMPY",), "a NumPy array", "save the model as safetensors first"),
    _Signature(
        "compressed",
        (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"BZh", b"7z\xbc\xaf\x27\x1c"),
        "a compressed file",
        "unpack it first",
    ),
)

_ONNX = re.compile(rb"\x08[\x01-\x20](\x12|\x1a)[\x01-\x40][\w.-]+", re.DOTALL)
"""An ONNX model's first fields: the IR version, then the producer's name or version."""

_POINTER = re.compile(rb"version https://(?:git-lfs|hawser)\.github\.com/spec/v1\s(?:.*\ssize (\d{1,20}))?", re.DOTALL)

_RAW_PIECE = re.compile(r"(.+?)(?:\.part[-_]?\d+(?:-?of-?\d+)?|[-.]split-[a-z]|\.\d{3}|\.(?:part-?)?a[a-z])")
"""Names of pieces as `split`, upload scripts and archivers give them."""


def identify(path: Path, shown: str) -> Kind:
    """What to read the file `path` as; any JSON text may be an index.

    Raises SourceError saying what it is instead, or that it does not exist, with what to do about it.
    """
    start, size = _look(path, shown)
    _refuse_others(path, shown, start, size)
    if start.startswith(b"GGUF"):
        return "gguf"
    if _is_json(start):
        return "json"
    return "safetensors"


def is_safetensors(start: bytes) -> bool:
    """Whether a file begins as safetensors do: the length of the header, under a tebibyte, and its brace."""
    return start[8:9] == b"{" and start[5:8] == bytes(3)


def refuse_pointer(content: bytes, shown: str) -> None:
    """Raise SourceError where a file's content is a Git LFS pointer in place of the file."""
    match = _POINTER.match(content[:_LOOKED_AT])
    if match:
        promised = f"the {int(match[1])} bytes it stands for" if match[1] else "the file it stands for"
        message = f"is a Git LFS pointer: {promised} were never fetched; run `git lfs pull` there or download it again"
        raise _error(shown, "lfs-pointer", message)


def _is_json(start: bytes) -> bool:
    """Whether text begins that is a JSON object or array; a safetensors length in front would not be text."""
    return start.lstrip(_SPACE)[:1] in (b"{", b"[") and _is_text(start.lstrip(_SPACE)[:8])


def _look(path: Path, shown: str) -> tuple[bytes, int]:
    """The first bytes of a regular file, and its size."""
    status = regular_file(path, shown)
    with translated(shown), path.open("rb") as stream:
        return stream.read(_LOOKED_AT), status.st_size


def _refuse_others(path: Path, shown: str, start: bytes, size: int) -> None:
    """Raise SourceError where name and first bytes tell what the file is, and that is none of the kinds we read."""
    if size == 0:
        raise _error(shown, "empty-file", f"is empty: {AGAIN}")
    whole = _raw_split(path)
    if whole is not None:
        message = (
            "is, by its name, one piece of a file that was cut into raw pieces: join them in order "
            f"(cat PIECES > {printable(whole)}) and give the whole"
        )
        raise _error(shown, "raw-split", message)
    # A safetensors length may begin like any of the signatures: 640 is a pickle's first two bytes.
    if is_safetensors(start):
        return
    refuse_pointer(start, shown)
    words = start.lstrip(_SPACE).lower()
    for signature in _SIGNATURES:
        if (words if signature.text else start).startswith(signature.starts):
            raise _error(shown, signature.code, f"is {signature.what}: {signature.advice}")
    if _ONNX.match(start) or path.name.endswith(".onnx"):
        raise _error(shown, "onnx", "is an ONNX model: take the safetensors or GGUF of the model")
    if start.startswith(b"GGUF") or _is_json(start) or start[8:9] == b"{":
        return
    if _is_text(start):
        quoted = start.decode().strip()[:60].splitlines()[0]
        message = (
            f'is a text file beginning "{quoted}", not a checkpoint: give a safetensors or GGUF file or a folder, or '
            f"{AGAIN} if this was to be one"
        )
        raise _error(shown, "text-file", message)
    if not path.name.endswith(".safetensors"):
        message = f"is neither safetensors nor GGUF: its first bytes are {start[:8].hex(' ')}"
        raise _error(shown, "unknown-file", message)


def _raw_split(path: Path) -> str | None:
    """The whole file's name, where `path` is a piece: it says "1of2", or another piece lies beside it."""
    piece = _RAW_PIECE.fullmatch(path.name)
    if piece is None:
        return None
    with contextlib.suppress(OSError):
        matches = [_RAW_PIECE.fullmatch(name) for name in os.listdir(path.parent)]
        if "of" in path.name[piece.end(1) :] or sum(match[1] == piece[1] for match in matches if match) > 1:
            return piece[1]
    return None


def _is_text(start: bytes) -> bool:
    return start.strip(_SPACE) != b"" and all(byte in b"\t\r\n\f" or 0x20 <= byte < 0x7F for byte in start)


def _error(shown: str, code: str, message: str) -> SourceError:
    return SourceError(Problem(code, message, path=shown))

"""What a checkpoint says about its own quantization: `quantization_config` and its older homes.

The tensors decide which encoding a module has; this is what they are checked against, and what block size or bit
width they cannot tell (encoded-sources.md 3 to 6 and 8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.sources.config import read_object
from ninfer_convert.sources.labels import label

if TYPE_CHECKING:
    from ninfer_convert.sources.base import Checkpoint

REFUSED_METHODS = frozenset(
    {"aqlm", "auto-round", "eetq", "fp_quant", "higgs", "hqq", "nvfp4"}
    | {"quanto", "quark", "sinq", "spqr", "torchao", "vptq"}
)
"""Values of quant_method that are never read, whatever their tensors look like (encoded-sources.md 8.4)."""

_MODELOPT = MappingProxyType(
    {
        "NVFP4": "NVFP4",
        "W4A16_NVFP4": "NVFP4",
        "W4A8_NVFP4_FP8": "NVFP4",
        "NVFP4_AWQ": "NVFP4",
        "NVFP4_SVD": "NVFP4",
        "FP8": "FP8_TENSOR",
        "FP8_PER_CHANNEL_PER_TOKEN": "FP8_ROW",
        "FP8_PB_WO": "FP8_BLOCK",
        "FP8_PB_REAL": "FP8_BLOCK",
        "W4A16_AWQ": "ModelOpt INT4 AWQ",
        "W4A8_AWQ": "ModelOpt INT4 AWQ",
        "MXFP4": "MXFP4",
        "W4A8_MXFP4_FP8": "MXFP4",
        "MXFP8": "MXFP8",
        "W8A16": "INT8",
        "W8A8_SQ_PER_CHANNEL": "INT8",
    }
)
"""ModelOpt's quant_algo -> the encoding its tensors must have (encoded-sources.md 5.2)."""

_STRATEGIES = MappingProxyType({"tensor": "FP8_TENSOR", "channel": "FP8_ROW", "block": "FP8_BLOCK"})


@dataclass(frozen=True)
class Scheme:
    """How one module's weight is said to be quantized; None: nothing is said."""

    encoding: str | None = None
    """The encoding, where the words of the config name one."""
    words: str = ""
    """Those words, for messages: `strategy "block"`."""
    bits: int | None = None
    group: int | None = None
    block: tuple[int, int] | None = None
    """Rows and columns of an FP8 block."""
    symmetric: bool = True

    def contradicts(self, encoding: str) -> bool:
        """Whether the config names another encoding than the tensors have.

        One scale for a whole weight says the same whatever granularity it is called.
        """
        one_scale = encoding == "FP8_TENSOR" and self.encoding in _STRATEGIES.values()
        return self.encoding not in (None, encoding) and not one_scale


@dataclass(frozen=True)
class Declaration:
    """`values` is the quantization object, `where` the file it stands in (as typed), `method` its quant_method."""

    where: str = ""
    method: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    header_keys: frozenset[str] = frozenset()
    """Keys of the safetensors headers' `__metadata__`."""

    def scheme(self, module: str) -> Scheme:
        """What is said of `module`; empty where nothing is, or the module's class would have to be known."""
        if self.method == "compressed-tensors":
            return self._compressed_tensors(module)
        if self.method == "modelopt":
            return self._modelopt(module)
        if self.method == "fp8":
            block = self.values.get("weight_block_size")
            if block is None:
                return Scheme("FP8_TENSOR", "no weight_block_size", bits=8)
            return Scheme("FP8_BLOCK", f"weight_block_size {block}", bits=8, block=self._block(block))
        if self.method == "fbgemm_fp8":
            return Scheme("FP8_ROW", "quant_method fbgemm_fp8", bits=8)
        return Scheme(bits=self._number(self.values, "bits"), group=self._number(self.values, "group_size"))

    @property
    def refused(self) -> bool:
        """Whether its method is never read; auto-round also writes plain GPTQ and AWQ packings, which say so."""
        packing = str(self.values.get("packing_format", ""))
        return self.method in REFUSED_METHODS and not packing.endswith(("gptq", "awq"))

    def changes(self) -> str | None:
        """A member that changes every weight's meaning, or a state in which weights are not final."""
        for key in ("transform_config", "sparsity_config", "moe_sparsity_config"):
            value = self.values.get(key)
            if value and not (isinstance(value, dict) and value.get("format") == "dense"):
                return f"{key} changes the weight's meaning and is not supported"
        status = self.values.get("quantization_status")
        if status not in (None, "compressed"):
            return f"quantization_status {status!r}: only compressed checkpoints are read"
        return None

    def ignores(self, module: str) -> bool:
        """Whether `module` is said to be left unquantized: by its exact name, `re:` pattern or `*` wildcard."""
        for key in ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules"):
            names = self.values.get(key)
            if isinstance(names, list) and any(isinstance(name, str) and self._matches(name, module) for name in names):
                return True
        return False

    def _matches(self, pattern: str, module: str) -> bool:
        if pattern.startswith("re:"):
            try:
                return re.match(pattern[3:], module) is not None
            except re.error as error:
                raise self._error(f"{label(pattern)} is no regular expression ({error})") from None
        return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), module) is not None

    def _compressed_tensors(self, module: str) -> Scheme:
        group = self._group(module)
        if group is None:
            return Scheme()
        weights = self._object(group, "weights")
        strategy = weights.get("strategy")
        is_float8 = weights.get("type") == "float" and weights.get("num_bits") == 8
        block = weights.get("block_structure")
        return Scheme(
            encoding=_STRATEGIES.get(str(strategy)) if is_float8 else None,
            words=f"strategy {strategy}",
            bits=self._number(weights, "num_bits"),
            group=self._number(weights, "group_size"),
            block=self._block(block) if block is not None else None,
            symmetric=weights.get("symmetric") is not False,
        )

    def _group(self, module: str) -> Mapping[str, Any] | None:
        """The config group of `module`: an exact name before a pattern before a class; a class must be the only one."""
        classes = []
        by_pattern = None
        for group, targets in self._groups():
            for target in targets:
                if target == module:
                    return group
                if target.startswith("re:"):
                    if by_pattern is None and self._matches(target, module):
                        by_pattern = group
                elif "." not in target and group not in classes:
                    classes.append(group)
        if by_pattern is not None:
            return by_pattern
        return classes[0] if len(classes) == 1 else None

    def _groups(self) -> Iterator[tuple[Mapping[str, Any], Sequence[str]]]:
        groups = self._object(self.values, "config_groups")
        for name in groups:
            group = self._object(groups, name)
            targets = group.get("targets") or []
            if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
                raise self._error(f"targets of {label(name)} is no list of names")
            yield group, targets

    def _modelopt(self, module: str) -> Scheme:
        values = self.values
        if values.get("quant_algo") == "MIXED_PRECISION":
            layers = self._object(values, "quantized_layers")
            if module not in layers:
                return Scheme()
            values = self._object(layers, module)
        algo = str(values.get("quant_algo") or "")
        return Scheme(_MODELOPT.get(algo), f"quant_algo {algo}", group=self._number(values, "group_size"))

    def _object(self, values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = values.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._error(f"{label(key)} is no object")
        return value

    def _number(self, values: Mapping[str, Any], key: str) -> int | None:
        value = values.get(key)
        if value is not None and type(value) is not int:
            raise self._error(f"{label(key)} is no whole number")
        return value

    def _block(self, value: Any) -> tuple[int, int]:
        if isinstance(value, list) and len(value) == 2 and all(type(size) is int and size > 0 for size in value):
            return value[0], value[1]
        raise self._error("the block size is no list of two positive whole numbers")

    def _error(self, message: str) -> SourceError:
        return SourceError(Problem("bad-config", f"quantization: {message}", path=self.where))


def read_declaration(checkpoint: Checkpoint, config: Mapping[str, Any] | None) -> Declaration:
    """What config.json says, or else the files that older ModelOpt and GPTQ exports leave beside it.

    Raises SourceError for one that is no object.
    """
    header_keys = frozenset(checkpoint.metadata) if checkpoint.kind == "safetensors" else frozenset[str]()
    for file, method, values in _stated(checkpoint, config or {}):
        if values is None:
            continue
        where = checkpoint.shown_beside(file)
        if not isinstance(values, dict):
            raise SourceError(Problem("bad-config", "what it says of quantization is no object", path=where))
        return Declaration(where, str(values.get("quant_method") or method), values, header_keys)
    return Declaration(header_keys=header_keys)


def _stated(checkpoint: Checkpoint, config: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Each home in order of authority: the file, the quant_method it implies, the object or None."""
    yield "config.json", "", config.get("quantization_config")
    text = config.get("text_config")
    yield "config.json", "", text.get("quantization_config") if isinstance(text, dict) else None
    yield (
        "hf_quant_config.json",
        "modelopt",
        (read_object(checkpoint, "hf_quant_config.json") or {}).get("quantization"),
    )
    yield "quantize_config.json", "gptq", read_object(checkpoint, "quantize_config.json")
    yield "config.json", "mlx", config.get("quantization")

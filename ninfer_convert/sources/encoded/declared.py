"""What a checkpoint says about its own quantization: `quantization_config` and its older homes.

The tensors decide which encoding a module has; this is what they are checked against, and what block size or bit
width they cannot tell (encoded-sources.md 3 to 6 and 8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
        "W4A16_AWQ": "INT4_PACKED",
        "W4A8_AWQ": "INT4_PACKED",
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
    """Those words, for messages: `strategy block`."""
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


Patterns = tuple[tuple[re.Pattern[str], Scheme], ...]


@dataclass(frozen=True)
class Declaration:
    """The quantization config, parsed. A module's scheme is that of its exact name, else of a pattern, else `usual`."""

    method: str = ""
    """quant_method."""
    exact: Mapping[str, Scheme] = field(default_factory=dict)
    patterns: Patterns = ()
    usual: Scheme = Scheme()
    ignored: Mapping[str, Scheme] = field(default_factory=dict)
    ignored_patterns: Patterns = ()
    changes: str | None = None
    """What changes every weight's meaning, or why none is final; the end of a sentence."""
    refused: bool = False
    """Whether the method is never read."""
    act_order: bool = False
    """GPTQ's desc_act."""
    zero_points: bool = True
    """AWQ's zero_point."""
    version: str = ""
    """AWQ's arrangement of words, in lower case."""
    header_keys: frozenset[str] = frozenset()
    """Keys of the safetensors headers' `__metadata__`."""

    def scheme(self, module: str) -> Scheme:
        """What is said of `module`; empty where nothing is, or where its class would have to be known."""
        return _find(module, self.exact, self.patterns) or self.usual

    def ignores(self, module: str) -> bool:
        """Whether `module` is said to be left unquantized: by its exact name, `re:` pattern or `*` wildcard."""
        return _find(module, self.ignored, self.ignored_patterns) is not None


def _find(module: str, exact: Mapping[str, Scheme], patterns: Patterns) -> Scheme | None:
    if module in exact:
        return exact[module]
    return next((scheme for pattern, scheme in patterns if pattern.match(module)), None)


def read_declaration(checkpoint: Checkpoint, config: Mapping[str, Any] | None) -> Declaration:
    """What config.json says, or else the files that older ModelOpt and GPTQ exports leave beside it.

    Raises SourceError for one that is malformed.
    """
    header_keys = frozenset(checkpoint.metadata) if checkpoint.kind == "safetensors" else frozenset[str]()
    for file, method, values in _stated(checkpoint, config or {}):
        if values is not None:
            return _Parser(checkpoint.shown_beside(file)).declaration(values, method, header_keys)
    return Declaration(header_keys=header_keys)


def _stated(checkpoint: Checkpoint, config: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Each home in order of authority: the file, the quant_method it implies, the object or None."""
    yield "config.json", "", config.get("quantization_config")
    text = config.get("text_config")
    yield "config.json", "", text.get("quantization_config") if isinstance(text, dict) else None
    modelopt = read_object(checkpoint, "hf_quant_config.json") or {}
    yield "hf_quant_config.json", "modelopt", modelopt.get("quantization")
    yield "quantize_config.json", "gptq", read_object(checkpoint, "quantize_config.json")
    yield "config.json", "mlx", config.get("quantization")


@dataclass(frozen=True)
class _Parser:
    """Turns one file's JSON into a Declaration; errors name the file."""

    where: str

    def declaration(self, values: Any, method: str, header_keys: frozenset[str]) -> Declaration:
        if not isinstance(values, dict):
            raise self.error("what it says is no object")
        method = str(values.get("quant_method") or method)
        packing = str(values.get("packing_format", ""))
        exact, patterns, usual = self.schemes(method, values)
        ignored: dict[str, Scheme] = {}
        ignored_patterns: Patterns = ()
        for key in ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules"):
            names, more = self.targets(values, key, Scheme())
            ignored |= names
            ignored_patterns += more
        return Declaration(
            method=method,
            exact=exact,
            patterns=patterns,
            usual=usual,
            ignored=ignored,
            ignored_patterns=ignored_patterns,
            changes=_changes(values),
            # auto-round also writes plain GPTQ and AWQ packings, and says so.
            refused=method in REFUSED_METHODS and not packing.endswith(("gptq", "awq")),
            act_order=bool(values.get("desc_act")),
            zero_points=values.get("zero_point") is not False,
            version=str(values.get("version") or "").lower(),
            header_keys=header_keys,
        )

    def schemes(self, method: str, values: Mapping[str, Any]) -> tuple[Mapping[str, Scheme], Patterns, Scheme]:
        """The schemes of exact names, of patterns, and of every other module."""
        if method == "compressed-tensors":
            return self.compressed_tensors(values)
        if method == "modelopt":
            if values.get("quant_algo") != "MIXED_PRECISION":
                return {}, (), self.modelopt(values)
            layers = self.object(values, "quantized_layers")
            return {layer: self.modelopt(self.object(layers, layer)) for layer in layers}, (), Scheme()
        if method == "fbgemm_fp8":
            return {}, (), Scheme("FP8_ROW", "quant_method fbgemm_fp8", bits=8)
        if method == "fp8":
            block = self.block(values, "weight_block_size")
            if block is None:
                return {}, (), Scheme("FP8_TENSOR", "no weight_block_size", bits=8)
            return {}, (), Scheme("FP8_BLOCK", f"weight_block_size {list(block)}", bits=8, block=block)
        symmetric = values.get("sym") is not False
        scheme = Scheme(bits=self.number(values, "bits"), group=self.number(values, "group_size"), symmetric=symmetric)
        return {}, (), scheme

    def compressed_tensors(self, values: Mapping[str, Any]) -> tuple[Mapping[str, Scheme], Patterns, Scheme]:
        exact: dict[str, Scheme] = {}
        patterns: Patterns = ()
        by_class: list[Scheme] = []
        groups = self.object(values, "config_groups")
        for name in groups:
            group = self.object(groups, name)
            scheme = self.weights(self.object(group, "weights"))
            names, more = self.targets(group, "targets", scheme)
            exact = {**names, **exact}
            patterns += more
            # A name without a dot may be a module's class, which the tensors do not tell.
            by_class += [scheme] if any("." not in target for target in names) else []
        return exact, patterns, by_class[0] if len(by_class) == 1 else Scheme()

    def weights(self, weights: Mapping[str, Any]) -> Scheme:
        strategy = str(weights.get("strategy"))
        is_float8 = weights.get("type") == "float" and weights.get("num_bits") == 8
        return Scheme(
            encoding=_STRATEGIES.get(strategy) if is_float8 else None,
            words=f"strategy {label(strategy)}",
            bits=self.number(weights, "num_bits"),
            group=self.number(weights, "group_size"),
            block=self.block(weights, "block_structure"),
            symmetric=weights.get("symmetric") is not False,
        )

    def modelopt(self, values: Mapping[str, Any]) -> Scheme:
        algo = str(values.get("quant_algo") or "")
        return Scheme(_MODELOPT.get(algo), f"quant_algo {label(algo)}", group=self.number(values, "group_size"))

    def targets(self, values: Mapping[str, Any], key: str, scheme: Scheme) -> tuple[dict[str, Scheme], Patterns]:
        """The names and the patterns of a list, each with `scheme`."""
        names = values.get(key) or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self.error(f"{key} is no list of names")
        exact = {name: scheme for name in names if not _is_pattern(name)}
        return exact, tuple((self.pattern(name), scheme) for name in names if _is_pattern(name))

    def pattern(self, name: str) -> re.Pattern[str]:
        """A `re:` pattern matches from the start, as `re.match` does; a `*` wildcard matches whole names."""
        if not name.startswith("re:"):
            return re.compile(".*".join(map(re.escape, name.split("*"))) + r"\Z", re.DOTALL)
        try:
            return re.compile(name[3:])
        except re.error as error:
            raise self.error(f"{label(name)} is no regular expression ({error})") from None

    def object(self, values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = values.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.error(f"{label(key)} is no object")
        return value

    def number(self, values: Mapping[str, Any], key: str) -> int | None:
        value = values.get(key)
        if value is not None and type(value) is not int:
            raise self.error(f"{key} is no whole number")
        return value

    def block(self, values: Mapping[str, Any], key: str) -> tuple[int, int] | None:
        value = values.get(key)
        if value is None:
            return None
        if isinstance(value, list) and len(value) == 2 and all(type(size) is int and size > 0 for size in value):
            return value[0], value[1]
        raise self.error(f"{key} is no list of two positive whole numbers")

    def error(self, message: str) -> SourceError:
        return SourceError(Problem("bad-config", f"quantization: {message}", path=self.where))


def _is_pattern(name: str) -> bool:
    return name.startswith("re:") or "*" in name


def _changes(values: Mapping[str, Any]) -> str | None:
    for key in ("transform_config", "sparsity_config", "moe_sparsity_config"):
        value = values.get(key)
        if value and not (isinstance(value, dict) and value.get("format") == "dense"):
            return f"{key} changes the weight's meaning and is not supported"
    status = values.get("quantization_status")
    if status not in (None, "compressed"):
        return f"quantization_status {label(str(status))}: only compressed checkpoints are read"
    return None

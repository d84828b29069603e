"""A thread that flushes subnormals to zero, as a foreign library may leave it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

X86 = platform.machine().lower() in {"x86_64", "amd64"}
FLUSH = 0x8040 if X86 else 1 << 24
"""MXCSR's flush-to-zero and denormals-are-zero; FPCR's FZ on ARM."""


@intrinsic  # type: ignore[untyped-decorator]
def _flip(typing_context: Any, mask: Any) -> Any:
    """Flip these bits of the floating-point control register."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if X86:
            pointer = ir.IntType(8).as_pointer()
            kind = ir.FunctionType(ir.VoidType(), [pointer])
            place = builder.alloca(ir.IntType(32))
            builder.call(
                builder.module.declare_intrinsic("llvm.x86.sse.stmxcsr", (), kind), [builder.bitcast(place, pointer)]
            )
            before = builder.load(place)
            builder.store(builder.xor(before, builder.trunc(arguments[0], ir.IntType(32))), place)
            builder.call(
                builder.module.declare_intrinsic("llvm.x86.sse.ldmxcsr", (), kind), [builder.bitcast(place, pointer)]
            )
        else:
            word = ir.IntType(64)
            get = builder.module.declare_intrinsic("llvm.aarch64.get.fpcr", (), ir.FunctionType(word, []))
            put = builder.module.declare_intrinsic("llvm.aarch64.set.fpcr", (), ir.FunctionType(ir.VoidType(), [word]))
            builder.call(put, [builder.xor(builder.call(get, []), arguments[0])])
        return context.get_dummy_value()

    return types.none(types.int64), generate


@numba.njit  # type: ignore[untyped-decorator]
def _toggle(mask: int) -> None:
    _flip(mask)


def flushes() -> bool:
    """Whether this thread's binary32 arithmetic flushes subnormals."""
    return bool((np.array([1e-40], np.float32) * np.float32(1.0))[0] == 0.0)


@contextmanager
def flushed_subnormals() -> Iterator[None]:
    """Flush in this thread, inputs too, until the end of the block."""
    assert not flushes()
    _toggle(FLUSH)
    try:
        assert flushes()
        yield
    finally:
        _toggle(FLUSH)
    assert not flushes()

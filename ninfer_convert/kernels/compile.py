"""How every kernel is compiled: on first call, cached on disk, GIL released, IEEE arithmetic as written.

No fast-math and no contraction: LLVM is given no licence to reassociate or fuse, so a stored result depends on
the arrays alone. Numba keeps the machine code beside the package, or in the user's cache folder where the
package's own is not writable; where neither is, each process compiles anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.runtime import rtsys

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` when it is first called with arguments of each type."""
    compiled = _compiled(function)
    with suppress(RuntimeError):  # Numba's word for: no folder to write to
        compiled._cache = _Cache(function)  # type: ignore[attr-defined]
    return compiled


def inline(function: F) -> F:
    """A helper that only kernels call, inlined into them; Python cannot call it."""
    return _compiled(function, no_cpython_wrapper=True, forceinline=True)


def any_order(function: F) -> F:
    """The one exception: sums that LLVM may reorder and fuse.

    Only for what is proved exact in every order, or for estimates whose error is bounded and that are never stored.
    """
    return _compiled(function, no_cpython_wrapper=True, fastmath={"reassoc", "contract"})


def _compiled(function: F, **options: Any) -> F:
    """Wrappers that nobody calls are left out: they took a third of the time that compiling takes."""
    common = {"nogil": True, "error_model": "numpy", "fastmath": False, "no_cfunc_wrapper": True}
    compiled: F = numba.njit(**{**common, **options})(function)
    return compiled


def _digest() -> str:
    """SHA-256 of every module under kernels, this one included."""
    sources = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


_SOURCES = _digest()


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache, made stale by a change of any kernel module.

    Numba watches the kernel's own file alone, but a kernel holds the machine code of helpers from others: after an
    upgrade it would go on with the old ones.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = (self._impl.locator.get_source_stamp(), _SOURCES)
        self._cache_file = IndexDataCacheFile(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Without filling Numba's tables of all that could be compiled, a fifth of a small conversion's time: machine
        code needs none of them, and the compiler fills them itself.
        """
        rtsys.initialize(target)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(signature, target)

    def save_overload(self, signature: Any, compiled: Any) -> None:
        with suppress(OSError):  # a full disk costs the next process its compile time, not this one its run
            super().save_overload(signature, compiled)

"""How every kernel is compiled: on first call, cached on disk, GIL released, IEEE arithmetic as written.

No fast-math and no contraction: LLVM is given no licence to reassociate or fuse, so a stored result depends on
the arrays alone. Numba keeps the machine code beside the package, or in the user's cache folder where the
package's own is not writable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` when it is first called with arguments of each type."""
    compiled: F = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=False)(function)
    return compiled


def inline(function: F) -> F:
    """A scalar helper that is only called from kernels, inlined into them."""
    compiled: F = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=False, inline="never")(function)
    return compiled

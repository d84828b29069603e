"""block_scale_k16_m128x4_v1: nvfp4's codes, block scales in 128 x 4 tiles, weight divisors (layouts.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ninfer_convert.formats.nvfp4 import NVFP4
from ninfer_convert.layouts.planes import Plane, PlaneLayout, not_multiple, refused, runs, stack
from ninfer_convert.values import Words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.layouts.base import Read, Tensor
    from ninfer_convert.layouts.planes import Bytes
    from ninfer_convert.values import Shape

TILE_ROWS = 128
TILE_COLUMNS = 64
"""Four groups of 16: a tile holds 128 x 4 scales in 512 bytes."""


def _swizzled(scales: Bytes) -> Bytes:
    """Scales [rows, K / 16] of whole tiles, in stored order; a row's four scales of a tile stay together."""
    import numpy as np

    rows, groups = scales.shape
    fours = scales.view(np.uint32).reshape(rows // TILE_ROWS, 4, 32, groups // 4)
    swizzled: Bytes = fours.transpose(0, 3, 2, 1).reshape(-1).view(np.uint8)
    return swizzled


def _natural(stored: Bytes, groups: int) -> Bytes:
    """Scales [rows, K / 16] of the whole tiles `stored`."""
    import numpy as np

    fours = stored.view(np.uint32).reshape(-1, groups // 4, 32, 4)
    natural: Bytes = fours.transpose(0, 3, 2, 1).reshape(-1).view(np.uint8).reshape(-1, groups)
    return natural


@dataclass(frozen=True, eq=False)
class BlockScale(PlaneLayout):
    def planes(self, tensor: Tensor) -> tuple[Plane, ...]:
        rows, columns = tensor.shape
        return stack(
            rows,
            ("codes", columns // 2, 1),
            ("scales", columns // NVFP4.group * TILE_ROWS, TILE_ROWS),
            ("divisors", 4, rows // tensor.divisors),
        )

    def geometry(self, tensor: Tensor) -> Iterable[str | None]:
        rows, columns = tensor.shape
        return (
            not_multiple(f"N={rows} (rows)", rows, TILE_ROWS),
            not_multiple(f"K={columns} (row length)", columns, TILE_COLUMNS),
        )

    def divisor_misfit(self, tensor: Tensor) -> str | None:
        rows, divisors = tensor.shape[0], tensor.divisors
        if divisors < 1 or rows % divisors:
            return f"divisors={divisors} must divide N={rows} (rows)"
        share = rows // divisors
        if divisors == 1 or share % TILE_ROWS == 0:
            return None
        return f"each of {divisors} divisors covers {share} rows, which must be whole tiles of {TILE_ROWS}"

    def word_arrays(self, tensor: Tensor, rows: int) -> Mapping[str, tuple[str, Shape]]:
        columns = tensor.shape[1]
        return {
            "codes": ("uint8", (rows, columns)),
            "scales": ("uint8", (rows, columns // NVFP4.group)),
            "divisors": ("float32", (rows,)),
        }

    def pack(self, tensor: Tensor, first_row: int, words: Words) -> Iterable[Bytes]:
        import numpy as np

        from ninfer_convert.kernels.packing import pack

        assert words.scales is not None
        assert words.divisors is not None
        share = tensor.shape[0] // tensor.divisors
        stored = words.divisors.view(np.uint32)
        begun: list[int] = []
        for begin in range(-(first_row % share), len(stored), share):
            own = stored[max(begin, 0) : begin + share]
            if (own != own[0]).any():
                rows = f"rows [{first_row + begin}, {first_row + begin + share})"
                other = own[np.argmax(own != own[0])]
                raise refused(f"{rows} share one weight divisor, but have the words 0x{own[0]:08X} and 0x{other:08X}")
            if begin >= 0:
                begun.append(own[0])
        return pack(words.codes, 4), _swizzled(words.scales), np.array(begun, np.uint32).view(np.uint8)

    def unpack(self, tensor: Tensor, begin: int, end: int, parts: Sequence[Bytes]) -> Words:
        import numpy as np

        from ninfer_convert.kernels.packing import unpack

        columns, share = tensor.shape[1], tensor.shape[0] // tensor.divisors
        codes, scales, divisors = parts
        shares = np.arange(begin, end) // share - begin // share
        return Words(
            unpack([codes], [4]).reshape(-1, columns),
            _natural(scales, columns // NVFP4.group)[begin % TILE_ROWS :][: end - begin],
            divisors.view(np.float32)[shares],
        )

    def taken_divisors(self, tensor: Tensor, rows: Sequence[int], read: Read) -> int:
        """The fewest equal shares of `rows` in which every row keeps its own divisor's word."""
        import numpy as np

        own = self._own_divisors(tensor, rows, read)
        changes = np.flatnonzero(own[1:] != own[:-1]) + 1
        return len(rows) // int(np.gcd.reduce(changes, initial=len(rows)))

    def taken_planes(self, tensor: Tensor, taken: Tensor, rows: Sequence[int], read: Read) -> Iterable[Iterable[Any]]:
        import numpy as np

        codes, scales, _ = self.planes(tensor)
        wanted = np.asarray(rows)
        tiles, places = np.unique(wanted // TILE_ROWS, return_inverse=True)
        stored = b"".join(read(*scales.span(a * TILE_ROWS, b * TILE_ROWS)) for a, b in runs(tiles.tolist()))
        natural = _natural(np.frombuffer(stored, np.uint8), tensor.shape[1] // NVFP4.group)
        own = self._own_divisors(tensor, rows, read)
        return (
            (read(*codes.span(a, b)) for a, b in runs(rows)),
            [_swizzled(natural[places * TILE_ROWS + wanted % TILE_ROWS])],
            [own[:: len(rows) // taken.divisors].tobytes()],
        )

    def _own_divisors(self, tensor: Tensor, rows: Sequence[int], read: Read) -> NDArray[np.uint32]:
        """uint32 [rows]: the word of each row's divisor."""
        import numpy as np

        *_, divisors = self.planes(tensor)
        stored = np.frombuffer(read(*divisors.span(0, divisors.rows)), np.uint32)
        own: NDArray[np.uint32] = stored[np.asarray(rows) // divisors.block_rows]
        return own


BLOCK_SCALE = BlockScale("block_scale_k16_m128x4_v1", (NVFP4.name,), row_quantum=TILE_ROWS)

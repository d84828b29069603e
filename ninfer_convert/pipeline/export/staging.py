"""Several files that appear together: made in a folder of their own, then given their places."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from ninfer_convert.container import check_destination
from ninfer_convert.container.destination import check_standing, folder_of, output_errors, publish, sync_folder
from ninfer_convert.pipeline.export.folder import is_weights


def standing(folder: str, names: Sequence[str], owned: bool) -> list[str]:
    """The paths in `folder` that the files `names` take the place of; of an `owned` one all weights are such."""
    if not os.path.isdir(folder or os.curdir):
        return []
    with output_errors(folder, 0):
        found = sorted(os.listdir(folder or os.curdir))
    return [os.path.join(folder, name) for name in found if name in names or (owned and is_weights(name))]


@contextmanager
def staged(folder: str, names: Sequence[str], needed_bytes: int, *, owned: bool, force: bool) -> Iterator[str]:
    """A new folder in which the block makes the files `names`; when it has, they are in `folder`.

    An `owned` folder is the export's as a whole: where it does not exist it appears in one step, and weights of
    another model do not stay in it. Nothing may stand where the files go; with `force` that is taken away before the
    first of them appears, and the last of `names` appears last. Whatever is raised leaves everything as it was;
    OutputError where the destination is in the way.
    """
    new = owned and not os.path.lexists(folder)
    check_destination(folder if new else os.path.join(folder, names[-1]), needed_bytes, force)
    beside = folder_of(folder) if new else folder or os.curdir
    temporary = os.path.join(beside, f".ninfer-export-{os.urandom(8).hex()}")
    replaced = standing(folder, names, owned)
    for path in replaced:
        with output_errors(folder, 0):
            check_standing(path, os.lstat(path), force)
    exchange = _Exchange(temporary, beside, [os.path.basename(path) for path in replaced])
    try:
        with output_errors(folder, needed_bytes):
            os.mkdir(temporary)
        yield temporary
        with output_errors(folder, needed_bytes):
            sync_folder(temporary)
            if new:
                os.rename(temporary, folder)
            else:
                exchange.carry_out(names)
            sync_folder(beside)
    finally:
        try:
            exchange.settle()
        except BaseException:
            # Ctrl-C comes once: what it cut short is begun again.
            exchange.settle()
            raise


class _Exchange:
    """The files `replaced` of `folder` for those of the folder `temporary`.

    What an interruption has left done is asked of the disk, since it may fall anywhere.
    """

    def __init__(self, temporary: str, folder: str, replaced: Sequence[str]) -> None:
        self.temporary = temporary
        self.aside = f"{temporary}-replaced"
        self.folder = folder
        self.replaced = replaced
        self.made: dict[str, os.stat_result] = {}

    def carry_out(self, names: Sequence[str]) -> None:
        self.made = {name: os.stat(os.path.join(self.temporary, name)) for name in names}
        os.mkdir(self.aside)
        for name in self.replaced:
            os.rename(os.path.join(self.folder, name), os.path.join(self.aside, name))
        for name in names:
            publish(os.path.join(self.temporary, name), os.path.join(self.folder, name))

    def settle(self) -> None:
        """Leave the new files alone where all of them stand, else the old ones; and no other trace."""
        if all(map(self._stands, self.made)):
            shutil.rmtree(self.aside, ignore_errors=True)
        else:
            for name in filter(self._stands, self.made):
                os.unlink(os.path.join(self.folder, name))
            with suppress(FileNotFoundError):
                for name in os.listdir(self.aside):
                    os.rename(os.path.join(self.aside, name), os.path.join(self.folder, name))
                os.rmdir(self.aside)
        shutil.rmtree(self.temporary, ignore_errors=True)

    def _stands(self, name: str) -> bool:
        """Whether our own file stands under its name."""
        try:
            return os.path.samestat(os.lstat(os.path.join(self.folder, name)), self.made[name])
        except FileNotFoundError:
            return False

"""Several files that appear together: made in a folder of their own, then given their places.

A single file and a folder that was not there appear in one step. In a folder that is there, files are exchanged: those
that are replaced are put aside, what shows that a model is there first; then one rename decides for the new files;
then those get their places, what shows a model last. A reader who comes in between finds neither model, or one that
lacks shards and is refused, never files of both. So the guarantee is, whatever happens and when: what stands is the old
model, complete, or the new one, complete, or, where a run was killed within an exchange, a folder without either; and
then the next export there, forced or not, first puts the old files back or, where it was decided, the new ones in
place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from ninfer_convert.container import check_destination
from ninfer_convert.container.destination import check_standing, folder_of, output_errors, publish, sync_folder
from ninfer_convert.container.temporaries import Temporaries, dead_runs
from ninfer_convert.errors import OutputError, Problem, printable
from ninfer_convert.pipeline.export.folder import is_weights, turn

KIND = "export-"
NEW, OLD, DECIDED = "new", "old", "old-for-good"
"""Within the folder of a run: the new files without a place, and those that were put aside, before and after the
decision."""


def standing(folder: str, names: Sequence[str], owned: bool) -> list[str]:
    """The paths in `folder` that the files `names` take the place of; of an `owned` one all weights are such."""
    if not os.path.isdir(folder or os.curdir):
        return []
    with output_errors(folder, 0):
        found = sorted(os.listdir(folder or os.curdir))
    return [os.path.join(folder, name) for name in found if name in names or (owned and is_weights(name))]


def settle_leftovers(folder: str, names: Sequence[str], owned: bool) -> None:
    """Finish or take back the exchanges of killed runs that had the same destination, and remove their files.

    Files of runs that live, and any others, are not touched. Raises OutputError where something stands in the place
    of a file of theirs: nothing is lost then.
    """
    made = (folder, _inside(folder)) if owned else (os.path.join(folder, names[-1]),)
    for destination in made:
        for run in dead_runs(destination, KIND):
            with closing(run):
                _settle(run, folder)


@contextmanager
def staged(folder: str, names: Sequence[str], needed_bytes: int, *, owned: bool, force: bool) -> Iterator[str]:
    """A new folder in which the block makes the files `names`; when it has, they are in `folder`.

    An `owned` folder is the export's as a whole: where it does not exist it appears in one step, and weights of
    another model do not stay in it. Nothing may stand where the files go; with `force` that is taken away before the
    first of them appears. Whatever is raised leaves everything as it was, or as it was to be where that was decided;
    OutputError where the destination is in the way. What killed runs left is not its business: `settle_leftovers`
    comes first.
    """
    whole = owned and not os.path.lexists(folder)
    path = folder if whole else os.path.join(folder, names[-1])
    check_destination(path, needed_bytes, force)
    _replaceable(folder, names, owned, force)
    run = Temporaries.beside(_inside(folder) if owned and not whole else path, KIND)
    with closing(run):
        try:
            with output_errors(folder, needed_bytes):
                run.claim()
                made = os.path.join(run.folder, NEW)
                os.mkdir(run.folder)
                os.mkdir(made)
            yield made
            with output_errors(folder, needed_bytes):
                sync_folder(made)
                if whole:
                    os.rename(made, folder)
                elif owned:
                    _put_aside(run, _replaceable(folder, names, owned, force))
                elif force:
                    os.replace(os.path.join(made, names[-1]), path)
                else:
                    publish(os.path.join(made, names[-1]), path)
                sync_folder(folder_of(path))
        finally:
            try:
                _settle(run, folder)
            except BaseException:
                # Ctrl-C comes once: what it cut short is begun again.
                _settle(run, folder)
                raise


def _inside(folder: str) -> str:
    """What a run is named after whose files lie in `folder`: no file has such a name."""
    return os.path.join(folder, "")


def _replaceable(folder: str, names: Sequence[str], owned: bool, force: bool) -> list[str]:
    """The paths in `folder` that the files `names` replace; OutputError where they may not."""
    paths = standing(folder, names, owned)
    for path in paths:
        with output_errors(folder, 0):
            check_standing(path, os.lstat(path), force)
    return paths


def _put_aside(run: Temporaries, paths: Sequence[str]) -> None:
    """Put `paths` aside and decide for the new files; `_settle` does the rest, be it another run's."""
    old = os.path.join(run.folder, OLD)
    os.mkdir(old)
    for path in sorted(paths, key=lambda path: turn(os.path.basename(path)), reverse=True):
        os.rename(path, os.path.join(old, os.path.basename(path)))
    os.rename(old, os.path.join(run.folder, DECIDED))


def _settle(run: Temporaries, folder: str) -> None:
    """Give the new files their places where that is decided, else the old ones theirs; leave no other trace.

    It may be cut short anywhere and be begun again, since it asks the disk what is left to do.
    """
    decided = os.path.lexists(os.path.join(run.folder, DECIDED))
    with output_errors(folder, 0):
        _put(os.path.join(run.folder, NEW if decided else OLD), folder)
    run.remove()


def _put(source: str, folder: str) -> None:
    """Move every file of `source`, if there is such a folder, to `folder`, over nothing that stands there."""
    try:
        names = os.listdir(source)
    except FileNotFoundError:
        return
    for name in sorted(names, key=turn):
        moved, path = os.path.join(source, name), os.path.join(folder, name)
        if os.path.lexists(path):
            message = f"is in the place of {printable(moved)}, which a killed export left; move one of the two away"
            raise OutputError(Problem("in-the-way", message, path))
        os.rename(moved, path)
    sync_folder(folder)

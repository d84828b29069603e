"""What a parameter is bound to, by the directory alone: elements of objects, and the logical shape they make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.container import Part, TensorObject
from ninfer_convert.pipeline import recorded

if TYPE_CHECKING:
    from ninfer_convert.container import Binding, Directory
    from ninfer_convert.values import Shape

Extent = tuple[TensorObject, int, int]
"""Elements [begin, end) of an object, counted in C order."""


def extents(directory: Directory, binding: Binding) -> Iterator[Extent]:
    """The elements that a binding joins, in order; `directory` has been checked when it was opened."""
    for id, part in zip(binding.objects, binding.parts or (None,), strict=True):
        object = directory.by_id[id]
        assert isinstance(object, TensorObject)
        whole = Part(id, 0, object.elements)
        yield object, (part or whole).begin, (part or whole).end


def logical_shape(directory: Directory, name: str, bound: Sequence[Extent]) -> Shape:
    """The shape of the parameter `name`, which is these elements, as the provenance records it.

    Without a sound record what the objects show: theirs, equal rows, or elements.
    """
    first = bound[0][0]
    if directory.bindings[name].object is not None:
        return first.shape
    elements = sum(end - begin for _, begin, end in bound)
    shape = recorded.shape(directory, name)
    if shape is not None and prod(shape) == elements:
        return shape
    if len(bound) == 1 and elements == first.elements:
        return first.shape
    lengths = {object.shape[-1:] for object, _, _ in bound}
    if len(lengths) == 1 and all(lengths):
        ((columns,),) = lengths
        if all(begin % columns == end % columns == 0 for _, begin, end in bound):
            return (elements // columns, columns)
    return (elements,)

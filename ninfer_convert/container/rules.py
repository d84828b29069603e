"""What the records of a directory must be to one another (container.md 2 and 3, "open").

How large a tensor is and what fits a layout is asked of the layout. A check that depends on a refused record is left
out: the record's own fault has been told.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ninfer_convert.container.auxiliaries import AUXILIARIES, AuxiliaryRole
from ninfer_convert.container.framing import U64_MAX
from ninfer_convert.container.problems import Problems, Where, shown
from ninfer_convert.container.records import Binding, File, Object, Part, ResourceObject, TensorObject, Use
from ninfer_convert.errors import printable, unknown
from ninfer_convert.formats import FORMATS
from ninfer_convert.layouts import LAYOUTS, TENSOR_ALIGNMENT, Tensor

if TYPE_CHECKING:
    from ninfer_convert.container.structure import Draft


def check(draft: Draft, entry_name: str, problems: Problems) -> None:
    """Every rule between the records of `draft`, the directory of an entry file called `entry_name`."""
    payload_bytes = _check_files(draft.files, entry_name, problems)
    _Rules(draft, payload_bytes, problems).check()


def part_name_fault(name: str, entry_name: str) -> str | None:
    """Why a part beside the entry `entry_name` cannot be called `name`; None if it can."""
    if not name or name in (".", "..") or any(character in name for character in "/\\\0"):
        return "is no plain file name; expected one without /, \\ and U+0000, neither . nor .."
    if name == entry_name:
        return "is the entry's own name"
    return None


def _check_files(files: list[File | None] | None, entry_name: str, problems: Problems) -> int | None:
    """Bytes of the logical payload; None where the table does not tell."""
    if files is None:
        return None
    names: set[str] = set()
    for index, file in enumerate(files):
        if file is None:
            continue
        where = ("files", index, "path")
        if index == 0:
            if file.path is not None:
                problems.add(where, "path", "the first file is the entry itself; expected null")
        elif file.path is None:
            problems.add(where, "path", "null; only the first file is the entry itself")
        else:
            fault = part_name_fault(file.path, entry_name)
            if fault is None and file.path in names:
                fault = "is the name of an earlier file too"
            if fault is not None:
                problems.add(where, "path", f"{shown(file.path)} {fault}")
            names.add(file.path)
    payload_bytes = 0
    for file in files:
        if file is None:
            return None
        payload_bytes += file.payload_bytes
    if payload_bytes > U64_MAX:
        problems.add(("files",), "overflow", "the payload_bytes add up to more than 2^64 - 1")
        return None
    return payload_bytes


class _Rules:
    def __init__(self, draft: Draft, payload_bytes: int | None, problems: Problems) -> None:
        self.draft = draft
        self.payload_bytes = payload_bytes
        self.add = problems.add
        self.objects: dict[str, Object] = {}
        self.ids_known = draft.objects is not None and not draft.nameless
        self.judge = cache(_judged)  # tensors are of few kinds

    def check(self) -> None:
        self.check_objects()
        for name, component in (self.draft.components or {}).items():
            if component is not None:
                where = ("components", name)
                if component.target is not None:
                    self.check_target((*where, "target"), name, component.target)
                for role, id in component.resources.items():
                    self.resource((*where, "resources", role), id)
        for name, binding in (self.draft.bindings or {}).items():
            if binding is not None:
                self.check_binding(("bindings", name), binding, name)
        first: dict[tuple[str, str], int] = {}
        for index, use in enumerate(self.draft.uses or ()):
            if use is not None:
                earlier = first.setdefault((use.parameter, use.input), index)
                if earlier != index:
                    self.add(("uses", index), "duplicate-use", f"the same parameter and input as uses[{earlier}]")
                self.check_use(("uses", index), use)

    # Objects: order, place, size

    def check_objects(self) -> None:
        highest = farthest = (0, -1)  # offset and end, each with the index of its object
        for index, object in enumerate(self.draft.objects or ()):
            if object is None:
                continue
            where = ("objects", index)
            if object.id in self.objects:
                found = f"{shown(object.id)} is the id of an earlier object"
                self.add((*where, "id"), "duplicate-id", found, object.id)
            else:
                self.objects[object.id] = object
            end = object.end
            if end > U64_MAX:
                self.add(where, "overflow", "offset and bytes add up to more than 2^64 - 1", object.id)
                continue
            if self.payload_bytes is not None and end > self.payload_bytes:
                ends = f"ends at byte {end} of a payload of {self.payload_bytes} bytes"
                self.add(where, "outside", ends, object.id)
            if object.offset < highest[0]:
                offset, at = highest
                found = f"{object.offset} is below the offset {offset} of objects[{at}]; expected them in order"
                self.add((*where, "offset"), "order", found, object.id)
            else:
                if object.offset < farthest[0]:
                    reached, at = farthest
                    found = f"{object.offset} lies inside objects[{at}], which ends at {reached}"
                    self.add((*where, "offset"), "overlap", found, object.id)
                highest = object.offset, index
                if end >= farthest[0]:
                    farthest = end, index
            if isinstance(object, TensorObject):
                self.check_tensor(where, object)

    def check_tensor(self, where: Where, object: TensorObject) -> None:
        if object.format not in FORMATS or object.layout not in LAYOUTS:
            return
        fault, size = self.judge(object.format, object.layout, object.shape, object.divisors)
        if fault is not None:
            self.add(where, "misfit", fault, object.id)
        elif object.bytes != size:
            found = f"{object.bytes}; {object.format} {list(object.shape)} in {object.layout} takes {size}"
            self.add((*where, "bytes"), "size", found, object.id)
        if object.offset % TENSOR_ALIGNMENT:
            found = f"{object.offset}; expected a multiple of {TENSOR_ALIGNMENT}"
            self.add((*where, "offset"), "alignment", found, object.id)

    # References

    def lookup(self, where: Where, id: str) -> Object | None:
        found = self.objects.get(id)
        if found is None and self.ids_known and id not in self.draft.refused:
            self.add(where, "reference", f"there is no object {shown(id)}")
        return found

    def tensor(self, where: Where, id: str) -> TensorObject | None:
        found = self.lookup(where, id)
        if isinstance(found, ResourceObject):
            self.add(where, "reference", f"{shown(id)} is a resource; expected a tensor")
            return None
        return found

    def resource(self, where: Where, id: str) -> None:
        if isinstance(self.lookup(where, id), TensorObject):
            self.add(where, "reference", f"{shown(id)} is a tensor; expected a resource")

    def check_target(self, where: Where, name: str, target: str) -> None:
        if target == name or target not in (self.draft.components or {}):
            self.add(where, "reference", f"{shown(target)} is no other component")

    def check_binding(self, where: Where, binding: Binding, tensor: str) -> int | None:
        """Its count of elements; None where that cannot be told."""
        if binding.object is not None:
            whole = self.tensor((*where, "object"), binding.object)
            return whole and whole.elements
        elements: int | None = 0
        for index, part in enumerate(binding.parts):
            count = self.check_part((*where, "parts", index), part, tensor)
            elements = None if count is None or elements is None else elements + count
        if elements is not None and elements > U64_MAX:
            self.add((*where, "parts"), "overflow", "the ranges hold more than 2^64 - 1 elements", tensor)
            return None
        return elements

    def check_part(self, where: Where, part: Part, tensor: str) -> int | None:
        object = self.tensor((*where, "object"), part.object)
        if object is None:
            return None
        if part.end > object.elements:
            found = f"ends at element {part.end}; {shown(object.id)} has {object.elements}"
            self.add((*where, "range"), "range", found, tensor)
            return None
        return part.end - part.begin

    # Uses

    def check_use(self, where: Where, use: Use) -> None:
        bindings = self.draft.bindings
        if bindings is not None and use.parameter not in bindings:
            self.add((*where, "parameter"), "reference", f"{shown(use.parameter)} is not bound")
        for name, binding in use.auxiliaries.items():
            at = (*where, "auxiliaries", name)
            elements = self.check_binding(at, binding, use.parameter)
            if name in AUXILIARIES:
                self.check_auxiliary(at, AUXILIARIES[name], binding, elements, use.parameter)
            else:
                self.add(at, "auxiliary", unknown("auxiliary", name, AUXILIARIES), use.parameter)

    def bound(self, binding: Binding | None) -> list[TensorObject]:
        """The objects a parameter is stored in, as far as they are known."""
        found = [self.objects.get(id) for id in (() if binding is None else binding.objects)]
        return [object for object in found if isinstance(object, TensorObject)]

    def check_auxiliary(
        self, where: Where, role: AuxiliaryRole, binding: Binding, elements: int | None, parameter: str
    ) -> None:
        objects = self.bound((self.draft.bindings or {}).get(parameter))
        for object in self.bound(binding):
            if object.format != role.format:
                found = f"{shown(object.id)} is {printable(object.format)}; expected {role.format}"
                self.add(where, "auxiliary", found, parameter)
        if elements is not None:
            columns = {object.shape[-1] if len(object.shape) == 2 else None for object in objects}
            fault = role.count_fault(elements, columns.pop() if len(columns) == 1 else None)
            if fault is not None:
                self.add(where, "auxiliary", fault, parameter)
        for format in dict.fromkeys(FORMATS.get(object.format) for object in objects):
            if role.category is not None and format is not None and format.category != role.category:
                found = f"{shown(parameter)} is stored as {format.name}; only {role.category} formats have {role.name}"
                self.add(where, "auxiliary", found, parameter)


def _judged(format: str, layout: str, shape: tuple[int, ...], divisors: int) -> tuple[str | None, int]:
    """Why the layout cannot store such a tensor, None if it can, and the bytes that it takes then."""
    tensor = Tensor(FORMATS[format], shape, divisors)
    fault = LAYOUTS[layout].misfit(tensor)
    return fault, 0 if fault else LAYOUTS[layout].size(tensor)

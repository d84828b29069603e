"""The kinds that an owner is told of, of directories made by hand."""

from __future__ import annotations

import re

from ninfer_convert.container import Binding, Component, Directory, Part, TensorObject, Use
from ninfer_convert.pipeline.kinds import kinds
from ninfer_convert.recipe.globs import parse_glob

LONG = "a.1234567890123456789.w"
"""A number that no glob can write."""


def directory(layers: int = 12, finer: tuple[int, ...] = (), experts: int = 2, policy: str = "A16Only") -> Directory:
    """Layers of a matrix whose object is its own, [3, 4] in another format where `finer`, and of banked experts."""
    objects: list[TensorObject] = []
    bindings: dict[str, Binding] = {}
    uses = []

    def add(shape: tuple[int, ...], format: str) -> TensorObject:
        size = 4 * shape[0] * (1 + (format == "fp32"))
        offset = objects[-1].end if objects else 0
        objects.append(TensorObject(f"weight/{len(objects):06d}", shape, format, "contiguous_le_v1", offset, size))
        return objects[-1]

    bindings["text/token_embedding"] = Binding(add((5, 2), "bf16").id)
    for layer in range(layers):
        down = f"text/layers/{layer}/mlp/down"
        bindings[down] = Binding(add((3, 4), "fp32" if layer in finer else "bf16").id)
        uses.append(Use(down, f"text/layers/{layer}/mlp/product", policy))
        bank = add((6 * experts, 2), "bf16")
        for expert in range(experts):
            for half, begin in (("up", 12 * expert + 6), ("gate", 12 * expert)):
                name = f"text/layers/{layer}/moe/experts/{expert}/{half}"
                bindings[name] = Binding(None, (Part(bank.id, begin, begin + 6),))
    return Directory({"text": Component({})}, tuple(objects), bindings, tuple(uses))


def test_what_differs_in_numbers_alone_is_one_kind() -> None:
    embedding, down, up, gate = kinds(directory())
    assert (embedding.names, embedding.count, embedding.shape) == ("text/token_embedding", 1, (5, 2))
    assert (down.names, down.count, down.formats, down.shape) == ("text/layers/*/mlp/down", 12, ("bf16",), (3, 4))
    assert (up.names, up.count, up.shape) == ("text/layers/*/moe/experts/*/up", 24, (3, 2))
    assert gate.names == "text/layers/*/moe/experts/*/gate"


def test_the_members_of_an_object_are_told_in_the_order_of_its_rows() -> None:
    for kind in kinds(directory(experts=2))[2:]:
        assert kind.parent == "gate + up, 2 of each"
    for kind in kinds(directory(experts=1))[2:]:
        assert kind.parent == "gate + up"
    assert kinds(directory())[1].parent == ""


def test_bytes_add_up_to_those_of_the_objects() -> None:
    made = directory(finer=(2,), experts=3)
    assert sum(kind.bytes for kind in kinds(made)) == sum(each.bytes for each in made.tensors)


def test_the_layers_are_said_where_they_differ_and_a_recipe_selects_them_so() -> None:
    made = directory(finer=(1, 3, 4, 5, 11))
    downs = [kind for kind in kinds(made) if kind.names.endswith("down")]
    assert [kind.names for kind in downs] == [
        "text/layers/{0,2,6..10}/mlp/down",
        "text/layers/{1,3..5,11}/mlp/down",
    ]
    names = [name for name in made.bindings if name.endswith("down")]
    for kind in downs:
        glob = parse_glob(kind.names)
        layers = {int(re.findall(r"\d+", name)[0]) for name in names if glob.matches(name)}
        assert (layers == {1, 3, 4, 5, 11}) == (kind.formats == ("fp32",))
        assert len(layers) == kind.count


def test_uses_tell_what_they_allow_beyond_the_least() -> None:
    assert kinds(directory())[1].uses == "text/layers/*/mlp/product"
    assert kinds(directory(policy="AllowA8"))[1].uses == "text/layers/*/mlp/product, AllowA8"


def test_numbers_within_words_do_not_make_a_kind() -> None:
    made = directory(layers=0)
    (only,) = made.tensors
    bindings = {name: Binding(only.id) for name in ("blk1.w", "blk2.w", "a.007.w", "a.7.w", "a.8.w", LONG)}
    names = [kind.names for kind in kinds(Directory(made.components, made.objects, bindings))]
    assert names == ["blk1.w", "blk2.w", "a.007.w", "a.*.w", LONG]

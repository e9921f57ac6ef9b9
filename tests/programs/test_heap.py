"""Values come back as they were, with all that they share."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckio.errors import BadInput
from ckio.programs.heap import Heap, copy, flatten, known, restore


class Point(NamedTuple):
    x: float
    y: Any


def again(values: dict[str, object]) -> dict[str, Any]:
    """Through text and copies of the memory."""
    heap = flatten(values)
    structure = json.loads(json.dumps(heap.structure))
    return restore(structure, {name: m.copy() for name, m in heap.memories.items()}, heap.objects)


SCALARS = [
    None, True, 3, -(2**70), 0.1, float("inf"), -0.0, 1 + 2j, "ψ", b"\0\xff", np.float64(0.1),
    np.float32(0.1), np.int16(-3), np.bool_(True), np.complex64(1j), range(3, 9, 2),
    slice(None, 3), np.dtype(np.float32), np.sin, Point, json,
]  # fmt: skip


def test_a_value_comes_back_of_the_same_type() -> None:
    for value in SCALARS:
        back = again({"v": value})["v"]
        assert type(back) is type(value)
        assert repr(back) == repr(value)
    assert np.isnan(again({"v": float("nan")})["v"])


def test_structures_come_back() -> None:
    values = {"a": (1, [2.0, {"u": np.arange(3.0), "k": None}], Point(1.0, (2,))), "b": {1: "x"}}
    back = again(values)
    assert repr(back) == repr(values)
    assert type(back["a"][2]) is Point


def test_arrays_keep_their_strides() -> None:
    a = np.arange(24.0).reshape(4, 6)
    views = a, a.T, a[1:3, ::2], a[::-1], a[:, 1], a[2:2], np.broadcast_to(a[0], (3, 6))
    for view in (*views, np.asfortranarray(a), np.asfortranarray(a)[1:3, ::2]):
        back = again({"v": view})["v"]
        assert back.tolist() == view.tolist()
        assert back.shape == view.shape
        if view.size:
            assert back.strides == view.strides


def test_what_a_view_does_not_span_is_not_stored() -> None:
    a = np.arange(100.0)
    assert flatten({"v": a[10:20]}).memories["v"].nbytes == 80
    assert flatten({"v": a[10:20:3]}).memories["v"].nbytes == 80


def test_memory_that_is_shared_is_shared_again() -> None:
    a = np.zeros((4, 6))
    values = {
        "row": a[1],
        "a": a,
        "flat": a.reshape(-1),
        "same": a,
        "all": a[:],
        "other": np.ones(3),
    }
    heap = flatten(values)
    assert {name: m.shape for name, m in heap.memories.items()} == {"row": (4, 6), "other": (3,)}
    back = again(values)
    back["a"][1, 2] = 7
    assert back["row"][2] == 7
    assert back["flat"][8] == 7
    assert back["same"] is back["a"]
    assert back["all"][1, 2] == 7
    assert not np.shares_memory(back["a"], a)


def test_views_of_other_types_share_bytes() -> None:
    a = np.arange(4.0)
    heap = flatten({"a": a, "bits": a.view(np.int64)})
    assert heap.memories["a"].dtype == np.uint8
    back = again({"a": a, "bits": a.view(np.int64)})
    back["bits"][0] = 0
    back["a"][1] = 3.0
    assert back["bits"][1] == np.float64(3.0).view(np.int64)


def test_arrays_side_by_side_are_not_together() -> None:
    a = np.arange(10.0)
    assert list(flatten({"l": a[:5], "r": a[5:]}).memories) == ["l", "r"]
    assert list(flatten({"e": a[3:3], "a": a, "f": a[:0]}).memories) == ["e", "a", "f"]


def test_lists_and_generators_are_shared() -> None:
    inner, random = [1.0], np.random.default_rng(5)
    back = again({"a": [inner, inner], "b": inner, "r": random, "s": random})
    back["b"].append(2)
    assert back["a"][0] is back["a"][1] is back["b"]
    assert back["r"] is back["s"]
    assert back["r"].random() == random.random()


def test_keys_come_back_of_the_same_type() -> None:
    keys = [1, "a", None, True, 2.5, (3, "b", (0.5, None)), np.int64(7), np.float32(0.1), b"c"]
    back = again({"d": {key: [n] for n, key in enumerate(keys)}})["d"]
    assert [repr(key) for key in back] == [repr(key) for key in dict.fromkeys(keys)]
    assert [type(key) for key in back] == [type(key) for key in dict.fromkeys(keys)]
    assert back[3, "b", (0.5, None)] == [5]
    assert not flatten({"d": {2.5: 1}}).holders


def test_two_values_of_one_name_are_refused() -> None:
    for value in (np.ones(2), 1.5, [1]):
        for d in ({1: value, "1": np.zeros(2)}, {"a": {"b": value}, "a.b": 2.5}):
            with pytest.raises(BadInput, match=r"two values are called d\.(1|a\.b)"):
                flatten({"d": d, "other": value})


def test_a_list_that_holds_itself() -> None:
    loop: list[object] = [1]
    loop.append(loop)
    back = again({"loop": loop})["loop"]
    assert back[1] is back


def test_every_random_generator_goes_on_where_it_was() -> None:
    for bits in (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64):
        random = np.random.Generator(bits(3))
        random.standard_normal(7)
        back = again({"r": random})["r"]
        assert back.standard_normal(5).tolist() == random.standard_normal(5).tolist(), bits


def test_what_is_no_data_is_refused_by_its_path() -> None:
    objects = object(), {Point: 2}, {(1, object()): 2}, {1, 2}, iter([1]), lambda: 1
    arrays = np.ma.array([1]), np.array([object()]), np.longdouble(1), np.random.RandomState(1)
    for value in (*objects, *arrays):
        with pytest.raises(BadInput, match=r"state\.0"):
            flatten({"state": (value,)})


def test_what_lacks_is_named() -> None:
    heap = flatten({"u": np.ones(3)})
    with pytest.raises(KeyError, match="u"):
        restore(heap.structure, {}, {})
    with pytest.raises(BadInput, match="f was os:system"):
        restore({"f": {"import": "os:system"}}, {}, known([]))


def test_wrappers_stand_for_their_values() -> None:
    class Box:
        def __init__(self, value: Any) -> None:
            self.value = value

    def value_of(it: Any) -> Any:
        return it.value if isinstance(it, Box) else it

    a = np.arange(4.0)
    boxes = {"a": Box(a), "view": [Box(a[1:])], "t": Box(0.5), "n": 3}
    heap = flatten(boxes, value_of)
    plain = flatten({"a": a, "view": [a[1:]], "t": 0.5, "n": 3})
    assert heap.structure == plain.structure
    assert heap.holders["a"] == [boxes["a"], boxes["view"][0]]  # type: ignore[index]
    assert heap.holders.keys() == {"a", "t"}
    wrapped = restore(heap.structure, heap.memories, {}, lambda name, value: (name, value))
    assert wrapped["t"] == ("t", 0.5)
    assert wrapped["view"][0][0] == "a"
    assert wrapped["view"][0][1].tolist() == [1, 2, 3]
    assert wrapped["n"] == 3


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.slices(6), st.slices(5), st.booleans()),
        min_size=1,
        max_size=5,
    )
)
def test_any_views_of_two_arrays(cuts: list[tuple[int, slice, slice, bool]]) -> None:
    for way in (again, copy):
        check_views(way, cuts)


def check_views(
    way: Callable[[dict[str, Any]], dict[str, Any]], cuts: list[tuple[int, slice, slice, bool]]
) -> None:
    bases = [np.arange(30.0).reshape(6, 5), 100 + np.arange(30.0).reshape(5, 6).T]
    views = [bases[which][rows, columns] for which, rows, columns, _ in cuts]
    views = [view.T if turn else view for view, (*_, turn) in zip(views, cuts, strict=True)]
    back = way({str(number): view for number, view in enumerate(views)})
    for number, view in enumerate(views):  # what is written through one is seen through all
        if view.size:
            view[...] += 1
            back[str(number)][...] += 1
        for other, seen in enumerate(views):
            assert back[str(other)].tolist() == seen.tolist()


def test_copies_share_nothing() -> None:
    values = {"u": np.ones(3), "s": [np.ones(2)]}
    back = copy(values)
    back["u"][0] = 5
    back["s"][0][0] = 5
    assert values["u"].tolist() == [1, 1, 1]  # type: ignore[attr-defined]
    assert isinstance(flatten(values), Heap)


def test_a_copy_keeps_what_is_one_thing() -> None:
    a, inner = np.asfortranarray(np.arange(6.0).reshape(2, 3)), [np.ones(2)]
    loop: list[Any] = [inner, a]
    loop.append(loop)
    found = copy({"a": a, "t": (a, inner, 0.5, np.float32(2)), "d": {(1, 2.5): loop}})
    b = found["a"]
    assert b is found["t"][0] is found["d"][1, 2.5][1]
    assert b is not a
    assert b.strides == a.strides
    assert b.tolist() == a.tolist()
    assert found["d"][1, 2.5][2] is found["d"][1, 2.5]
    assert found["t"][1] is found["d"][1, 2.5][0]
    assert found["t"][1] is not inner
    assert found["t"][2:] == (0.5, np.float32(2))

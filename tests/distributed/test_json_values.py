"""Plain values as JSON: they come back as they were, and nothing is executed."""

import pickle
from collections import OrderedDict

import pytest
import torch
from hypothesis import given, strategies as st
from launched import run_ranks

from onefold.distributed import collectives
from onefold.distributed.json_values import decode, encode, to_text
from onefold.errors import CommError, OnefoldTypeError, ShapeError

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.complex_numbers()
    | st.binary(max_size=5)
    | st.sampled_from([torch.float16, torch.Size([2, 3]), torch.device("cuda", 1)])
)
keys = st.text(max_size=3) | st.integers() | st.just("$") | st.tuples(st.integers())
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3).map(OrderedDict)
    ),
    max_leaves=8,
)


@given(trees)
def test_values_come_back(value):
    back = decode(collectives.json.loads(to_text(encode(value))))
    assert repr(back) == repr(value)


def test_a_set_has_one_text():
    """Processes that compare what they save have orders of their own."""
    assert encode({0, 8}) == encode({8, 0}) and encode(frozenset("ab"))["items"] == ["a", "b"]


def test_errors_come_back():
    back = decode(encode({"found": ShapeError("no"), "sizes": {1, 2}}))
    assert type(back["found"]) is ShapeError and str(back["found"]) == "no"
    assert back["sizes"] == {1, 2}
    with pytest.raises(ValueError, match="'print' is not an error of onefold"):
        decode({"$": "error", "value": ["print", "x"]})
    with pytest.raises(ValueError, match="no value has the tag"):
        decode({"$": "what", "value": 1})
    with pytest.raises(OnefoldTypeError, match=r"a\.0 is a object"):
        encode({"a": [object()]})


class Program:
    def __reduce__(self):
        return print, ("this must not run",)


def test_a_peer_that_sends_a_pickle(capfd):
    def program(rank):
        data = pickle.dumps(Program()) if rank else b"[1,2]"
        piece = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        sizes = collectives.all_gather(torch.tensor(len(data)), (0, 1), [(), ()])
        pieces = collectives.all_gather(piece, (0, 1), [(int(size),) for size in sizes])
        assert collectives.read_object(pieces[0]) == [1, 2]
        with pytest.raises(CommError, match="sent an invalid value"):
            collectives.read_object(pieces[1])
        return collectives.gather_objects((rank, {"x": torch.int8}), (0, 1))

    def on_rank():
        return program(collectives.world().rank)

    wanted = [(0, {"x": torch.int8}), (1, {"x": torch.int8})]
    assert run_ranks(2, on_rank) == [wanted, wanted]
    assert "must not run" not in capfd.readouterr().out

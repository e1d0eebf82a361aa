"""StateHash: equal numbers mean equal states."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from toy_env import ToyEnv, ToyVectorEnv

from creditrl.errors import ConfigError
from creditrl.wrappers import History, StateHash, VectorStateHash
from creditrl.wrappers.state_hash import hash_state


def test_the_hash_is_63_bits_of_blake2b():
    # printf 'room 1' | b2sum -l 64 gives eb45af693599d1ab.
    digest = hashlib.blake2b(b"room 1", digest_size=8).digest()
    assert hash_state(b"room 1") == int.from_bytes(digest, "little") >> 1 == 6190422652651807477
    assert 0 <= hash_state(b"") < 2**63
    assert np.int64(hash_state(b"\xff")) >= 0


def test_the_sources_differ_in_the_states_they_distinguish():
    def numbers(source: str) -> list[int]:
        env = StateHash(ToyEnv(), source=source)
        found = []
        for task in (4, 5):  # corridors of different length
            _, info = env.reset(seed=3, options={"task": task})
            if source == "state":
                assert info["state_hash"] == hash_state(env.unwrapped.state_key())
            found.append(info["state_hash"])
            found.append(env.step("say hallo")[4]["state_hash"])
        return found

    assert len(set(numbers("state"))) == 4
    assert len(set(numbers("world"))) == 1  # the cell alone
    assert len(set(numbers("text"))) == 4


def test_the_text_is_the_bare_environments_in_any_wrapper_order():
    inside = History(StateHash(ToyEnv(), source="text"))
    outside = StateHash(History(ToyEnv()), source="text")
    assert inside.reset(seed=0)[1]["state_hash"] == outside.reset(seed=0)[1]["state_hash"]
    assert inside.step("look")[4]["state_hash"] == outside.step("look")[4]["state_hash"]


def test_copies_in_equal_states_share_their_number():
    venv = VectorStateHash(ToyVectorEnv(4, group_size=4))
    _, info = venv.reset(seed=0)
    assert len(set(info["state_hash"].tolist())) == 1 and info["state_hash"].dtype == np.int64
    *_, info = venv.step(["say a", "say a", "say b", "say b"])
    first, second, third, fourth = info["state_hash"].tolist()
    assert first == second != third == fourth


def test_an_unknown_source_is_named():
    with pytest.raises(ConfigError, match="Known: state, world, text"):
        StateHash(ToyEnv(), source="worlds")

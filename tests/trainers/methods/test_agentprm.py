"""AgentPRM: progress by GAE over promises, and the promise itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from creditrl.trainers.credit import GAEConfig, token_table, turn_table, whiten
from creditrl.trainers.methods.agentprm import AgentPRM, AgentPRMConfig

PLAIN = GAEConfig(gamma=0.5, lam=0.5, whiten=False)
TOKENS = token_table([0, 1, 2])
TURNS = turn_table(reward=[0, 1, 0], episode=[0, 0, 1])
PROMISE = np.array([0.4, 0.9, 0.2], dtype=np.float32)


def credit(turns=TURNS, promise=PROMISE, **changes):
    turns = turns.with_scores(promise_N=promise)
    return AgentPRM(AgentPRMConfig(**({"gae": PLAIN} | changes))).credit(turns, TOKENS)


def test_agentprm_by_hand():
    # Values before the turns: 0.3 (the mean of 0.4 and 0.2), 0.4, 0.3.
    # delta: 0.5 * 0.4 - 0.3 = -0.1, 1 - 0.4 = 0.6, -0.3. A_0 = -0.1 + 0.25 * 0.6.
    found = credit()
    np.testing.assert_allclose(found.parts["progress"], [0.05, 0.6, -0.3], atol=1e-6)
    np.testing.assert_allclose(found.value_target_N, [0.35, 1.0, 0.0], atol=1e-6)
    # Half of the promise less its mean of 0.5.
    np.testing.assert_allclose(found.advantage_N, [0.0, 0.8, -0.45], atol=1e-6)
    whitened = credit(gae=replace(PLAIN, whiten=True)).advantage_N
    np.testing.assert_allclose(whitened, whiten([0.0, 0.8, -0.45]), atol=1e-6)


def test_a_potential_shifts_only_the_progress_of_first_turns_and_equally():
    # phi = 3 where both begin, -1 before the second turn: promises of what follows it move by phi.
    shaped = replace(TURNS, reward_N=np.array([0.5 * -1 - 3, 1 + 1, -3], dtype=np.float32))
    moved = credit(shaped, PROMISE - np.array([-1, 0, 0], dtype=np.float32))
    gap = moved.parts["progress"] - credit().parts["progress"]
    np.testing.assert_allclose(gap, [gap[0], 0, gap[0]], atol=1e-6)

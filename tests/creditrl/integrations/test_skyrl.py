"""skyrl-gym makes our environments as SkyRL's generator does, and plays them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from creditrl.errors import ConfigError, RunFolderError
from creditrl.integrations.play import Play
from creditrl.integrations.skyrl import ENTRY_POINT, NAME, write_data

pytestmark = pytest.mark.reference("skyrl_gym")


@pytest.fixture(autouse=True)
def registered() -> Any:
    import skyrl_gym
    from skyrl_gym.envs.registration import deregister

    skyrl_gym.register(id=NAME, entry_point=ENTRY_POINT)
    yield
    deregister(NAME)


def first_row(path: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    row: dict[str, Any] = pq.read_table(path).to_pylist()[0]
    return row


def test_the_experts_replies_are_played(env, tmp_path):
    import skyrl_gym
    from skyrl_gym.metrics import aggregate_for_environment

    row = first_row(write_data(tmp_path / "train.parquet", env, episodes=2, seed=7))
    prompt, env_class = row.pop("prompt"), row.pop("env_class")
    made = skyrl_gym.make(env_class, env_config={}, extras=row)
    messages, _ = made.init(prompt)
    assert messages == prompt
    play = Play(env)
    assert play.begin(made.play.info["task_id"], 7) == prompt
    done = False
    while not done:
        reply = play.form.reply(play.env.expert_action() or "nothing")
        out = made.step(reply)
        assert out["observations"] == play.reply(reply)
        assert out["reward"] == play.rewards[-1] and out["metadata"]["grounded"]
        done = out["done"]
    assert play.over and made.turns == play.turns
    metrics = made.get_metrics()
    assert metrics["success"] == play.result()["success"] and metrics["turns"] == play.turns
    assert aggregate_for_environment(NAME, [metrics, metrics]) == metrics
    made.close()


def test_foreign_rows_and_files_are_refused(tmp_path):
    import skyrl_gym

    with pytest.raises(
        ConfigError, match="expected data by creditrl.integrations.skyrl.write_data"
    ):
        skyrl_gym.make(NAME, env_config={}, extras={"reward_spec": {}})
    data = write_data(tmp_path / "train.parquet", "VisualSokoban", episodes=1)
    with pytest.raises(RunFolderError, match="is there already"):
        write_data(data, "VisualSokoban", episodes=1)

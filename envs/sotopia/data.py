"""SOTOPIA's own scenarios and characters, and where they come from."""

from __future__ import annotations

from creditrl.envs.data import OfficialData, PlainFile
from creditrl.envs.sotopia.official import holds_profiles, official_coverage

__all__ = ["DATA"]


def _profiles(name: str, size: int, sha256: str) -> PlainFile:
    """Return a file of SOTOPIA's profiles, from its demonstration space."""
    commit = "0c22348b475f2f0efcfcdad360e0710ca48d1636"
    url = f"https://raw.githubusercontent.com/sotopia-lab/sotopia-space/{commit}/profiles/{name}"
    return PlainFile(name, url, size, sha256, _MIRROR)


_MIRROR = (
    "The same file lies on a mirror: --base-url "
    "https://huggingface.co/spaces/cmu-lti/sotopia-space/resolve/main/profiles."
)

DATA = OfficialData(
    env="SOTOPIA",
    home="sotopia",
    what="SOTOPIA's 90 scenarios with 450 casts, and SOTOPIA-pi's for training",
    source="github.com/sotopia-lab/sotopia-space, github.com/sotopia-lab/sotopia-pi",
    licence="CC-BY-SA-4.0",
    patterns=("*_profiles.jsonl*", "*_combo*.jsonl*", "pi_dump.rdb"),
    layout=(
        "environment_profiles.jsonl, agent_profiles.jsonl, relationship_profiles.jsonl, "
        "env_agent_combo_storages.jsonl: the benchmark (profiles)",
        "pi_dump.rdb: 386 scenarios and 2,510 casts to train on (pi); or both as "
        "pi_environment_profiles.jsonl, pi_env_agent_combos.jsonl",
    ),
    example="creditrl play SOTOPIA --data official --split valid_unseen",
    examples={"pi": "creditrl play SOTOPIA --data official --split train"},
    variables=("CREDITRL_SOTOPIA_DATA",),
    holds=holds_profiles,
    coverage=official_coverage,
    releases={
        "profiles": (
            _profiles(
                "environment_profiles.jsonl",
                94_093,
                "b75de0c5b1b951ebeb66eb223ab3eec996caa890263a0bcd48ce2d9f4ce3e109",
            ),
            _profiles(
                "agent_profiles.jsonl",
                32_119,
                "1f2f74c07fd9105242c7f2a951d5378f52cd03a6df113f6020edb90d31202f1b",
            ),
            _profiles(
                "relationship_profiles.jsonl",
                65_223,
                "33cd50cc1fbe93b8b7010ce5047e767e3a1ead421e791fee2bb1b9b2073327a2",
            ),
            _profiles(
                "env_agent_combo_storages.jsonl",
                71_100,
                "46d5858322e8c8266c4aabc45e3ca5a6d8f91df0fc6f167b10adb5b1477a4815",
            ),
        ),
        # The database that was in the repository of SOTOPIA-pi's authors for a time.
        "pi": (
            PlainFile(
                "pi_dump.rdb",
                "https://raw.githubusercontent.com/sotopia-lab/sotopia-pi/"
                "cf2a3b3d4d51fcdfe3cd7df899816f23717d679f/data_generate/dump.rdb",
                1_091_757,
                "54c333daec157cb1ac2543b15a1ec0e2727c72cc5453c800a33d749d1eee281f",
            ),
        ),
    },
)

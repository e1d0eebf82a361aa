"""ALFWorld's own games, and where they come from."""

from __future__ import annotations

from creditrl.envs.alfworld.official import (
    RELEASE_SIZES,
    holds_games,
    official_coverage,
    official_home,
    survey,
)
from creditrl.envs.data import Archive, OfficialData

__all__ = ["DATA"]

_JSON = Archive(
    "0.2.2/json_2.1.1_json.zip",
    72_018_818,
    "25171f16e20ad7b048c47275c45b0babf3aa1cbab29cec97387922350a9844bc",
)

DATA = OfficialData(
    env="ALFWorld",
    home="alfworld",
    what="ALFWorld's games: 3,553 train, 140 valid_seen, 134 valid_unseen",
    source="github.com/alfworld/alfworld",
    licence="MIT",
    patterns=("json_2.1.1/*/*/*/game.tw-pddl", "json_2.1.1/*/*/*/traj_data.json"),
    layout=(
        "json_2.1.1/<split>/<task>/<trial>/game.tw-pddl",
        "json_2.1.1/<split>/<task>/<trial>/traj_data.json",
        "of the splits train, valid_seen, valid_unseen and valid_train",
    ),
    example="creditrl play ALFWorld --data official",
    variables=("CREDITRL_ALFWORLD_DATA", "ALFWORLD_DATA"),
    base_url="https://github.com/alfworld/alfworld/releases/download",
    # Sizes and checksums as published by people who downloaded the files; the release itself has
    # none. Upstream's PDDL archive is left out: the game files contain all of it.
    releases={
        # Files that alfworld-download 0.4.2 fetches.
        "0.4.0": (
            _JSON,
            Archive(
                "0.4.0/json_2.1.2_tw-pddl.zip",
                36_493_542,
                "eea90499df27b9cb3147d1d1927264146d38194b575e25f70a82875545742dcb",
            ),
        ),
        # Files that later versions of alfworld-download fetch.
        "0.4.2": (
            _JSON,
            Archive(
                "0.4.2/json_2.1.3_tw-pddl.zip",
                36_507_267,
                "5df77ea759f2211a4106082839ddbbb790f1ba4e7d097ed732cf453f72aa36cf",
            ),
        ),
        # The wording `put X in/on Y`.
        "0.2.2": (_JSON, Archive("0.2.2/json_2.1.1_tw-pddl.zip", 45_059_629)),
    },
    locate=official_home,
    survey=survey,
    holds=holds_games,
    coverage=official_coverage,
    full=RELEASE_SIZES,
)

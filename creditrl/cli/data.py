"""``creditrl data ls | get | import | export``: official data, and what goes to and from others."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from creditrl.cli.console import console, next_step, say, table
from creditrl.cli.fetch import Archive, Order, PlainFile, get_archive, get_file, has_record
from creditrl.envs.alfworld.official import (
    RELEASE_SIZES,
    holds_games,
    official_home,
    survey,
)
from creditrl.envs.alfworld.official import (
    official_coverage as alfworld_coverage,
)
from creditrl.envs.sokoban.tasks import holds_levels
from creditrl.envs.sokoban.tasks import official_coverage as sokoban_coverage
from creditrl.envs.sotopia.official import holds_profiles
from creditrl.envs.sotopia.official import official_coverage as sotopia_coverage
from creditrl.envs.tasks import Coverage, data_home, meant_folder
from creditrl.envs.virtualhome.official import official_coverage as virtualhome_coverage
from creditrl.envs.virtualhome.scenes import holds_data
from creditrl.envs.webshop.official import holds_shop
from creditrl.envs.webshop.official import official_coverage as webshop_coverage
from creditrl.errors import ConfigError, DataError, UnknownNameError, did_you_mean
from creditrl.flags import override
from creditrl.view.progress import Progress, bytes_text

__all__ = ["OFFICIAL_DATA", "OfficialData", "run"]


@dataclass(frozen=True, slots=True)
class OfficialData:
    """The files of a benchmark's own that an environment can read."""

    env: str
    """Short name of the environment."""
    home: str
    """Name of the folder, as :func:`creditrl.envs.tasks.data_home` takes it."""
    what: str
    source: str
    licence: str
    patterns: tuple[str, ...]
    """Globs below the folder that count as data."""
    layout: tuple[str, ...]
    """What the folder holds, a line each."""
    example: str
    """A command that uses it."""
    variables: tuple[str, ...]
    """Environment variables that name the folder."""
    holds: Callable[[Path], bool]
    """Whether a folder holds this data."""
    coverage: Callable[[Path], Sequence[Coverage]]
    """Says how much of what is published lies in a folder; it takes seconds at most."""
    fetch: tuple[str, ...] = ()
    """What the user does to get it, a line each; empty where ``get`` does it."""
    base_url: str = ""
    """Address that the archives lie below."""
    releases: Mapping[str, tuple[Archive | PlainFile, ...]] = field(default_factory=dict)
    """What ``get`` fetches, by release, the usual one first; empty: nothing is fetched."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Commands that use a release, where they differ from :attr:`example`."""
    locate: Callable[[str | None], Path] | None = None
    """Folder for the user's argument; None: :func:`creditrl.envs.tasks.data_home` decides."""
    survey: Callable[[Path], tuple[dict[str, int], list[Path]]] | None = None
    """Counts the tasks by split and finds the folders of damaged ones; it may take a while."""
    full: Mapping[str, int] = field(default_factory=dict)
    """The counts of a complete release."""

    def folder(self, argument: str | None) -> Path:
        """Return the folder of this data."""
        if self.locate is not None:
            return self.locate(argument)
        return data_home(self.home, argument)


_ALFWORLD_JSON = Archive(
    "0.2.2/json_2.1.1_json.zip",
    72_018_818,
    "25171f16e20ad7b048c47275c45b0babf3aa1cbab29cec97387922350a9844bc",
)


def _from_drive(name: str, id: str, size: int, sha256: str) -> PlainFile:
    """Return a file on Google Drive; ``confirm`` skips its question about large files."""
    url = f"https://drive.usercontent.google.com/download?id={id}&export=download&confirm=t"
    return PlainFile(name, url, size, sha256, _NOT_FROM_DRIVE)


_NOT_FROM_DRIVE = (
    "Google Drive refuses a file that many people have fetched that day. A mirror's copy is "
    "checked like the original: --base-url "
    "https://huggingface.co/datasets/YWZBrandon/webshop-data/resolve/main, or another. Or fetch it "
    "with a browser into a folder: --zips FOLDER."
)


def _list_of(name: str, file: str, size: int, sha256: str) -> PlainFile:
    """Return a list of goals in ETO's repository, or in IPR's, whose lists SPA uses."""
    repository = {
        "eto": "Yifan-Song793/ETO/a2fc5da38f8d00cfaf3f9b6370d586eebaf72904",
        "spa_rl": "WeiminXiong/IPR/93335a3a818b46c1d0e081cd76288cf1cbf7dee4",
    }[name]
    url = f"https://raw.githubusercontent.com/{repository}/eval_agent/data/webshop/{file}.json"
    return PlainFile(f"splits/{name}_{file}.json", url, size, sha256)


def _profiles(name: str, size: int, sha256: str) -> PlainFile:
    """Return a file of SOTOPIA's profiles, as its demonstration space keeps them."""
    commit = "0c22348b475f2f0efcfcdad360e0710ca48d1636"
    url = f"https://raw.githubusercontent.com/sotopia-lab/sotopia-space/{commit}/profiles/{name}"
    return PlainFile(name, url, size, sha256, _SOTOPIA_MIRROR)


_SOTOPIA_MIRROR = (
    "The same file lies on a mirror: --base-url "
    "https://huggingface.co/spaces/cmu-lti/sotopia-space/resolve/main/profiles."
)

# Google Drive ids of upstream's setup.sh; sizes and checksums as people who keep copies of the
# files have published them, each at least twice.
_HUMAN_GOALS = _from_drive(
    "items_human_ins.json",
    "14Kb5SPBk_jfdLZ_CDBNitW98QLDlKR5O",
    5_137_548,
    "cf78667548a71786e1d9049c24b802e48e1084ad4bb021cae56ce1f6d96954a3",
)

OFFICIAL_DATA: tuple[OfficialData, ...] = (
    OfficialData(
        env="VisualSokoban",
        home="sokoban",
        what="Boxoban levels (10x10, 4 boxes), or any XSB level files of your own",
        source="github.com/google-deepmind/boxoban-levels",
        licence="Apache-2.0",
        patterns=("**/*.txt", "**/*.xsb", "**/*.sok"),
        layout=(
            "unfiltered/{train,valid,test}/*.txt",
            "medium/{train,valid}/*.txt",
            "hard/*.txt",
            "or any *.txt, *.xsb files of levels in one folder",
        ),
        fetch=(
            "git clone --depth 1 https://github.com/google-deepmind/boxoban-levels {folder}",
            "or put level files of your own there.",
        ),
        example="creditrl play VisualSokoban --tier boxoban --data official",
        variables=("CREDITRL_SOKOBAN_DATA",),
        holds=holds_levels,
        coverage=sokoban_coverage,
    ),
    OfficialData(
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
        # Sizes and checksums as people who downloaded the files have published them. The release
        # itself names none. Upstream's PDDL archive is left out: the game files hold all of it.
        releases={
            # What alfworld-download 0.4.2 fetches.
            "0.4.0": (
                _ALFWORLD_JSON,
                Archive(
                    "0.4.0/json_2.1.2_tw-pddl.zip",
                    36_493_542,
                    "eea90499df27b9cb3147d1d1927264146d38194b575e25f70a82875545742dcb",
                ),
            ),
            # What alfworld-download fetches since.
            "0.4.2": (
                _ALFWORLD_JSON,
                Archive(
                    "0.4.2/json_2.1.3_tw-pddl.zip",
                    36_507_267,
                    "5df77ea759f2211a4106082839ddbbb790f1ba4e7d097ed732cf453f72aa36cf",
                ),
            ),
            # The wording `put X in/on Y`.
            "0.2.2": (_ALFWORLD_JSON, Archive("0.2.2/json_2.1.1_tw-pddl.zip", 45_059_629)),
        },
        locate=official_home,
        survey=survey,
        holds=holds_games,
        coverage=alfworld_coverage,
        full=RELEASE_SIZES,
    ),
    OfficialData(
        env="WebShop",
        home="webshop",
        what="WebShop's products and goals: the 1,000-product set, or all 1.18 million",
        source="github.com/princeton-nlp/WebShop",
        licence="MIT; product texts scraped from a shop",
        patterns=("items_*.json", "items_*.json.xz", "items_*.json.gz", "splits/*.json"),
        layout=(
            "items_shuffle_1000.json, items_ins_v2_1000.json: 1,000 products (small)",
            "items_shuffle.json, items_ins_v2.json: 1.18 million products, 5.7 GB (full)",
            "items_human_ins.json: 12,087 goals that people wrote, 13 of them for the small set",
            "splits/*.json: which goals ETO and SPA train and test on (splits)",
        ),
        example="creditrl play WebShop --data official --num-products 1000",
        examples={
            "full": "creditrl play WebShop --data official",
            "splits": "creditrl play WebShop --data official --goals human --splits eto",
        },
        variables=("CREDITRL_WEBSHOP_DATA",),
        holds=holds_shop,
        coverage=webshop_coverage,
        releases={
            "small": (
                _from_drive(
                    "items_shuffle_1000.json",
                    "1EgHdxQ_YxqIQlvvq5iKlCrkEKR6-j0Ib",
                    4_467_013,
                    "30a4765c3a327af72d9a9a95a6b2486d516f0fa1d3ecd83681901ce82a21b269",
                ),
                _from_drive(
                    "items_ins_v2_1000.json",
                    "1IduG0xl544V_A_jv3tHXC0kyFi7PnyBu",
                    147_099,
                    "f88a36314a397b53b3d9c3fa5878e5f7b26d35019a51ec83fbedeca61a948f6f",
                ),
                _HUMAN_GOALS,
            ),
            "full": (
                _from_drive(
                    "items_shuffle.json",
                    "1A2whVgOO0euk5O13n2iYDM0bQRkkRduB",
                    5_479_720_229,
                    "2ef591d65df3af89e972ab72468eb82cbf124d876552d9f3678667edd620a6c8",
                ),
                _from_drive(
                    "items_ins_v2.json",
                    "1s2j6NgHljiZzQNL3veZaAiyW_qDEgBNi",
                    186_295_270,
                    "1d36af476bdb8f82a5da62bd8acdabe54cd8de2fa84010d37da5c4890feb447e",
                ),
                _HUMAN_GOALS,
            ),
            # Which goals papers train and test on; in the order of upstream's human goals.
            "splits": (
                _list_of(
                    "eto",
                    "train_indices",
                    10_796,
                    "15f44b4a5ca1e8c2f2a7f2e1849d7ebe1d93e5020426d80408b5f21f0a3a6202",
                ),
                _list_of(
                    "eto",
                    "test_indices",
                    1_223,
                    "0e7fa2b9646a8800761a29fe9bdfff757235bdec7597e3211525230434e2ea66",
                ),
                _list_of(
                    "eto",
                    "test_indices_500",
                    3_068,
                    "470de709d4e7beef58407e7dc725824b2a6a727f2d0ecf16bc20daa9deaa3587",
                ),
                _list_of(
                    "spa_rl",
                    "train_indices",
                    9_585,
                    "a2dff632a2e730830e8398411141004104e00cac5b5329847316514d91fc0dac",
                ),
                _list_of(
                    "spa_rl",
                    "test_indices",
                    1_223,
                    "8ccc37a8b89392359d2d124e321b0dd47d6072bf4410847f606762a211a0f189",
                ),
                _list_of(
                    "spa_rl",
                    "test_indices_500",
                    3_068,
                    "470de709d4e7beef58407e7dc725824b2a6a727f2d0ecf16bc20daa9deaa3587",
                ),
            ),
        },
    ),
    OfficialData(
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
        coverage=sotopia_coverage,
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
            # The database that SOTOPIA-pi's authors kept in their repository for a time.
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
    ),
    OfficialData(
        env="VirtualHome",
        home="virtualhome",
        what="VirtualHome's scenes, tables, programs and graphs; task files of SPA and STeCa",
        source="github.com/xavierpuigf/virtualhome",
        licence="scenes and programs CC BY-NC-SA 4.0",
        patterns=(
            "**/*.zip",
            "**/*.tar.*",
            "**/*.jsonl",
            "**/*.jsonl.xz",
            "**/*_graph.json",
            "**/init_and_final_graphs/**/*.json",
            "**/executable_programs/**/*.txt",
            "**/original_executable_progs/**/*.txt",
        ),
        layout=(
            "example_graphs/*_graph.json and resources/*.json of v1.0.0, as they are or packed",
            "2018-10-26/example_graphs/TrimmedTestScene*_graph.json: scenes of the programs",
            "original_executable_progs.zip: 5,411 programs of 2018 (--source programs)",
            "executable_programs/, init_and_final_graphs/: programs with their graphs, or "
            "triples.jsonl (--source triples)",
            "new_train_conversation.jsonl, new_unseen_test.jsonl, vh_seen_test.jsonl, "
            "vh_unseen_test.jsonl: tasks of SPA and STeCa (--source spa), with the graphs",
        ),
        fetch=(
            "mkdir -p {folder}; git clone https://github.com/xavierpuigf/virtualhome upstream",
            "git -C upstream archive --format zip -o {folder}/v1.0.0.zip v1.0.0 example_graphs "
            "resources",
            "git -C upstream archive --format zip --prefix 2018-10-26/ -o {folder}/2018-10-26.zip "
            "d6362470 example_graphs",
            "git -C upstream show d6362470:original_executable_progs.zip > "
            "{folder}/original_executable_progs.zip",
            "programs with graphs: unpack http://virtual-home.org/release/programs/"
            "programs_processed_precond_nograb_morepreconds.zip there",
            "SPA's graphs and task files: those that the README of "
            "github.com/WangHanLinHenry/SPA-RL-Agent fetches",
        ),
        example="creditrl play VirtualHome --data official --source programs",
        variables=("CREDITRL_VIRTUALHOME_DATA",),
        holds=holds_data,
        coverage=virtualhome_coverage,
    ),
)


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Say which official data is there."""

    folder: str | None = None
    """Look here instead of the environment's own folder."""


@dataclass(frozen=True, slots=True)
class GetOptions:
    """Get official data, or say how to. Run it again after a failure: it goes on where it was."""

    folder: str | None = None
    """Put it here instead of the environment's own folder."""
    release: str | None = None
    """Which release, e.g. 0.4.0 of ALFWorld, full of WebShop; the usual one if left out."""
    base_url: str | None = None
    """Fetch from below this address (a mirror) instead of the makers' own."""
    zips: str | None = None
    """Take the archives or files from this folder instead of the network."""
    unverified: bool = False
    """Take archives or files whose size or checksum is not the release's."""
    force: bool = False
    """Fetch and unpack again, and replace files that you have changed."""


def run(argv: list[str]) -> int:
    """Run ``data ls``, ``get NAME``, ``import FILE`` or ``export NAME``."""
    if not argv or argv[0] in ("-h", "--help"):
        override(ListOptions(), ["--help"], "creditrl data ls | get | import | export")
    action, *rest = argv
    if action == "ls":
        return _ls(override(ListOptions(), rest, "creditrl data ls"))
    if action == "get":
        if rest and rest[0] in ("-h", "--help"):
            override(GetOptions(), ["--help"], "creditrl data get NAME")
        if not rest or rest[0].startswith("-"):
            known = ", ".join(data.env.lower() for data in OFFICIAL_DATA)
            raise ConfigError(f"Which data? Expected `creditrl data get NAME`; known: {known}.")
        options = override(GetOptions(), rest[1:], "creditrl data get NAME")
        return _get(rest[0], options, shlex.join(["creditrl", "data", "get", *rest]))
    if action == "export":
        from creditrl.cli.export import run as export

        return export(rest)
    if action == "import":
        from creditrl.cli.import_run import run as import_run

        return import_run(rest)
    actions = ("ls", "get", "import", "export")
    raise UnknownNameError(
        f"No data command {action!r}.{did_you_mean(action, actions)} Known: {', '.join(actions)}."
    )


def _ls(options: ListOptions) -> int:
    rows = table("environment", "official data", "folder", ">files", ">size")
    counts = []
    for data in OFFICIAL_DATA:
        folder = data.folder(options.folder)
        files = _files(data, folder)
        size = sum(path.stat().st_size for path in files)
        rows.add_row(
            data.env,
            data.what,
            str(folder) + ("" if folder.is_dir() else " (not there)"),
            f"{len(files):,}",
            bytes_text(size),
        )
        if files:
            counts.append(f"{data.env}: {_coverage(data, folder)}.")
    console().print(rows)
    for line in counts:
        print(line)
    print("No environment needs a download: data=builtin, the default, makes its own tasks.")
    next_step(f"creditrl data get {OFFICIAL_DATA[-1].env.lower()}")
    return 0


def _coverage(data: OfficialData, folder: Path) -> str:
    """Return how much of what is published is there, in words."""
    try:
        found = data.coverage(folder)
    except DataError as error:
        return str(error).rstrip(".")
    return "; ".join(map(str, found)) or "files that nobody counts, or that were not read yet"


def _get(name: str, options: GetOptions, command: str) -> int:
    by_name = {key: data for data in OFFICIAL_DATA for key in (data.env.lower(), data.home)}
    data = by_name.get(name.lower())
    if data is None:
        raise UnknownNameError(
            f"No official data named {name!r}.{did_you_mean(name.lower(), by_name)} "
            f"Known: {', '.join(by_name)}."
        )
    if options.folder is not None:
        _refuse_part(data, data.folder(options.folder))
    if data.releases:
        return _fetch(data, options, command)
    if options != GetOptions(folder=options.folder):
        raise ConfigError(
            f"{data.env}'s data is not fetched by this command, so only --folder means something "
            f"here. Run `creditrl data get {name}` to see how to get it."
        )
    folder = data.folder(options.folder)
    files = _files(data, folder)
    print(f"{data.env} plays tasks of its own making; there is nothing that it must download.")
    _describe(data, folder)
    if files:
        size = bytes_text(sum(path.stat().st_size for path in files))
        print(f"There now: {len(files):,} files, {size}.")
        next_step(data.example)
        return 0
    print("There now: nothing. To get it:")
    for line in data.fetch:
        print(f"  {line.format(folder=folder)}")
    next_step("creditrl data ls")
    return 0


def _refuse_part(data: OfficialData, folder: Path) -> None:
    """Raise where somebody named a part of the data as its folder: it would be fetched into it."""
    above = meant_folder(folder, data.holds)
    if folder.exists() and not data.holds(folder) and above in folder.absolute().parents:
        raise ConfigError(f"--folder {folder}: it is a part of the data in {above}. Name that.")
    if folder.is_file():
        raise ConfigError(f"--folder {folder} is a file: expected a folder.")


def _fetch(data: OfficialData, options: GetOptions, command: str) -> int:
    """Fetch what a release consists of, and unpack what is packed."""
    release = options.release or next(iter(data.releases))
    parts = data.releases.get(release)
    if parts is None:
        raise UnknownNameError(
            f"No release {release!r} of {data.env}'s data.{did_you_mean(release, data.releases)} "
            f"Known: {', '.join(data.releases)}."
        )
    if options.zips is not None and options.base_url is not None:
        raise ConfigError("--zips and --base-url: the files come from one of them.")
    archives = [part for part in parts if isinstance(part, Archive)]
    files = [part for part in parts if isinstance(part, PlainFile)]
    home = data.folder(options.folder)
    order = Order(
        home=home,
        base_url=options.base_url or data.base_url,
        zips=None if options.zips is None else Path(options.zips).expanduser(),
        verified=not options.unverified,
        force=options.force,
        is_damaged=_is_damaged_json if archives else _is_cut_json,
        command=command,
    )
    _describe(data, home)
    if files:
        with Progress() as progress:
            for file in files:
                get_file(file, order, progress)
        there = _files(data, home)
        size = bytes_text(sum(path.stat().st_size for path in there))
        print(f"There now: {len(there):,} files, {size}.")
        _next(data, release, home)
        return 0
    sizes, damaged = data.survey(home) if data.survey is not None else ({}, [])
    ours = any(has_record(home, archive) for archive in archives)
    complete = bool(data.full) and all(sizes.get(s) == size for s, size in data.full.items())
    asked = ours or options.force or options.release is not None
    if complete and not damaged and not asked:
        # Upstream's own tool has been here.
        print("All of it is there already.")
    else:
        with Progress() as progress:
            for archive in archives:
                suspects = {
                    path.relative_to(home).as_posix()
                    for folder in damaged
                    for path in folder.glob("*")
                }
                get_archive(archive, order, progress, suspects)
        sizes, damaged = data.survey(home) if data.survey is not None else ({}, [])
    print(f"There now: {_sizes(sizes) or 'nothing that the environment can use'}.")
    if any(sizes.get(split) != size for split, size in data.full.items()):
        print(f"A full release has {_sizes(data.full)}.")
    if damaged:
        say(f"{len(damaged):,} are damaged, e.g. {damaged[0]}; --force replaces them.")
    _next(data, release, home)
    return 0


def _next(data: OfficialData, release: str, home: Path) -> None:
    where = "" if home == data.folder(None) else f" --data-dir {home}"
    next_step(data.examples.get(release, data.example) + where)


def _describe(data: OfficialData, folder: Path) -> None:
    variables = " or ".join(f"${name}" for name in data.variables)
    print(f"It {'also ' if data.fetch else ''}reads: {data.what}.")
    print(f"Source: {data.source} ({data.licence}).")
    print(f"Folder: {folder} (or {variables}, or data_dir=...), holding")
    for line in data.layout:
        print(f"  {line}")


def _is_damaged_json(path: Path) -> bool:
    """Return whether a file is no JSON: cut or garbled, not one that somebody has changed."""
    try:
        json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return True
    return False


def _is_cut_json(path: Path) -> bool:
    """Return whether a file does not end as it begins; it may be too large to be read for that."""
    with open(path, "rb") as file:
        begin = file.read(64).lstrip()[:1]
        file.seek(-min(64, path.stat().st_size), 2)
        end = file.read().rstrip()[-1:]
    return (begin, end) not in ((b"[", b"]"), (b"{", b"}"))


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{size:,} {split}" for split, size in sizes.items())


def _files(data: OfficialData, folder: Path) -> list[Path]:
    return sorted({path for pattern in data.patterns for path in folder.glob(pattern)})

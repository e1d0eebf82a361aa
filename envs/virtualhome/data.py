"""VirtualHome's own scenes and programs, and how to get them."""

from __future__ import annotations

from creditrl.envs.data import OfficialData
from creditrl.envs.virtualhome.official import official_coverage
from creditrl.envs.virtualhome.scenes import holds_data

__all__ = ["DATA"]


DATA = OfficialData(
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
    coverage=official_coverage,
)

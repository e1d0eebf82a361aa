"""The page that ``creditrl bench scale`` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from creditrl.bench.scale import RESOURCES

__all__ = ["RAY_MISSING", "Rows", "answer", "page", "tables"]

RAY_MISSING = "Ray is not installed, so its calls and transfers were not measured: they count as 0."

Rows = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""Title, head, rows."""


def _costs(found: Mapping[str, Any]) -> Rows:
    """Return the measurements, except those of environments."""
    costs = found["costs"]
    loop, begin, ray = costs["loop_us"], costs["begin_us"], costs["ray"]
    copies = found["options"]["copies"]

    def line(of: Mapping[str, float]) -> str:
        return f"{_at(of, 64):,.0f} us; {_at(of, copies):,.0f} with {copies:,} copies"

    rows: list[tuple[str, ...]] = [
        ("turn in the rollout loop, replies one by one", line(loop)),
        ("beginning an episode in it", line(begin)),
        ("prompt to tokens, tokens to reply, of a turn", f"{costs['prompt_us']:,.0f} us"),
        ("pickling a turn for the ranks, and back", f"{costs['pickle_us']:,.0f} us"),
        ("the pickled turn", f"{costs['episode_bytes']:,.0f} bytes"),
        ("tables and rows of a turn for an update", f"{costs['pack_us']:,.0f} us"),
        ("copying a GiB of weights", f"{costs['copy_s']:.2f} s"),
    ]
    if ray is not None:
        rows += [
            ("Ray: asking an engine and fetching a reply", line(ray["queue_us"])),
            ("Ray: each further reply of that call", f"{ray['reply_us']:,.0f} us"),
            ("Ray: stepping a copy in a shard", f"{ray['shard_us']:,.0f} us"),
            ("Ray: each further copy of that call", f"{ray['copy_us']:,.0f} us"),
            ("Ray: a MiB of array into its store and out", f"{ray['put_ms']:.2f} ms"),
            ("Ray: a GiB of weights into its store", f"{ray['store_s']:.2f} s"),
            ("Ray: and out, in an engine", f"{ray['load_s']:.2f} s"),
            ("Ray: a GiB into its store if given as arrays", f"{ray['array_store_s']:.2f} s"),
            ("Ray: and out, in an engine", f"{ray['array_load_s']:.2f} s"),
        ]
    return "Measured here", ("item", "CPU time of one process"), rows


def _at(line: Mapping[str, float], copies: int) -> float:
    return line["fixed"] + line["per_copy"] * copies


def _environments(found: Mapping[str, Any]) -> Rows:
    """Return each environment's costs, and the cores that keep the engines busy with it."""
    options = found["options"]
    # Turns that end in a second if no engine has a free slot.
    rate = options["engines"] * options["engine_tokens"] / found["mean_tokens"]
    rows: list[tuple[str, ...]] = []
    for name, one in found["costs"]["envs"].items():
        turn = one["step_us"] + one["fresh_us"] / options["turns"]
        rows.append(
            (
                name,
                f"{one['step_us']:,.0f}",
                f"{one['fresh_us']:,.0f}",
                f"{rate * turn * 1e-6:.1f}",
            )
        )
    title = f"Cores for {rate:,.0f} turns/s, which the engines decode at most"
    return title, ("environment", "step, us", "fresh episode, us", "cores"), rows


def _updates(found: Mapping[str, Any]) -> Rows:
    """Return rows of an update by the number of collectors and the replies per call."""
    rows: list[tuple[str, ...]] = []
    for one in found["updates"]:
        calls = "all replies" if one["together"] else "one reply"
        rows.append(
            (
                f"{one['collectors']}, {calls}",
                f"{one['collection']['seconds']:.0f}",
                f"{one['seconds']:.0f}",
                *(f"{one['busy'][name]:.0%}" for name in RESOURCES),
                *(f"{name} ({one['saved'][name]:.0f} s)" for name in _bottlenecks(one)),
            )
        )
    head = ("collectors, a call carries", "collecting, s", "update, s", *RESOURCES)
    last = ("first bottleneck (half of it saves)", "first beside the model")
    return "Busy share of the update's time", (*head, *last), rows


def _bottlenecks(one: Mapping[str, Any]) -> tuple[str, str]:
    return one["bottleneck"], one["serving"]


def _sync(found: Mapping[str, Any]) -> Rows:
    """Return rows of an update by how weights are sent."""
    rows: list[tuple[str, ...]] = [
        (
            f"{one['broadcast']}, collectors: {one['collectors']}",
            f"{one['sending']:.1f}",
            f"{one['sync']:.1f}",
            f"{one['seconds']:.0f}",
        )
        for one in found["weights"]
    ]
    title = f"Weights to machines with engines ({found['machines']})"
    return title, ("weights travel", "sending, s", "whole sync, s", "update, s"), rows


def tables(found: Mapping[str, Any]) -> list[Rows]:
    """Return tables of the measurements and simulations."""
    _, head, rows = _updates(found)
    # Shares would be too wide for a terminal; the page has them.
    narrow = [(*row[:3], *row[-2:]) for row in (head, *rows)]
    updates = "An update, by collectors and by what a call carries", narrow[0], narrow[1:]
    return [_costs(found), _environments(found), updates, _sync(found)]


def answer(found: Mapping[str, Any]) -> str:
    """Name the first bottleneck, with one collector and with the most."""
    said = []
    for one in (found["updates"][0], found["updates"][-2]):
        first, serving = _bottlenecks(one)
        count, saved, played = one["collectors"], one["saved"], one["collection"]
        busy = (played["python"] + played["ray"]) / played["seconds"]
        collectors = "1 collector, as today," if count == 1 else f"{count} collectors"
        line = (
            f"With {collectors} an update takes {one['seconds']:.0f} s: "
            f"{played['seconds']:.0f} s to collect, in which a collector's thread is busy for "
            f"{busy:.0%}, {one['optimizing']:.0f} s to optimise, {_sync_of(one):.0f} s to bring "
            f"weights to engines. First bottleneck: {first} (half of it would save "
            f"{saved[first]:.0f} s)"
        )
        if serving != first:
            line += f"; of what only serves the model: {serving} ({saved[serving]:.0f} s)"
        said.append(line + ".")
    cores = found["updates"][0]["busy"]["environment cores"]
    return " ".join((*said, f"Environment cores are busy for {cores:.1%}."))


def _sync_of(one: Mapping[str, Any]) -> float:
    return float(one["handing"] + one["sending"] + one["loading"])


def page(found: Mapping[str, Any]) -> str:
    """Return the page for the results of :func:`creditrl.cli.bench_scale.bench_scale`."""
    options, where = found["options"], found["machine"]
    lines = [
        "# A large cluster, on paper",
        "",
        f"{options['engines']} engines, {options['copies']:,} copies of {options['env']}, a "
        f"trainer on {options['gpus']} GPUs: what is busy, and what waits? Nobody ran this. Costs "
        "of this code were measured on one machine, what needs a cluster was assumed, and an "
        "update was simulated event by event.",
        "",
        "## Answer",
        "",
        answer(found),
        "",
        "## Measured",
        "",
        f"{where['cpu']}, Python {where['python']}; medians of CPU time. Prompts and replies are "
        "VisualSokoban's, in the form `tags`, with a tokenizer made of its words. CPU time counts "
        "no waiting, but other work that shares caches shows in it.",
        "",
        *_markdown(_costs(found)),
        *([] if found["costs"]["ray"] is not None else [RAY_MISSING, ""]),
        "Environments, as `creditrl bench envs` measures them first (64 copies or more in a call, "
        "tasks never played before). " + _environments(found)[0] + ":",
        "",
        *_markdown(_environments(found)),
        "## Assumed",
        "",
        "The model is Qwen2.5-7B in bfloat16 (7.6 billion weights by its model card), GPUs are "
        "H100 SXM (3.35 TB/s and 989 TFLOPS by the data sheet). Options are named where there is "
        "one.",
        "",
        *_markdown(_assumed(found)),
        "Not in the simulation: the interpreter's lock among the threads of shards, Ray's own "
        "processes, the time that small messages travel, evaluations, checkpoints and failures.",
        "",
        "## Simulated",
        "",
        "Busy shares of an update's time. A collector is one thread, whose calls of Ray are told "
        "apart. Several collectors have copies, engines and shards of their own, and hand "
        "episodes to ranks of their own.",
        "",
        *_markdown(_updates(found)),
        f"{_sync(found)[0]}:",
        "",
        *_markdown(_sync(found)),
        "## What the code does today",
        "",
        *_done(found),
        "",
        "## What it does not do",
        "",
        *_missing(found),
        "",
        "Made by `creditrl bench scale --out docs/results/scale.md --json docs/results/scale.json` "
        "([figures](scale.json)).",
        "",
    ]
    return "\n".join(lines)


def _assumed(found: Mapping[str, Any]) -> Rows:
    options = found["options"]
    rows: list[tuple[str, ...]] = [
        (
            "tokens/s of an engine (`--engine-tokens`)",
            "64 slots; a step reads 15.2 GB of weights in 4.5 ms, doubled for cache and scheduler",
            f"{options['engine_tokens']:,.0f}",
        ),
        (
            "ms to read a prompt (`--prefill-ms`)",
            "512 tokens at 40 % of the peak",
            f"{options['prefill_ms']:g}",
        ),
        (
            "seconds to optimise (`--update-seconds`)",
            "65,536 turns of 612 tokens, scored once before, 64 GPUs at 40 % of the peak",
            f"{options['update_seconds']:g}",
        ),
        (
            "GiB of weights (`--weights-gib`)",
            "two bytes each",
            f"{options['weights_gib']:g}",
        ),
        (
            "GiB/s between machines (`--network-gib`)",
            "100 Gb/s, less what protocols take",
            f"{options['network_gib']:g}",
        ),
        (
            "tokens of a reply, mean",
            "log-normal, median 60, 95th percentile 400, cut at 512",
            f"{found['mean_tokens']:.0f}",
        ),
        (
            "turns of an episode (`--turns`)",
            "as in [rollouts](rollout.md)",
            str(options["turns"]),
        ),
        (
            "cores that step environments (`--shards`)",
            "one per engine",
            str(options["shards"]),
        ),
        ("machines with engines", "up to 8 engines each", str(found["machines"])),
    ]
    return "Assumed", ("what", "where the default is from", "value"), rows


def _done(found: Mapping[str, Any]) -> list[str]:
    """Describe what the code does about bottlenecks."""
    options, first = found["options"], found["updates"][0]
    carried = options["copies"] * options["turns"] / first["collection"]["calls"]
    return [
        "- It is the first row: rank 0 alone collects, in one thread, for all copies and engines. "
        "More ranks share decoding and learning, not the loop.",
        "- Copies do not wait for each other: a reply is handled when it is there. A call to a "
        "vLLM engine takes all replies that it has by then, and its copies' next prompts go back "
        "in one call, so calls carry more the later the collector is: "
        f"{carried:.1f} replies each here. Without that the second row would hold.",
        "- Environments are stepped by shards on the cluster (`rollout.ray.shards`), a core each, "
        "beside the loop and beside decoding.",
        "- Weights are gathered on rank 0, put into Ray's store once, and fetched by each machine "
        "once, whatever the number of its engines: "
        f"{first['sending']:.1f} s of the sync's {_sync_of(first):.1f} s.",
    ]


def _missing(found: Mapping[str, Any]) -> list[str]:
    """Describe what it does not do, and what that would gain."""
    first, most = found["updates"][0], found["updates"][-2]
    costs, copies = found["costs"], found["options"]["copies"]
    turn = _at(costs["loop_us"], copies) + costs["prompt_us"]
    now, then = first["collection"]["seconds"], most["collection"]["seconds"]
    overlapped = max(now, first["seconds"] - now)
    lines = [
        f"- Collectors per machine. With {most['collectors']} of them collecting would take "
        f"{then:.0f} s instead of {now:.0f} s: then the longest episode decides.",
        "- Tokenising elsewhere than in the collector's thread: it is "
        f"{costs['prompt_us']:,.0f} of the {turn:,.0f} us that Python takes for a turn.",
        "- Collecting while the policy is optimised: `--rollout.ahead 1` does it with one training "
        "process, not under torchrun. Overlapped, an update would take no less than "
        f"{overlapped:.0f} s instead of {first['seconds']:.0f} s.",
        "- Weights as a tree or a chain: all machines ask for them at once, when only the first "
        "one has them.",
        "- Dealing episodes to ranks: rank 0 pickles all of them for every rank, and each makes "
        f"the tables of all, {first['episodes'] + first['tables']:.1f} s of an update.",
    ]
    ray, gib = costs["ray"], found["options"]["weights_gib"]
    if ray is not None:
        scan = ray["queue_us"]["per_copy"] * copies
        if scan > 1:
            lines.append(
                "- Finding what an engine answered without looking through all requests under way, "
                f"{scan:,.0f} us of each call with {copies:,} copies."
            )
        tensors = gib * (ray["store_s"] + ray["load_s"])
        arrays = gib * (ray["array_store_s"] + ray["array_load_s"])
        lines.append(
            "- Weights as arrays: Ray pickles tensors with their bytes, into its store and out of "
            f"it, {tensors:.1f} s of a sync; of arrays it keeps the bytes as they are, "
            f"{arrays:.1f} s."
        )
    return lines


def _markdown(rows: Rows) -> list[str]:
    _, head, body = rows
    return [
        "| " + " | ".join(head) + " |",
        "|---|" + "---:|" * (len(head) - 1),
        *("| " + " | ".join(row) + " |" for row in body),
        "",
    ]

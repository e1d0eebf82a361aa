"""``creditrl eval ID --agent ...``: measure an agent."""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from creditrl.cli.console import console, next_step, wrote
from creditrl.cli.options import parse_env_command, short_name
from creditrl.errors import ConfigError, RunFolderError, UnknownNameError, did_you_mean

__all__ = ["run"]

_EPISODES = 256
_AGENTS = ("random", "first", "expert", "transformers")


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """Measure an agent: success, score, grounding accuracy, turns, with 95 % intervals."""

    agent: str = "random"
    """``random`` (uniform over the admissible actions), ``first`` (always the first of them),
    ``expert`` (the environment's) or ``transformers`` (a language model, see ``--model``)."""
    model: str | None = None
    """Folder or hub name of the language model."""
    adapter: str | None = None
    """Folder or hub name of a LoRA adapter for it."""
    form: str = "plain"
    """Prompt form: plain, dialogue, react or tags."""
    episodes: int | None = None
    """Tasks 0 .. N - 1 of the split, each played once; None: 256, or all of a smaller split."""
    num_envs: int = 64
    """Copies that play at once."""
    seed: int = 0
    """Seeds the episodes and the agent's sampling."""
    temperature: float = 1.0
    """Sampling temperature of the language model."""
    greedy: bool = False
    """Take the most probable token instead of sampling."""
    max_new_tokens: int | None = None
    """Longest reply of the language model, in tokens; None: as saved with it, or 256."""
    device: str | None = None
    """Where the language model computes; None takes a GPU where there is one."""
    out: str | None = None
    """File for the results; None: the first free ``runs/eval/ENV-AGENT-N.json``."""


def run(argv: list[str]) -> int:
    """Measure an agent and write its results."""
    # Held-out tasks unless the user says otherwise: a measure on training tasks misleads.
    request = parse_env_command(EvalOptions(), argv, "creditrl eval", {"split": "valid_unseen"})
    options = request.command
    if options.agent not in _AGENTS:
        raise UnknownNameError(
            f"No agent named {options.agent!r}.{did_you_mean(options.agent, _AGENTS)} "
            f"Known: {', '.join(_AGENTS)}."
        )
    name = short_name(request.env_id)
    out = _free_path(options.out, f"{name}-{options.agent}")
    episodes = options.episodes
    if episodes is None:
        episodes = min(_EPISODES, len(request.tasks()))
    agent = _agent(options)

    from creditrl.agents.evaluate import evaluate

    result = evaluate(
        request.env_id,
        agent,
        options.form,
        episodes=episodes,
        num_envs=options.num_envs,
        seed=options.seed,
        env_options=request.env_options,
        on_progress=_progress,
    )
    result.print(console())
    wrote(result.write(out))
    if options.agent == "transformers":
        next_step(f"creditrl eval {name} --agent expert")
    else:
        next_step("creditrl train @quickstart")
    return 0


def _agent(options: EvalOptions) -> Any:
    """Return the agent, or the function that makes it from the vector environment."""
    if options.agent != "transformers":
        for flag in ("model", "adapter"):
            if getattr(options, flag) is not None:
                raise ConfigError(f"--{flag} needs --agent transformers, found {options.agent}.")
    if options.agent == "random":
        from creditrl.agents.scripted import RandomAgent

        return RandomAgent(options.seed)
    if options.agent == "first":
        from creditrl.agents.scripted import FirstAdmissibleAgent

        return FirstAdmissibleAgent()
    if options.agent == "expert":
        from creditrl.agents.expert import ExpertAgent

        return ExpertAgent
    if options.model is None:
        raise ConfigError("--agent transformers needs --model: a folder or the name of a model.")
    from creditrl.agents.transformers import TransformersAgent, require_folder

    for name in (options.model, options.adapter):
        require_folder(name)
    sampling: dict[str, Any] = dict(
        temperature=options.temperature,
        greedy=options.greedy,
        max_new_tokens=options.max_new_tokens,
        seed=options.seed,
    )
    if (Path(options.model) / "adapter_config.json").is_file() and options.adapter is None:
        # A policy that was trained with LoRA: the folder knows which model its adapters are for.
        from creditrl.trainers.models.policy import Policy

        policy = Policy.load(options.model, dtype="auto", device=options.device or "auto")
        name = f"transformers:{options.model}"
        return TransformersAgent(policy.model, policy.tokenizer, name=name, **sampling)
    return TransformersAgent.from_pretrained(
        options.model, adapter=options.adapter, device=options.device, **sampling
    )


def _free_path(wanted: str | None, name: str) -> Path:
    if wanted is not None:
        path = Path(wanted)
        if path.is_file():
            raise RunFolderError(f"{path} exists; nothing was overwritten. Choose another --out.")
        return path
    folder = Path("runs") / "eval"
    return next(
        path for n in itertools.count(1) if not (path := folder / f"{name}-{n}.json").exists()
    )


def _progress(done: int, wanted: int) -> None:
    # Results go to stdout; where the work stands goes to stderr, and only while somebody watches.
    if sys.stderr.isatty():
        end = "\n" if done == wanted else ""
        print(f"\r{done}/{wanted} episodes", end=end, file=sys.stderr, flush=True)

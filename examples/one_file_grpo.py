"""GRPO from scratch in one file: a transformer, cloning, group-relative advantages, a clipped loss.

It trains what `creditrl train @quickstart` trains, on the same levels and with the same numbers,
but imports the environment alone. Read it to see what the package does, or change it.

    pip install "creditrl[train]"
    python one_file_grpo.py                  # some five minutes of one core
    python one_file_grpo.py --updates 20     # a look
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import creditrl  # noqa: F401  # registers the environments

MOVES = ("up", "down", "left", "right")
LEVELS = dict(tier="easy", min_optimal_moves=2, max_optimal_moves=8, observation="text")
# Episodes end together: none begins another while the rest still play.
LEVELS["autoreset_mode"] = "Disabled"


@dataclass(frozen=True)
class Config:
    """The numbers of the quick start."""

    seed: int = 0
    demonstrations: int = 200
    clone_updates: int = 160
    clone_lr: float = 2e-3
    clone_batch: int = 64
    updates: int = 400
    groups: int = 32
    group_size: int = 8
    lr: float = 5e-4
    warmup: int = 20
    minibatches: int = 2
    clip: float = 0.2
    entropy: float = 0.003
    reward_scale: float = 0.1
    eval_levels: int = 1000


# -- the policy ------------------------------------------------------------------------------------


class Block(nn.Module):
    """Causal self-attention with rotary positions, then a gated MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 4 * width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x_BTD: Tensor, cos_TH: Tensor, sin_TH: Tensor) -> Tensor:
        b, t, d = x_BTD.shape
        q, k, v = self.qkv(self.norm1(x_BTD)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = (rotate(h, cos_TH, sin_TH) for h in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x_BTD = x_BTD + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        h = self.norm2(x_BTD)
        return x_BTD + self.down(F.silu(self.gate(h)) * self.up(h))


def rotate(x: Tensor, cos_TH: Tensor, sin_TH: Tensor) -> Tensor:
    """Rotate the halves of each head by its position."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos_TH - b * sin_TH, b * cos_TH + a * sin_TH), dim=-1)


class Policy(nn.Module):
    """A language model: tokens are the map's characters and the four moves."""

    def __init__(self, alphabet: str, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.ids = {character: i for i, character in enumerate(alphabet)}
        self.first_move = len(alphabet)
        size = len(alphabet) + len(MOVES)
        self.embed = nn.Embedding(size, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.05)
        half = width // heads // 2
        angle = torch.arange(256)[:, None] / 100 ** (torch.arange(half) / half)
        self.register_buffer("cos_TH", angle.cos())
        self.register_buffer("sin_TH", angle.sin())

    def forward(self, texts: list[str]) -> Tensor:
        """Return log-probabilities of the next token after each text, [N, vocabulary]."""
        distinct, row_N = np.unique(texts, return_inverse=True)  # a group often sees the same map
        length_K = torch.tensor([len(text) for text in distinct])
        ids_KT = torch.zeros(len(distinct), int(length_K.max()), dtype=torch.long)
        for row, text in enumerate(distinct):
            ids_KT[row, : len(text)] = torch.tensor([self.ids[c] for c in text])
        x = self.embed(ids_KT)
        t = ids_KT.shape[1]
        for block in self.blocks:
            x = block(x, self.cos_TH[:t], self.sin_TH[:t])
        last = x[torch.arange(len(distinct)), length_K - 1]  # what comes after is padding
        logits_KV = self.norm(last) @ self.embed.weight.T
        return F.log_softmax(logits_KV, dim=-1)[torch.from_numpy(row_N)]


@torch.no_grad()
def act(
    policy: Policy, texts: list[str], generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Return (token, its log-probability) after each text: sampled, or the likeliest for None."""
    logp_NV = policy(texts)
    if generator is None:
        token_N = logp_NV.argmax(dim=-1)
    else:
        token_N = torch.multinomial(logp_NV.exp(), 1, generator=generator)[:, 0]
    return token_N, logp_NV.gather(1, token_N[:, None])[:, 0]


def say(policy: Policy, token: int) -> str:
    """Return a token as text; one that is no move cannot be executed, and costs a turn."""
    move = token - policy.first_move
    return MOVES[move] if move >= 0 else list(policy.ids)[token]


# -- experience ------------------------------------------------------------------------------------


@dataclass
class Turns:
    """Turns of finished episodes, in any order."""

    text: list[str]
    token_N: Tensor
    logp_N: Tensor
    episode_N: Tensor

    def __len__(self) -> int:
        return len(self.text)


def play(
    policy: Policy, venv: gym.vector.VectorEnv, generator: torch.Generator | None, scale: float
) -> tuple[Turns, Tensor, np.ndarray]:
    """Play one episode in every copy; returns turns, returns [E] and successes [E]."""
    observations, info = venv.reset()
    return_E = np.zeros(venv.num_envs)
    text, token, logp, episode = [], [], [], []
    while (active_K := np.flatnonzero(venv.active)).size:
        shown = [observations[i] for i in active_K]
        token_K, logp_K = act(policy, shown, generator)
        text += shown
        token.append(token_K)
        logp.append(logp_K)
        episode.append(torch.from_numpy(active_K))
        words = [""] * venv.num_envs
        for i, chosen in zip(active_K, token_K.tolist(), strict=True):
            words[i] = say(policy, chosen)
        observations, reward_E, _, _, info = venv.step(words)
        return_E[active_K] += scale * reward_E[active_K]
    turns = Turns(text, torch.cat(token), torch.cat(logp), torch.cat(episode))
    return turns, torch.from_numpy(return_E).float(), np.asarray(info["success"])


def demonstrations(config: Config) -> tuple[list[str], list[str]]:
    """Return observations and the solver's moves of some training levels."""
    venv = gym.make_vec("CreditRL/VisualSokoban-v0", num_envs=config.demonstrations, **LEVELS)
    observations, _ = venv.reset(seed=config.seed)
    plans = venv.expert_plans()
    text, moves = [], []
    for place in range(max(map(len, plans))):
        words = [plan[place] if place < len(plan) else "" for plan in plans]
        for i in np.flatnonzero(venv.active):
            text.append(observations[i])
            moves.append(words[i])
        observations, *_ = venv.step(words)
    return text, moves


# -- learning --------------------------------------------------------------------------------------


def clone(policy: Policy, text: list[str], moves: list[str], config: Config) -> None:
    """Fit the policy to demonstrations by cross-entropy."""
    token_N = torch.tensor([policy.first_move + MOVES.index(move) for move in moves])
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config.clone_lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, config.clone_lr, total_steps=config.clone_updates, pct_start=0.1
    )
    rng = np.random.default_rng(config.seed)
    for _ in range(config.clone_updates):
        rows = rng.choice(len(text), size=config.clone_batch, replace=False)
        loss = F.nll_loss(policy([text[i] for i in rows]), token_N[rows])
        step(policy, optimizer, loss)
        schedule.step()


def advantages(return_E: Tensor, group_size: int) -> Tensor:
    """Return each episode's return less the mean of its group: GRPO, centred only (Dr. GRPO)."""
    groups = return_E.view(-1, group_size)
    return (groups - groups.mean(dim=1, keepdim=True)).view(-1)


def update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    turns: Turns,
    advantage_E: Tensor,
    config: Config,
) -> dict[str, float]:
    """Take one pass over the turns of an update."""
    entropies = []
    for rows in torch.randperm(len(turns)).chunk(config.minibatches):
        logp_NV = policy([turns.text[i] for i in rows.tolist()])
        ratio = (logp_NV.gather(1, turns.token_N[rows, None])[:, 0] - turns.logp_N[rows]).exp()
        advantage = advantage_E[turns.episode_N[rows]]
        clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
        entropy = -(logp_NV.exp() * logp_NV).sum(dim=1).mean()
        gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
        step(policy, optimizer, -gain - config.entropy * entropy)
        entropies.append(entropy.item())
    return float(np.mean(entropies))


def step(policy: Policy, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one optimizer step."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()


def evaluate(policy: Policy, config: Config) -> dict[str, float]:
    """Return success on held-out levels: sampled at temperature 1, and greedy."""
    found = {}
    for way, generator in (("sampled", torch.Generator().manual_seed(1)), ("greedy", None)):
        venv = gym.make_vec(
            "CreditRL/VisualSokoban-v0", num_envs=config.eval_levels, split="valid_unseen", **LEVELS
        )
        venv.reset(seed=0)
        found[way] = float(play(policy, venv, generator, 1.0)[2].mean())
    return found


def train(config: Config) -> dict[str, dict[str, float]]:
    """Clone, then train; returns success before and after."""
    torch.manual_seed(config.seed)
    text, moves = demonstrations(config)
    policy = Policy("".join(sorted(set("".join(text)) | set("#_OXP√S\n"))))
    clone(policy, text, moves, config)
    found = {"cloned": evaluate(policy, config)}

    venv = gym.make_vec(
        "CreditRL/VisualSokoban-v0",
        num_envs=config.groups * config.group_size,
        group_size=config.group_size,
        **LEVELS,
    )
    venv.reset(seed=config.seed)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config.lr, weight_decay=0.0)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / config.warmup))
    generator = torch.Generator().manual_seed(config.seed)
    played = 0
    for number in range(1, config.updates + 1):
        turns, return_E, success_E = play(policy, venv, generator, config.reward_scale)
        played += len(turns)
        entropy = update(policy, optimizer, turns, advantages(return_E, config.group_size), config)
        warm.step()
        if number % 20 == 0 or number == config.updates:
            print(
                f"update {number}, {played:,} turns: return {return_E.mean():.2f}, "
                f"success {success_E.mean():.0%}, entropy {entropy:.2f}",
                flush=True,
            )
    return {**found, "trained": evaluate(policy, config)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("seed", "updates", "clone_updates", "eval_levels"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(Config, name))
    torch.set_num_threads(1)
    print(json.dumps(train(Config(**vars(parser.parse_args()))), indent=2))

"""``creditrl view RUN --tokens``: which tokens are trained, marked or in colour; bad input."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from viewed_runs import WON, Config, Rollout, episode, make_run

from creditrl.cli import run
from creditrl.runs import RunFolder
from creditrl.trainers.after.token_mask import Kind, token_rows
from creditrl.types import Trajectory

WORDS = ("look", "shelf", "take", "sponge", "wash", "<end>")
END = 5


def talk(*turns: tuple[tuple[int, ...], tuple[int, ...]]) -> Trajectory:
    """Return an episode of (prompt, reply) in tokens."""
    made = episode(1, 0, WON, success=True)
    kept = zip(made.turns, turns, strict=False)
    return replace(
        made,
        turns=tuple(
            replace(t, prompt_ids=asked, reply_ids=said, finished=said[-1] == END)
            for t, (asked, said) in kept
        ),
    )


GROWS = talk(((0, 1), (2, END)), ((0, 1, 2, END, 3), (4, 4)))
APART = talk(((0, 1), (2, END)), ((3,), (4, 4)))


@dataclass(frozen=True)
class Reply(Rollout):
    max_new_tokens: int = 2


@dataclass(frozen=True)
class Masked:
    mask_truncated: bool = True


@dataclass(frozen=True)
class Cutting(Config):
    rollout: Rollout = field(default_factory=Reply)
    optim: Masked = field(default_factory=Masked)


def kept(path: Path, *episodes: Trajectory) -> Path:
    """Write a run of episodes in words; returns its folder."""
    from tokenizers import Tokenizer, models

    folder = RunFolder.create(path, Cutting(), "creditrl train x")
    folder.store().append(1, list(episodes))
    (path / "tokenizer").mkdir()
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}))
    tokenizer.add_special_tokens([WORDS[END]])
    tokenizer.save(str(path / "tokenizer" / "tokenizer.json"))
    return path


def kinds(row: tuple[Kind, ...]) -> str:
    return "".join("-tc"[kind] for kind in row)


def test_a_growing_conversation_is_one_row_whose_replies_are_trained():
    (row,) = token_rows(GROWS)
    assert (row.ids, row.turns) == ((0, 1, 2, END, 3, 4, 4), range(2))
    assert kinds(row.kinds) == "--tt-cc"
    first, second = token_rows(APART)  # prompts that do not grow are a row each
    assert (first.ids, kinds(first.kinds)) == ((0, 1, 2, END), "--tt")
    assert (second.ids, kinds(second.kinds)) == ((3, 4, 4), "-cc")


def test_without_colours_trained_tokens_are_in_brackets(tmp_path, capsys):
    path = kept(tmp_path / "run", GROWS)
    assert run(["view", str(path), "--tokens", "1/u1/0"]) == 0
    out = capsys.readouterr().out
    assert "lookshelf⟦take<end>⟧sponge⟪washwash⟫" in out
    assert "3 tokens read" in out and "⟦2 tokens⟧ trained" in out
    assert "⟪2 tokens⟫ of replies cut at 2 tokens: left out of the loss" in out


def test_in_an_svg_every_token_has_the_colour_of_its_kind(tmp_path, capsys):
    path, out = kept(tmp_path / "run", GROWS), tmp_path / "tokens.svg"
    assert run(["view", str(path), "--tokens", "1/u1/0", "--out", str(out)]) == 0
    assert f"Wrote {out}" in capsys.readouterr().out
    svg = out.read_text("utf-8")
    # Backgrounds: trained tokens green, cut ones yellow, in two shades each; none behind prompts.
    _, *shades = re.findall(r'<rect fill="(#\w+)" [^>]*/>', svg)  # the window comes first
    assert len(set(shades)) == 4 and len(shades) == 4 + 2  # the legend has two
    assert "⟦" not in svg
    assert "url(http" not in svg, "nothing is loaded from elsewhere"


def test_bad_requests_are_one_line_errors(tmp_path, capsys):
    path = kept(tmp_path / "run", GROWS, replace(APART, id="u1/1", member=1))
    bare = make_run(tmp_path / "bare").path

    def refused(*words: object) -> str:
        assert run(["view", *map(str, words)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "has no episode '9/x': expected e.g. 1/u1/0" in refused(path, "--tokens", "9/x")
    assert "names 2 episodes: name one, e.g. 1/u1/0" in refused(path, "--tokens", "1/*")
    assert "has no tokenizer" in refused(bare, "--tokens", "1/u1/0")
    one = (path, "--tokens", "1/u1/0")
    assert "expected the name of an SVG" in refused(*one, "--out", tmp_path / "a.png")
    assert "there is no folder" in refused(*one, "--out", tmp_path / "no" / "a.svg")
    assert "--gif and --tokens" in refused(*one, "--gif", "1/u1/0")
    assert "leave --export and --against out" in refused(*one, "--against", bare)
    assert "give one of them" in refused(path, "--out", tmp_path / "a.svg")
    (path / "a.svg").write_text("mine")
    assert "nothing was overwritten" in refused(*one, "--out", path / "a.svg")

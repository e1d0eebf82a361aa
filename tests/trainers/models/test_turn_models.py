"""Models that score turns, and HISR's hindsight model: each beats a constant prediction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_runs import make_trajectory

from creditrl.errors import ConfigError, CreditInputError
from creditrl.trainers.credit.segments import parse_ranges
from creditrl.trainers.models.configs import BackboneConfig, LoRAConfig, SmallPolicyConfig
from creditrl.trainers.models.learned.base import Batch
from creditrl.trainers.models.learned.hindsight import HindsightConfig, HindsightModel
from creditrl.trainers.models.learned.process_critic import ProcessCritic, visit_targets
from creditrl.trainers.models.learned.progress import ProgressEstimator
from creditrl.trainers.models.learned.promise import PromiseModel
from creditrl.trainers.models.learned.segment_prm import SegmentPRM
from creditrl.trainers.models.learned.turn_scorer import TurnScorerConfig, split_by_task
from creditrl.trainers.models.policy import Policy
from creditrl.trainers.models.tokenizer import build_tokenizer
from creditrl.trainers.models.turns.segmenter import Segmenter, SegmenterConfig
from creditrl.trainers.parallel.ranks import Ranks
from creditrl.types import Credit, Reply, ReplyList, Turn

torch = pytest.importorskip("torch")

MOVES = ["up", "down", "left", "right"]
# Few passes: replies are half chance, and what is left to learn after two is that.
QUICK = TurnScorerConfig(
    backbone=BackboneConfig(lr=3e-3), epochs=2, batch=16, held_out=0.3, hidden=32
)


def quiet(*args, **kwargs):
    """Show nothing."""


def played(tokenizer, seed=0, tasks=40):
    """Episodes of three turns that succeed where "up" was said at least twice."""
    rng = np.random.default_rng(seed)
    ids = {move: tuple(tokenizer(move, add_special_tokens=False)["input_ids"]) for move in MOVES}
    found = []
    for number in range(tasks):
        turns = []
        for place in range(3):
            move = MOVES[rng.integers(4)] if rng.random() < 0.5 else "up"
            prompt = tuple(rng.integers(4, len(tokenizer), size=3).tolist())
            turns.append(
                Turn(
                    "#P#",
                    move,
                    move,
                    0.0,
                    prompt_ids=prompt,
                    reply_ids=ids[move],
                    logprobs=(-1.0,) * len(ids[move]),
                    segment=["a", "a", "b"][place],
                    state=int(rng.integers(1, 4)),
                )
            )
        success = sum(turn.reply == "up" for turn in turns) >= 2
        pair, member = divmod(number, 2)
        outcome = {"member": member, "success": success, "score": float(success)}
        found.append(make_trajectory(turns, pair, id=f"e{number}", **outcome))
    return found


@pytest.mark.slow
def test_promises_are_fitted_to_the_labels_of_promise_and_progress(make_policy, tokenizer):
    episodes = played(tokenizer, tasks=200)
    ups = np.array([turn.reply == "up" for t in episodes for turn in t.turns], dtype=np.float32)
    progress = np.diff(ups, prepend=0.0).astype(np.float32)
    labels = Credit("toy", value_target_N=ups, parts={"progress": progress})
    later = np.arange(len(ups)) % 3 > 0
    errors = {}
    # Of the promise alone, and of the progress too.
    for beta in (0.0, 5.0):
        model = PromiseModel(make_policy(), QUICK, beta=beta)
        batch = model.score(Batch.of(episodes))
        assert not batch.turns.scores["promise_N"].any()
        assert model.fit(batch, labels)["loss"] > 0
        promise = model.score(batch).turns.scores["promise_N"]
        assert promise[ups > 0].mean() > promise[ups == 0].mean() + 0.3
        step_N = np.diff(promise, prepend=0.0) - progress
        errors[beta] = np.mean(step_N[later] ** 2)
    assert errors[5.0] < errors[0.0]
    with pytest.raises(CreditInputError, match="part 'progress'"):
        model.fit(batch, replace(labels, parts={}))


def test_contributions_sum_to_the_outcome_better_than_a_constant(make_policy, tokenizer):
    episodes = played(tokenizer, tasks=300)
    policy = make_policy()
    model = ProgressEstimator(policy, QUICK)
    batch = Batch.of(episodes)
    assert not model.score(batch).turns.scores["progress_N"].any()
    before = policy.score(batch.rows)
    # Tasks are split whole.
    learn, held = split_by_task(episodes, 0.3, 0)
    assert len(learn) + len(held) == 300 and len(held) == 90
    assert {t.task.id for t in learn}.isdisjoint(t.task.id for t in held)
    metrics = model.pretrain(policy, episodes, quiet)
    assert metrics["r2"] > 0.2
    np.testing.assert_array_equal(policy.score(batch.rows), before)
    progress = model.score(batch).turns.scores["progress_N"]
    ups = np.array([turn.reply == "up" for t in episodes for turn in t.turns])
    assert progress[ups].mean() > progress[~ups].mean() + 0.1


@pytest.mark.parametrize("lora", [None, LoRAConfig(rank=2)])
def test_a_head_can_read_the_logits_of_the_next_token(make_policy, tokenizer, lora):
    episodes = played(tokenizer, tasks=4)
    policy = make_policy(lora=lora)
    config = replace(QUICK, hidden=0, reads="logits")
    model = ProgressEstimator(policy, config)
    assert model.backbone.head.in_features == len(tokenizer)
    # A weight of 2 on the logit of token 5, and a bias of 1.
    with torch.no_grad():
        model.backbone.head.weight[0, 5] = 2.0
        model.backbone.head.bias[0] = 1.0
    first = episodes[0].turns[0]
    ids = torch.tensor([[*first.prompt_ids, *first.reply_ids]])
    with torch.no_grad():
        logit = policy.model(input_ids=ids).logits[0, -1, 5].item()
    assert model.outputs(episodes)[0] == pytest.approx(1 + 2 * logit, abs=1e-4)
    assert model.pretrain(policy, played(tokenizer, tasks=40), quiet)["loss"] > 0
    with pytest.raises(ConfigError, match="TurnScorerConfig.reads"):
        replace(QUICK, reads="probabilities")


def test_segments_get_rewards_at_their_ends(make_policy, tokenizer):
    episodes = played(tokenizer, tasks=300)
    policy = make_policy()
    segmenter = Segmenter(SegmenterConfig(), policy)
    model = SegmentPRM(policy, QUICK, segmenter)
    metrics = model.pretrain(policy, episodes, quiet)
    assert metrics["r2"] > 0.1 and metrics["turns_per_segment"] == pytest.approx(1.5)
    scored = model.score(Batch.of(episodes)).turns.scores
    assert scored["segment_N"][:6].tolist() == [0, 0, 1, 2, 2, 3]
    assert not scored["segment_reward_N"][0::3].any() and scored["segment_reward_N"][1::3].any()


def test_the_process_critic_learns_values_of_visits(make_policy, tokenizer):
    episodes = played(tokenizer, tasks=300)
    policy = make_policy()
    model = ProcessCritic(policy, QUICK)
    metrics = model.pretrain(policy, episodes, quiet)
    assert metrics["gain"] > 0.02
    chance = model.score(Batch.of(episodes)).turns.scores["process_N"]
    assert 0 < chance.min() and chance.max() < 1
    late, early = visit_targets(episodes, 0.5), visit_targets(episodes, 0.5, from_start=True)
    assert not np.allclose(late, early)


def test_the_hindsight_model_scores_tokens_and_can_learn_online(make_policy, tokenizer):
    policy, batch = make_policy(), Batch.of(played(tokenizer)[:6])
    config = HindsightConfig(backbone=BackboneConfig(lr=3e-3), batch=48, bare=True)
    model = HindsightModel(policy, config)
    found = model.score(batch).tokens.scores["hindsight_M"]
    assert len(found) == len(batch.tokens) and (found < 0).all()
    assert model.fit(batch, None) == {}
    online = HindsightModel(policy, replace(config, online=True))
    assert online.fit(batch, None)["loss"] > 0


def test_hindsight_is_a_distribution_over_the_policys_options(make_policy, tokenizer):
    said = [tokenizer(move, add_special_tokens=False)["input_ids"] for move in MOVES]
    options = ReplyList(tuple((*ids, tokenizer.eos_token_id) for ids in said))
    (episode,) = played(tokenizer, tasks=1)
    model = HindsightModel(make_policy(), HindsightConfig(bare=True))

    def chance(reply):
        first = replace(episode.turns[0], reply_ids=reply, options=options)
        lost = replace(episode, turns=(first, *episode.turns[1:]))
        return np.exp(model.logprobs([lost])[: len(reply)].sum())

    assert sum(map(chance, options.ids)) == pytest.approx(1, abs=1e-5)


SEEN = {"up": "#P__#", "down": "#_P_#", "left": "#__P#", "right": "#_PX#"}


def drawn(tokenizer, told, tasks=240, turns=2):
    """Episodes of moves drawn uniformly from four, which ``told`` reveals: log 4 without hindsight.

    With "views" the prompt after a move names it; with "outcome" an episode of one move succeeds if
    that is "up".
    """
    rng = np.random.default_rng(3)
    ids = {move: tuple(tokenizer(move, add_special_tokens=False)["input_ids"]) for move in MOVES}
    found = []
    for number in range(tasks):
        moves = [MOVES[k] for k in rng.integers(4, size=turns)]
        after = [SEEN[move] if told == "views" else "#P#" for move in moves]
        seen = ["#P#", *after]
        prompts = [tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in seen]
        made = [
            Turn(view, move, move, 0.0, prompt_ids=prompt, reply_ids=ids[move])
            for view, move, prompt in zip(seen, moves, prompts, strict=False)
        ]
        won = moves == ["up"]
        outcome = {"success": won, "score": float(won)}
        found.append(make_trajectory(made, number, **outcome))
    return found


# Which of four: log 4 = 1.386, a quarter of it if only the last of four moves is untold. Whether it
# was "up": 3/4 log 3 = 0.824.
@pytest.mark.parametrize(("told", "turns", "most"), [("views", 4, 0.5), ("outcome", 1, 1.0)])
def test_the_hindsight_model_predicts_moves_that_no_policy_can(
    make_policy, tokenizer, told, turns, most
):
    config = HindsightConfig(
        backbone=BackboneConfig(lr=5e-3), epochs=4, batch=48, bare=True, reach=1, held_out=0.2
    )
    policy = make_policy()
    found = HindsightModel(policy, config).pretrain(
        policy, drawn(tokenizer, told, turns=turns), quiet
    )
    assert found["nll"] < most < np.log(4) < found["policy_nll"]


def test_the_outcome_is_given_by_digits_or_else_by_special_tokens(make_policy, tokenizer):
    model = HindsightModel(make_policy(), HindsightConfig(bare=True, reach=1))
    won = replace(played(tokenizer)[0], success=True)
    digits = tokenizer("1.0", add_special_tokens=False)["input_ids"]
    assert digits == tokenizer("0.0", add_special_tokens=False)["input_ids"], "they read alike"
    one, other = (
        [turn.prompt_ids for t in model._lost([played_one]) for turn in t.turns]
        for played_one in (won, replace(won, success=False))
    )
    ours = (tokenizer.bos_token_id, tokenizer.unk_token_id)
    for mine, yours in zip(one, other, strict=True):
        differ = [at for at, pair in enumerate(zip(mine, yours, strict=True)) if len(set(pair)) > 1]
        assert [(mine[at], yours[at]) for at in differ] == [ours]
    # What the policy read and wrote: later turns, the outcome, earlier ones, and its prompt.
    turns = won.turns
    around = [[*turn.prompt_ids, *turn.reply_ids] for turn in turns]
    sign = tokenizer.bos_token_id
    assert one[0] == (*around[1], sign, *turns[0].prompt_ids)
    assert one[1] == (*around[2], sign, *around[0], *turns[1].prompt_ids)
    assert one[-1] == (sign, *around[-2], *turns[-1].prompt_ids)
    pictured = replace(turns[1], plain_ids=(7,))
    shown = model._lost([replace(won, turns=(turns[0], pictured))])
    assert shown[0].turns[0].prompt_ids[0] == 7, "in words where the prompt has a picture"
    # One that has digits is told by them.
    numbered = build_tokenizer(["#P# 0.123456789", *MOVES])
    policy = Policy.small(SmallPolicyConfig(hidden=16, heads=2), numbered)
    model = HindsightModel(policy, HindsightConfig(bare=True))
    for success, told in ((True, "1.0"), (False, "0.0")):
        lost = model._lost([replace(played(numbered)[0], success=success)])
        assert told in numbered.decode(lost[0].turns[0].prompt_ids).replace(" ", "")


class Teller:
    """Answers in turn."""

    name = "teller"

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def act(self, prompts):
        self.asked += [prompt.text for prompt in prompts]
        return [Reply(self.answers.pop(0)) for _ in prompts]


def test_segments_are_requested_twice_before_the_rule_is_used(make_policy, tokenizer):
    episodes = played(tokenizer)[:3]
    agent = Teller("[(1, 1), (2, 3)]", "no idea", "[(1, 2)]", "[(1, 3)]", "still none")
    config = SegmenterConfig(kind="llm", least=1, model="some")
    segmenter = Segmenter(config, make_policy(), agent=agent)
    # The second is mended by its second answer, the third falls back to the rule.
    assert segmenter.segments(episodes).tolist() == [0, 1, 1, 2, 2, 2, 3, 3, 4]
    assert segmenter.fallbacks == 1 and len(agent.asked) == 5
    assert "could not be used: No list of ranges" in agent.asked[3]
    assert "covers 2 turns" in agent.asked[4]


def test_the_question_has_the_papers_criteria_and_form_of_answer(make_policy, tokenizer):
    # Table 11: what may change, length, difference, number; sentences, then ranges at the end.
    (episode,) = played(tokenizer)[:1]
    agent = Teller("It looks around.\nSegments: [(1), (2, 3)]")
    config = SegmenterConfig(kind="llm", least=2, model="some")
    segmenter = Segmenter(config, make_policy(), agent=agent)
    assert segmenter.segments([episode]).tolist() == [0, 1, 1]
    (text,) = agent.asked
    for word in ("intends", "sub-goal", "strategy", "place", "at least 1 turn", "must differ"):
        assert word in text.partition("Task: ")[0]
    assert "at least 2." in text and "one or two sentences" in text
    assert parse_ranges(text, 13) == [0, 0, 0, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3]
    # An episode of three turns is not asked for four segments.
    agent = Teller("[(1), (2), (3)]")
    Segmenter(replace(config, least=4), make_policy(), agent=agent).segments([episode])
    assert "at least 3." in agent.asked[0]


def test_only_the_first_process_sends_requests(make_policy, tokenizer, monkeypatch):
    episodes = played(tokenizer)[:2]
    config = SegmenterConfig(kind="llm", least=1, model="some")
    told = []
    for rank in (0, 1):
        policy = make_policy()
        policy.ranks = Ranks(rank, 2)
        # What the first says reaches the second.
        monkeypatch.setattr(Ranks, "same", lambda self, value: told.append(value) or told[0])
        agent = Teller(*["[(1, 1), (2, 3)]", "[(1, 3)]"][: 2 - 2 * rank])
        segmenter = Segmenter(config, policy, agent=agent)
        assert segmenter.segments(episodes).tolist() == [0, 1, 1, 2, 2, 2]
        assert len(agent.asked) == 2 - 2 * rank


def test_segments_by_entropy_and_of_single_turns(make_policy, tokenizer):
    episodes = played(tokenizer)[:3]
    policy = make_policy()
    turns = Segmenter(SegmenterConfig(kind="turn"), policy).segments(episodes)
    assert turns.tolist() == list(range(9))
    cut = Segmenter(SegmenterConfig(kind="entropy", least=2), policy).segments(episodes)
    assert len(cut) == 9 and cut[2] < cut[3] and len(set(cut[:3].tolist())) >= 2


@pytest.mark.parametrize("kind", [ProgressEstimator, ProcessCritic])
def test_it_can_be_refitted_to_fresh_episodes(kind, make_policy, tokenizer):
    policy = make_policy()
    batch = Batch.of(played(tokenizer, tasks=30))
    frozen, refitted = (kind(policy, QUICK, refit=refit) for refit in (0, 2))
    for model, learns in ((frozen, (False, False)), (refitted, (False, True))):
        for learned in learns:
            assert bool(model.fit(batch, Credit("spa"))) == learned
            assert model.outputs(batch.trajectories).any() == learned
    again = kind(policy, QUICK, refit=2)
    again.load_state_dict(refitted.state_dict())
    assert again.updates == 2
    older = {name: part for name, part in frozen.state_dict().items() if name != "updates"}
    again.load_state_dict(older)
    assert again.updates == 0

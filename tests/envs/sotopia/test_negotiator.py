"""The scripted partner: what each temper wants and says; and what the expert gains of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest
from bargains import LAMP, ask, talk

from creditrl.envs.sotopia.action_text import read_action
from creditrl.envs.sotopia.dialogue import NOTHING, Rules, Transcript, Turns, ending
from creditrl.envs.sotopia.expert import expert_action
from creditrl.envs.sotopia.negotiator import TEMPERS, ScriptedPartner, Temper, wanted
from creditrl.envs.sotopia.offers import follow
from creditrl.envs.sotopia.partners import PartnerAsk
from creditrl.envs.sotopia.profiles import Combination
from creditrl.envs.sotopia.scenarios import builtin_combinations
from creditrl.envs.sotopia.scores import RuleJudge
from creditrl.envs.sotopia.situations import KINDS
from creditrl.envs.sotopia.terms import FriendTerms, PriceTerms, SlotTerms, Terms
from creditrl.errors import ConfigError


def says(temper: str, terms: Terms | None, said: tuple[str, ...], side: int = 0) -> str:
    (reply,) = ScriptedPartner(temper).reply([ask(terms, talk(*said), side)])
    return reply.text


def test_tempers_want_what_the_formulas_say() -> None:
    linear = Temper("linear", beta=1.0, keep=0.25)
    assert [wanted(linear, 8.0, t, 0.0) for t in (0.0, 0.5, 1.0)] == [8.0, 5.0, 2.0]
    # 0.25 ** (1 / 0.5) = 1/16 and 0.25 ** (1 / 2) = 1/2.
    assert wanted(Temper("late", beta=0.5, keep=0.0), 16.0, 0.25, 0.0) == 15.0
    assert wanted(Temper("early", beta=2.0, keep=0.0), 16.0, 0.25, 0.0) == 8.0
    # Tit-for-tat: the other came by 2, so it comes by 3, at any time; never below a fifth.
    kind = Temper("tit-for-tat", keep=0.2, kindness=1.5)
    assert wanted(kind, 10.0, 0.1, 2.0) == wanted(kind, 10.0, 0.9, 2.0) == 7.0
    assert wanted(kind, 10.0, 0.1, 8.0) == 2.0


@pytest.mark.parametrize("temper", TEMPERS)
def test_sellers_begin_as_listed_and_never_go_below_their_limit(temper: str) -> None:
    assert "<offer price=40>" in says(temper, LAMP, ())
    said: list[str] = [says(temper, LAMP, ()).removeprefix("say: ")]
    prices = []
    for turn in range(9):
        said.append(f"<offer price={10 + turn / 2}>")
        text = says(temper, LAMP, tuple(said))
        found = re.search(r"price=([\d.]+)", text)
        assert found is not None, "all that is offered is below the limit"
        prices.append(float(found[1]))
        said.append(text.removeprefix("say: "))
    assert prices == sorted(prices, reverse=True)
    assert 20 <= prices[-1] < 40
    if temper != "tit-for-tat":
        assert prices[-1] == 23  # 15 % of the 20 that it hoped for


def test_who_stays_where_it_is_moves_a_patient_partner_and_not_tit_for_tat() -> None:
    said = ("<offer price=40>", "<offer price=21>", "hm", "<offer price=21>") * 4
    assert "price=40" in says("tit-for-tat", LAMP, said)
    assert "price=40" not in says("linear", LAMP, said)


def test_it_accepts_what_is_good_enough_and_leaves_when_all_is_said() -> None:
    early = ("<offer price=40>", "<offer price=39>")
    assert "<accept>" not in says("boulware", LAMP, early)
    assert "<accept>" in says("conceder", LAMP, ("<offer price=40>", "<offer price=38>") * 3)
    assert says("linear", LAMP, (*early, "<accept>"), side=1) == "leave"


def test_it_takes_no_time_at_which_it_is_not_free() -> None:
    times = SlotTerms(("mon-9", "mon-11", "tue-9"), ((3.0, 1.0, 0.0), (1.0, 3.0, 2.0)))
    said = ("<offer slot=mon-9>", "<offer slot=tue-9>")
    for temper in TEMPERS:
        for rounds in (1, 5, 9):
            assert "<accept>" not in says(temper, times, said * rounds)
    assert "<accept>" in says("linear", times, ("<offer slot=mon-9>", "<offer slot=mon-11>") * 9)


def test_it_answers_questions_truly_and_knows_its_friends() -> None:
    terms = FriendTerms(
        ("hobby", "work"),
        (
            (("Rosa", "chess", "bank"), ("Emil", "chess", "school")),
            (("Rosa", "chess", "bank"), ("Ida", "boxing", "school")),
        ),
    )
    told = says("linear", terms, ("hello", "<ask hobby=chess>"))
    assert "<answer hobby=chess count=2>" in told
    assert "<accept>" in says("linear", terms, ("hello", "<offer friend=Rosa>"))
    assert "<reject>" in says("linear", terms, ("hello", "<offer friend=Ida>"))
    # Nobody from a school: Rosa is left.
    named = says("linear", terms, ("<ask work=school>", "<answer work=school count=0>"))
    assert "<offer friend=Rosa>" in named


def test_tempers_come_from_the_seed_about_equally_often() -> None:
    partner = ScriptedPartner()
    drawn = Counter(partner.temper(seed).name for seed in range(400))
    assert set(drawn) == set(TEMPERS) and min(drawn.values()) > 80
    assert ScriptedPartner("linear").temper(3).name == "linear"
    with pytest.raises(ConfigError, match="temper='rude'"):
        ScriptedPartner("rude")


Policy = Callable[[PartnerAsk], str | None]
RULES = Rules()


def play(combination: Combination, side: int, policy: Policy, temper: str) -> bool:
    """Return whether the policy succeeds on that side."""
    partner = ScriptedPartner(temper)
    turns: Turns = ()
    while not ending(turns, RULES):
        speaker = len(turns) % 2
        ask = PartnerAsk(0, combination, speaker, turns, seed=0)
        text = policy(ask) if speaker == side else partner.reply([ask])[0].text
        assert text is not None
        action, reason = read_action(text)
        assert action is not None, (text, reason)
        turns = (*turns, (action, NOTHING) if speaker == 0 else (NOTHING, action))
    (verdict,) = RuleJudge().score([Transcript(combination, turns, ending(turns, RULES))])
    assert verdict.status == "ok"
    return verdict.success[side]


def rate(policy: Policy, kind: str, temper: str, count: int = 8) -> float:
    casts = builtin_combinations("valid_unseen", [kind])[:count]
    played = [play(cast, side, policy, temper) for cast in casts for side in (0, 1)]
    return sum(played) / len(played)


def takes_all(ask: PartnerAsk) -> str:
    """Accept whatever is offered, at once."""
    return "say: <accept>"


def holds_out(ask: PartnerAsk) -> str:
    """Say the same until the last turn, then take what there is."""
    terms = ask.combination.scenario.terms
    if follow(terms, ask.turns).deal is not None:
        return "leave"
    if len(ask.turns) >= ask.max_turns - 2:
        return "say: <accept>"
    return f"say: <offer {terms.write(ask.side, terms.choices(ask.side)[0])}>"


def names_all(ask: PartnerAsk) -> str:
    """Name one friend after the other."""
    terms = ask.combination.scenario.terms
    talk = follow(terms, ask.turns)
    if talk.deal is not None:
        return "leave"
    mine = terms.choices(ask.side)
    return f"say: <offer friend={mine[len(talk.offers[ask.side]) % len(mine)]}>"


@pytest.mark.parametrize("temper", TEMPERS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_expert_succeeds_in_most_tasks(kind: str, temper: str) -> None:
    assert rate(expert_action, kind, temper) >= (0.6 if kind == "price" else 0.9)


@pytest.mark.parametrize("kind", KINDS)
def test_ways_without_thought_come_to_little(kind: str) -> None:
    assert rate(takes_all, kind, "conceder") == 0.0
    if kind == "friend":
        assert rate(names_all, kind, "linear") <= 0.5
    else:
        assert rate(holds_out, kind, "tit-for-tat") == 0.0


def _bargain(side: int, limits: tuple[float, float], *said: str) -> str | None:
    return expert_action(ask(PriceTerms(limits, seller=0, listed=40.0), talk(*said), side))


def test_the_expert_does_not_look_at_the_others_limit() -> None:
    said = ("say: <offer price=40>", "say: <offer price=22>", "say: <offer price=36>")
    assert _bargain(1, (20.0, 30.0), *said) == _bargain(1, (29.0, 30.0), *said)


def test_the_expert_takes_in_the_last_turn_what_is_better_than_nothing() -> None:
    before = ("say: hello", "say: hello") * 9
    assert _bargain(1, (20.0, 30.0), *before, "say: <offer price=29>") == (
        "say: That is fine with me. <accept>"
    )
    refused = _bargain(1, (20.0, 30.0), *before, "say: <offer price=31>")
    assert refused is not None and "<accept>" not in refused


def test_without_terms_there_is_no_expert_and_the_partner_makes_small_talk() -> None:
    assert expert_action(ask(None, ())) is None
    assert says("linear", None, ()).startswith(("say: ", "nonverbal: ", "do: "))

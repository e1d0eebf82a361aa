"""Offers in what is said, what they come to, and the lines that are made by steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from bargains import LAMP, THINGS, ask, bargain, talk

from creditrl.envs.sotopia.action_text import read_action
from creditrl.envs.sotopia.dialogue import NOTHING, Action, Transcript
from creditrl.envs.sotopia.offers import NO_TALK, answer_text, ask_text, follow, moves, segment
from creditrl.envs.sotopia.official import official_combinations
from creditrl.envs.sotopia.profiles import Combination
from creditrl.envs.sotopia.scenarios import builtin_combinations
from creditrl.envs.sotopia.scores import RuleJudge, outcome
from creditrl.envs.sotopia.situations import KINDS
from creditrl.envs.sotopia.steps import (
    ACCEPT,
    FARTHEST,
    NO_IDEA,
    REJECT,
    STEPS,
    THE_FRIEND,
    lines,
    share_at,
    step_of,
)
from creditrl.envs.sotopia.terms import (
    FriendTerms,
    PriceTerms,
    SlotTerms,
    Terms,
    attainable,
)

TIMES = SlotTerms(("mon-9", "mon-11", "tue-9"), ((3.0, 1.0, 0.0), (1.0, 3.0, 2.0)))
FRIENDS = FriendTerms(
    ("hobby", "work"),
    (
        (("Rosa", "chess", "bank"), ("Emil", "boxing", "bank")),
        (("Rosa", "chess", "bank"), ("Ida", "boxing", "school")),
    ),
)


@pytest.mark.parametrize(
    ("said", "price"),
    [
        ("<offer price=25>", 25.0),
        ("Take it: <Offer price='$1,250.50' >!", 1250.5),
        ("I could do $25 for it", 25.0),
        ("not $30, but 25 dollars", 25.0),
        ("$30 is too much. <offer price=25>", 25.0),
        ("I have 25 of them", None),
        ("<offer price=cheap>", None),
        ("<offer price=-5>", None),
        ("<offer>", None),
    ],
)
def test_a_price_is_read_from_tags_and_otherwise_from_words(said: str, price: float | None) -> None:
    assert follow(LAMP, talk(said)).standing == (price, None)


@pytest.mark.parametrize(
    ("deal", "said"),
    [
        *((25.0, yes) for yes in ("<accept>", "accept", "Good. <ACCEPT>", "We have a deal.")),
        *((25.0, yes) for yes in ("I'll take it", "I accept $25")),
        *((None, no) for no in ("<reject>", "I can't accept that", "No deal.", "Is $25 all?")),
        (None, "I would accept it if it were blue"),
    ],
)
def test_who_accepts_what_stands_has_agreed_and_nobody_else(deal: float | None, said: str) -> None:
    assert follow(LAMP, talk("<offer price=25>", said)).deal == deal


def test_nobody_accepts_an_own_offer_nor_one_that_is_gone() -> None:
    assert follow(LAMP, talk("<accept>")).deal is None
    rejected = talk("<offer price=25>", "<reject>", "Think again", "<accept>")
    assert follow(LAMP, rejected).deal is None
    # A counter-offer takes the place of the offer that it answers.
    countered = talk("<offer price=25>", "<offer price=22>", "hm", "<accept>")
    assert follow(LAMP, countered).deal is None
    assert follow(LAMP, (*countered[:2], *talk("<accept>"))).deal == 22.0
    own = ((Action("speak", "<offer price=25>"), NOTHING), (Action("speak", "<accept>"), NOTHING))
    assert follow(LAMP, own).deal is None


def test_the_same_offer_from_both_sides_is_an_agreement() -> None:
    assert follow(LAMP, talk("<offer price=25>", "<offer price=25.00>")).deal == 25.0
    at_once = ((Action("speak", "<offer price=25>"), Action("speak", "<offer price=25>")),)
    assert follow(LAMP, at_once).deal == 25.0
    crossing = ((Action("speak", "<offer price=25>"), Action("speak", "<offer price=22>")),)
    assert follow(LAMP, crossing).standing == (25.0, 22.0)
    first = talk("<offer price=25>", "<accept>", "<offer price=99>", "<accept>")
    assert follow(LAMP, first).deal == 25.0  # the first agreement binds
    deed = ((Action("action", "<offer price=25>"), NOTHING),)
    assert follow(LAMP, deed).standing == (None, None)  # only speech counts


def test_following_in_parts_is_following_at_once() -> None:
    turns = talk("<offer price=25>", "<offer price=21>", "<reject> <offer price=24>", "<accept>")
    part = NO_TALK
    for n in range(len(turns) + 1):
        part = follow(LAMP, turns[:n], part)
        assert part == follow(LAMP, turns[:n]) and part.heard == n


def test_an_offer_of_things_names_the_speakers_share() -> None:
    said = "<offer books=2 hat=1>"
    assert follow(THINGS, talk(said)).standing == ((2, 1), None)
    assert follow(THINGS, talk(said, side=1)).standing == (None, (1, 0))
    assert THINGS.write(1, (1, 0)) == "books=2 hats=1"
    for wrong in ("<offer books=4>", "<offer cups=1>", "<offer books=two>", "<offer>"):
        assert follow(THINGS, talk(wrong)).standing == (None, None)


def test_times_are_read_in_several_forms() -> None:
    for said in ("<offer slot=mon-9>", "<offer slot='Monday at 9:00'>", "<offer slot='mon 09'>"):
        assert follow(TIMES, talk(said)).standing == ("mon-9", None)
    assert follow(TIMES, talk("<offer slot=sun-9>")).standing == (None, None)


def test_questions_wait_until_they_are_answered() -> None:
    first = follow(FRIENDS, talk("<ask work=bank>"))
    query = (("work", "bank"),)
    assert first.asked == (query, None)
    answered = follow(FRIENDS, talk("<ask work=bank>", "<answer work=bank count=1>"))
    assert answered.asked == (None, None)
    assert answered.answers == ((), ((query, 1),))
    assert follow(FRIENDS, talk("<ask colour=red>")).asked == (None, None)
    assert ask_text(query) == "<ask work=bank>"
    assert answer_text((("work", "night shift"),), 2) == '<answer work="night shift" count=2>'


def test_moves_are_what_the_side_itself_can_say() -> None:
    turns = talk("<offer slot=mon-9>")
    assert moves(ask(TIMES, turns, 1)) == (
        *("say: <accept>", "say: <reject>", "say: <offer slot=mon-11>"),
        *("say: <offer slot=tue-9>", "say: <offer slot=mon-9>", "nothing", "leave"),
    )
    # Side 0 is not free on Tuesday, and its own offer is not its to accept.
    assert moves(ask(TIMES, turns, 0)) == (
        "say: <offer slot=mon-9>",
        "say: <offer slot=mon-11>",
        "nothing",
        "leave",
    )
    agreed = talk("<offer slot=mon-9>", "<accept>")
    assert moves(ask(TIMES, agreed, 0)) == moves(ask(None, (), 0)) == ("nothing", "leave")
    asked = moves(ask(FRIENDS, talk("<ask hobby=chess>"), 1))
    assert asked[0] == "say: <answer hobby=chess count=1>"
    assert "say: <offer friend=Ida>" in asked and "say: <offer friend=Emil>" not in asked


def test_segments_name_the_offer_that_stands_or_the_deal() -> None:
    assert segment(ask(LAMP, (), 0)) == segment(ask(None, (), 0)) == ""
    assert segment(ask(LAMP, talk("<offer price=25>"), 1)) == "offer price=25 of side 0"
    assert segment(ask(LAMP, talk("<offer price=25>", "<accept>"), 1)) == "agreed price=25"


UNEVEN = SlotTerms(("mon-9", "mon-11", "tue-9"), ((3.0, 1.0, 0.0), (1.0, 4.0, 2.0)))


def comes_to(terms: Terms, *said: str, **expected: object) -> None:
    came_to = outcome(terms, follow(terms, talk(*said)))
    for name, value in expected.items():
        assert getattr(came_to, name) == pytest.approx(value), name


def agreed(terms: Terms, offer: str, **expected: object) -> None:
    comes_to(terms, f"<offer {offer}>", "<accept>", **expected)


@pytest.mark.parametrize(
    ("price", "share", "goal", "success"),
    [
        (25, (0.5, 0.5), (0.5, 0.5), (True, True)),
        (28, (0.8, 0.2), (0.8, 0.2), (True, False)),
        (20, (0.0, 1.0), (0.0, 1.0), (False, True)),
        # Above what the buyer can pay: it loses, and the seller has more than all.
        (35, (1.5, -0.5), (1.0, 0.0), (True, False)),
    ],
)
def test_a_price_divides_the_zone_of_agreement(price, share, goal, success):
    assert attainable(LAMP) == (10.0, 10.0)
    agreed(LAMP, f"price={price}", share=share, goal=goal, success=success, pareto_gap=0.0)


def test_no_agreement_is_worth_nothing() -> None:
    # Any price in the zone gives the two shares 1 in all.
    none = {"goal": (0.0, 0.0), "success": (False, False), "pareto_gap": 0.5}
    comes_to(LAMP, "<offer price=25>", "<reject>", **none)


def test_points_of_items_count_from_the_fallback() -> None:
    # Side 0: 3 books and the hat are 10 points, less 2; side 1 needs 1 point: a book, say. Side 1:
    # 3 and 7 points, less 1; side 0 needs 2 points: a book.
    assert attainable(THINGS) == (6.0, 8.0)
    # 6 - 2 = 4 of 6; 7 - 1 = 6 of 8.
    came = {"surplus": (4.0, 6.0), "goal": (4 / 6, 6 / 8), "success": (True, True)}
    agreed(THINGS, "books=3", pareto_gap=0.0, **came)
    # The Pareto gap is what both leave on the table. Side 0 takes the hat, side 1 all books:
    # 4 - 2 = 2 of 6, 3 - 1 = 2 of 8. With all books for 0 and the hat for 1 they would have 4/6 and
    # 6/8: half of 2/6 + 4/8 is 5/12.
    came = {"share": (2 / 6, 2 / 8), "success": (False, False)}
    agreed(THINGS, "hats=1", pareto_gap=5 / 12, **came)


def test_a_time_at_which_one_is_not_free_is_worse_than_none() -> None:
    # In common are mon-9 (3 and 1 points) and mon-11 (1 and 4).
    assert attainable(UNEVEN) == (3.0, 4.0)
    agreed(UNEVEN, "slot=mon-11", goal=(1 / 3, 1.0))
    agreed(UNEVEN, "slot=tue-9", surplus=(-1.0, 2.0), goal=(0.0, 0.5), success=(False, True))


def test_wrong_names_cost_a_fifth_each() -> None:
    known = tuple((name, "chess") for name in ("Rosa", "Emil", "Ida", "Otto"))
    terms = FriendTerms(("hobby",), (known, (("Rosa", "chess"), ("Kai", "chess"))))
    said = [f"<offer friend={name}>" for name in ("Emil", "Ida", "Otto", "Rosa")]
    for wrong, goal in enumerate((1.0, 0.8, 0.6, 0.4)):
        words = [word for offer in said[3 - wrong :] for word in (offer, "<reject>")]
        comes_to(terms, *words[:-1], "<accept>", goal=(goal, 1.0), success=(goal >= 0.5, True))
    # A name that only one of them knows is no common friend, agreed or not.
    agreed(terms, "friend=Emil", goal=(0.0, 0.0))


def test_where_no_price_suits_both_it_is_right_to_part() -> None:
    dear = PriceTerms(limits=(30.0, 20.0), seller=0, listed=40.0)
    assert attainable(dear) == (0.0, 0.0)
    comes_to(dear, "<offer price=35>", "<reject>", goal=(1.0, 1.0), success=(True, True))
    agreed(dear, "price=25", goal=(0.0, 0.0))
    agreed(dear, "price=35", goal=(1.0, 0.0))


def _judged(combination: Combination, *said: str):  # type: ignore[no-untyped-def]
    (verdict,) = RuleJudge().score([Transcript(combination, talk(*said), "left")])
    return verdict


def test_the_judge_names_its_scores_and_judges_nothing_without_terms() -> None:
    verdict = _judged(bargain(LAMP), "<offer price=28>", "<accept>")
    assert verdict.goal == pytest.approx((0.8, 0.2)) and verdict.status == "ok"
    one = {"surplus": 8.0, "share": 0.8, "agreement": 1.0, "pareto_gap": 0.0}
    assert verdict.scores is not None and verdict.scores[0] == one
    assert verdict.judge == "sotopia-lite/negotiation v1"
    assert _judged(bargain(None), "hello").status == "none"


def test_official_bargains_and_divisions_are_scored_by_their_goals(test_data: Path) -> None:
    combinations = official_combinations("valid_unseen", data_dir=test_data / "sotopia")
    by_id = {c.scenario.id: c for c in combinations}
    # The BMW: buyer (side 0) at most 4,600, seller at least 3,260.
    car = by_id["01H7VFHQ0BGQA0AD9FC1R4M12F"]
    assert _judged(car, "How about $4,000?", "It's a deal.").goal == pytest.approx(
        (600 / 1340, 740 / 1340)
    )
    # Books, hats, ball: 5, 3, 2 points each to side 0, and 2, 5, 3 to side 1.
    flat = by_id["01H7VFHP3DPGRXH1Y500VQKFZA"]
    verdict = _judged(flat, "<offer books=3>", "<accept>")
    assert verdict.scores is not None
    assert verdict.scores[0]["surplus"] == 15.0 and verdict.scores[1]["surplus"] == 13.0
    checked = {c.scenario.source for c in combinations if c.scenario.terms is not None}
    assert checked == {"craigslist_bargains", "deal-or-no-deal", "mutual_friends"}


DEAR = PriceTerms((26.0, 36.0), seller=0, listed=40.0)
KNOWN = FriendTerms(
    ("hobby", "work"),
    (
        (("Ada", "chess", "bank"), ("Bela", "chess", "school"), ("Cara", "drums", "bank")),
        (("Ada", "chess", "bank"), ("Dora", "harp", "school"), ("Emil", "harp", "museum")),
    ),
)


def heard(terms: Terms, *said: str) -> object:
    """Return what a dialogue has come to that side 1 opened."""
    return follow(terms, talk(*said, side=1))


def test_offers_go_in_steps_from_the_best_price_towards_the_limit() -> None:
    # (1 - 0.38) / 9 = 0.0689
    assert [round(share_at(step), 3) for step in (0, 1, 9, 13)] == [1.0, 0.931, 0.38, 0.104]
    said = [line for line in lines(DEAR, 0, NO_TALK) if "<offer" in line]
    # The seller may hope for 40 - 26 = 14 dollars; step 9 asks for 26 + 0.38 * 14 = 31.32.
    assert len(said) == STEPS
    assert said[0] == "say: I propose this, 0 steps from my best. <offer price=40>"
    assert said[9] == "say: I propose this, 9 steps from my best. <offer price=32>"


def test_a_deal_lies_at_the_first_step_that_asks_for_no_more() -> None:
    steps = {45.0: 0, 40.0: 0, 39.0: 2, 32.0: 9, 26.0: 15, 1.0: FARTHEST}
    assert {price: step_of(DEAR, 0, price) for price in steps} == steps
    # A time at which one is not free is farther than every offer.
    times = SlotTerms(("mon-9", "mon-11"), ((9.0, 0.0), (0.0, 9.0)))
    assert step_of(times, 0, "mon-9") == 0 and step_of(times, 0, "mon-11") > STEPS


def test_only_an_offer_that_stands_can_be_accepted_and_after_that_there_is_nothing_to_say() -> None:
    assert not {ACCEPT, REJECT} & set(lines(DEAR, 0, NO_TALK))
    said = lines(DEAR, 0, heard(DEAR, "<offer price=20>"))
    assert said[:2] == (ACCEPT, REJECT) and said[-1] == "leave"
    assert lines(DEAR, 0, heard(DEAR, "<offer price=30>", "<accept>")) == ("leave",)


def test_questions_say_of_how_many_they_are_true_and_are_answered_in_the_same_breath() -> None:
    said = lines(KNOWN, 0, NO_TALK)
    assert "say: It is true of 2 of mine: <ask hobby=chess>" in said
    assert "say: Do you know somebody just like that? <ask hobby=drums work=bank>" in said
    said = lines(KNOWN, 0, heard(KNOWN, "<ask work=bank>"))
    assert all(line.startswith("say: <answer work=bank count=2> ") for line in said[:-1])


def test_guesses_leave_out_who_was_ruled_out_and_are_sure_of_who_was_found() -> None:
    talk = heard(KNOWN, "Hm.", "<ask hobby=drums>", "<answer hobby=drums count=0>")
    said = lines(KNOWN, 0, talk)
    assert "say: Is it Ada? <offer friend=Ada>" in said
    assert not any("Cara" in line or "drums" in line for line in said)
    one = "<answer hobby=chess work=bank count=1>"
    said = lines(KNOWN, 0, heard(KNOWN, "Hm.", "<ask hobby=chess work=bank>", one))
    assert "say: It must be Ada! <offer friend=Ada>" in said


def test_who_knows_no_more_friends_says_so() -> None:
    named = [f"<offer friend={name}>" for name in ("Ada", "Bela", "Cara")]
    said = lines(KNOWN, 0, heard(KNOWN, "Hm.", " ".join(named), "No. <reject>"))
    assert said == (NO_IDEA, "leave")
    assert THE_FRIEND in lines(KNOWN, 0, heard(KNOWN, "<offer friend=Ada>"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_line_is_an_action_and_every_offer_names_what_the_side_wants(kind: str) -> None:
    for combination in builtin_combinations("train", [kind])[:20]:
        terms = combination.scenario.terms
        assert isinstance(terms, Terms)
        for side in (0, 1):
            said = lines(terms, side, NO_TALK)
            assert len(set(said)) == len(said) <= 40
            for line in said:
                action, reason = read_action(line)
                assert action is not None, reason
                turn = (action, NOTHING) if side == 0 else (NOTHING, action)
                offers = follow(terms, (turn,)).offers[side]
                assert len(offers) == ("<offer" in line)
                assert all(terms.own(side, deal) > 0 for deal in offers)

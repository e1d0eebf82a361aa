"""The engine over a hand-made shop: actions, their rewards, texts and states."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from shops import CARDIGAN, GADGET, GOAL, HUMAN_GOAL, TEA, odd_shop, small_shop

from creditrl.envs.base import Effect, View
from creditrl.envs.webshop.engine import LONGEST_ACTION, WebShopEngine
from creditrl.envs.webshop.goals import Goal
from creditrl.envs.webshop.pages import Rules
from creditrl.errors import ConfigError, SnapshotError
from creditrl.types import Task

ONE = np.zeros(1, dtype=np.int64)
CARD = f"click[{CARDIGAN.asin.lower()}]"


def task(goal: Goal, number: int = 0) -> Task:
    return Task(f"small/{number}", "synthetic", "train", number, goal.instruction, data=goal)


class Customer:
    """One copy of the environment, played by hand."""

    def __init__(self, goal: Goal = GOAL, *, compat: str = "fixed", **options: Any) -> None:
        rules = Rules(compat)  # type: ignore[arg-type]
        self.engine = WebShopEngine(1, small_shop(), rules, **options)
        self.engine.begin(ONE, [task(goal)], [0])

    def do(self, *actions: str) -> Effect:
        for action in actions:
            effect = self.engine.act(ONE, [action])
        return effect

    @property
    def view(self) -> View:
        return self.engine.view(ONE)

    @property
    def text(self) -> str:
        return self.view.text_K[0]

    def info(self, *names: str) -> list[Any]:
        return [self.view.extra[name][0] for name in names]


def outcome(effect: Effect) -> tuple[str, bool, str]:
    return effect.action_K[0], bool(effect.grounded_K[0]), effect.reason_K[0]


def test_a_purchase_pays_its_reward_and_ends_the_episode() -> None:
    customer = Customer()
    customer.do("search[soft cardigan]", CARD, "click[Washed Red]", "click[large]")
    assert customer.info("page", "r_type", "r_att", "r_option", "r_price") == ["item", 0, 0, 0, 0]
    effect = customer.do("click[Buy Now]")
    assert (effect.reward_K[0], effect.terminated_K[0]) == (1.0, True)
    assert outcome(effect) == ("click[buy now]", True, "")
    assert customer.info("page", "r_type", "r_att", "r_option", "r_price") == ["done", 1, 1, 1, 1]
    assert (customer.view.success_K[0], customer.view.score_K[0]) == (True, 1.0)
    assert customer.view.admissible_K[0] == ()
    assert customer.info("profile", "title_scorer") == ["fixed", "rule"]
    assert customer.info("url")[0].startswith("http://127.0.0.1:3000/done/0/B00CARDIG1/")


@pytest.mark.parametrize(
    ("options", "chosen", "paid", "score"),
    [
        # Two attributes, two options, one price: 4 of 5 are met.
        ({}, ("large",), 0.8, 0.8),
        ({"reward_kind": "success"}, ("large",), 0.0, 0.8),
        ({"reward_kind": "success"}, ("large", "washed red"), 10.0, 1.0),
        # There "washed red" is "red" among chosen values and stays a pair among wanted ones.
        ({"compat": "upstream"}, ("large", "washed red"), 0.8, 0.8),
    ],
)
def test_rewards_of_purchases_by_hand(options, chosen, paid, score) -> None:
    customer = Customer(**options)
    clicks = [f"click[{value}]" for value in (*chosen, "buy now")]
    effect = customer.do("search[soft cardigan]", CARD, *clicks)
    assert effect.reward_K[0] == paid
    assert customer.info("profile") == [options.get("compat", "fixed")]
    assert (customer.view.success_K[0], customer.view.score_K[0]) == (score == 1, score)


@pytest.mark.parametrize(
    ("before", "action", "said", "reason"),
    [
        ((), "search[tea]", "search[tea]", ""),
        ((), "  search[Tea] please", "search[tea]", ""),
        ((), "buy now", "buy now", "unparsed"),
        ((), "search[]", "search[]", "unparsed"),
        ((), "think[a]", "think[a]", "unknown"),
        ((), "click[a flying carpet]", "click[a flying carpet]", "unknown"),
        ((), "click[search]", "click[search]", "inapplicable"),
        ((), "click[Buy Now]", "click[buy now]", "inapplicable"),
        (("search[soft]",), "search[tea]", "search[tea]", "inapplicable"),
        (("search[soft]",), "click[red]", "click[red]", "unknown"),
        (("search[soft]", CARD, "click[features]"), "click[red]", "click[red]", "inapplicable"),
        (("search[soft]", CARD), "click[next >]", "click[next >]", "inapplicable"),
    ],
)
def test_an_impossible_action_is_reported_and_changes_nothing(before, action, said, reason):
    customer = Customer()
    for one in before:
        assert outcome(customer.do(one))[1:] == (True, "")
    text, key = customer.text, customer.engine.state_keys(ONE, "state")
    effect = customer.do(action)
    assert outcome(effect) == (said, not reason, reason)
    assert (effect.reward_K[0], effect.terminated_K[0]) == (0.0, False)
    if reason:
        assert (customer.text, customer.engine.state_keys(ONE, "state")) == (text, key)


def test_every_admissible_action_is_literal_and_can_be_performed() -> None:
    for compat in ("fixed", "upstream"):
        customer = Customer(compat=compat)
        assert customer.view.admissible_K[0] == ()
        for step in ("search[soft gadget]", f"click[{GADGET.asin}]", "click[features]"):
            customer.do(step)
            actions = customer.view.admissible_K[0]
            saved = customer.engine.snapshot(ONE)
            for action in actions:
                assert outcome(customer.do(action)) == (action, True, "")
                customer.engine.restore(ONE, saved, [task(GOAL)])
    # Upstream lists such options, but cannot parse a click on them.
    assert "click[fit: large]" not in actions
    customer = Customer(compat="upstream")
    customer.do("search[gadget]", f"click[{GADGET.asin}]")
    assert not any("pack" in action for action in customer.view.admissible_K[0])
    assert "click[search]" not in customer.view.admissible_K[0]


def test_segments_are_search_item_option_browse_and_buy() -> None:
    customer = Customer(compat="upstream")
    served = [
        *(("nonsense", "search"), ("search[soft]", "search"), ("click[next >]", "search")),
        *(("click[< prev]", "search"), ("click[buy now]", "item"), (CARD, "item")),
        *(("click[red]", "option"), ("click[xxl]", "option"), ("click[description]", "browse")),
        *(("click[red]", "browse"), ("click[< prev]", "browse"), ("click[< prev]", "browse")),
        *((CARD, "item"), ("search[tea]", "search"), ("click[back to search]", "browse")),
        *(("search[soft]", "search"), (CARD, "item"), ("click[buy now]", "buy")),
    ]
    assert customer.engine.segment_key(0) == ""
    for action, segment in served:
        customer.do(action)
        assert customer.engine.segment_key(0) == segment, action


def test_a_snapshot_is_the_page_and_survives_pickling() -> None:
    customer = Customer(num_prev_obs=1, num_prev_actions=1)
    customer.do("search[soft]", CARD, "click[red]")
    saved = customer.engine.snapshot(ONE)
    text, key = customer.text, customer.engine.state_keys(ONE, "state")
    customer.do("click[buy now]")
    bought = customer.text
    other = Customer(HUMAN_GOAL, num_prev_obs=1, num_prev_actions=1)
    other.engine.restore(ONE, pickle.loads(pickle.dumps(saved)), [task(GOAL)])
    assert (other.text, other.engine.state_keys(ONE, "state")) == (text, key)
    assert other.engine.segment_key(0) == "option"
    other.do("click[buy now]")
    assert other.text == bought
    done = pickle.loads(pickle.dumps(other.engine.snapshot(ONE)))
    customer.engine.begin(ONE, [task(GOAL)], [0])
    customer.engine.restore(ONE, done, [task(GOAL)])
    assert customer.view.score_K[0] == other.view.score_K[0] > 0


@pytest.mark.parametrize(
    "changed", [{"compat": "upstream"}, {"show_attrs": True}, {"price_seed": 1}, {"odd": True}]
)
def test_a_snapshot_of_another_shop_or_of_other_rules_is_refused(changed: dict[str, Any]) -> None:
    shop = odd_shop() if changed.pop("odd", False) else small_shop()
    other = replace(shop, price_seed=changed.pop("price_seed", 0))
    theirs = WebShopEngine(1, other, Rules(**changed))
    theirs.begin(ONE, [task(GOAL)], [0])
    theirs.act(ONE, ["search[soft]"])
    ours = Customer(HUMAN_GOAL)
    ours.do("search[tea]")
    text = ours.text
    with pytest.raises(SnapshotError, match="The snapshot is of a shop with .* Restore it where"):
        ours.engine.restore(ONE, theirs.snapshot(ONE), [task(GOAL)])
    assert ours.text == text


def test_state_keys_depend_on_the_page_and_the_goal() -> None:
    def keys(customer: Customer) -> tuple[bytes, bytes]:
        engine = customer.engine
        return engine.state_keys(ONE, "state")[0], engine.state_keys(ONE, "world")[0]

    one, two = Customer(), Customer(replace(GOAL, price_upper=20.0))
    assert keys(one)[0] != keys(two)[0] and keys(one)[1] == keys(two)[1]
    assert keys(one)[0] == keys(Customer(replace(GOAL, weight=0.25)))[0]
    # The same product from the same query, visited after another one.
    one, two = Customer(), Customer()
    one.do("search[soft]", CARD)
    two.do("search[soft]", f"click[{TEA.asin}]", "click[< prev]", CARD)
    assert keys(one) == keys(two)
    rich, other = Customer(mode="text_rich"), Customer(mode="text_rich")
    rich.do("search[soft]", CARD)
    other.do("search[soft]", f"click[{TEA.asin}]", "click[< prev]", CARD)
    assert keys(rich)[0] != keys(other)[0] and keys(rich)[1] == keys(other)[1]
    # The order of options appears only in the address.
    for mode, same in (("text", True), ("text_rich", True), ("url", False)):
        one, two = Customer(mode=mode), Customer(mode=mode)
        one.do("search[soft]", CARD, "click[red]", "click[large]")
        two.do("search[soft]", CARD, "click[large]", "click[red]")
        assert (keys(one)[0] == keys(two)[0]) is same, mode
        assert keys(one)[1] == keys(two)[1]
        two.do("click[small]")
        assert keys(one)[1] != keys(two)[1]


def test_history_precedes_the_page_as_in_upstream() -> None:
    def plain(*actions: str) -> str:
        customer = Customer()
        for action in actions:
            customer.do(action)
        return customer.text

    first, second, third = "search[soft]", CARD, "  no such thing"
    pages = [plain(), plain(first), plain(first, second), plain(first, second, third)]
    assert pages[2] == pages[3]
    customer = Customer(num_prev_obs=2, num_prev_actions=1)
    assert customer.text == pages[0]
    customer.do(first)
    assert customer.text == " [SEP] ".join([pages[0], first, pages[1]])
    customer.do(second)
    assert customer.text == " [SEP] ".join([pages[0], pages[1], second, pages[2]])
    customer.do(third)
    assert customer.text == " [SEP] ".join([pages[1], pages[2], third, pages[3]])
    # A new episode forgets it.
    customer.engine.begin(ONE, [task(GOAL)], [0])
    assert customer.text == pages[0]
    actions = Customer(num_prev_actions=2)
    actions.do(first, second, third)
    assert actions.text == " [SEP] ".join([second, third, pages[3]])
    actions.do("x" * 5000)
    assert actions.text == " [SEP] ".join([third, "x" * LONGEST_ACTION, pages[3]])


def test_a_page_is_an_address_or_html_and_is_drawn_with_its_buttons() -> None:
    customer = Customer(mode="url")
    assert customer.text == "http://127.0.0.1:3000/0"
    drawn = customer.engine.render(0, "ansi")
    assert "[button] Search [button_]" in drawn and GOAL.instruction in drawn
    customer.do("search[soft]", CARD)
    assert customer.text == customer.info("url")[0]
    customer = Customer(mode="html")
    customer.do("search[gadget]", f"click[{GADGET.asin}]")
    assert "&lt;script&gt;alert(" in customer.text
    assert "<script>alert(" not in customer.text
    assert customer.engine.render(0, "html").startswith("<!")
    with pytest.raises(ConfigError, match="holds str data: WebShop needs a Goal"):
        customer.engine.begin(ONE, [Task("a", "b", "train", 0, data="level")], [0])


def test_copies_are_independent_but_share_search_results() -> None:
    shop = small_shop()
    engine = WebShopEngine(3, shop, Rules())
    engine.begin(engine.every, [task(GOAL), task(HUMAN_GOAL, 1), task(GOAL)], [0, 0, 0])
    engine.act(engine.every, ["search[soft]"] * 3)
    assert len(set(engine.view(engine.every).text_K)) == 2
    assert shop.index.searches == 1
    engine.act(np.array([2]), [CARD])
    assert [engine.page(i).kind for i in range(3)] == ["results", "results", "item"]
    texts = engine.view(np.array([2, 0])).text_K
    assert "Price: " in texts[0] and "Page 1" in texts[1]

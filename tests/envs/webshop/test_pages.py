"""The pages as a state machine: worked by hand, under both profiles."""

from __future__ import annotations

import pytest
from shops import CARDIGAN, GADGET, LAMP, TEA, small_shop

from creditrl.envs.webshop.pages import (
    LONGEST_QUERY,
    START,
    Page,
    Rules,
    can_search,
    click,
    clickables,
    found,
    is_known,
    options_of,
    parse_action,
    products_on,
    search,
)
from creditrl.envs.webshop.shop import Shop
from creditrl.errors import ConfigError, DataError

FIXED, UPSTREAM = Rules(), Rules("upstream")
BOTH = pytest.mark.parametrize("rules", [FIXED, UPSTREAM], ids=["fixed", "upstream"])


@pytest.fixture
def shop() -> Shop:
    return small_shop()


def walk(shop: Shop, rules: Rules, *actions: str, page: Page = START) -> Page:
    """Perform actions that must all succeed."""
    for action in actions:
        parsed = parse_action(rules, action)
        assert parsed is not None, action
        name, value = parsed
        there = (search if name == "search" else click)(shop, rules, page, value)
        assert there is not None, f"{action} on {page}"
        page = there
    return page


CARD = f"click[{CARDIGAN.asin}]"
TRAPS = f"click[{GADGET.asin}]"


@BOTH
def test_a_purchase_page_by_page(shop: Shop, rules: Rules) -> None:
    page = walk(shop, rules, "search[Soft  cardigan]")
    assert page == Page("results", ("soft", "", "cardigan"), 1)
    page = walk(shop, rules, CARD, page=page)
    at = Page("item", ("soft", "", "cardigan"), 1, CARDIGAN.asin, visited=(CARDIGAN.asin,))
    assert page == at
    page = walk(shop, rules, "click[Large]", "click[red]", "click[small]", page=page)
    # A group keeps the position of its first choice.
    chosen = (("size", "small"), ("color", "red"))
    assert page == at._replace(options=chosen)
    page = walk(shop, rules, "click[features]", page=page)
    assert page == at._replace(kind="sub", sub="Features", options=chosen)
    page = walk(shop, rules, "click[< prev]", "click[buy now]", page=page)
    assert page == Page("done", asin=CARDIGAN.asin, options=chosen, visited=(CARDIGAN.asin,))
    assert clickables(shop, rules, page) == ()
    assert not can_search(rules, page)
    assert search(shop, rules, page, "soft") is None
    assert click(shop, rules, page, "buy now") is None


@BOTH
def test_prev_forgets_the_product_and_back_forgets_everything(shop: Shop, rules: Rules) -> None:
    page = walk(shop, rules, "search[soft]", CARD, "click[red]")
    back = walk(shop, rules, "click[< prev]", page=page)
    assert back == Page("results", ("soft",), 1, visited=(CARDIGAN.asin,))
    assert walk(shop, rules, CARD, page=back).options == ()
    assert walk(shop, rules, "click[back to search]", page=page) == START
    assert walk(shop, rules, "click[reviews]", "click[back to search]", page=page) == START


@BOTH
def test_clickables_are_in_upstreams_order(shop: Shop, rules: Rules) -> None:
    assert clickables(shop, rules, START) == ("search",)
    results = walk(shop, rules, "search[soft]")
    ids = tuple(f"b00socks{n}" for n in range(10, 17))
    first = ("b00cardig1", "b00teagrn3", "b00lampxx4", *ids)
    assert clickables(shop, rules, results) == ("back to search", "next >", *first)
    second = walk(shop, rules, "click[next >]", page=results)
    turned = ("back to search", "< prev", "next >", "b00socks17")
    assert clickables(shop, rules, second)[:4] == turned
    buttons = ("back to search", "< prev", "description", "features", "reviews")
    options = ("red", "blue heather", "washed red", "small", "large")
    item = walk(shop, rules, CARD, page=results)
    assert clickables(shop, rules, item) == (*buttons, "buy now", *options)
    shown = Rules(rules.compat, show_attrs=True)
    assert clickables(shop, shown, item) == (*buttons, "attributes", "buy now", *options)
    below = walk(shop, rules, "click[description]", page=item)
    assert clickables(shop, rules, below) == ("back to search", "< prev")


def test_pages_of_results_end_with_the_products(shop: Shop) -> None:
    # The query finds 25 of the 26 products.
    page = walk(shop, FIXED, "search[soft]", "click[next >]", "click[next >]")
    assert (page.number, len(products_on(shop, FIXED, page))) == (3, 5)
    assert click(shop, FIXED, page, "next >") is None
    beyond = walk(shop, UPSTREAM, *["click[next >]"] * 4, page=page)
    assert (beyond.number, products_on(shop, UPSTREAM, beyond)) == (7, ())
    assert clickables(shop, UPSTREAM, beyond) == ("back to search", "< prev", "next >")
    nothing = walk(shop, FIXED, "search[xyzzy]")
    assert clickables(shop, FIXED, nothing) == ("back to search",)
    # Ten products fill exactly one page.
    ten = walk(shop, FIXED, "search[10 11 12 13 14 15 16 17 18 19]")
    assert len(found(shop, FIXED, ten.keywords)) == 10
    assert "next >" not in clickables(shop, FIXED, ten)


def test_a_search_needs_the_search_bar_except_in_upstream(shop: Shop) -> None:
    there = ("search[soft]", CARD, "click[reviews]")
    for count in (1, 2, 3):
        page = walk(shop, FIXED, *there[:count])
        assert not can_search(FIXED, page) and search(shop, FIXED, page, "tea") is None
        led = search(shop, UPSTREAM, page, "tea")
        assert led == Page("results", ("tea",), 1, visited=page.visited)
    assert search(shop, FIXED, START, "") is None
    for rules in (FIXED, UPSTREAM):
        assert click(shop, rules, START, "search") is None  # without a query


@BOTH
def test_any_query_is_accepted(shop: Shop, rules: Rules) -> None:
    for query in ("\x00\x07\u202e soft", "\t", "😀" * 9, "soft" * 2500, "x" * (LONGEST_QUERY + 5)):
        page = search(shop, rules, START, query)
        assert page is not None and " ".join(page.keywords) == query[:LONGEST_QUERY]
        assert "back to search" in clickables(shop, rules, page)


def test_colliding_options_are_distinguished(shop: Shop) -> None:
    page = walk(shop, FIXED, "search[gadget]", TRAPS)
    labels = {option.label for option in options_of(shop, FIXED, GADGET.asin)}
    assert {"fit: large", "size: large", "size: reviews", "search: search"} <= labels
    assert {"search: next >", "fit: one size", "two\nlines", "pack [of 2]"} <= labels
    page = walk(shop, FIXED, "click[size: large]", "click[fit: large]", page=page)
    assert page.options == (("size", "large"), ("fit", "large"))
    assert click(shop, FIXED, page, "large") is None
    assert walk(shop, FIXED, "click[reviews]", page=page).sub == "Reviews"
    page = walk(shop, FIXED, "click[size: reviews]", "click[search: search]", page=page)
    assert page.options == (("size", "reviews"), ("fit", "large"), ("search", "search"))
    page = walk(shop, FIXED, "click[pack [of 2]]", "click[Two\nLines]", page=page)
    assert page.options[0] == ("size", "two\nlines")
    # A value listed twice in a group is one option.
    page = walk(shop, FIXED, "search[lamp]", f"click[{LAMP.asin}]", "click[red]")
    assert page.options == (("color", "red"),)
    assert clickables(shop, FIXED, page)[-2:] == ("red", "green")


def test_in_upstream_an_ambiguous_click_goes_to_the_last_group_or_the_button(shop: Shop) -> None:
    page = walk(shop, UPSTREAM, "search[gadget]", TRAPS)
    assert walk(shop, UPSTREAM, "click[large]", page=page).options == (("size", "large"),)
    assert walk(shop, UPSTREAM, "click[one size]", page=page).options == (("size", "one size"),)
    assert walk(shop, UPSTREAM, "click[reviews]", page=page).kind == "sub"
    assert click(shop, UPSTREAM, page, "search") is None
    assert clickables(shop, UPSTREAM, page).count("large") == 1
    # Not a page of results: upstream goes by the name of the button alone.
    assert walk(shop, UPSTREAM, "click[next >]", page=page).options == (("search", "next >"),)


@pytest.mark.parametrize(
    ("action", "fixed", "upstream"),
    [
        ("click[Buy Now]", ("click", "buy now"), ("click", "buy now")),
        ("click[a] and so on", ("click", "a"), ("click", "a")),
        ("click[a] b]", ("click", "a] b"), ("click", "a] b")),
        ("search[ ]", ("search", " "), ("search", " ")),
        ("search[]", None, None),
        ("search", None, None),
        ("", None, None),
        ("click[a", None, None),
        ("Click[a]", ("Click", "a"), ("Click", "a")),
        ("click [a]", ("click ", "a"), ("click ", "a")),
        # What the default rules repair.
        ("  click[a]", ("click", "a"), ("  click", "a")),
        ("click[a [b]]", ("click", "a [b]"), ("click[a ", "b]")),
        ("click[a\nb]", ("click", "a\nb"), None),
        ("search[x] search[y]", ("search", "x] search[y"), ("search[x] search", "y")),
    ],
)
def test_actions_are_read_as_upstream_reads_them(action, fixed, upstream):
    assert parse_action(FIXED, action) == fixed
    assert parse_action(UPSTREAM, action) == upstream


def test_upstreams_special_queries_are_ordinary_by_default(shop: Shop) -> None:
    def ids(rules: Rules, query: str) -> list[str]:
        return [p.asin for p in products_on(shop, rules, walk(shop, rules, f"search[{query}]"))]

    assert ids(UPSTREAM, "<c> home") == [LAMP.asin]
    assert ids(UPSTREAM, "<q> tea") == [TEA.asin]
    assert ids(UPSTREAM, "<q> gadget <q>") == [GADGET.asin]
    assert ids(UPSTREAM, "<a> organic") == [TEA.asin]
    assert ids(UPSTREAM, "<c>") == ids(UPSTREAM, "<q>") == []
    drawn = ids(UPSTREAM, "<r> 1")
    assert len(set(drawn)) == 10 and drawn == ids(UPSTREAM, "<r> 1") != ids(UPSTREAM, "<r> 2")
    assert ids(FIXED, "<q> tea") == ids(FIXED, "tea") == [TEA.asin]
    assert ids(FIXED, "<r>") == []


def test_page_names_in_a_query_mislead_only_upstream(shop: Shop) -> None:
    # Upstream takes the product's page for the first page of results, and goes to page 0.
    page = walk(shop, FIXED, "search[soft search_results]", CARD)
    assert walk(shop, FIXED, "click[< prev]", page=page).number == 1
    page = walk(shop, UPSTREAM, "click[< prev]", page=page)
    assert (page.kind, page.number, products_on(shop, UPSTREAM, page)) == ("results", 0, ())
    below = walk(shop, UPSTREAM, "search[soft item_page]", CARD, "click[features]")
    assert walk(shop, UPSTREAM, "click[< prev]", page=below).kind == "results"
    assert walk(shop, FIXED, "click[< prev]", page=below).kind == "item"


def test_values_of_other_pages_are_known(shop: Shop) -> None:
    page = walk(shop, FIXED, "search[soft]", CARD, "click[features]")
    for value in ("buy now", "search", "next >", TEA.asin.lower(), "washed red"):
        assert is_known(shop, FIXED, page, value), value
    for value in ("organic", "b00nothing", "color: red"):
        assert not is_known(shop, FIXED, page, value), value
    assert not is_known(shop, FIXED, START, "washed red")


def test_invalid_rules_and_unknown_products_are_refused(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="compat='verl' is unknown"):
        Rules("verl")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no product 'B1'.*another shop"):
        clickables(shop, FIXED, Page("item", ("a",), 1, "B1"))

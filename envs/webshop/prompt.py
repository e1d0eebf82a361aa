"""The words of WebShop.

Source of the templates and of what prompts with a window tell: the prompts of ETO (Song et al.
2024), which SPA and HISR took over, and of verl-agent: there an observation begins after the
instruction, its parts are quoted, and a prompt of more than 13,000 characters is rebuilt without
its history. Differences: the admissible actions hold no ``click[search]``, which verl-agent lists
and nothing answers to.
"""

from __future__ import annotations

from creditrl.envs.prompt import Ask
from creditrl.envs.webshop.prompt_choices import choices
from creditrl.envs.webshop.prompt_compact import compact
from creditrl.envs.words import EnvWords, Example, ExampleTurn

__all__ = ["WEBSHOP"]

_SEPARATOR = " [SEP] "
_SEARCH = "search[<your query>]"


def _window_trim(observation: str) -> str:
    """Return the parts after the instruction, each in quotes.

    Observations of another kind (marked text, HTML, addresses, the last page) stay as they are.
    """
    parts = observation.split(_SEPARATOR)
    if parts[0] == "WebShop":
        del parts[0]
    if parts[0] != "Instruction:":
        return observation
    return _SEPARATOR.join(f"'{part}'" for part in parts[2:])


def _offers(ask: Ask) -> tuple[str, ...]:
    """Return the clicks that the page takes; where it takes none, it has the search bar."""
    return ask.admissible_actions or (_SEARCH,)


_GOAL = (
    "i am looking for a round ceramic pot for my plants that has a drainage hole. it should be "
    "white and six inches wide, and price lower than 40.00 dollars"
)


def _page(*parts: str) -> str:
    return _SEPARATOR.join(("Instruction:", _GOAL, *parts))


_RESULTS = _page(
    "Back to Search",
    "Page 1 (Total results: 3)",
    "B0FERNPOT1",
    "Fernway Round Ceramic Plant Pot with Drainage Hole and Saucer",
    "$24.99",
    "B0HANGPLT2",
    "Hearthmoor Hanging Planter with Cotton Rope, Ceramic Pot for Indoor Plants",
    "$21.5",
    "B0SELFWTR3",
    "Tallowick Self Watering Plastic Plant Pot, Set of 3",
    "$15.99",
)
_ITEM = _page(
    "Back to Search",
    "< Prev",
    "color",
    "sage green",
    "terracotta",
    "white",
    "size",
    "4 inch",
    "6 inch",
    "8 inch",
    "Fernway Round Ceramic Plant Pot with Drainage Hole and Saucer",
    "Price: $24.99",
    "Rating: N.A.",
    "Description",
    "Features",
    "Reviews",
    "Buy Now",
)
_EXAMPLE = Example(
    goal=_GOAL,
    observation=f"WebShop{_SEPARATOR}{_page('Search')}",
    turns=(
        ExampleTurn(
            "I need a pot: round, ceramic, with a drainage hole. Color and size are likely to be "
            "options on its page, so I search for what kind of pot it is.",
            "search[round ceramic plant pot with drainage hole]",
            _RESULTS,
        ),
        ExampleTurn(
            "The first result is a round ceramic pot with a drainage hole, and $24.99 is below "
            "$40. The second one hangs and the third is made of plastic. I open the first.",
            "click[B0FERNPOT1]",
            _ITEM,
        ),
        ExampleTurn(
            "It comes in several colors and sizes. The pot should be white, which is one of the "
            "colors.",
            "click[white]",
            _ITEM,
        ),
        ExampleTurn(
            "White is chosen. Six inches wide means the size 6 inch.", "click[6 inch]", _ITEM
        ),
        ExampleTurn(
            "Kind, price, color and size are all as they should be, so I buy it.",
            "click[Buy Now]",
            "",
        ),
    ),
)

WEBSHOP = EnvWords(
    role="an agent that shops on the web for a customer",
    place="the WebShop online shopping environment",
    actions=("search[keywords]", "click[value]"),
    slots=(
        "The keywords are up to you, so choose them with care; a search is possible where the page "
        "shows Search. The value is the text of something on the page that can be clicked: a "
        "button, the id of a product, or the value of an option. `click[Buy Now]` buys the product "
        "with the options that you have clicked, and ends the task."
    ),
    invalid_answer=(
        "An action that the page does not take changes nothing: you see the same page again, and "
        "it costs a turn."
    ),
    window_trim=_window_trim,
    offers=_offers,
    choices=choices,
    compact=compact,
    example=_EXAMPLE,
    # As verl-agent lists them.
    separator=",\n",
    max_prompt_chars=13_000,
)

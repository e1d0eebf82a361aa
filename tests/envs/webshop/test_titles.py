"""The nouns of titles: what our rule takes for one, and how close it is to spaCy's tagger."""

from __future__ import annotations

import json

import pytest

from creditrl.envs.webshop.titles import RULE, title_scorer
from creditrl.errors import ConfigError, MissingExtraError


@pytest.mark.parametrize(
    ("title", "nouns"),
    [
        ("Garden Chair, Oak - Set of 2", "garden chair oak set"),
        ("Non-Slip Yoga Mat w/Strap", "non slip yoga mat strap"),
        ("Men's and Women’s Gloves", "men women gloves"),
        ("5pcs USB-C Cable 3.1 (260ml)", "5pcs usb c cable 260ml"),
        ("A.B.C. Brand Tea & Co", "a.b.c brand tea co"),
        ("Tea Tea Tea", "tea tea tea"),
        # Participles, and words that only look like participles.
        ("Padded, UL Listed Speed Sled for a Red Daybed", "ul speed sled red daybed"),
        ("crème brûlée ☞ 深い 茶", "crème brûlée 深い 茶"),
        ("", ""),
        ("for the 12 - 15", ""),
    ],
)
def test_all_words_but_function_words_numbers_and_participles_are_nouns(title, nouns):
    assert RULE.nouns(title) == tuple(nouns.split())


def test_the_rule_is_close_to_the_tagger_of_the_published_trajectories(test_data):
    # A score is a share of the nouns in the goal's title, so its denominator divides their number.
    counted = {}
    for path in sorted((test_data / "webshop" / "human_trajs").iterdir()):
        done = json.loads(path.read_text("utf-8").splitlines()[-1])
        score = done["reward_info"]["title_score"]
        of = next(n for n in range(1, 40) if abs(round(score * n) / n - score) < 1e-9)
        counted[of] = len(RULE.nouns(done["goal"]["name"]))
    assert counted == {8: 21, 17: 17, 11: 13, 15: 17, 23: 23}


def test_scorers_are_found_by_name_and_spacy_needs_its_extra(monkeypatch):
    assert title_scorer() is title_scorer("rule", "no such model") is RULE
    assert RULE.name == "rule"
    with pytest.raises(ConfigError, match="title_scorer='spcay' is unknown. Did you mean 'spacy'"):
        title_scorer("spcay")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install .*\[spacy\]"'):
        title_scorer("spacy", "a model that no test before this one loaded")

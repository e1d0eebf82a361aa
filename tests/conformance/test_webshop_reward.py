"""WebShop's reward against the packages that upstream uses: spaCy and thefuzz."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shops import CARDIGAN, GOAL

from creditrl.envs.webshop.reward import likeness, reward
from creditrl.envs.webshop.titles import title_scorer
from creditrl.errors import DataError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline with a tagger that knows ten words; tests do not rely on installed models."""
    import spacy
    from spacy.tokens import Doc, Token

    @spacy.Language.component("ten_words")
    def ten_words(doc: Doc) -> Doc:
        kinds = {"soft": "ADJ", "and": "CCONJ", "runs": "VERB", "acme": "PROPN", "3": "NUM"}
        for token in doc:
            tagged: Token = token
            tagged.pos_ = kinds.get(tagged.lower_, "NOUN")
        return doc

    pipeline = spacy.blank("en", meta={"name": "ten_words"})
    pipeline.add_pipe("ten_words")
    folder = tmp_path_factory.mktemp("model")
    pipeline.to_disk(folder)
    return folder


@pytest.mark.reference("spacy")
def test_a_spacy_models_nouns_and_proper_nouns_are_used(model):
    scorer = title_scorer("spacy", str(model))
    assert scorer.name == "spacy:en_ten_words"
    assert scorer.nouns("ACME runs 3 Soft Towels and Towels") == ("acme", "towels", "towels")
    assert title_scorer("spacy", str(model)) is scorer


@pytest.mark.reference("spacy")
def test_a_title_is_tagged_once(model, monkeypatch):
    scorer = title_scorer("spacy", str(model))
    first = scorer.nouns("Soft Rug")
    monkeypatch.setattr(scorer, "_tag", None)
    assert scorer.nouns("Soft Rug") is first


@pytest.mark.reference("spacy")
def test_the_scorer_decides_the_title_score(model):
    # "soft" is not a noun for this model, but one for the rule.
    goal = replace(GOAL, title="Soft Wool Hat")
    product = replace(CARDIGAN, title="Soft Felt Hat")
    by_rule = reward(product, goal, 10.0, ())
    by_model = reward(product, goal, 10.0, (), scorer=title_scorer("spacy", str(model)))
    assert by_rule.title_score == 2 / 3 and by_model.title_score == 1 / 2


@pytest.mark.reference("spacy")
def test_a_missing_model_or_one_without_a_tagger_is_refused(tmp_path):
    import spacy

    with pytest.raises(DataError, match="title_model='en_no_such': spaCy finds no such model"):
        title_scorer("spacy", "en_no_such")
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(DataError, match=r"does not tag parts of speech \(its parts: none\)"):
        title_scorer("spacy", str(tmp_path / "blank"))
    (tmp_path / "blank" / "config.cfg").write_text("[nlp]\nlang = 5\n")
    with pytest.raises(DataError, match="spaCy cannot read this model"):
        title_scorer("spacy", str(tmp_path / "blank"))


_WORDS = st.text(
    alphabet=st.sampled_from("ab éßñ½★_-/.,'\"|深い茶İ\n\t0Zz"), max_size=24
) | st.lists(st.sampled_from("navy heather light tea tree oil oils 3x large".split())).map(" ".join)


@pytest.mark.reference("thefuzz")
@given(a=_WORDS, b=_WORDS)
def test_likeness_equals_thefuzz_token_set_ratio(a, b):
    from thefuzz import fuzz

    assert likeness(a, b) == fuzz.token_set_ratio(a, b)


@pytest.mark.reference("thefuzz")
def test_likeness_agrees_on_attributes_and_options_of_real_products(test_data):
    from thefuzz import fuzz

    folder = test_data / "webshop"
    by_asin = json.loads((folder / "items_human_ins.subset_1000.json").read_text("utf-8"))
    goals = [goal for listed in by_asin.values() for goal in listed]
    texts = sorted({t for g in goals for t in (*g["attributes"], *g["options"])})
    assert len(texts) > 50
    for a in texts:
        for b in texts:
            assert likeness(a, b) == fuzz.token_set_ratio(a, b)

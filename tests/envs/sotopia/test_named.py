"""Partners and judges by name."""

from __future__ import annotations

import pytest

from creditrl.envs.sotopia.partners import SmallTalkPartner, make_partner
from creditrl.envs.sotopia.verdict import NoJudge, make_judge
from creditrl.errors import ConfigError


def test_names_make_partners_and_judges() -> None:
    assert isinstance(make_partner("small-talk"), SmallTalkPartner)
    assert isinstance(make_judge("none"), NoJudge)
    own = SmallTalkPartner()
    assert make_partner(own) is own


def test_what_stands_behind_the_colon_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    import creditrl.agents

    monkeypatch.setenv("OPENAI_API_KEY", "none")
    partner = make_partner("chat:some-model")
    assert isinstance(partner, creditrl.agents.AgentPartner)
    assert partner.name.startswith("chat:some-model") and not partner.deterministic
    judge = make_judge("chat:some-judge")
    assert "some-judge" in judge.name and not judge.deterministic


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("smalltalk", "Did you mean 'small-talk'"),
        ("small-talk:loud", "expected partner='small-talk', nothing behind it"),
        (3, "partner is an int: expected a name"),
    ],
)
def test_wrong_partners_are_refused(which: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_partner(which)  # type: ignore[arg-type]


def test_wrong_judges_are_refused() -> None:
    with pytest.raises(ConfigError, match="'chat:<argument>'"):
        make_judge("chat")
    with pytest.raises(ConfigError, match="judge='rule' is unknown"):
        make_judge("rule")
    with pytest.raises(ConfigError, match="judge is an object"):
        make_judge(object())  # type: ignore[arg-type]

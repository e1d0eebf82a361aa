"""Partners and judges by name."""

from __future__ import annotations

import pytest

from creditrl.agents import AgentPartner
from creditrl.envs.sotopia.partners import SmallTalkPartner, make_partner
from creditrl.envs.sotopia.verdict import NoJudge, make_judge
from creditrl.errors import ConfigError


def test_names_make_partners_and_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_partner("small-talk"), SmallTalkPartner)
    assert isinstance(make_judge("none"), NoJudge)
    own = SmallTalkPartner()
    assert make_partner(own) is own
    # What stands behind the colon is handed on.
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    partner, judge = make_partner("chat:some-model"), make_judge("chat:some-judge")
    assert isinstance(partner, AgentPartner)
    assert partner.name.startswith("chat:some-model") and not partner.deterministic
    assert "some-judge" in judge.name and not judge.deterministic


@pytest.mark.parametrize(
    ("make", "which", "message"),
    [
        (make_partner, "smalltalk", "Did you mean 'small-talk'"),
        (make_partner, "small-talk:loud", "expected partner='small-talk', nothing behind it"),
        (make_partner, 3, "partner is an int: expected a name"),
        (make_judge, "chat", "'chat:<argument>'"),
        (make_judge, "rule", "judge='rule' is unknown"),
        (make_judge, object(), "judge is an object"),
    ],
)
def test_wrong_partners_and_judges_are_refused(make, which, message):
    with pytest.raises(ConfigError, match=message):
        make(which)

"""SOTOPIA: two characters meet, each with a private goal.

================ ==================================================================================
file             holds
================ ==================================================================================
profiles.py      records: characters, scenarios, combinations; who sees what of whom
casting.py       combinations as tasks, one per side
dialogue.py      actions, turns, the rules of ending; transcripts
action_text.py   actions as text: reading and writing
rendering.py     what a participant reads: context, turns, history
partners.py      what a partner is; replay and small talk
verdict.py       what a judge is and says
named.py         partners and judges by name
engine.py        the dialogues of many copies
env.py           options, the Gymnasium environment and its vector form
prompt.py        what prompts say of it; prompt_compact.py: to small policies
prompt_form.py   the prompt of upstream's own agents
meeting.py       one dialogue with an agent on either side
pettingzoo.py    PettingZoo's ParallelEnv and AECEnv over the same dialogues
scenarios.py     builtin scenarios, characters and splits
situations.py    what builtin scenarios are about
people.py        their characters
generate.py      how builtin scenarios are made
terms.py         what can be agreed on, and what it is worth to either
offers.py        structured offers in text, and what they come to
negotiator.py    scripted partners of different temper
steps.py         what may be said next, made by slots: offers in steps, questions, guesses
scores.py        exact scores of builtin dialogues; a :class:`~.verdict.Judge`
expert.py        what a rule-based expert says next
judge.py         the judge behind a chat endpoint
dimensions.py    the seven dimensions, and how a judge is asked about them
judge_answer.py  from what a judge wrote to scores, by key and name
answer_claims.py all that an answer says of the scores
answer_labels.py whom and what its keys mean
answer_points.py what it says of one point
answer_words.py  what it says in words beside its objects
loose_json.py    JSON as language models write it
official.py      the project's own data: 450 combinations, the hard subset, SOTOPIA-pi
goals.py         terms read out of the project's own scenarios
redis_dump.py    the dump that SOTOPIA-pi's scenarios were published in
================ ==================================================================================

What ``env.py`` uses of the other files: ``scenarios.builtin_combinations(split, kinds)`` and
``official.official_combinations(split, subset=, data_dir=)``, sequences of combinations;
``negotiator.ScriptedPartner(temper=)``; ``scores.RuleJudge()``, which gives status ``none`` if a
scenario has no terms; ``offers.moves(ask)``, the literal actions that a side can take now, and
``offers.segment(ask)``, the standing offer; ``expert.expert_action(ask)``. The last three take a
:class:`~.partners.PartnerAsk` whose ``side`` is the side in question.
"""

from __future__ import annotations

from creditrl.envs.record import Environment, MethodTasks

__all__ = ["ENVIRONMENT"]

ENVIRONMENT = Environment(
    id="CreditRL/SOTOPIA-v0",
    entry_point="creditrl.envs.sotopia.env:SotopiaEnv",
    vector_entry_point="creditrl.envs.sotopia.env:SotopiaVectorEnv",
    summary="Two characters with private goals talk; builtin negotiations, official scenarios.",
    recipe="sotopia_small",
    words="creditrl.envs.sotopia.prompt:SOTOPIA",
    forms=("creditrl.envs.sotopia.prompt_form:SotopiaForm",),
    data="creditrl.envs.sotopia.data:DATA",
    bench="creditrl.envs.sotopia.bench:BENCH",
    suites=("creditrl.envs.sotopia:standard.json",),
    baselines="creditrl.envs.sotopia:baselines.json",
    method_tasks=(
        MethodTasks(
            name="sotopia",
            title="SOTOPIA, price and division, graded reward",
            base="sotopia_small",
            changes={
                "env": {"options": {"task_types": ["price", "items"]}},
                "clone": {"updates": 10},
            },
            turns=20_000,
            measures=("success", "score"),
        ),
    ),
)

"""VirtualHome: household tasks on a graph of rooms, furniture and things.

=====================  ==========================================================================
file                   what it holds
=====================  ==========================================================================
``graph``              a household as a graph: what never changes, and what does
``acts``, ``rules``    actions, what each needs and what it does
``profiles``           whose rules: the release's, SPA's, or repaired
``turn``, ``doors``    one action while it is carried out
``choices``            all that can be done at a time
``order``              in which order upstream's sets are
``goals``              what has to hold when a task is done
``problem``            a task as it begins, and where it comes from
``actions``            actions in words, and what names stand for
``text``               what is perceived, and how it is told
``listing``            the list of admissible actions
``spa``                SPA's environment to the letter
``engine``, ``env``    the environment
``prompt``             what prompts say of it; ``prompt_compact`` and ``prompt_facts``: to small
                       policies
``planner``            an expert; ``needs`` and ``habits`` are its parts
``floorplans``         rooms that share walls
``houses``             furniture in them, and what lies where on a day
``vocabulary``         what a household may have
``kinds``, ``plot``    kinds of tasks, and how one is made up; ``activities`` has their records
``generate``           households made from a seed
``builtin``            their task sets
``scenes``             VirtualHome's own files
``program``            programs as VirtualHome writes them
``prepare``            a household in which a program can be carried out
``official``           tasks of these files, and of SPA's
``render``, ``watch``  maps, and a page that shows them; ``places`` says where things are on it
``unity``              a client of the Unity simulator; ``unity_home`` plays in it,
                       ``unity_engine`` makes it an environment, ``unity_tasks`` has its tasks
=====================  ==========================================================================
"""

from __future__ import annotations

from creditrl.envs.record import Environment, MethodTasks

__all__ = ["ENVIRONMENT"]

ENVIRONMENT = Environment(
    id="CreditRL/VirtualHome-v0",
    entry_point="creditrl.envs.virtualhome.env:VirtualHomeEnv",
    vector_entry_point="creditrl.envs.virtualhome.env:VirtualHomeVectorEnv",
    summary="Household tasks in a graph of rooms and things; builtin houses, SPA's own tasks.",
    recipe="virtualhome_small",
    words="creditrl.envs.virtualhome.prompt:VIRTUALHOME",
    data="creditrl.envs.virtualhome.data:DATA",
    goal=r"The task is (?P<sentence>.+)",
    bench="creditrl.envs.virtualhome.bench:BENCH",
    conformance="creditrl.envs.virtualhome.bench_upstream:CONFORMANCE",
    suites=("creditrl.envs.virtualhome:standard.json",),
    baselines="creditrl.envs.virtualhome:baselines.json",
    method_tasks=(
        MethodTasks(
            name="virtualhome",
            title="VirtualHome, builtin houses, 20 turns",
            base="virtualhome_small",
            # Turns are slow here, so updates are small: about 1,000 turns each.
            changes={"rollout": {"groups": 8, "group_size": 8}, "clone": {"updates": 30}},
            turns=16_000,
            explored=8,
        ),
    ),
)

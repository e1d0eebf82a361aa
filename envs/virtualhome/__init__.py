"""VirtualHome: household tasks on a graph of rooms, furniture and things."""

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
            turns=48_000,
            explored=8,
        ),
    ),
)

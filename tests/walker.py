"""An agent for tests of evaluations."""

from __future__ import annotations

from collections import Counter

from creditrl.types import Reply


class Walker:
    """Goes up; fails, stops or costs as configured, and counts the episodes it began."""

    name = "walker"

    def __init__(self, fails=(), tokens=0, cost=0.0, dies_after=None):
        self.fails, self.tokens, self.cost = Counter(fails), tokens, cost
        self.dies_after = dies_after
        self.began = Counter()
        self.episodes = ()
        self.asked = 0

    def begin(self, episodes):
        self.episodes = episodes

    def act(self, prompts):
        replies = []
        for prompt in prompts:
            number = self.episodes[prompt.copy]
            self.began[number] += prompt.turn == 0
            self.asked += 1
            if self.dies_after is not None and self.asked > self.dies_after:
                raise KeyboardInterrupt
            if prompt.turn == 1 and self.fails[number] > 0:
                self.fails[number] -= 1
                replies.append(Reply("", error="out of order"))
            else:
                replies.append(
                    Reply(
                        "up", num_tokens=self.tokens, spent_tokens=2 * self.tokens, cost=self.cost
                    )
                )
        return replies

"""The environment suite: text environments to one contract, single and vectorised."""

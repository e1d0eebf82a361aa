"""The environment suite: text environments with one contract, single and vectorised."""

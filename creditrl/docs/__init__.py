"""The documentation as a site, made from the README, docs/, the docstrings and ``--help``."""

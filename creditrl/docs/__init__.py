"""The documentation as a site, made of the README, docs/, the docstrings and ``--help``."""

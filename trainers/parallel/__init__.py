"""Several processes: ranks and shards of an update, engines on a Ray cluster."""

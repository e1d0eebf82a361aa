"""After training: results, comparisons, exported policies and their cards."""

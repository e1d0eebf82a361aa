"""Training: collection, credit, losses, learned models, methods, the loop."""

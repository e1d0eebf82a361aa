"""Collection of trajectories: the policy's rollouts, or an expert's demonstrations."""

"""Where trajectories come from: the policy's rollouts, or an expert's demonstrations."""

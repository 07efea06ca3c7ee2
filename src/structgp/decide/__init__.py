"""What should be measured next: optimisation, gradients and integrals with few evaluations."""

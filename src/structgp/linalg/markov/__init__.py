"""Linear Gaussian chains, with closed forms for any gap."""

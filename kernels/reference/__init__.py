"""Every kernel in plain torch, under the same names and signatures: the oracle, and the CPU
path."""

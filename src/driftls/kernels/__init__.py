"""Every compiled line: one copy of the maths, in the paper's order. See `driftls.kernels.parts` for how it is compiled."""

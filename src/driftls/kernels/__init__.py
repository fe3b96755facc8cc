"""The compiled lines of trackers, widths and policies: one copy of the maths. `driftls.compiling` says how it is compiled."""

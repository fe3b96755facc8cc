"""Every compiled line: one copy of the maths, called for one row and for a million.

`rows` (what an observation is), `lazy` (the dense part of a step in O(1)), one file for each scheme, `schemes` (which
leaf serves which scheme), `track` (the loop), `schedules`; `compile` and `frames` are the machinery below them.
"""

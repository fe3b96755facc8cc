"""Would this policy have done better on yesterday's traffic? The challenge's rule, over any log.

The policy is asked on every line. Where it chooses what the log shows, the line counts and its reward is learned.
"""

from driftls.log_replay.loop import METRICS, replay

__all__ = ["METRICS", "replay"]

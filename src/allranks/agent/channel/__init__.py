"""Channels into the job on this node: a helper process for each, outside of the agent.

`channel_opener` starts it for an order; the others are the helper's, which imports them when it
starts.
Imports `environments` and `processes`.
"""

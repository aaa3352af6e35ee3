"""The agent: one a node, the same on every engine; it calls out and nothing calls in.

hello → setup → ready ⟶ GO ⟶ run → drain → bye. Only light standard-library modules are imported
here: an agent's start is part of every job's, and its memory is taken from the user's node.
"""

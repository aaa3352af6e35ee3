"""The agent: one per node, the same for every engine. It calls the server; nothing calls it.

hello → setup → ready ⟶ GO ⟶ run → drain → bye. It imports only light modules, because its start
delays every job and its memory is taken from the user's node.
"""

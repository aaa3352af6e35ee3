"""Jobs on the nodes of another job: the engine that starts them there, and when a session ends.

May import what `loop` may, and `loop`."""

"""Import modules once, and fork ranks that find them imported.

Runs under the Python of a job (3.9 or newer; standard library only), started by
``programs/warm_server.py``. ``agent/launch/warm_ranks.py`` is the client. Three kinds of processes:

server      imports the modules and listens on a Unix socket. It runs nothing of a job, and ends
            when no job has used it for a while.
job server  forked from it, one for each node of an attempt. It forks the ranks and adopts what they
            leave behind. When the agent closes the connection, it ends all of them and itself.
rank        returns to the program's last lines and runs its script there, with nothing else below
            it on the stack. It must differ as little as possible from a Python just started: what
            modules took from the environment, the clock or chance is taken again.
"""

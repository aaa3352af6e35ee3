"""The end of a job: why it failed, the assets it leaves, and what stays of its working folders.

May import ``allranks.core``, ``allranks.store``, and of the server ``assets`` and ``jobs``."""

"""Interactive sessions: `allranks dev`, and what goes on in them.

May import the commands below it: submit, job, ssh."""

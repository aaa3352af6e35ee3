"""OpenSSH's programs into running jobs: `ssh_config` writes the entry for a job, and `proxy`, which
they start for it, answers them on this machine, with `server`. Imports `sdk`; asyncssh is the extra
`[ssh]`.
"""

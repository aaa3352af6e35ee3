"""Where gangs of agents run: one package or module for each engine, behind the protocol of `base`.

Imports `allranks.core`, `allranks.spec` and what is below them.
"""

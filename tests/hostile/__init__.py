"""Peers that lie: what comes from a job, a node, an image or a server, made up by a generator.

A *kind* of peer is a module here with

* ``TRIES``, how many tries ``test_hostile_peers`` makes of it, and
* ``attempt(chance, place)``: make up what such a peer sends from ``chance`` (a ``random.Random``),
  let the real reader read it in ``place``, and return an ``Outcome``.

The test holds of each try: nothing is written, changed or removed outside of ``place.goal``, and no
link in it leads out of it; it takes less than ``CPU`` seconds of processor time; it raises nothing
but ``AllranksError``; and what an honest part of it sent is there, or something was said about it.
What was said has no control characters.

A try is its number: the seed is ``SEED``, the kind and the number, and a failure prints them.
``python -m tests.hostile KIND NUMBER`` makes one again in a folder that stays.

To add a kind, add its module to ``KINDS`` in `test_hostile_peers.py`.
"""

"""Worlds for tests: what carries out the effects of the production code, and what it runs on.

Begin with `effects.py`. Time is `clock.py`, chance is `chance.py`; every other file is a world for one part
of the source, made of these three.
"""

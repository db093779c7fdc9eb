"""Mutants by machine: every condition negated, every statement dropped, and whether a test notices.

`tests/mutants` holds the guards that somebody thought of; this finds those that nobody did.
"""

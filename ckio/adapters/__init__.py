"""Adapters to other frameworks, one module or package for each.

An adapter has the name of its framework and imports it. An extra of that name installs both.
"""

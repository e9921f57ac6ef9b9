"""Other people's programs: what plugs ckio into each, imported by those who have it.

Each adapter is a module named as its framework, which it imports, and has an extra of that name.
"""

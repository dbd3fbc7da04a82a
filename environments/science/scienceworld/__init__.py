"""ScienceWorld: the public benchmark, on its own simulator (Java)."""

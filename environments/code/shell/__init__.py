"""Chores in a throw-away folder, done with a shell."""

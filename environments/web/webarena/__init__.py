"""WebArena: its tasks, on its sites wherever they run, in a real Chromium."""

"""MiniWoB++: small pages with one small task each, in a real Chromium."""

"""Web environments in a real Chromium, driven through playwright."""

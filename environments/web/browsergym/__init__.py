"""BrowserGym's tasks: an adapter to the package `browsergym-core` and its benchmarks."""

"""Programming tasks: write a function, try it, submit it to hidden tests."""

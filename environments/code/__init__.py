"""Code and tools: a Python interpreter, programs with tests, SQL, a knowledge graph, a shell."""

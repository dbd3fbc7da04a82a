"""Maths problems that need computation, with a Python interpreter as the tool."""

"""Search: answer questions of several hops by searching a corpus."""

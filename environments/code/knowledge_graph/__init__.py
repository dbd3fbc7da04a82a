"""Questions over a knowledge graph, answered by calls of graph tools."""

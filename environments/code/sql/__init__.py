"""Questions about sqlite databases, and changes to them."""

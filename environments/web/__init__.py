"""Web environments: sites read as accessibility trees, acted on in WebArena's grammar."""

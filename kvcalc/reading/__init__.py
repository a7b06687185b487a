"""Whatever a user holds → ModelSpec."""

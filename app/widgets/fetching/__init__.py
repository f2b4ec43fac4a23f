"""The page on which models are fetched from a hub."""

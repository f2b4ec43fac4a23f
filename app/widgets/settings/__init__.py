"""The window of settings: what there is, rows that edit it, and where changes go."""

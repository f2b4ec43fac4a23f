"""The window of the model library."""

"""The transcript: one scroll area over documents that exist only near the viewport."""

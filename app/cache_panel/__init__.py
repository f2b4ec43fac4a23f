"""The cache panel: the block pool, live. ``pool_model`` to ``words`` are free of Qt."""

"""The cache panel: the block pool, live. Model, figures, looks and layout are free of Qt."""

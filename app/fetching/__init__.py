"""Fetching models from a Hugging Face hub. Qt-free; the widgets are in app.widgets.fetching."""

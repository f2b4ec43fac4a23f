"""The models on this computer: where they lie, what is known of them, what they would take."""

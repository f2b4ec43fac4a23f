"""The interface between an application and the engine. Standard library only; loads no torch."""

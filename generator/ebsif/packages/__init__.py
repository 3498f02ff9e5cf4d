"""Requirements in every form that they come in."""

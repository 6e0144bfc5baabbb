"""Front ends: models and programs written for other tools."""

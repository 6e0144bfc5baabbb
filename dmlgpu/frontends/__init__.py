"""Ways into dmlgpu for models and programs that were written for other tools."""

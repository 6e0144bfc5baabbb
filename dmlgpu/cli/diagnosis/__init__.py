"""What ``dmlgpu doctor`` finds out: software, drivers, adapters, caches; and what is to be done about it."""

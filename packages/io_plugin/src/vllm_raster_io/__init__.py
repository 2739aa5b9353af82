"""Raster in, raster out: an IO processor plugin for vLLM, with a client."""

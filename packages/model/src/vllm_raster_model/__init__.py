"""Image-to-image networks for rasters, as models that vLLM serves."""

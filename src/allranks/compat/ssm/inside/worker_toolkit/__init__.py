"""What scripts of simple-sagemaker import in their jobs."""

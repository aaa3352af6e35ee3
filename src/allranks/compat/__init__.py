"""What programs, lines and files of other tools find here: Azure ML's imports and `ssm`."""

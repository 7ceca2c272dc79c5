"""Measure: drive a job through thread counts and record what its ops take."""

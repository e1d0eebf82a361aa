"""The measurements behind ``creditrl bench``: speed, memory, and quality of credit."""
